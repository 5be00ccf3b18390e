"""Equality of programs up to the order of their instructions."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from mgx_core import Instruction, Module, Program

__all__ = ["equal"]


def equal(one: Program, other: Program) -> bool:
    """True if both programs compute the same from parameters of the same names, whatever the order of instructions."""
    numbers: dict[Hashable, int] = {}
    return _key(one.shown, numbers, {}) == _key(other.shown, numbers, {})


def _key(module: Module, numbers: dict[Hashable, int], known: dict[Instruction, int]) -> Hashable:
    """Returns a hashable key of a module's computation, by value numbering: equal values have equal numbers.

    numbers: value numbers by operation and operands; known: value numbers of instructions, including those of enclosing modules.
    """
    for ins in module:
        if ins.is_return:
            continue
        inner = tuple([_key(m, numbers, known) for m in ins.modules])
        made = (_source(ins), tuple([known[i] for i in ins.inputs]), str(ins.result), inner)
        known[ins] = numbers.setdefault(made, len(numbers))
    parameters = frozenset((n, str(p.result)) for n, p in module.parameters.items())
    return parameters, tuple([known[o] for o in module.outputs])


def _source(ins: Instruction) -> Hashable:
    if ins.literal is None:
        return ins.op
    value: Any = ins.literal.value
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return value.tobytes()
    return repr(value)
