"""Programs for values of operands that determine extents and occur in many runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from sys import maxsize
from typing import Any, Final, TypeAlias

from mgx_core import Instruction, MgxError, Module
from mgx_core.cache import Recent
from mgx_core.compile.lower import Lower
from mgx_core.garbage import rarer_collections
from mgx_core.targets.continuation import Continuation
from mgx_core.targets.cut import Border, deciding
from mgx_core.targets.runner import Runner
from mgx_core.targets.static_part import Split, given
from mgx_core.types.shape import Shape

from .emitter import CpuEmitter

__all__ = ["RepeatedValues", "repeated_values"]

KEPT: Final = 8  # programs
SEEN: Final = 1024  # remembered values
REPAID: Final = 20  # runs that compiling an instruction costs, in decisions at run time

Make: TypeAlias = Callable[[Module], Runner]  # the runner of a lowered module


class RepeatedValues:
    """Runs the rest of a module after its static part as one program, for values that have occurred in many runs.

    A decision at run time costs some microseconds of Python, and splits the program.  If the operands that decide (bounds of a
    slice, extents of a reshape) are arguments or results of the static part, a program with their values as constants is
    compiled once they have occurred as often as it takes to make up for compiling.  Values that keep changing never do.

    there: the parameters and the results of the static part, in the order of the values that `run` takes; read: the operands;
    make: returns the runner of a lowered module.
    enough: runs with the same values before they have a program; more, the more programs were displaced.
    """

    def __init__(
        self,
        module: Module,
        static: Mapping[Instruction, Any],
        there: Sequence[Instruction],
        read: Sequence[Instruction],
        emitter: CpuEmitter,
        make: Make,
    ) -> None:
        self._module, self._static, self._read, self._emitter, self._make = module, static, list(read), emitter, make
        self._place = {ins: n for n, ins in enumerate(there)}
        self._read_at = [self._place[ins] for ins in read]
        outputs = [self._place[o] if o in static else None for o in module.outputs]
        self._given = outputs if any(o is not None for o in outputs) else []  # results of the static part, among others
        members = sum(1 for i in module if i not in static)
        self.enough = max(1, REPAID * members // len(self._read))
        self._runs: Recent[int] = Recent(SEEN)
        self._made: Recent[Runner] = Recent(KEPT)
        self._last: tuple[Any, Runner] | None = None

    @property
    def programs(self) -> list[Runner]:
        """The cached programs."""
        return self._made.values()

    @cached_property
    def _rest(self) -> Continuation[Runner]:
        lower = Lower(self._emitter.kernels, self._emitter.context)
        return Continuation(
            self._module, self._static, Border(read=self._read), lower.apply, lambda declared, shape: shape
        )

    @cached_property
    def _sources_at(self) -> list[int]:
        return [self._place[ins] for ins in self._rest.sources]

    def run(self, values: Sequence[Any]) -> list[Any] | None:
        """Returns the module's results; None if these values have not occurred often enough.

        values: of the parameters, and of the results of the static part that the rest reads.
        """
        key = [values[n].tobytes() for n in self._read_at]
        last = self._last
        runner = last[1] if last is not None and last[0] == key else self._runner(key, values)
        if runner is None:
            return None
        results = runner.run([values[n] for n in self._sources_at])
        if not self._given:
            return results
        made = iter(results)
        return [next(made) if n is None else values[n] for n in self._given]

    def _runner(self, key: list[bytes], values: Sequence[Any]) -> Runner | None:
        at = tuple(key)
        runner = self._made.get(at)
        if runner is None:
            # more for each displaced one: programs for more values than are kept would be compiled again and again
            needed = self.enough * (1 + self._made.dropped)
            if self._runs.put(at, (self._runs.get(at) or 0) + 1) < needed:
                return None
            self._runs.put(at, 0)  # a program that others displace has to pay off again
            try:
                with rarer_collections():
                    given = [values[self._place[self._rest.source(name)]].copy() for name in self._rest.read]
                    runner = self._made.put(at, self._make(self._rest.lowered((), given)))
            except MgxError:
                self.enough = maxsize  # the segments raise errors where they occur
                return None
        self._last = key, runner
        return runner


def repeated_values(module: Module, parts: Split, emitter: CpuEmitter, make: Make) -> RepeatedValues | None:
    """Returns what runs the rest of a module for repeated values; None if it reads none, or not all results are its own."""
    outputs = module.outputs
    own = len(set(outputs)) == len(outputs) and all(isinstance(o.result, Shape) and not given(o) for o in outputs)
    read = deciding(module, parts.static) if own and not parts.counted else []
    there = [*module.parameters.values(), *parts.wanted]
    return RepeatedValues(module, parts.static, there, read, emitter, make) if read else None
