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
from .kernel import asked, called_text
from .saved import Keep
from .watch import Watch

__all__ = ["HostRunner", "Runner", "Timing"]


@dataclass
class Timing:
    """Duration of one instruction, in seconds, once per measured run.

    flops, bytes: the arithmetic of one run and the memory that it moves, as far as the target knows them; else 0.  kernels: the
    names of those that ran for it, in order, which need not be the one that was asked first.
    """

    instruction: Instruction
    seconds: list[float]
    flops: int = 0
    bytes: int = 0
    kernels: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The instruction with its operands and result, and the kernels that ran for it."""
        return called_text(self.instruction, self.kernels)


class Runner:
    """Runs a lowered and planned module for one set of input shapes.

    Required: `run`.  Everything else has a default.
    """

    fresh: bool = False
    """True if every result of `run` is an array that owns its memory and has no other reference; otherwise results that alias
    an argument or a constant are copied."""

    def run(self, args: Sequence[Value]) -> list[Value]:
        """Returns the results for values of the module's parameters, in order; several threads may call it at once."""
        raise NotImplementedError(f"{type(self).__name__} derives from Runner and defines no run(args)")

    def run_some(self, args: Sequence[Value], wanted: Sequence[int]) -> list[Value]:
        """Returns those results alone whose numbers are wanted, each of them once, in the order of the numbers given.

        Default: taken from all that `run` returns.  A target that copies results for the caller leaves out the others' copies.
        """
        results = self.run(args)
        return [results[n] for n in wanted]

    def run_async(self, args: Sequence[Value], stream: int, places: Mapping[int, Value]) -> list[Value] | None:
        """Enqueues a run on the caller's stream and returns its results without waiting.

        places: memory of the caller for results, by their number.
        Default: None, for runners without a queue; the caller then calls `run`.
        """
        return None

    def enqueued(self, args: Sequence[Value], places: Mapping[int, Value]) -> list[Value] | None:
        """Enqueues a run that is part of a longer one, and returns its results in the target's memory without waiting.

        Parts of one run are enqueued in order, by one thread.  Nothing else writes the results until the caller lets them go.
        places: results of an earlier call, by number, which may be written again and have the shapes that they had then; what
        is called with the same memory each time should be made cheap to repeat.
        Default: None, for runners without a queue, or that wait for the host on the way; the caller then calls `run`.
        """
        return None

    def repeated(
        self, args: Sequence[Value], places: Mapping[int, Value]
    ) -> Callable[[Mapping[str, Any], int], list[Argument]] | None:
        """Returns a prepared call for arguments with the descriptors of these (`Target.descriptor`), which are not checked again.

        It takes the arguments by name and a stream.  Default: None, no such call.
        """
        return None

    def queued(self, args: Sequence[Value], places: Mapping[int, Value]) -> Callable[[int], None] | None:
        """Returns a call that enqueues a run on a stream: for these arguments and these places of results, which `run_async` ran.

        It takes the stream, looks at nothing and keeps no memory of the caller's.  Default: None, no such call.
        """
        return None

    def watching(self, watch: Watch, spare: Runner, given: Sequence[int | Value]) -> Runner | None:
        """Returns a runner that does as this one while what it holds as constants is as `watch` has it, and else as `spare`.

        It looks at each run, after all that was queued before, and does not wait for that.
        spare: runs the same program with these constants among its parameters; given: for each of its parameters the number of
        this runner's, or the constant's memory.
        Default: None, for targets whose contexts take no `Watch`.
        """
        return None

    def saved(self, keep: Keep) -> Any:
        """Returns plain data (numbers, strings, bytes, lists, dicts) for a program file; `Target.restored` makes a runner of it.

        keep: puts an array into the part of the file that is memory-mapped and returns its number there.
        A No says why it cannot be saved; the reason is a note when the file is loaded, and the kernels are made again.
        Default: None, nothing is saved.
        """
        return None

    def time(self, args: Sequence[Value], runs: int, warmup: int) -> list[Timing] | None:
        """Returns the time of each instruction over some runs, after some that do not count.  Default: None, not measured."""
        return None

    def seconds(self, args: Sequence[Value], runs: int) -> float:
        """Returns the seconds of one of some runs in a row.  Default: by the clock, after one that does not count."""
        self.run(args)
        start = time.perf_counter()
        for _ in range(runs):
            self.run(args)
        return (time.perf_counter() - start) / runs

    def mark(self, args: Sequence[Value], begin: Callable[[str], None], end: Callable[[], None]) -> int:
        """Runs once, each instruction between `begin`, which gets its text, and `end`; returns how many there were.

        Default: the whole run is one.
        """
        begin("run")
        try:
            self.run(args)
        finally:
            end()
        return 1


class HostRunner(Runner):
    """Calls each launch's kernel from Python, in order; values die after their last use."""

    def __init__(self, module: Module) -> None:
        for inner in nested(module):
            for ins in inner:
                if ins.literal is not None:
                    ins.literal = aligned(ins.literal)
        self.module = module

    def run(self, args: Sequence[Value], observe: Observer | None = None) -> list[Value]:
        """Returns the results; `observe` is called with each instruction and its value."""
        return Interpreter(observe).run(self.module, args)

    def time(self, args: Sequence[Value], runs: int, warmup: int) -> list[Timing]:
        """Returns the time between one instruction's end and the next one's; inner instructions count for the outer one."""
        timings: dict[Instruction, Timing] = {}
        for n in range(warmup + runs):
            clock = time.perf_counter()

            def observe(ins: Instruction, value: Value, measured: bool = n >= warmup) -> None:
                nonlocal clock
                if ins.parent is not self.module:
                    return
                now = time.perf_counter()
                if measured:
                    timings.setdefault(ins, Timing(ins, [], kernels=asked(ins))).seconds.append(now - clock)
                clock = time.perf_counter()

            self.run(args, observe)
        return list(timings.values())


def aligned(literal: Argument) -> Argument:
    """Returns the literal in memory on which numpy computes at full speed (weights borrowed from files lie at any address)."""
    value = literal.value
    if isinstance(value, np.ndarray) and not value.flags.aligned:
        return Argument.from_value(value.copy(), literal.shape)
    return literal
