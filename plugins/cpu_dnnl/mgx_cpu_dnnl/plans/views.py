"""Ops that only look at memory in another way, and copies where that is impossible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module, No, Shape, ops
from mgx_core.ops.broadcast import Broadcast, Multibroadcast
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.fill import Fill
from mgx_core.types.shape import AnyShape

from ..emitter import Emitter
from ..kernel import Declined, Results
from ..values import Value, view_of
from .offer import NUMBERS, offer

__all__ = ["PLANS", "emit_view"]

PLANS = Kernels("cpu")

VIEWS = [cls for cls in ops.STANDARD if cls.view is not None and cls is not Fill]


def tensors(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    if not inputs or not isinstance(inputs[0], Shape) or inputs[0].dtype not in NUMBERS:
        return No("the operand is no tensor of numbers")
    return None


@offer(PLANS, *VIEWS, when=tensors, name="view")
def emit_view(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x = args[0]
    assert x is not None
    if any(a is not None for a in args[1:]):
        constants = [None if a is None else e.constant(a) for a in args]
        if any(c is None and a is not None for c, a in zip(constants[1:], args[1:], strict=True)):
            raise Declined("an operand that says how to look at it is known only while running")
        if not isinstance(op, (Multibroadcast, Broadcast)):
            return e.host(op, modules, args)
    found = view_of(op, x, args[1:])
    if found is None:
        found = view_of(op, e.row_major(x), args[1:])
    if found is None:
        return e.move(op, x)
    return found


def any_tuple(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    return None


@offer(PLANS, GetTupleElem, when=any_tuple, name="item")
def emit_item(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    item: Value = args[0][op.index]
    return item
