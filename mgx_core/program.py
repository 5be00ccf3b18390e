"""Programs: what frontends make, people edit, and targets compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsInt

from .errors import MgxError, ParameterError
from .ir.graph import Graph, names_of_results
from .ir.module import Module
from .options import CompileOptions
from .types.argument import Argument
from .types.shape import AnyShape

if TYPE_CHECKING:
    from .ir.instruction import Instruction
    from .run.executable import Executable
    from .run.several_targets import Assignment
    from .store import Contents

__all__ = ["ParameterShapes", "Program"]


class ParameterShapes(Mapping[str, AnyShape]):
    """Shapes of a program's parameters by name; also answers positions (``[0]``)."""

    def __init__(self, shapes: Mapping[str, AnyShape]) -> None:
        self._shapes = dict(shapes)

    def __getitem__(self, key: str | int) -> AnyShape:
        if isinstance(key, int):
            return list(self._shapes.values())[key]
        return self._shapes[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{k!r}: {v}' for k, v in self._shapes.items())}}}"


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
        self.output_names = list(output_names)  # those that the model states; see `get_output_names`
        self.executable: Executable | None = None
        self.states = dict(states or {})
        self._held: dict[str, Any] = dict(self.states)

    @classmethod
    def loaded(cls, contents: Contents) -> Program:
        """The program that a file holds; one of an older format is compiled again for its target."""
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

    @property
    def graph(self) -> Graph:
        """The modules."""
        if not isinstance(self._graph, Graph):
            self._graph = self._graph()
        return self._graph

    # building

    def get_main_module(self) -> Module:
        return self.graph.main

    def create_module(self, name: str) -> Module:
        return self.graph.create_module(name)

    def get_module(self, name: str) -> Module:
        """A module by name.  Errors: ParameterError if there is none."""
        return self.graph.module(name)

    def rename_module(self, old: str, new: str) -> None:
        """Gives a module another name.  Errors: ParameterError for main, or if the new name is taken."""
        self.graph.rename_module(old, new)

    def remove_module(self, name: str) -> None:
        """Drops a module that no instruction runs.  Errors: ParameterError if one does."""
        self.graph.remove_module(name)

    def clone(self) -> Program:
        """A copy that can be edited on its own (not compiled)."""
        return Program(self.graph.clone(), self.output_names, self.states)

    # what it takes and gives

    def get_parameter_names(self) -> list[str]:
        """The names of the parameters; those of the results' places too where callers hold device memory themselves."""
        return list(self.get_parameter_shapes())

    def get_parameter_shapes(self) -> ParameterShapes:
        """The shapes of the parameters by name, and by position.

        Compiled with ``offload_copy=False`` for a target that has memory of its own, the places of the results follow as
        ``main:#output_0`` and so on; a run may leave them out.
        """
        shapes = {n: i.result for n, i in self.graph.main.parameters.items() if n not in self.states}
        if self.executable is not None and self.executable.target.own_memory:
            shapes |= self.executable.output_places
        return ParameterShapes(shapes)

    def get_output_shapes(self) -> list[AnyShape]:
        shapes = self.graph.main.output_shapes()
        return shapes[: len(shapes) - len(self.states)]

    def get_output_names(self) -> list[str]:
        """Names of the results in order; ``output_0`` and so on where the model states none."""
        return self.output_names or names_of_results((), self.graph.main)

    # compiling and running

    def compile(
        self,
        target: Any,
        options: CompileOptions | Mapping[str, Any] | None = None,
        /,
        *,
        assignment: Assignment | None = None,
        **keywords: Any,
    ) -> None:
        """Make the program runnable on a target (or on one of its contexts), or on several.

        target: or a list of them; options: a `CompileOptions`, a mapping or keywords (``fast_math=False``); assignment: for a
        list, the place in it of an instruction's target, by a mapping of instructions of the main module (0 for those that it
        does not have) or a function.  Values go from one target to another through host memory.
        Errors: ParameterError for unknown options; any error that a pass or the target raises.
        """
        from .run.compile_module import (
            compile_module,  # brings the ops and passes along, which listing and editing do not need
        )

        record = CompileOptions.of(options, **keywords)
        source = self
        names = [*self.get_output_names(), *self.states]
        self.reset_state()
        if record.use_fp16:
            from .quantize import quantize_fp16

            source = quantize_fp16(self.clone())
        if isinstance(target, (list, tuple)):
            from .run.several_targets import compile_for_several

            where = assignment if assignment is not None else {}
            self.executable = compile_for_several(source.graph.main, target, where, record, names)
            return
        if assignment is not None:
            raise ParameterError("an assignment is for a list of targets, got one target")
        self.executable = compile_module(source.graph.main, target, record, names)

    def is_compiled(self) -> bool:
        return self.executable is not None

    def run(self, parameters: Mapping[str, Any]) -> list[Argument]:
        """Results in the model's order.

        parameters: a value for each parameter by name: a numpy array, an `Argument`, or anything with DLPack or an array
        interface.
        Errors: ParameterError if the program is not compiled, or for wrong names, dtypes or shapes.
        """
        if not self.states:
            return self._compiled().run(parameters)
        results = self._compiled().run({**self._held, **parameters})
        return self._without_states(results)

    def dry_run(self, parameters: Mapping[str, Any]) -> list[AnyShape]:
        """Checks the parameters, makes all that a run of these shapes needs, and runs nothing; the shapes of the results.

        Extents of results that depend on data stay symbolic.  Errors: as `run`.
        """
        return self._compiled().dry_run(parameters)

    def run_async(
        self, parameters: Mapping[str, Any], stream: SupportsInt = 0, stream_type: str = ""
    ) -> list[Argument]:
        """Like `run`, enqueued on the caller's stream (its address or what has one, and its type's name: ``ihipStream_t``).

        Targets that run on the host finish before they return.
        """
        if not self.states:
            return self._compiled().run_async(parameters, int(stream), stream_type)
        return self._without_states(self._compiled().run_async({**self._held, **parameters}, int(stream), stream_type))

    def reset_state(self) -> None:
        """Sets all states back to the values that they begin with."""
        self._held = dict(self.states)

    def _without_states(self, results: list[Argument]) -> list[Argument]:
        """Keeps the last results as the states of the next run; returns the others."""
        first = len(results) - len(self.states)
        self._held = dict(zip(self.states, results[first:], strict=True))
        return results[:first]

    def run_trace(
        self, parameters: Mapping[str, Any], callback: Callable[[Instruction, Argument], Any]
    ) -> list[Argument]:
        """Like `run`, after calling ``callback(instruction, value)`` with each instruction of the compiled program in order.

        The values are copies in host memory.
        """
        return self._compiled().run_trace(parameters, callback)

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
        """The text form; `full` writes all literals out, so that it can be parsed back."""
        from .ir.text.writer import program_text

        return program_text(self.shown, full)

    def to_py(self, package: str = "mgx_core") -> str:
        """A Python script that builds the program, as it is before compilation, again.

        package: the module that it imports, which has mgx's functions under the same names.
        Errors: UnsupportedError for values that a script cannot write.
        """
        from .ir.text.script import script

        return script(self.graph.main, package)

    def print(self) -> None:
        print(self)

    def sort(self) -> None:
        """Bring the instructions into an order in which each follows its inputs."""
        self.graph.main.sort()

    def save(self, path: Any, format: str = "msgpack") -> None:
        """Write the program (compiled or not) to a file; see `mgx_core.load`."""
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
