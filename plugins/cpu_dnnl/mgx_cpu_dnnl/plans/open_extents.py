"""Ops with a data-dependent result extent: allocate the maximum, and return the actual extent."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.axes import normalize
from mgx_core.ops.nms import Nonmaxsuppression
from mgx_core.ops.select import Compress, Nonzero, Unique
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from .native_loops import MAX_AXES, encode_box, grain_of, native_loop
from .offer import NUMBERS, offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


@offer(PLANS, Nonzero, when=only(NUMBERS), name="native", open_axis=1)
def emit_nonzero(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = args[0]
    lens, strides = x.lens or [1], x.strides or [1]
    if len(lens) > MAX_AXES:
        raise Refused(f"at most {MAX_AXES} axes are supported, got {len(lens)}")
    elements = x.shape.elements()
    positions, count = e.allocate(dt.int64, [len(lens), elements]), e.allocate(dt.int64, [1])
    numbers = [elements, len(lens), *lens, *strides]
    native_loop(e, op.name, f"nonzero_{x.shape.dtype}", [x, positions, count], [positions, count], numbers)
    return positions, count


@offer(PLANS, Compress, when=only(NUMBERS, 1), name="native", open_axis=lambda op: op.axis or 0)
def emit_compress(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, condition = args
    if op.axis is None:
        x = e.row_major(x)
        x = x.view_at(0, Shape(x.shape.dtype, [x.shape.elements()]))
    axis, entries = normalize(op.axis or 0, len(x.lens)), condition.lens[0]
    if entries > x.lens[axis]:
        raise Refused(f"the condition has {entries} entries for {x.lens[axis]} slices")
    out = e.allocate(x.shape.dtype, [entries if a == axis else n for a, n in enumerate(x.lens)])
    count = e.allocate(dt.int64, [1])
    rest = [a for a in range(len(x.lens)) if a != axis]
    slices = encode_box([x.lens[a] for a in rest], [x.strides[a] for a in rest], [out.strides[a] for a in rest])
    numbers = [entries, x.strides[axis], out.strides[axis], condition.strides[0], *slices]
    native_loop(e, op.name, f"compress_{x.shape.dtype.size}", [x, condition, out, count], [out, count], numbers)
    return out, count


@offer(PLANS, Unique, when=only(NUMBERS), name="native", open_axis=lambda op: op.axis or 0)
def emit_unique(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = args[0]
    if op.axis is None:
        x = e.row_major(x)
        x = x.view_at(0, Shape(x.shape.dtype, [x.shape.elements()]))
    if not x.shape.elements():
        raise Refused("an extent is 0")
    axis = normalize(op.axis or 0, len(x.lens))
    n = x.lens[axis]
    if n >= 1 << 31:
        raise Refused(f"fewer than 2**31 slices are required, got {n}")
    values = e.allocate(x.shape.dtype, x.lens)
    first, places, counts, count = (e.allocate(dt.int64, [m]) for m in (n, n, n, 1))
    rest = [a for a in range(len(x.lens)) if a != axis]
    box = encode_box([x.lens[a] for a in rest], [x.strides[a] for a in rest], [values.strides[a] for a in rest])
    length = x.shape.elements() // n
    apart = not op.equal_nan and not rest  # `equal_nan` applies to vectors only
    numbers = [n, length, int(op.sorted), int(apart), x.strides[axis], values.strides[axis], *box]
    outputs = [values, first, places, counts, count]
    scratch = n * (2 * 16 + 3 * 8 + 8 * length)
    native_loop(e, op.name, f"unique_{x.shape.dtype}", [x, *outputs], outputs, numbers, scratch=scratch)
    return tuple(outputs)


def supported(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if inputs[1].dtype is not inputs[0].dtype:
        return No(f"boxes and scores must have the same type, got {inputs[0]} and {inputs[1]}")
    return only(NUMBERS)(op, inputs, modules)


@offer(PLANS, Nonmaxsuppression, when=supported, name="native", open_axis=0)
def emit_nms(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits non-maximum suppression: selects boxes per batch and class in parallel, then joins the selections."""
    given, scores, most, overlap, least = [*args, None, None, None][:5]
    assert given is not None and scores is not None
    dtype = dt.float64 if given.shape.dtype is dt.float64 else dt.float32
    batch, classes, n = scores.lens
    items = batch * classes
    if not items or not n:
        raise Refused("an extent is 0")
    limited = int(least is not None)
    room = n
    known = None if most is None else e.constant(most)
    if most is None:
        most, room = e.literal(np.zeros(1, np.int64)), 0
    elif known is not None:
        room = min(n, max(0, int(known.reshape(-1)[0])))
    zero = e.literal(np.zeros(1, dtype.numpy))
    numbers = (given, dtype), (scores, dtype), (most, dt.int64), (overlap or zero, dtype), (least or zero, dtype)
    inputs = [_row_major_as(e, value, kind) for value, kind in numbers]
    kept, counts = e.allocate(dt.int64, [items, max(room, 1)]), e.allocate(dt.int64, [items])
    scratch = (n + 1) * 5 * dtype.size + 16 * n
    choice = [n, classes, room, int(op.center_point_box), limited]
    grain = grain_of(items, [inputs[1]])
    native_loop(
        e, op.name, f"best_boxes_{dtype}", [*inputs, kept, counts], [kept, counts], choice, items, grain, scratch
    )
    found, count = e.allocate(dt.int64, [items * room, 3]), e.allocate(dt.int64, [1])
    native_loop(
        e, op.name, "join_boxes", [kept, counts, found, count], [found, count], [items, classes, prod(kept.lens[1:])]
    )
    return found, count


def _row_major_as(e: CpuEmitter, value: Value, dtype: Any) -> Value:
    """Returns a value in row-major layout, converted to `dtype`."""
    if value.shape.dtype is dtype:
        return e.row_major(value)
    made = e.allocate(dtype, value.lens)
    e.copy_into(value, made)
    return made
