"""Ops whose result has an extent that depends on the data: as much memory as it can need, and how much it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, No
from mgx_core import dtype as dt
from mgx_core.ops.nms import Nonmaxsuppression
from mgx_core.ops.select import Nonzero

from ..emitter import Emitter
from ..kernel import Declined, Results
from ..values import Value
from .indexing import native_loop
from .offer import NUMBERS, offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


@offer(PLANS, Nonzero, when=only(NUMBERS), name="native", open_axis=1)
def emit_nonzero(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x = args[0]
    assert x is not None
    x = e.row_major(x)
    elements = x.shape.elements()
    positions, count = e.allocate(dt.int64, [len(x.lens), elements]), e.allocate(dt.int64, [1])
    native_loop(e, f"nonzero_{x.shape.dtype}", [x], [positions, count], [elements, len(x.lens), *x.lens])
    return positions, count


def boxes(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if inputs[0].dtype not in (dt.float32, dt.float64) or inputs[1].dtype is not inputs[0].dtype:
        return No(f"boxes {inputs[0]} with scores {inputs[1]}")
    if any(s is not None and s.dtype is not inputs[0].dtype for s in inputs[3:5]):
        return No("a threshold of another type than the boxes")
    if len(inputs) > 2 and inputs[2] is not None and inputs[2].dtype is not dt.int64:
        return No(f"a count of type {inputs[2].dtype}")
    return None


@offer(PLANS, Nonmaxsuppression, when=boxes, name="native", open_axis=0)
def emit_nms(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    given, scores, most, overlap, least = (*args, *(None,) * (5 - len(args)))
    assert given is not None and scores is not None
    dtype = given.shape.dtype
    batch, classes, n = scores.lens
    thresholded = least is not None
    known = None if most is None else e.constant(most)
    room = (
        n if known is None and most is not None else 0 if known is None else min(n, max(0, int(known.reshape(-1)[0])))
    )
    if most is None:
        most = e.literal(np.zeros(1, np.int64))
    zero = e.literal(np.zeros(1, dtype.numpy))
    overlap, least = overlap or zero, least or zero
    items = batch * classes
    if not items or not n:
        raise Declined("an extent is 0")
    inputs = [e.row_major(v) for v in (given, scores, most, overlap, least)]
    kept, counts = e.allocate(dt.int64, [items, max(room, 1)]), e.allocate(dt.int64, [items])
    numbers = [n, classes, room, int(op.center_point_box), int(thresholded)]
    native_loop(e, f"best_boxes_{dtype}", inputs, [kept, counts], numbers, items, 1, n * (5 * dtype.size + 16))
    found, count = e.allocate(dt.int64, [items * room, 3]), e.allocate(dt.int64, [1])
    native_loop(e, "join_boxes", [kept, counts], [found, count], [items, classes, room])
    return found, count
