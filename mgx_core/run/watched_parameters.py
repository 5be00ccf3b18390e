"""Programs specialized for the values of parameters, which fall back to the general program if these are overwritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError
from ..ir.module import Module
from ..options import CompileOptions
from ..targets.calls import called, target_and_context
from ..targets.runner import Runner, Timing
from ..targets.watch import Watch
from ..types.argument import Argument, Value, shape_of
from ..types.shape import AnyShape, matches
from .binding import described, tensor_type
from .compile_module import compile_module, optimized
from .executable import Executable
from .instance import Instance

if TYPE_CHECKING:
    from ..compile.pipeline import PassRecord

__all__ = ["WatchedExecutable", "compile_watched"]


def compile_watched(
    module: Module, on: Any, options: CompileOptions, output_names: list[str], watched: Mapping[str, Any]
) -> WatchedExecutable:
    """Returns an executable whose parameters are those that are not watched (see `Program.compile`).

    Errors: as `compile_module`; ParameterError for a watched name that is not a parameter, a value that is not in the target's
    memory, or another element type or other extents.
    """
    target, context = target_and_context(on)
    values: dict[str, Value] = {}
    for name, given in watched.items():
        parameter = module.parameters.get(name)
        if parameter is None:
            raise ParameterError(f"there is no parameter {name!r} to watch; known are {', '.join(module.parameters)}")
        value = called(target, "accept", lambda given=given: target.accept(given, context))  # type: ignore[misc]
        if value is None:
            raise ParameterError(
                f"watched parameter {name!r} must be in memory of target {target.name!r}, got {given!r}"
            )
        if not matches(parameter.result, shape_of(value)):
            raise ParameterError(
                f"watched parameter {name!r} must be {described(parameter.result)}, got {described(shape_of(value))}"
            )
        values[name] = value
    # watch before reading the values, so that writes during compilation are detected
    watch: Watch | None = called(target, "watch", lambda: context.watch(list(values.values())))
    if watch is None:
        fallback = compile_module(module, context, options, output_names)
        return WatchedExecutable(fallback.module, fallback.records, fallback, values, None)
    fallback = compile_module(module, called(target, "untimed", context.untimed), options, output_names)
    constants = {name: Argument(Argument.from_value(value).to_numpy()) for name, value in values.items()}
    copy, records = optimized(with_constants(module, constants), target, context, options)
    return WatchedExecutable(copy, records, fallback, values, watch, context)


class WatchedExecutable(Executable):
    """Runs a module with watched parameters as constants, or the general program once their memory was written to.

    fallback: the general program, with all parameters; values: the memory of the watched parameters by name; watch: None if
    the target cannot detect writes, so that every run uses the fallback; context: if not that of the fallback.
    """

    def __init__(
        self,
        module: Module,
        records: Sequence[PassRecord],
        fallback: Executable,
        values: Mapping[str, Value],
        watch: Watch | None,
        context: Any = None,
    ) -> None:
        self._fallback, self._values, self._watch = fallback, values, watch
        parameters = {n: s for n, s in fallback.parameters.items() if n not in values}
        super().__init__(
            module,
            fallback.target,
            context or fallback.context,
            fallback.options,
            fallback.output_names,
            records,
            parameters=parameters,
        )

    @property
    def watches(self) -> bool:
        return True

    @property
    def outdated(self) -> bool:
        """True once a run has found that watched memory was written to; compile again to specialize for the new values."""
        return self._watch is not None and self._watch.changed

    def _instantiate(self, shapes: Mapping[str, AnyShape]) -> Instance:
        names, given = list(self.parameters), self._values
        types = [
            tensor_type(given[n]) if n in given else shapes.get(n, s) for n, s in self._fallback.parameters.items()
        ]
        fallback = self._fallback.instance_of(types)
        places = [given[n] if n in given else names.index(n) for n in self._fallback.parameters]
        if self._watch is not None:
            made = super()._instantiate(shapes)
            runner = made.runner.watching(self._watch, fallback.runner, places)
            if runner is not None:
                made.runner = runner
                return made
        return fallback.replaced(shapes, BoundArguments(fallback.runner, places))


class BoundArguments(Runner):
    """Runs another runner with some arguments bound; given: as in `Runner.watching`."""

    def __init__(self, runner: Runner, given: Sequence[int | Value]) -> None:
        self.fresh = runner.fresh
        self._runner, self._given = runner, given

    def run(self, args: Sequence[Value]) -> list[Value]:
        return self._runner.run(self._all_arguments(args))

    def run_async(self, args: Sequence[Value], stream: int, places: Mapping[int, Value]) -> list[Value] | None:
        return self._runner.run_async(self._all_arguments(args), stream, places)

    def repeated(
        self, args: Sequence[Value], places: Mapping[int, Value]
    ) -> Callable[[Mapping[str, Any], int], list[Argument]] | None:
        return self._runner.repeated(self._all_arguments(args), places)

    def queued(self, args: Sequence[Value], places: Mapping[int, Value]) -> Callable[[int], None] | None:
        return self._runner.queued(self._all_arguments(args), places)

    def time(self, args: Sequence[Value], runs: int, warmup: int) -> list[Timing] | None:
        return self._runner.time(self._all_arguments(args), runs, warmup)

    def _all_arguments(self, args: Sequence[Value]) -> list[Value]:
        return [args[g] if isinstance(g, int) else g for g in self._given]


def with_constants(module: Module, constants: Mapping[str, Argument]) -> Module:
    """Returns a copy of a module in which literals replace some parameters."""
    made = Module(module.name)
    args = [
        made.add_literal(constants[name]) if name in constants else made.add_parameter(name, parameter.result)
        for name, parameter in module.parameters.items()
    ]
    made.add_return(made.inline(module, args))
    return made
