"""A native program together with the arguments that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .tier_up import TierUp

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
        self.tier_up = TierUp(program)
        self._counting = self.tier_up.pending

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self._counting:
            self.tier_up.count()
            self._counting = self.tier_up.pending
        if self._reads_all and len(args) == len(self.taken):
            results: list[Any] = self.program.run_arrays(args if isinstance(args, list) else list(args))
            return results
        return list(self.program.run_arrays([args[n] for n in self.taken]))

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> list[float]:
        """Returns the median nanoseconds of each step, after compiling all loops."""
        self.tier_up.finish()
        return list(self.program.time([args[n] for n in self.taken], runs, warmup))
