"""Runners, which execute a lowered module."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..records import dataclass

if TYPE_CHECKING:
    from ..ir.instruction import Instruction
    from ..types.argument import Argument, Value
    from .saved import Keep
    from .watch import Watch

__all__ = ["Runner", "Timing"]


@dataclass
class Timing:
    """Duration of one instruction, in seconds, once per measured run.

    flops, bytes: operations and bytes moved per run, 0 if unknown; kernels: names of the kernels that ran, in order, which may
    differ from the preferred one.
    """

    instruction: Instruction
    seconds: list[float]
    flops: int = 0
    bytes: int = 0
    kernels: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The instruction's text, with the kernels that ran."""
        from .kernel import called_text

        return called_text(self.instruction, self.kernels)


class Runner:
    """Runs a lowered and planned module for one set of input shapes.

    Required: `run`.  Everything else has a default.
    """

    fresh: bool = False
    """True if every result of `run` is an array that owns its memory and has no other reference; otherwise results that alias
    an argument or a constant are copied."""

    @property
    def specialized(self) -> int:
        """Returns how many times runs had to compile a part of the program for numbers that they found.

        If these keep changing, the program is cut into pieces that take them as arguments (`Target.open_program`).
        Default: 0.
        """
        return 0

    def run(self, args: Sequence[Value]) -> list[Value]:
        """Runs with values of the module's parameters, in order; returns the results.  Thread-safe."""
        raise NotImplementedError(f"{type(self).__name__} derives from Runner and defines no run(args)")

    def run_some(self, args: Sequence[Value], wanted: Sequence[int]) -> list[Value]:
        """Returns only the results with these (distinct) indices, in this order.

        Default: selects from all results of `run`.  A target that copies results to the host should skip the others.
        """
        results = self.run(args)
        return [results[n] for n in wanted]

    def run_async(self, args: Sequence[Value], stream: int, places: Mapping[int, Value]) -> list[Value] | None:
        """Enqueues a run on the caller's stream and returns its results without waiting.

        places: the caller's memory for results, by result index.
        Default: None, for runners without a queue; the caller then uses `run`.
        """
        return None

    def enqueued(self, args: Sequence[Value], places: Mapping[int, Value]) -> list[Value] | None:
        """Enqueues a run that is part of a larger one; returns its results in the target's memory without waiting.

        The parts of a run are enqueued in order by one thread.  Results stay valid until the caller releases them.
        places: results of an earlier call by index, which may be overwritten and have the same shapes; repeated calls with the
        same memory should be cheap.
        Default: None, for runners without a queue or with host work in between; the caller then uses `run`.
        """
        return None

    def repeated(
        self, args: Sequence[Value], places: Mapping[int, Value]
    ) -> Callable[[Mapping[str, Any], int], list[Argument]] | None:
        """Returns a fast call for arguments with the same descriptors (`Target.descriptor`), which skips validation.

        It takes arguments by name and a stream.  Default: None, not supported.
        """
        return None

    def queued(self, args: Sequence[Value], places: Mapping[int, Value]) -> Callable[[int], None] | None:
        """Returns a call that enqueues the run of an earlier `run_async` with the same arguments and result memory.

        It takes a stream, validates nothing and keeps none of the caller's memory alive.  Default: None, not supported.
        """
        return None

    def addressed(self) -> Callable[[Sequence[int], Sequence[int]], None] | None:
        """Returns a call that runs on host memory: addresses of the arguments and of the results, in order, all contiguous.

        It validates nothing and keeps no memory alive.  Default: None, not supported, or not possible because results alias
        arguments or constants.
        """
        return None

    def watching(self, watch: Watch, spare: Runner, given: Sequence[int | Value]) -> Runner | None:
        """Returns a runner that uses this one while the watched constants are unchanged, and `spare` otherwise.

        Each run checks asynchronously, after all work queued before.
        spare: runner of the same program with these constants as parameters; given: for each of its parameters, the index of
        this runner's parameter, or the constant's memory.
        Default: None, for targets whose contexts do not support `Watch`.
        """
        return None

    def saved(self, keep: Keep) -> Any:
        """Serializes the runner as plain data (numbers, strings, bytes, lists, dicts); `Target.restored` is the inverse.

        keep: stores an array in the memory-mapped part of the file and returns its number.
        A No states why it cannot be saved; loading the file then reports the reason and recompiles.
        Default: None, nothing is saved.
        """
        return None

    def time(self, args: Sequence[Value], runs: int, warmup: int) -> list[Timing] | None:
        """Times each instruction over some runs, after warm-up runs.  Default: None, not supported."""
        return None

    def seconds(self, args: Sequence[Value], runs: int) -> float:
        """Returns the seconds per run over consecutive runs.  Default: wall time, after a warm-up run."""
        self.run(args)
        start = time.perf_counter()
        for _ in range(runs):
            self.run(args)
        return (time.perf_counter() - start) / runs

    def mark(self, args: Sequence[Value], begin: Callable[[str], None], end: Callable[[], None]) -> int:
        """Runs once, with each instruction between calls of `begin` (with its text) and `end`; returns their number.

        Default: one range for the whole run.
        """
        begin("run")
        try:
            self.run(args)
        finally:
            end()
        return 1
