"""Data movement: reshapes, slices, splits and concatenations."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.rearranged import (
    batch_to_space,
    depth_to_space,
    padded_at_run_time,
    padded_symmetrically,
    space_to_batch,
    space_to_depth,
)
from mgx_core.converting.splitting import edges_of_parts, sizes_of_parts
from mgx_core.converting.strided import Masks, slice_of_size, strided_slice
from mgx_core.ops.reshape import resolve
from mgx_core.types.dim import Dim

from ..converter import converts
from ..node import Node
from .parts import replaced


@converts("RESHAPE")
def reshape(n: Node, x: Instruction, shape: Instruction | None = None) -> Instruction:
    wanted: Any = n.dims(shape) if shape is not None else tuple(n.options("NewShape"))
    if wanted is None:
        return n.add("reshape", x, n.convert(shape, dt.int64), allowzero=True)  # type: ignore[arg-type]
    rank = n.rank(x)
    return n.reshape(x, (*resolve(x.shape.dims[:rank], tuple(wanted), True), *x.shape.dims[rank:]))


@converts("SQUEEZE")
def squeeze(n: Node, x: Instruction) -> Instruction:
    dims = x.shape.dims[: n.rank(x)]
    axes = n.options("SqueezeDims") or [i for i, d in enumerate(dims) if isinstance(d, int) and d == 1]
    chosen = n.axes(axes, len(dims))
    return n.squeeze(x, chosen) if chosen else x


@converts("EXPAND_DIMS")
def expand_dims(n: Node, x: Instruction, axis: Instruction) -> Instruction:
    return n.unsqueeze(x, n.axes(n.whole(axis, "the new axis")[:1], n.rank(x) + 1))


@converts("TRANSPOSE")
def transpose(n: Node, x: Instruction, order: Instruction) -> Instruction:
    return n.transpose(x, n.axes(n.whole(order, "the permutation"), x.shape.rank))


@converts("CONCATENATION")
def concatenation(n: Node, *xs: Instruction) -> Instruction:
    return n.activated(n.concat(list(xs), n.option("Axis", 0)))


@converts("PACK")
def pack(n: Node, *xs: Instruction) -> Instruction:
    (axis,) = n.axes([n.option("Axis", 0)], xs[0].shape.rank + 1)
    return n.concat([n.unsqueeze(x, [axis]) for x in xs], axis)


@converts("UNPACK")
def unpack(n: Node, x: Instruction) -> Any:
    (axis,) = n.axes([n.option("Axis", 0)], x.shape.rank)
    return tuple(n.squeeze(n.slice(x, [axis], [k], [k + 1]), [axis]) for k in range(len(n.operator.outputs)))


@converts("SPLIT")
def split(n: Node, axis: Instruction, x: Instruction) -> Any:
    count = len(n.operator.outputs)
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    length = x.shape.dims[at]
    if isinstance(length, int) and length % count:
        n.fail(f"axis {at} of extent {length} cannot be split into {count} equal parts")
    chunk = length // count
    return tuple(n.slice(x, [at], [chunk * k], [chunk * (k + 1)]) for k in range(count))


@converts("SPLIT_V")
def split_v(n: Node, x: Instruction, sizes: Instruction, axis: Instruction) -> Any:
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    found, count = n.dims(sizes), len(n.operator.outputs)
    if found is None:
        return n.items(n.add("split", x, sizes_of_parts(n, x, at, sizes), axis=at, count=count))
    return tuple(n.slice(x, [at], [a], [b]) for a, b in pairwise(edges_of_parts(n, x, at, found, count)))


@converts("SLICE")
def slice_(n: Node, x: Instruction, begin: Instruction, size: Instruction) -> Instruction:
    return slice_of_size(n, x, begin, size)


@converts("STRIDED_SLICE")
def strided(n: Node, x: Instruction, begin: Instruction, end: Instruction, strides: Instruction) -> Instruction:
    if n.option("Offset", False):
        end = n.pointwise("add", begin, end)
    words = ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask")
    return strided_slice(n, x, begin, end, strides, Masks(*(n.option(w, 0) for w in words)))


@converts("DYNAMIC_UPDATE_SLICE")
def update_slice(n: Node, x: Instruction, update: Instruction, start: Instruction) -> Instruction:
    return replaced(n, x, update, start)


@converts("TILE")
def tile(n: Node, x: Instruction, times: Instruction) -> Instruction:
    found = n.dims(times)
    return n.add("tile", x, n.convert(times, dt.int64)) if found is None else n.add("tile", x, repeats=tuple(found))


def _pairs(n: Node, pads: Instruction, what: str) -> list[tuple[Dim, Dim]]:
    found = n.extents(pads, what)
    return list(zip(found[::2], found[1::2], strict=True))


@converts("PAD", "PADV2")
def pad(n: Node, x: Instruction, pads: Instruction, value: Instruction | None = None) -> Instruction:
    if n.dims(pads) is None:
        return padded_at_run_time(n, x, pads, n.literal(n.zero(x), x.shape.dtype) if value is None else value)
    widths = _pairs(n, pads, "the borders")
    if value is None:
        return n.padded(x, widths, n.zero(x))
    constant = n.constant(value)
    if constant is not None:
        return n.padded(x, widths, float(constant.reshape(-1)[0]))
    return n.add("pad", x, None, value, pads=(*(b for b, _ in widths), *(e for _, e in widths)))


@converts("MIRROR_PAD")
def mirror_pad(n: Node, x: Instruction, pads: Instruction) -> Instruction:
    widths = _pairs(n, pads, "the borders")
    return n.padded(x, widths, mode="reflect") if n.option("Mode", 0) == 0 else padded_symmetrically(n, x, widths)


@converts("REVERSE_V2")
def reverse(n: Node, x: Instruction, axes: Instruction) -> Instruction:
    return n.add("reverse", x, axes=n.axes(n.whole(axes, "the axes"), x.shape.rank))


@converts("REVERSE_SEQUENCE")
def reverse_sequence(n: Node, x: Instruction, lengths: Instruction) -> Instruction:
    batch, time = n.option("BatchDim", 0), n.option("SeqDim", 0)
    return n.add("reverse_sequence", x, n.convert(lengths, dt.int64), batch_axis=batch, time_axis=time)


@converts("SPACE_TO_BATCH_ND")
def to_batch(n: Node, x: Instruction, block: Instruction, pads: Instruction) -> Instruction:
    return space_to_batch(n, x, n.whole(block, "the block"), _pairs(n, pads, "the borders"))


@converts("BATCH_TO_SPACE_ND")
def from_batch(n: Node, x: Instruction, block: Instruction, crops: Instruction) -> Instruction:
    return batch_to_space(n, x, n.whole(block, "the block"), _pairs(n, crops, "the crops"))


@converts("SPACE_TO_DEPTH")
def to_depth(n: Node, x: Instruction) -> Instruction:
    return space_to_depth(n, x, n.option("BlockSize", 1))


@converts("DEPTH_TO_SPACE")
def from_depth(n: Node, x: Instruction) -> Instruction:
    return depth_to_space(n, x, n.option("BlockSize", 1))


@converts("DILATE")
def dilate(n: Node, x: Instruction, dilations: Instruction, value: Instruction) -> Instruction:
    for axis, step in enumerate(n.whole(dilations, "the dilations")):
        if step > 1:
            dims = x.shape.dims
            wide = n.unsqueeze(x, [axis + 1])
            filler = n.broadcast_to(value, (*dims[: axis + 1], step - 1, *dims[axis + 1 :]))
            made = n.reshape(n.concat([wide, filler], axis + 1), (*dims[:axis], dims[axis] * step, *dims[axis + 1 :]))
            x = n.slice(made, [axis], [0], [dims[axis] * step - (step - 1)])
    return x
