"""Programs: what frontends make, people edit, and targets compile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, SupportsInt

from .errors import MgxError, ParameterError
from .garbage import rarer_collections
from .ir.graph import Graph, names_of_results
from .ir.module import Module
from .options import CompileOptions
from .types.argument import Argument
from .types.held_states import open_states, require_extents
from .types.shape import AnyShape
from .types.signature import ParameterShapes, Signature

if TYPE_CHECKING:
    from .ir.instruction import Instruction
    from .run.executable import Executable
    from .run.several_targets import Assignment
    from .seen import FirstSight
    from .store import Contents
    from .store.kept import Origin

__all__ = ["Program"]

NOTHING: Final[Mapping[str, int]] = {}


class Program:
    """Modules, of which ``main`` is run, and once compiled an executable.

    Built by a frontend (`parse_onnx`, ...) or by hand through `get_main_module`.  Editing is possible until `compile`, which
    works on a copy; a failed compile leaves the program as it was.
    graph: or a function that returns it, called on first access.
    states: parameters that live from run to run, with the values that they begin with; the last results of ``main`` are their
    next values, in order.  Callers see neither; `reset_state` sets them back.
    """

    def __init__(
        self,
        graph: Graph | Callable[[], Graph] | None = None,
        output_names: Sequence[str] = (),
        states: Mapping[str, Any] | None = None,
    ) -> None:
        self._graph = Graph() if graph is None else graph
        self._lock = threading.RLock()  # held while the graph is made
        self.output_names = list(output_names)  # those that the model states; see `get_output_names`
        self.files: tuple[Any, ...] = ()  # all that it was read from, where its frontend tells
        # names of files but the first, by which every process finds them in the folder that the first really lies in, with what
        # the system noted of each as it was opened (`mgx_core.types.mapped.identity_of`)
        self.beside: Mapping[str, tuple[int, ...]] = {}
        self._origin: Origin | FirstSight | None = None  # as long as what was read there cannot have been edited
        self.executable: Executable | None = None
        self.states = dict(states or {})
        self._held: dict[str, Any] = dict(self.states)
        self._first = self._held  # what is held until a run gives other values
        self._open_states: tuple[str, ...] = ()

    @classmethod
    def loaded(cls, contents: Contents) -> Program:
        """Returns the program that a file holds; one of an older format is compiled again for its target."""
        program = cls(contents.graph, contents.output_names)
        program.executable = contents.executable
        if contents.again is not None:
            target, options = contents.again
            try:
                program.compile(target, options)
            except MgxError as error:
                from .store.compiled import left_uncompiled

                left_uncompiled(target.name, error)
        return program

    @classmethod
    def kept(cls, origin: Origin, output_names: Sequence[str], file: Any, parse: Callable[[], Program]) -> Program:
        """A program that an earlier process read from a file of these contents; it is parsed once its modules are looked at."""
        program = cls(lambda: parse().graph, output_names)
        program.files = (file, *origin.others)
        program._origin = origin
        return program

    def stems_from(self, origin: Origin | FirstSight) -> None:
        """States what the program was just read from: it, or that it was seen, is kept for later processes when it is compiled.

        Programs with states and those of derived classes are not kept.
        """
        self._origin = None if self.states or type(self) is not Program else origin

    @property
    def graph(self) -> Graph:
        """The modules, to look at and to edit."""
        self._origin = None
        return self._modules

    @property
    def _modules(self) -> Graph:
        """The modules, to look at only."""
        if not isinstance(self._graph, Graph):
            with self._lock:
                if not isinstance(self._graph, Graph):
                    self._graph = self._graph()
        return self._graph

    # building

    def get_main_module(self) -> Module:
        return self.graph.main

    def create_module(self, name: str) -> Module:
        return self.graph.create_module(name)

    def get_module(self, name: str) -> Module:
        """Returns a module by name.  Errors: ParameterError if there is none."""
        return self.graph.module(name)

    def rename_module(self, old: str, new: str) -> None:
        """Gives a module another name.  Errors: ParameterError for main, or if the new name is taken."""
        self.graph.rename_module(old, new)

    def remove_module(self, name: str) -> None:
        """Drops a module that no instruction runs.  Errors: ParameterError if one does."""
        self.graph.remove_module(name)

    def clone(self) -> Program:
        """Returns a copy that can be edited on its own (not compiled)."""
        return Program(self._modules.clone(), self.output_names, self.states)

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        """Returns a copy with modules and states of its own, which runs what this one was compiled to."""
        made = self.clone()
        made.files, made.beside, made.executable = self.files, self.beside, self.executable
        if self._held is not self._first:
            made._held = dict(self._held)
        made._open_states = self._open_states
        return made

    # what it takes and gives

    def get_parameter_names(self) -> list[str]:
        """Returns the names of the parameters; those of the results' places too where callers hold device memory themselves."""
        return list(self.get_parameter_shapes())

    def get_parameter_shapes(self) -> ParameterShapes:
        """Returns the shapes of the parameters by name, and by position.

        Compiled with ``offload_copy=False`` for a target that has memory of its own, the places of the results follow as
        ``main:#output_0`` and so on; a run may leave them out.
        """
        shapes = dict(self._shapes.parameters)
        if self.executable is not None and self.executable.target.own_memory:
            shapes |= self.executable.output_places
        return ParameterShapes(shapes)

    def get_output_shapes(self) -> list[AnyShape]:
        return list(self._shapes.results)

    def get_output_names(self) -> list[str]:
        """Returns names of the results in order; ``output_0`` and so on where the model states none.

        Errors: ParameterError where other than as many are stated as there are results.
        """
        return names_of_results(self.output_names, len(self._shapes.results))

    @property
    def _shapes(self) -> Signature:
        if self._origin is not None and self._origin.known is not None:
            return self._origin.known
        main = self._modules.main
        shapes, results = main.parameters, main.output_shapes()
        return Signature(
            {n: i.result for n, i in shapes.items() if n not in self.states},
            results[: len(results) - len(self.states)],
            self.output_names,
        )

    # compiling and running

    @rarer_collections()
    def compile(
        self,
        target: Any,
        options: CompileOptions | Mapping[str, Any] | None = None,
        /,
        *,
        assignment: Assignment | None = None,
        overwritten: Mapping[str, int] = NOTHING,
        watched: Mapping[str, Any] = NOTHING,
        **keywords: Any,
    ) -> None:
        """Makes the program runnable on a target (or on one of its contexts), or on several.

        target: or a list of them; options: a `CompileOptions`, a mapping or keywords (``fast_math=False``); assignment: for a
        list, the place in it of an instruction's target, by a mapping of instructions of the main module (0 for those that it
        does not have) or a function.  Values go from one target to another through host memory.
        overwritten: parameters whose arguments the caller lets go of, each with the number of the result that may take its place:
        a target may leave that result in the argument's memory, and then gives an array on it.
        watched: parameters that the compiled program no longer takes, each with a tensor in the target's memory that holds its
        value now and later: the program keeps it as a constant, and each run first finds out whether it was written to since.
        If it was, the run takes what is there, and is slower until the program is compiled again (`outdated`).
        Errors: ParameterError for unknown options; any error that a pass or the target raises.
        """
        record = CompileOptions.of(options, **keywords)
        names = [*self.get_output_names(), *self.states]
        made: Executable
        if watched:
            if self.states or overwritten or isinstance(target, (list, tuple)):
                raise ParameterError("watched parameters exclude states, overwritten arguments and several targets")
            from .run.watching import compile_watching

            made = compile_watching(self._narrowed(record).main, target, record, names, watched)
        elif isinstance(target, (list, tuple)):
            from .run.several_targets import compile_for_several

            where = assignment if assignment is not None else {}
            made = compile_for_several(self._narrowed(record).main, target, where, record, names)
        elif assignment is not None:
            raise ParameterError("an assignment is for a list of targets, got one target")
        else:
            made = self._compiled_for(target, record, names, overwritten)
        if self.states:
            self._open_states = open_states(self.states, self._modules.main.output_shapes())
        self.reset_state()
        self.executable = made

    def _compiled_for(
        self, target: Any, options: CompileOptions, names: list[str], overwritten: Mapping[str, int]
    ) -> Executable:
        """Returns what the program is compiled to for one target: what an earlier process kept, where there is that."""
        from .targets.calls import target_and_context

        on, context = target_and_context(target)
        place = None if self._origin is None or overwritten else self._origin.place(on, context, options)
        signature = self._shapes
        found = None if place is None else place.load(signature)
        if found is None:
            from .run.compile_module import compile_module  # brings the ops and passes along

            found = compile_module(self._narrowed(options).main, context, options, names, overwritten)
            if place is not None:
                place.keep(signature, found)
        return found

    def _narrowed(self, options: CompileOptions) -> Graph:
        """Returns the modules, or a copy of them in float16 if that is asked for."""
        if not options.use_fp16:
            return self._modules
        from .quantize import quantize_fp16

        return quantize_fp16(self.clone()).graph

    @property
    def outdated(self) -> bool:
        """True once a run has found that the memory of a watched parameter (see `compile`) was written to."""
        return self._compiled().outdated

    def is_compiled(self) -> bool:
        return self.executable is not None

    def run(self, parameters: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Argument]:
        """Returns results in the model's order.

        parameters: a value for each parameter by name: a numpy array, an `Argument`, or anything with DLPack or an array
        interface; outputs: names of the results that are returned, in this order (`get_output_names`; None for all): a target
        with memory of its own leaves the others there.
        Errors: ParameterError if the program is not compiled, or for wrong names, dtypes or shapes.
        """
        if outputs is not None:
            return self._run_some(parameters, outputs)
        if not self.states:
            return self._compiled().run(parameters)
        held = self._held
        if held is self._first:
            return self._without_states(self._compiled().run(self._with_states(parameters)))
        return self._without_states(self._compiled().run(parameters, held))

    def _run_some(self, parameters: Mapping[str, Any], outputs: Sequence[str]) -> list[Argument]:
        """Returns some results, by name.  Errors: as `run`; ParameterError for a name that is none, or is given twice."""
        if isinstance(outputs, Mapping):
            raise ParameterError(
                "run takes the parameters first, then the names of the outputs; "
                "got a mapping as outputs: call run(parameters, outputs=[...])"
            )
        executable = self._compiled()
        names = executable.output_names
        count = len(names) - len(self.states)
        numbers = {name: n for n, name in enumerate(names[:count])}
        for name in outputs:
            if name not in numbers:
                raise ParameterError(
                    f"there is no output {name!r}; there are {', '.join(map(repr, numbers)) or 'none'}"
                )
        wanted = [numbers[name] for name in outputs]
        if len(set(wanted)) < len(wanted):
            raise ParameterError(f"each output is required at most once, got {', '.join(map(repr, outputs))}")
        if not self.states:
            return executable.run(parameters, wanted=wanted)
        wanted += range(count, len(names))
        return self._without_states(executable.run(self._with_states(parameters), wanted=wanted))

    def dry_run(self, parameters: Mapping[str, Any]) -> list[AnyShape]:
        """Checks the parameters, makes all that a run of these shapes needs, and runs nothing; the shapes of the results.

        Extents of results that depend on data stay symbolic.  Errors: as `run`.
        """
        shapes = self._compiled().dry_run(self._with_states(parameters))
        return shapes[: len(shapes) - len(self.states)]

    def run_async(
        self, parameters: Mapping[str, Any], stream: SupportsInt = 0, stream_type: str = ""
    ) -> list[Argument]:
        """Like `run`, enqueued on the caller's stream (its address or what has one, and its type's name: ``ihipStream_t``).

        Targets that run on the host finish before they return.
        """
        if not self.states:
            return self._compiled().run_async(parameters, int(stream), stream_type)
        return self._without_states(self._compiled().run_async(self._with_states(parameters), int(stream), stream_type))

    def reset_state(self) -> None:
        """Sets all states back to the values that they begin with."""
        self._held = self._first = dict(self.states)

    def _with_states(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the parameters of a run with the states; anything but a mapping is left for the run to refuse."""
        return {**self._held, **parameters} if isinstance(parameters, Mapping) else parameters

    def _without_states(self, results: list[Argument]) -> list[Argument]:
        """Keeps the last results as the states of the next run; returns the others.  Errors: ShapeError for other extents."""
        first = len(results) - len(self.states)
        held = dict(zip(self.states, results[first:], strict=True))
        require_extents(self._open_states, self.states, held)
        self._held = held
        return results[:first]

    def run_trace(
        self, parameters: Mapping[str, Any], callback: Callable[[Instruction, Argument], Any]
    ) -> list[Argument]:
        """Like `run`, after calling ``callback(instruction, value)`` with each instruction of the compiled program in order.

        The values are copies in host memory.
        """
        return self._without_states(self._compiled().run_trace(self._with_states(parameters), callback))

    def _compiled(self) -> Executable:
        if self.executable is None:
            raise ParameterError("the program is not compiled: call program.compile(mgx.get_target(...)) first")
        return self.executable

    # saying

    @property
    def shown(self) -> Module:
        """The optimised module once compiled, the program's own before."""
        return self.graph.main if self.executable is None else self.executable.module

    def text(self, full: bool = False) -> str:
        """Returns the text form; `full` writes all literals out, so that it can be parsed back."""
        from .ir.text.writer import program_text

        return program_text(self._modules.main if self.executable is None else self.executable.module, full)

    def to_py(self, package: str = "mgx_core") -> str:
        """Returns a Python script that builds the program, as it is before compilation, again.

        package: the module that it imports, which has mgx's functions under the same names.
        Errors: UnsupportedError for values that a script cannot write.
        """
        from .ir.text.script import script

        return script(self._modules.main, package)

    def print(self) -> None:
        print(self)

    def sort(self) -> None:
        """Brings the instructions into an order in which each follows its inputs."""
        self.graph.main.sort()

    def save(self, path: Any, format: str = "msgpack") -> None:
        """Writes the program (compiled or not) to a file; see `mgx_core.load`."""
        from .store import save

        save(self, path, format)

    def report(self, path: Any = None, name: str = "") -> str:
        """Returns an HTML page about the compilation: passes, launches, memory, the graph; writes it to `path` if given.

        A program that is not compiled shows its graph and the memory that it would take.
        """
        from .report import report_html

        return report_html(self, path, name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        return self is other or self.text(full=True) == other.text(full=True)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self.text()
