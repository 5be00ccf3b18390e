"""Data movement: reshape, transpose, pad, roll, space-to-batch."""

from __future__ import annotations

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.filling import places_along
from mgx_core.converting.rearranged import (
    batch_to_space,
    depth_to_space,
    padded_at_run_time,
    padded_symmetrically,
    space_to_batch,
    space_to_depth,
)
from mgx_core.ops.reshape import resolve
from mgx_core.types.dim import Dim, product

from ..converter import converts
from ..node import Node

__all__ = ["mirrored"]


@converts("Reshape")
def reshape(n: Node, x: Instruction, shape: Instruction) -> Instruction:
    wanted = n.dims(shape)
    if wanted is None:
        return n.add("reshape", x, n.convert(shape, dt.int64), allowzero=True)
    if any(isinstance(d, int) and d < -1 for d in wanted) or sum(isinstance(d, int) and d == -1 for d in wanted) > 1:
        n.fail(f"a shape has extents of at least 0 and at most one -1, got {list(wanted)}")
    if not x.shape.ranked:
        return n.add("reshape", x, dims=tuple(wanted), allowzero=True)
    return n.reshape(x, resolve(x.shape.dims, wanted, True))


@converts("Squeeze")
def squeeze(n: Node, x: Instruction) -> Instruction:
    axes = n.ints("squeeze_dims") or n.ints("axis")
    if not axes:
        axes = [i for i, d in enumerate(x.shape.dims) if isinstance(d, int) and d == 1]
    chosen = n.axes(axes, x.shape.rank)
    return n.squeeze(x, chosen) if chosen else x


@converts("ExpandDims")
def expand_dims(n: Node, x: Instruction, axis: Instruction) -> Instruction:
    at = n.whole(axis, "the new axis")
    if len(at) != 1:
        n.fail(f"one axis is required, got {at}")
    return n.unsqueeze(x, n.axes(at, x.shape.rank + 1))


@converts("Transpose")
def transpose(n: Node, x: Instruction, permutation: Instruction) -> Instruction:
    order = n.whole(permutation, "the permutation")
    return n.transpose(x, n.axes(order, x.shape.rank))


@converts("InvertPermutation")
def invert_permutation(n: Node, x: Instruction) -> Instruction:
    known = n.constant(x)
    if known is not None:
        return n.literal(np.argsort(known), x.shape.dtype)
    return n.convert(n.get(n.add("topk", x, k=x.shape.dims[0], axis=0, largest=False), 1), x.shape.dtype)


@converts("Tile")
def tile(n: Node, x: Instruction, multiples: Instruction) -> Instruction:
    times = n.dims(multiples)
    if times is None:
        return n.add("tile", x, n.convert(multiples, dt.int64))
    if all(isinstance(t, int) and t == 1 for t in times):
        return x
    return n.add("tile", x, repeats=tuple(times))


@converts("Pad", "PadV2")
def pad(n: Node, x: Instruction, paddings: Instruction, value: Instruction | None = None) -> Instruction:
    widths = n.dims(paddings)
    if widths is None:
        return padded_at_run_time(n, x, paddings, value)
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if value is None:
        return n.padded(x, pairs)
    known = n.constant(value)
    if known is not None and x.shape.dtype.kind in "iuf" and float(known.reshape(())) == known.reshape(()).item():
        return n.padded(x, pairs, float(known.reshape(())))
    order = (*(b for b, _ in pairs), *(e for _, e in pairs))
    return n.add("pad", x, None, value, pads=order)


@converts("MirrorPad")
def mirror_pad(n: Node, x: Instruction, paddings: Instruction) -> Instruction:
    pairs = n.extents(paddings, "the borders")
    return mirrored(n, x, list(zip(pairs[::2], pairs[1::2], strict=True)), n.string("mode"))


def mirrored(n: Node, x: Instruction, pairs: list[tuple[Dim, Dim]], mode: str) -> Instruction:
    """Returns x with mirror padding: REFLECT excludes the edge, SYMMETRIC includes it."""
    if mode == "REFLECT":
        return n.padded(x, pairs, mode="reflect")
    if mode != "SYMMETRIC":
        n.fail(f"mode must be REFLECT or SYMMETRIC, got {mode!r}")
    return padded_symmetrically(n, x, pairs)


@converts("ReverseV2", "Reverse")
def reverse(n: Node, x: Instruction, axes: Instruction) -> Instruction:
    chosen = n.whole(axes, "the axes")
    if n.op_type == "Reverse":  # one bool per axis
        chosen = [i for i, on in enumerate(chosen) if on]
    on = n.axes(chosen, x.shape.rank)
    return n.add("reverse", x, axes=on) if on else x


@converts("ReverseSequence")
def reverse_sequence(n: Node, x: Instruction, lengths: Instruction) -> Instruction:
    return n.add(
        "reverse_sequence",
        x,
        n.convert(lengths, dt.int64),
        batch_axis=n.int("batch_dim", 0),
        time_axis=n.int("seq_dim"),
    )


@converts("Roll")
def roll(n: Node, x: Instruction, shift: Instruction, axis: Instruction) -> Instruction:
    axes = n.whole(axis, "the axis")  # repeated axes are shifted repeatedly
    count = product(shift.shape.dims)
    if isinstance(count, int) and count != len(axes):
        n.fail(f"there must be one shift for each axis, got {count} for {len(axes)}")
    shift = n.reshape(n.convert(shift, dt.int64), (len(axes),))
    shifts = n.constant(shift)
    for k, named in enumerate(axes):
        (at,) = n.axes([named], x.shape.rank)
        length = x.shape.dims[at]
        if shifts is None or not isinstance(length, int):
            by = n.slice(shift, [0], [k], [k + 1])
            extent = n.add("dimensions_of", x, start=at, end=at + 1)
            x = n.add("gather", x, n.pointwise("mod", n.pointwise("sub", places_along(n, x, at), by), extent), axis=at)
        elif length:
            cut = -int(shifts[k]) % length
            x = n.concat([n.slice(x, [at], [cut], [length]), n.slice(x, [at], [0], [cut])], at)
    return x


@converts("SpaceToBatchND")
def space_to_batch_nd(n: Node, x: Instruction, block: Instruction, paddings: Instruction) -> Instruction:
    pads = n.extents(paddings, "the borders")
    return space_to_batch(n, x, n.whole(block, "the block"), list(zip(pads[::2], pads[1::2], strict=True)))


@converts("BatchToSpaceND")
def batch_to_space_nd(n: Node, x: Instruction, block: Instruction, crops: Instruction) -> Instruction:
    cuts = n.extents(crops, "the crops")
    return batch_to_space(n, x, n.whole(block, "the block"), list(zip(cuts[::2], cuts[1::2], strict=True)))


@converts("SpaceToBatch")
def space_to_batch_2d(n: Node, x: Instruction, paddings: Instruction) -> Instruction:
    pads = n.extents(paddings, "the borders")
    return space_to_batch(n, x, [n.int("block_size")] * 2, list(zip(pads[::2], pads[1::2], strict=True)))


@converts("BatchToSpace")
def batch_to_space_2d(n: Node, x: Instruction, crops: Instruction) -> Instruction:
    cuts = n.extents(crops, "the crops")
    return batch_to_space(n, x, [n.int("block_size")] * 2, list(zip(cuts[::2], cuts[1::2], strict=True)))


@converts("SpaceToDepth", "DepthToSpace")
def blocks(n: Node, x: Instruction) -> Instruction:
    move = space_to_depth if n.op_type == "SpaceToDepth" else depth_to_space
    layout = n.string("data_format", "NHWC")
    if layout == "NHWC":
        return move(n, x, n.int("block_size"))
    if layout != "NCHW":
        n.unsupported(f"layout {layout}")
    return n.transpose(move(n, n.transpose(x, (0, 2, 3, 1)), n.int("block_size")), (0, 3, 1, 2))
