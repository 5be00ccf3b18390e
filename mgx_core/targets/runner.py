"""Runners, which execute a lowered module."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter, Observer
from ..ir.module import Module, nested
from ..records import dataclass
from ..types.argument import Argument, Value
from .kernel import called_text, preferred_kernels
from .saved import Keep
from .watch import Watch

__all__ = ["HostRunner", "Runner", "Timing"]


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
        return called_text(self.instruction, self.kernels)


class Runner:
    """Runs a lowered and planned module for one set of input shapes.

    Required: `run`.  Everything else has a default.
    """

    fresh: bool = False
    """True if every result of `run` is an array that owns its memory and has no other reference; otherwise results that alias
    an argument or a constant are copied."""

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


class HostRunner(Runner):
    """Calls each launch's kernel from Python, in order; values are freed after their last use."""

    def __init__(self, module: Module) -> None:
        for inner in nested(module):
            for ins in inner:
                if ins.literal is not None:
                    ins.literal = aligned(ins.literal)
        self.module = module

    def run(self, args: Sequence[Value], observe: Observer | None = None) -> list[Value]:
        """Runs; calls `observe` with each instruction and its value."""
        return Interpreter(observe).run(self.module, args)

    def time(self, args: Sequence[Value], runs: int, warmup: int) -> list[Timing]:
        """Times from the end of one instruction to the end of the next; nested instructions count for the outer one."""
        timings: dict[Instruction, Timing] = {}
        for n in range(warmup + runs):
            clock = time.perf_counter()

            def observe(ins: Instruction, value: Value, measured: bool = n >= warmup) -> None:
                nonlocal clock
                if ins.parent is not self.module:
                    return
                now = time.perf_counter()
                if measured:
                    timings.setdefault(ins, Timing(ins, [], kernels=preferred_kernels(ins))).seconds.append(now - clock)
                clock = time.perf_counter()

            self.run(args, observe)
        return list(timings.values())


def aligned(literal: Argument) -> Argument:
    """Returns the literal in aligned memory, which numpy processes faster (weights mapped from files may be unaligned)."""
    value = literal.value
    if isinstance(value, np.ndarray) and not value.flags.aligned:
        return Argument.from_value(value.copy(), literal.shape)
    return literal
