"""A native program together with the arguments that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .tier_up import TierUp, compiled_later

if TYPE_CHECKING:
    from mgx_core.targets.schedule import Step

__all__ = ["NativeRun"]


class NativeRun:
    """A native program with its inputs.

    taken: positions of the module's parameters that the program reads, in order; hosted: number of Python steps.
    """

    def __init__(self, program: Any, taken: Sequence[int], hosted: Sequence[Step] = ()) -> None:
        self.program = program
        self.taken = list(taken)
        self._reads_all = self.taken == list(range(len(self.taken)))
        self.hosted: list[Step] = list(hosted)
        self.tier_up = TierUp(compiled_later(program))
        self._counting = self.tier_up.pending

    def _count(self) -> None:
        self.tier_up.count()
        self._counting = self.tier_up.pending

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self._counting:
            self._count()
        if self._reads_all and len(args) == len(self.taken):
            results: list[Any] = self.program.run_arrays(args if isinstance(args, list) else list(args))
            return results
        return list(self.program.run_arrays([args[n] for n in self.taken]))

    def addressed(self, count: int) -> Callable[[Sequence[int], Sequence[int]], None] | None:
        """Returns a call like `run` on the addresses of `count` arguments and of the results.

        None if the program has Python steps, which may keep arrays on this memory.
        """
        if self.hosted:
            return None
        native, chosen = self.program.run, None if self._reads_all and count == len(self.taken) else self.taken

        def run(arguments: Sequence[int], results: Sequence[int]) -> None:
            if self._counting:
                self._count()
            native(arguments if chosen is None else [arguments[n] for n in chosen], results)

        return run

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> list[float]:
        """Returns the median nanoseconds of each step, after compiling all loops."""
        self.tier_up.finish()
        return list(self.program.time([args[n] for n in self.taken], runs, warmup))
