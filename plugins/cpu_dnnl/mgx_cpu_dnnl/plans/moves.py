"""Ops that move elements: concatenation, gathering, padding, and what has no faster way than copying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module, Shape
from mgx_core.ops.concat import Concat

from ..emitter import Emitter
from ..kernel import Results
from ..layout import same_order
from ..values import Value
from .offer import NUMBERS, offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


@offer(PLANS, Concat, when=only(NUMBERS), name="copy")
def emit_concat(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    given = [a for a in args if a is not None]
    rank = len(given[0].lens)
    axis = op.axis % rank
    lens = list(given[0].lens)
    lens[axis] = sum(a.lens[axis] for a in given)
    largest = max(given, key=lambda a: a.shape.elements())
    order = sorted(range(rank), key=lambda a: (-same_order(largest)[a], a))
    strides = [0] * rank
    step = 1
    for a in reversed(order):
        strides[a] = step
        step *= lens[a]
    out = e.allocate(given[0].shape.dtype, lens, strides)
    start = 0
    for a in given:
        part = Value(Shape(a.shape.dtype, a.lens, strides), out.buffer, out.offset + start * strides[axis])
        if a.shape.elements():
            e.copy_into(a, part)
        start += a.lens[axis]
    return out
