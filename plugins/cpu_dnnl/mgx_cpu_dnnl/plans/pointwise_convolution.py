"""Convolutions with 1 x 1 windows as matrix products of pixels and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Kernels, Module, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import Convolution
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last

from ..emitter import CpuEmitter, is_traced
from ..layout import as_channels_last
from .anchors import floats_around, of_one_type
from .offer import FLOATS, offer
from .packed_products import packed_group, packed_product

__all__ = ["PLANS", "as_matrices"]

PLANS = Kernels("cpu")
MIN_OUTPUTS: Final = 512  # minimum outputs per pixel for which the product gains more than copying strided pixels costs


@of_one_type(FLOATS)
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if op.group != 1 or any(n != 1 for n in w.dims[2:]):
        return No(
            f"one group and a window of one element are required, got {op.group} groups and a window {list(w.dims[2:])}"
        )
    return None


@offer(PLANS, Convolution, when=fits, name="rows")
def emit_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, w = args
    rows, weights = as_matrices(e, op, x, w)
    lens = [x.lens[0], w.lens[0], *rows.lens[1:-1]]
    (found,) = packed_product(e, rows, weights)
    return found.view_at(0, Shape(found.shape.dtype, lens, channels_last(lens)))


@offer(PLANS, Group, when=floats_around(Convolution, fits), name="rows")
def emit_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return packed_group(e, modules[0], [a for a in args if a is not None], Convolution, as_matrices, 1)


def as_matrices(e: CpuEmitter, op: Any, x: Value, w: Value) -> tuple[Value, Value]:
    """Returns x [n, c, ..] as [n, .., c] with only the pixels at strides (copied if needed), and weights [o, c, 1, ..] as [c, o].

    Errors: Refused for padding, or if copying costs more than the product gains.
    """
    moves = op.sliding(x.lens[2:], w.lens[2:])
    if any((*moves.begins, *moves.ends)):
        raise Refused("padding is not supported")
    x = as_channels_last(e, x)
    rows = x.view_at(0, Shape(x.shape.dtype, _channels_last(x.lens), _channels_last(x.strides)))
    if any(n != 1 for n in moves.stride):
        if w.lens[0] < MIN_OUTPUTS and not is_traced(x.shape):
            raise Refused(f"copying strided pixels does not pay off for {w.lens[0]} outputs")
        rows = e.row_major(_subsample(rows, moves.stride))
    return rows, w.view_at(0, Shape(w.shape.dtype, [w.lens[1], w.lens[0]], [w.strides[1], w.strides[0]]))


def _subsample(rows: Value, steps: Sequence[int]) -> Value:
    """Returns a view of the pixels of images [n, .., c] at strides."""
    (n, *extents, c), (by_image, *by_axis, by_channel) = rows.lens, rows.strides
    kept = [-(-extent // step) for extent, step in zip(extents, steps, strict=True)]
    onward = [by * step for by, step in zip(by_axis, steps, strict=True)]
    return rows.view_at(0, Shape(rows.shape.dtype, [n, *kept, c], [by_image, *onward, by_channel]))


def _channels_last(axes: Sequence[int]) -> list[int]:
    return [axes[0], *axes[2:], axes[1]]
