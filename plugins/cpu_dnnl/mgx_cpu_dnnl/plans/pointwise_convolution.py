"""Convolutions whose windows are one element wide, as products of a matrix of pixels with one of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import Convolution
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last

from ..emitter import CpuEmitter
from ..layout import as_channels_last
from .anchors import floats_around, of_float32
from .offer import offer
from .packed_products import packed_group, packed_product

__all__ = ["PLANS", "as_matrices"]

PLANS = Kernels("cpu")


@of_float32
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if op.group != 1 or any(n != 1 for n in w.dims[2:]):
        return No(f"{op.group} groups, windows of {list(w.dims[2:])}")
    return None


@offer(PLANS, Convolution, when=fits, name="rows")
def emit_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, w = args
    rows, weights = as_matrices(e, op, x, w)
    lens = [x.lens[0], w.lens[0], *x.lens[2:]]
    (found,) = packed_product(e, rows, weights)
    return found.seen_as(0, Shape(found.shape.dtype, lens, channels_last(lens)))


@offer(PLANS, Group, when=floats_around(Convolution, fits), name="rows")
def emit_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return packed_group(e, modules[0], [a for a in args if a is not None], Convolution, as_matrices, 1)


def as_matrices(e: CpuEmitter, op: Any, x: Value, w: Value) -> tuple[Value, Value]:
    """x [n, c, ..] as [n, .., c], where needed copied, and weights [o, c, 1, ..] as [c, o].  Errors: Refused."""
    moves = op.sliding(x.lens[2:], w.lens[2:])
    if any(n != 1 for n in moves.stride) or any((*moves.begins, *moves.ends)):
        raise Refused("results that are not made of one pixel each")
    x = as_channels_last(e, x)
    rows = x.seen_as(0, Shape(x.shape.dtype, _last(x.lens), _last(x.strides)))
    return rows, w.seen_as(0, Shape(w.shape.dtype, [w.lens[1], w.lens[0]], [w.strides[1], w.strides[0]]))


def _last(axes: Sequence[int]) -> list[int]:
    return [axes[0], *axes[2:], axes[1]]
