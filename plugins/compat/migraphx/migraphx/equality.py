"""Equality of programs up to the order of their instructions."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from mgx_core import Instruction, Module, Program

__all__ = ["equal"]


def equal(one: Program, other: Program) -> bool:
    """Returns True if both compute the same from parameters of the same names: their instructions may stand in another order."""
    numbers: dict[Hashable, int] = {}
    return _key(one.shown, numbers, {}) == _key(other.shown, numbers, {})


def _key(module: Module, numbers: dict[Hashable, int], known: dict[Instruction, int]) -> Hashable:
    """Returns what a module computes; equal values have equal numbers.

    numbers: by what a value is made of; known: of the instructions of the modules around it.
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
