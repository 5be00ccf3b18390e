"""Ops that change the layout of elements: views, layouts, triangular masks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core.ops.axes import normalize_all
from mgx_core.ops.compare import GreaterOrEqual, LessOrEqual
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.fill import EyeLike
from mgx_core.ops.index import Trilu
from mgx_core.ops.movement import Layout
from mgx_core.ops.pointwise import Identity, Where
from mgx_core.ops.reshape import Reshape
from mgx_core.targets.kernel_emission import Results, emit_view
from mgx_core.targets.values import Value, packed_strides
from mgx_core.targets.view_steps import VIEWS, emit_item
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from .native_loops import as_indices, broadcast, emit_op
from .offer import NUMBERS, offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


@offer(PLANS, Identity, when=only(NUMBERS), name="view")
def emit_identity(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    return args[0]


@offer(PLANS, Layout, when=only(NUMBERS), name="copy")
def emit_layout(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = args[0]
    wanted = packed_strides(x.lens, list(normalize_all(op.permutation, len(x.lens))))
    return x if x.has_strides(wanted) else e.copy(x, wanted)


@offer(PLANS, EyeLike, when=only(NUMBERS), name="literal")
def emit_eye_like(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = args[0]
    return e.literal(np.ascontiguousarray(op.compute(np.broadcast_to(np.zeros((), x.shape.dtype.numpy), x.lens))))


@offer(PLANS, Trilu, when=only(NUMBERS), name="loops")
def emit_trilu(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits a comparison of each element's diagonal with k, which may be an operand, and a selection."""
    x, k = [*args, None][:2]
    assert x is not None
    rows, columns = x.lens[-2:]
    if k is None:
        diagonal = e.literal(np.array(op.k, np.int64))
    else:
        diagonal = as_indices(e, k)
    own = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    literal = e.literal(np.ascontiguousarray(own.astype(diagonal.shape.dtype.numpy)))
    if not x.shape.elements():
        return x
    above = literal.view_at(0, Shape(literal.shape.dtype, x.lens, [*[0] * (len(x.lens) - 2), columns, 1]))
    keep = emit_op(e, GreaterOrEqual() if op.upper else LessOrEqual(), above, broadcast(diagonal, x.lens))
    return emit_op(e, Where(), keep, x, broadcast(e.literal(np.zeros((), x.shape.dtype.numpy)), x.lens))


def tensors(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    if not inputs or not isinstance(inputs[0], Shape) or inputs[0].dtype not in NUMBERS:
        return No("the operand is not a tensor of numbers")
    return None


MIN_CHANNELS: Final = 8  # minimum channels for which channels-last order is preserved


@offer(PLANS, Reshape, when=tensors, name="view")
def emit_reshape(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results | No:
    """Emits a view if possible, else a copy, which preserves channels-last order of images."""
    x, *others = args
    if isinstance(x, Value) and not any(o is not None for o in others) and e.view_of(op, x) is None:
        order = _channels_last_order(x, op.infer(Shape(x.shape.dtype, x.lens)).lens())
        x = x if order is None else e.copy(x, packed_strides(x.lens, order))
    return emit_view(e, op, modules, [x, *others])


def _channels_last_order(x: Value, lens: Sequence[int]) -> list[int] | None:
    """Returns an axis order for a copy of x such that reshaping it to `lens` yields a channels-last image [n, c, ..].

    None unless each axis of the result merges axes of x and the channels of x are inside its rows and columns, as in
    depth-to-space and channel shuffles between convolutions.
    """
    groups = _merged_axes(x.lens, lens)
    if groups is None or len(lens) < 4 or 0 in x.strides or 0 in lens:
        return None
    batch, channels, *space = groups
    steps = [max(x.strides[a] for a in group) for group in space if group]
    if not steps or lens[1] < MIN_CHANNELS or max(x.strides[a] for a in channels) >= min(steps):
        return None
    ones = [a for a, n in enumerate(x.lens) if n == 1]
    return [*ones, *batch, *(a for group in space for a in group), *channels]


def _merged_axes(lens: Sequence[int], wanted: Sequence[int]) -> list[list[int]] | None:
    """Returns, for each wanted extent, the axes (of extent > 1) that are merged into it; None if axes would be split."""
    rest = [a for a, n in enumerate(lens) if n != 1]
    groups: list[list[int]] = []
    for extent in wanted:
        group: list[int] = []
        while rest and prod(lens[a] for a in group) < extent:
            group.append(rest.pop(0))
        if prod(lens[a] for a in group) != extent:
            return None
        groups.append(group)
    return None if rest else groups


offer(PLANS, *(v for v in VIEWS if v is not Reshape), when=tensors, name="view")(emit_view)


offer(PLANS, GetTupleElem, name="item")(emit_item)
