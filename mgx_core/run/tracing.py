"""Traced runs, which report the value of every instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..types.argument import Argument, Value
from ..types.shape import Shape

__all__ = ["Traced", "Tracer"]

Tracer = Callable[[Instruction, Argument], Any]  # called with an instruction and a copy of its value in host memory
Run = Callable[[Sequence[Value]], list[Argument]]


class Traced:
    """A module recompiled so that it returns the value of every instruction.

    compile: compiles the modified copy.
    Groups stay fused; instructions of nested modules and values that are not tensors are omitted.
    """

    def __init__(self, module: Module, compile: Callable[[Module], Run]) -> None:
        copy = module.clone()
        pairs = [
            (ours, theirs)
            for ours, theirs in zip(module, copy, strict=True)
            if isinstance(ours.result, Shape) and not (ours.is_return or ours.is_absent)
        ]
        self.parameters = list(module.parameters.values())
        self.steps = [ours for ours, _ in pairs]
        self.results = len(copy.outputs)
        computed = [theirs for _, theirs in pairs if not (theirs.is_param or theirs.is_literal)]
        copy.replace_return([*copy.outputs, *computed])
        self._run = compile(copy)

    def run(self, values: Sequence[Value], callback: Tracer) -> None:
        """Calls `callback` with each instruction in order and its value.  values: of the parameters, in order."""
        computed = iter(self._run(values)[self.results :])
        given = dict(zip(self.parameters, values, strict=True))
        for ins in self.steps:
            if ins.is_param:
                callback(ins, Argument.from_value(given[ins]).copy())
            else:
                callback(ins, next(computed) if ins.literal is None else ins.literal)
