"""Sampling of images: grid sampling, regions of interest, deformable convolution, max pooling with indices, col2im."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.columns import Col2im
from mgx_core.ops.pointwise import Add
from mgx_core.ops.pooling import MaxPoolIndices
from mgx_core.ops.roi import MaxRoiPool, Roialign
from mgx_core.ops.sample import DeformConv, GridSample
from mgx_core.ops.window import per_axis
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last

from ..emitter import CpuEmitter
from ..layout import as_channels_last
from .folding import fold
from .native_loops import emit_op, encode_box, grain_of, native_loop
from .offer import NUMBERS, offer, only
from .precision import narrowed, widened
from .products import plain_product

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
FLOATS: Final = frozenset({dt.float32, dt.float64, dt.float16, dt.bfloat16})
MODES: Final = ("linear", "nearest", "cubic")
PADDING: Final = ("zeros", "border", "reflection")
TAPS: Final = 16 * 64 * 16  # scratch bytes: 16 positions, 64 neighbors of each, 16 bytes of offset and weight


@offer(PLANS, GridSample, when=only(FLOATS), name="native")
def emit_grid_sample(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, grid = args
    rank = len(x.lens) - 2
    if rank > 3:
        raise Refused(f"at most 3 spatial axes are supported, got {rank}")
    lens = [*x.lens[:2], *grid.lens[1:-1]]
    out = e.allocate(x.shape.dtype, lens, channels_last(lens) if x.strides[1] == 1 else None)
    if not out.shape.elements():
        return out
    if not x.shape.elements():
        raise Refused("there are no elements to sample")
    dims = [x.lens[0], *grid.lens[1:-1]]
    over = [out.strides[0], *out.strides[2:]]
    numbers = [MODES.index(op.mode), PADDING.index(op.padding_mode), int(op.align_corners)]
    numbers += [x.lens[1], x.strides[1], out.strides[1], rank, grid.strides[-1], *x.lens[2:], *x.strides[2:]]
    numbers += encode_box(dims, [x.strides[0], *[0] * rank], grid.strides[:-1], over)
    work, loop = prod(dims), f"grid_sample_{x.shape.dtype}_{grid.shape.dtype}"
    native_loop(e, op.name, loop, [x, grid, out], [out], numbers, work, max(1, 2048 // x.lens[1]), TAPS)
    return out


def supported_regions(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if inputs[2].dtype not in NUMBERS:
        return No(f"batch indices {inputs[2]} are not supported")
    return only(FLOATS, 2)(op, inputs, modules)


@offer(PLANS, Roialign, when=supported_regions, name="native")
def emit_roialign(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, rois, images = args
    count = rois.lens[0]
    out = e.allocate(x.shape.dtype, [count, x.lens[1], op.output_height, op.output_width])
    if not out.shape.elements():
        return out
    if not x.shape.elements():
        raise Refused("there are no elements to sample")
    if images.shape.dtype is not dt.int64:
        wide = e.allocate(dt.int64, images.lens)
        e.copy_into(images, wide)
        images = wide
    (scale,) = struct.unpack("q", struct.pack("d", float(op.spatial_scale)))
    aligned = op.coordinate_transformation_mode == "half_pixel"
    numbers = [int(op.mode == "max"), int(aligned), op.output_height, op.output_width, op.sampling_ratio, scale]
    numbers += [*x.lens, *x.strides, *rois.strides, images.strides[0], *out.strides]
    native_loop(e, op.name, f"roialign_{x.shape.dtype}", [x, rois, images, out], [out], numbers, count, 1)
    return out


@offer(PLANS, MaxRoiPool, when=only(FLOATS), name="native")
def emit_max_roi_pool(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, rois = args
    count = rois.lens[0]
    out = e.allocate(x.shape.dtype, [count, x.lens[1], *op.pooled_shape])
    if not out.shape.elements():
        return out
    (scale,) = struct.unpack("q", struct.pack("d", float(op.spatial_scale)))
    numbers = [*op.pooled_shape, scale, *x.lens, *x.strides, *rois.strides, *out.strides]
    native_loop(e, op.name, f"max_roi_pool_{x.shape.dtype}", [x, rois, out], [out], numbers, count, 1)
    return out


def static_windows(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if len(inputs) > 1:
        return No("the window geometry is an operand, not an attribute")
    return only(NUMBERS - {dt.bool_})(op, inputs, modules)


@offer(PLANS, Col2im, when=static_windows, name="native")
def emit_folded(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    (x,) = args
    image, rank = [int(d) for d in op.image_shape], len(op.image_shape)
    block = per_axis(op.block_shape, rank, "block_shape")
    moves, counts = op.sliding(rank), [int(c) for c in op.counts(image, block)]
    out = e.allocate(x.shape.dtype, [x.lens[0], x.lens[1] // prod(block), *image])
    if not out.shape.elements():
        return out
    if 0 in x.lens:
        raise Refused("there are no windows")
    fold(e, op.name, e.row_major(x), out, block, moves, counts)
    return out


@offer(PLANS, MaxPoolIndices, when=only(NUMBERS - {dt.bool_}), name="native")
def emit_max_pool_indices(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, narrow = args[0], args[0].shape.dtype
    if narrow in (dt.bfloat16, dt.float16):
        x = widened(e, x)  # the loop compares vectors of float32
    dims, rank = x.lens[2:], len(x.lens) - 2
    lengths, stride, dilation = op.numbers(rank)
    counts = [int(c) for c in op.counts(dims)]
    before, _, _ = op.around(dims, counts)
    values = e.allocate(x.shape.dtype, [*x.lens[:2], *counts])
    places = e.allocate(dt.int64, [*x.lens[:2], *counts])
    work = values.shape.elements()
    if not work:
        return values, places
    if not x.shape.elements():
        raise Refused("there are no elements")
    steps = [prod(dims[a + 1 :]) if op.storage_order == 0 else prod(dims[:a]) for a in range(rank)]
    axes = zip(dims, lengths, stride, dilation, before, x.strides[2:], steps, strict=True)
    numbers = [prod(dims), rank, *(n for axis in axes for n in axis), *counts, *encode_box(x.lens[:2], x.strides[:2])]
    grain = max(1, grain_of(work, [x]) // prod(lengths))
    loop, scratch = f"max_pool_indices_{x.shape.dtype}", 16 * prod(lengths)
    native_loop(e, op.name, loop, [x, values, places], [values, places], numbers, work, grain, scratch)
    return values if x is args[0] else narrowed(e, values, narrow), places


def of_images(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if len(inputs[1].dims) != 4:
        return No("only convolutions of images are supported")
    return only(frozenset({dt.float32}))(op, inputs, modules)


@offer(PLANS, DeformConv, when=of_images, name="native")
def emit_deformed(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits a loop that interpolates the windows into rows of a matrix (im2col), and its product with the weights."""
    x, w, offset, bias, mask = [*args, None, None][:5]
    assert x is not None and w is not None and offset is not None
    (batch, channels, *image), (outer, _, *taps), out = x.lens, w.lens, offset.lens[2:]
    if not prod((*x.lens, *w.lens, *offset.lens)):
        raise Refused("an extent is 0")
    x = as_channels_last(e, x)
    columns = e.allocate(dt.float32, [batch, prod(out), prod(taps) * channels])
    numbers = [channels, *image, x.strides[0], *x.strides[2:], *out, op.offset_group, *taps]
    for name, neutral in (("stride", 1), ("dilation", 1), ("padding", 0)):
        numbers += list(getattr(op, name)[:2]) or [neutral] * 2
    numbers += [*offset.strides, int(mask is not None), *(offset if mask is None else mask).strides]
    operands = [x, offset, offset if mask is None else mask, columns]
    work, scratch = batch * prod(out), 4 * channels
    native_loop(e, op.name, "deformed", operands, [columns], numbers, work, grain_of(work, [columns]), scratch)
    made = plain_product(e, columns, _as_matrix(e, w)) if op.group == 1 else _grouped_products(e, columns, w, op.group)
    lens = [batch, outer, *out]
    made = made.view_at(0, Shape(dt.float32, lens, channels_last(lens)))
    if bias is None:
        return made
    return emit_op(e, Add(), made, bias.view_at(0, Shape(dt.float32, lens, [0, bias.strides[0], 0, 0])))


def _grouped_products(e: CpuEmitter, columns: Value, w: Value, group: int) -> Value:
    """Returns the products of each group's channels in rows [b, positions, taps channels] with its weights: [b, positions, m]."""
    (batch, positions, length), (outer, inner, *taps) = columns.lens, w.lens
    places, channels, count = prod(taps), group * inner, outer // group
    out = e.allocate(dt.float32, [batch, positions, outer])
    for g in range(group):
        strides = [positions * length, length, channels, 1]
        own = columns.view_at(g * inner, Shape(dt.float32, [batch, positions, places, inner], strides))
        rows = e.copy(own).view_at(0, Shape(dt.float32, [batch, positions, places * inner]))
        weights = w.view_at(g * count * w.strides[0], Shape(w.shape.dtype, [count, inner, *taps], w.strides))
        part = Shape(dt.float32, [batch, positions, count], out.strides)
        e.copy_into(plain_product(e, rows, _as_matrix(e, weights)), out.view_at(g * count, part))
    return out


def _as_matrix(e: CpuEmitter, w: Value) -> Value:
    """Returns weights [m, c, *k] as a matrix [k c, m]."""
    order = [*range(2, len(w.lens)), 1, 0]
    lens = [prod(w.lens[1:]), w.lens[0]]
    known = e.constant(w)
    if known is not None:
        return e.literal(np.ascontiguousarray(np.asarray(known).transpose(order).reshape(lens)))
    turned = Shape(w.shape.dtype, [w.lens[a] for a in order], [w.strides[a] for a in order])
    return e.copy(w.view_at(0, turned)).view_at(0, Shape(w.shape.dtype, lens))
