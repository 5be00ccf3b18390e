"""The runner of targets whose kernels are called from Python."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter, Observer
from ..ir.module import Module, nested
from ..types.argument import Argument, Value
from .kernel import preferred_kernels
from .runner import Runner, Timing

__all__ = ["HostRunner"]


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
