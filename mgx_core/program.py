"""Programs: created by frontends or by hand, edited, and compiled for targets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, SupportsInt

from .errors import MgxError, ParameterError
from .garbage import rarer_collections
from .options import CompileOptions
from .types.argument import Argument
from .types.shape import AnyShape
from .types.signature import ParameterShapes, Signature, names_of_results

if TYPE_CHECKING:
    from .first_compilation import FirstCompilation
    from .ir.graph import Graph
    from .ir.instruction import Instruction
    from .ir.module import Module
    from .run.executable import Executable
    from .run.several_targets import Assignment
    from .store import Contents
    from .store.program_cache import Origin

__all__ = ["Program"]

NOTHING: Final[Mapping[str, int]] = {}


class Program:
    """A set of modules, of which ``main`` is the entry point, and after compilation an executable.

    Created by a frontend (`parse_onnx`, ...) or by hand through `get_main_module`.  Can be edited until `compile`, which works on
    a copy; a failed compilation leaves the program unchanged.
    graph: the modules, or a function that returns them, called on first access.
    states: parameters that persist between runs, with their initial values; the last results of ``main`` are their next values,
    in order.  Both are hidden from callers; `reset_state` restores the initial values.
    """

    def __init__(
        self,
        graph: Graph | Callable[[], Graph] | None = None,
        output_names: Sequence[str] = (),
        states: Mapping[str, Any] | None = None,
    ) -> None:
        self._graph = _empty if graph is None else graph
        self._lock = threading.RLock()  # guards creation of the graph
        self.output_names = list(output_names)  # stated by the model; see `get_output_names`
        self.files: tuple[Any, ...] = ()  # all files that it was parsed from, if the frontend reports them
        # other files by name relative to the real folder of the first, with their identities when they were opened
        # (`mgx_core.types.mapped.identity_of`)
        self.beside: Mapping[str, tuple[int, ...]] = {}
        self._origin: Origin | FirstCompilation | None = None  # None once the program may have been edited
        self.executable: Executable | None = None
        self.states = dict(states or {})
        self._held: dict[str, Any] = dict(self.states)
        self._first = self._held  # current values of the states
        self._open_states: tuple[str, ...] = ()

    @classmethod
    def loaded(cls, contents: Contents) -> Program:
        """Creates the program from a file's contents; one of an older format is recompiled for its target."""
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
        """Creates a program from the program cache; the model file is parsed only if the modules are accessed."""
        program = cls(lambda: parse().graph, output_names)
        program.files = (file, *origin.others)
        program._origin = origin
        return program

    def stems_from(self, origin: Origin | FirstCompilation) -> None:
        """Records the model file of the program, so that `compile` can store the result (or a mark of it) for later processes.

        Programs with states and instances of subclasses are not cached.
        """
        self._origin = None if self.states or type(self) is not Program else origin

    @property
    def graph(self) -> Graph:
        """The modules, for reading and editing."""
        self._origin = None
        return self._modules

    @property
    def _modules(self) -> Graph:
        """The modules, for reading only."""
        if callable(self._graph):
            with self._lock:
                if callable(self._graph):
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
        """Renames a module.  Errors: ParameterError for main, or if the new name is in use."""
        self.graph.rename_module(old, new)

    def remove_module(self, name: str) -> None:
        """Removes a module that no instruction uses.  Errors: ParameterError if one does."""
        self.graph.remove_module(name)

    def clone(self) -> Program:
        """Returns an independent, uncompiled copy."""
        return Program(self._modules.clone(), self.output_names, self.states)

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        """Returns a copy with its own modules and states, which shares the executable."""
        made = self.clone()
        made.files, made.beside, made.executable = self.files, self.beside, self.executable
        if self._held is not self._first:
            made._held = dict(self._held)
        made._open_states = self._open_states
        return made

    # signature

    def get_parameter_names(self) -> list[str]:
        """Returns the parameter names, including output buffers if callers manage device memory (``offload_copy=False``)."""
        return list(self.get_parameter_shapes())

    def get_parameter_shapes(self) -> ParameterShapes:
        """Returns the parameter shapes by name, and by position.

        If compiled with ``offload_copy=False`` for a target with device memory, output buffers ``main:#output_0`` and so on
        follow; a run may omit them.
        """
        shapes = dict(self._shapes.parameters)
        if self.executable is not None and self.executable.target.own_memory:
            shapes |= self.executable.output_places
        return ParameterShapes(shapes)

    def get_output_shapes(self) -> list[AnyShape]:
        return list(self._shapes.results)

    def get_output_names(self) -> list[str]:
        """Returns the result names in order; ``output_0`` and so on if the model has none.

        Errors: ParameterError if the number of names differs from the number of results.
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
        """Compiles the program for a target (or one of its contexts), or for several.

        target: a target or a list of targets; options: a `CompileOptions`, a mapping or keywords (``fast_math=False``);
        assignment: for a list, the index of each instruction's target, as a function or a mapping of main-module instructions
        (default 0).  Values move between targets through host memory.
        overwritten: donated parameters, each with the index of the result that may reuse its memory; the result is then an array
        on the argument's memory.
        watched: parameters that become constants, each with a tensor in the target's memory that holds the value: each run
        checks whether the tensor was written to.  If so, the run uses the new contents, and is slower until the program is
        recompiled (`outdated`).
        Errors: ParameterError for unknown options; any error that a pass or the target raises.
        """
        record = CompileOptions.of(options, **keywords)
        names = [*self.get_output_names(), *self.states]
        made: Executable
        if watched:
            if self.states or overwritten or isinstance(target, (list, tuple)):
                raise ParameterError("watched parameters exclude states, overwritten arguments and several targets")
            from .run.watched_parameters import compile_watched

            made = compile_watched(self._narrowed(record).main, target, record, names, watched)
        elif isinstance(target, (list, tuple)):
            from .run.several_targets import compile_for_several

            where = assignment if assignment is not None else {}
            made = compile_for_several(self._narrowed(record).main, target, where, record, names)
        elif assignment is not None:
            raise ParameterError("an assignment is for a list of targets, got one target")
        else:
            made = self._compiled_for(target, record, names, overwritten)
        if self.states:
            from .types.held_states import open_states  # few programs have states

            self._open_states = open_states(self.states, self._modules.main.output_shapes())
        self.reset_state()
        self.executable = made

    def _compiled_for(
        self, target: Any, options: CompileOptions, names: list[str], overwritten: Mapping[str, int]
    ) -> Executable:
        """Returns the executable for one target, from the program cache if possible."""
        from .targets.calls import target_and_context

        on, context = target_and_context(target)
        place = None if self._origin is None or overwritten else self._origin.place(on, context, options)
        signature = self._shapes
        found = None if place is None else place.load(signature)
        if found is None:
            from .run.compile_module import compile_module  # also registers the plugin's ops and passes

            found = compile_module(self._narrowed(options).main, context, options, names, overwritten)
            if place is not None:
                place.keep(signature, found)
        return found

    def _narrowed(self, options: CompileOptions) -> Graph:
        """Returns the modules, converted to float16 if ``use_fp16`` is set."""
        if not options.use_fp16:
            return self._modules
        from .quantize import quantize_fp16

        return quantize_fp16(self.clone()).graph

    @property
    def outdated(self) -> bool:
        """True once a run has detected a write to a watched parameter's memory (see `compile`)."""
        return self._compiled().outdated

    def is_compiled(self) -> bool:
        return self.executable is not None

    def run(self, parameters: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Argument]:
        """Runs the program; returns the results in the model's order.

        parameters: values by parameter name: numpy arrays, `Argument`s, or objects with DLPack or an array interface;
        outputs: names of the results to return, in this order (see `get_output_names`; None for all); other results are not
        copied from device memory.
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
        """Returns the named results.  Errors: as `run`; ParameterError for unknown or duplicate names."""
        if isinstance(outputs, (str, Mapping)) or not isinstance(outputs, Iterable):
            what = "a mapping" if isinstance(outputs, Mapping) else f"a value of type {type(outputs).__name__}"
            raise ParameterError(
                "run takes the parameters first, then a list of names of results; "
                f"got {what} as outputs: call run(parameters, outputs=[...])"
            )
        executable = self._compiled()
        names = executable.output_names
        count = len(names) - len(self.states)
        numbers = {name: n for n, name in enumerate(names[:count])}
        for name in outputs:
            if name not in numbers:
                raise ParameterError(
                    f"there is no output {name!r}; known are {', '.join(map(repr, numbers)) or 'none'}"
                )
        wanted = [numbers[name] for name in outputs]
        if len(set(wanted)) < len(wanted):
            raise ParameterError(f"each output is required at most once, got {', '.join(map(repr, outputs))}")
        if not self.states:
            return executable.run(parameters, wanted=wanted)
        wanted += range(count, len(names))
        return self._without_states(executable.run(self._with_states(parameters), wanted=wanted))

    def dry_run(self, parameters: Mapping[str, Any]) -> list[AnyShape]:
        """Validates the parameters and prepares a run for their shapes without running; returns the result shapes.

        Data-dependent extents of results stay symbolic.  Errors: as `run`.
        """
        shapes = self._compiled().dry_run(self._with_states(parameters))
        return shapes[: len(shapes) - len(self.states)]

    def run_async(
        self, parameters: Mapping[str, Any], stream: SupportsInt = 0, stream_type: str = ""
    ) -> list[Argument]:
        """Like `run`, but enqueued on the caller's stream: its address or object, and its type's name (``ihipStream_t``).

        Targets that run on the host finish before returning.
        """
        if not self.states:
            return self._compiled().run_async(parameters, int(stream), stream_type)
        return self._without_states(self._compiled().run_async(self._with_states(parameters), int(stream), stream_type))

    def reset_state(self) -> None:
        """Restores the initial values of all states."""
        self._held = self._first = dict(self.states)

    def _with_states(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Adds the states to the parameters of a run; the run itself rejects anything but a mapping."""
        return {**self._held, **parameters} if isinstance(parameters, Mapping) else parameters

    def _without_states(self, results: list[Argument]) -> list[Argument]:
        """Stores the last results as the next states; returns the others.  Errors: ShapeError if a state's extents change."""
        first = len(results) - len(self.states)
        held = dict(zip(self.states, results[first:], strict=True))
        if self._open_states:
            from .types.held_states import require_extents

            require_extents(self._open_states, self.states, held)
        self._held = held
        return results[:first]

    def run_trace(
        self, parameters: Mapping[str, Any], callback: Callable[[Instruction, Argument], Any]
    ) -> list[Argument]:
        """Like `run`; calls ``callback(instruction, value)`` for each instruction of the compiled program, in order.

        The values are copies in host memory.
        """
        return self._without_states(self._compiled().run_trace(self._with_states(parameters), callback))

    def _compiled(self) -> Executable:
        if self.executable is None:
            raise ParameterError("the program is not compiled: call program.compile(mgx.get_target(...)) first")
        return self.executable

    # printing and reports

    @property
    def shown(self) -> Module:
        """The optimized module if compiled, else the program's own."""
        return self.graph.main if self.executable is None else self.executable.module

    def text(self, full: bool = False) -> str:
        """Returns the text form; full: writes complete literals, so that it can be parsed."""
        from .ir.text.writer import program_text

        return program_text(self._modules.main if self.executable is None else self.executable.module, full)

    def to_py(self, package: str = "mgx_core") -> str:
        """Returns a Python script that rebuilds the uncompiled program.

        package: the module to import, which must have mgx's functions.
        Errors: UnsupportedError for values that cannot be written in a script.
        """
        from .ir.text.script import script

        return script(self._modules.main, package)

    def print(self) -> None:
        print(self)

    def sort(self) -> None:
        """Sorts the instructions topologically."""
        self.graph.main.sort()

    def save(self, path: Any, format: str = "msgpack") -> None:
        """Writes the program (compiled or not) to a file; see `mgx_core.load`."""
        from .store import save

        save(self, path, format)

    def report(self, path: Any = None, name: str = "") -> str:
        """Returns an HTML report of the compilation (passes, launches, memory, graph); writes it to `path` if given.

        For an uncompiled program, it shows the graph and the memory that it would need.
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


def _empty() -> Graph:
    from .ir.graph import Graph

    return Graph()
