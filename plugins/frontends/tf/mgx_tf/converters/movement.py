"""The same elements in another form: reshapes, transpositions, slices, parts and wholes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.rearranged import batch_to_space, depth_to_space, space_to_batch, space_to_depth
from mgx_core.converting.strided import Masks, strided_slice
from mgx_core.ops.reshape import resolve
from mgx_core.ops.slice import FAR
from mgx_core.types.dim import Dim, compare

from ..converter import converts
from ..node import Node

__all__ = ["known_extents"]


def known_extents(n: Node, x: Instruction, what: str) -> tuple[Dim, ...]:
    """An integer operand as extents.  Errors: UnsupportedError if it is known only at run time."""
    found = n.dims(x)
    if found is None:
        n.unsupported(f"{what} must be known while the model is read; it depends on the model's inputs")
    return found


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
        n.fail(f"one axis is needed, got {at}")
    return n.unsqueeze(x, n.axes(at, x.shape.rank + 1))


@converts("Transpose", "ConjugateTranspose")
def transpose(n: Node, x: Instruction, permutation: Instruction) -> Instruction:
    order = n.whole(permutation, "the permutation")
    return n.transpose(x, n.axes(order, x.shape.rank))


@converts("InvertPermutation")
def invert_permutation(n: Node, x: Instruction) -> Instruction:
    known = n.constant(x)
    if known is not None:
        return n.literal(np.argsort(known), x.shape.dtype)
    return n.convert(n.get(n.add("topk", x, k=x.shape.dims[0], axis=0, largest=False), 1), x.shape.dtype)


@converts("Pack")
def pack(n: Node, *xs: Instruction) -> Instruction:
    if not xs:
        n.fail("at least one input is needed")
    (axis,) = n.axes([n.int("axis", 0)], xs[0].shape.rank + 1)
    return n.concat([n.unsqueeze(x, [axis]) for x in xs], axis)


@converts("ParallelConcat")
def parallel_concat(n: Node, *xs: Instruction) -> Instruction:
    return n.concat(list(xs), 0)


@converts("Unpack")
def unpack(n: Node, x: Instruction) -> Any:
    (axis,) = n.axes([n.int("axis", 0)], x.shape.rank)
    count = n.int("num")
    length = x.shape.dims[axis]
    if isinstance(length, int) and length != count:
        n.fail(f"axis {axis} of extent {length} does not unpack into {count} parts")
    return tuple(n.squeeze(n.slice(x, [axis], [k], [k + 1]), [axis]) for k in range(count))


@converts("ConcatV2")
def concat_v2(n: Node, *xs: Instruction) -> Instruction:
    if len(xs) < 2:
        n.fail("values and an axis are needed")
    return _concat(n, list(xs[:-1]), n.whole(xs[-1], "the axis")[0])


@converts("Concat")
def concat(n: Node, axis: Instruction, *xs: Instruction) -> Instruction:
    return _concat(n, list(xs), n.whole(axis, "the axis")[0])


def _concat(n: Node, xs: list[Instruction], axis: int) -> Instruction:
    return n.concat(xs, axis)


@converts("ConcatOffset")
def concat_offset(n: Node, axis: Instruction, *shapes: Instruction) -> Any:
    at = n.whole(axis, "the axis")[0]
    known = [n.whole(s, "a shape") for s in shapes]
    ends = np.cumsum([0, *(k[at] for k in known)])
    return tuple(
        n.literal([int(ends[i]) if j == at % len(k) else 0 for j in range(len(k))], dt.int32)
        for i, k in enumerate(known)
    )


@converts("Split")
def split(n: Node, axis: Instruction, x: Instruction) -> Any:
    count = n.int("num_split")
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    length = x.shape.dims[at]
    if count < 1 or count > 1 << 16 or (isinstance(length, int) and length % count):
        n.fail(f"axis {at} of extent {length} does not split into {count} equal parts")
    chunk = length // count
    return _parts(n, x, at, [chunk * i for i in range(count)] + [length])


@converts("SplitV")
def split_v(n: Node, x: Instruction, sizes: Instruction, axis: Instruction) -> Any:
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    known = n.dims(sizes)
    if known is None:
        return n.items(n.add("split", x, n.convert(sizes, dt.int64), axis=at, count=n.int("num_split")))
    length = x.shape.dims[at]
    rest = [i for i, s in enumerate(known) if isinstance(s, int) and s == -1]
    if len(rest) > 1:
        n.fail(f"one size at most may be -1, got {list(known)}")
    listed = list(known)
    if rest:
        total: Dim = 0
        for i, s in enumerate(listed):
            total = total if i in rest else total + s
        listed[rest[0]] = length - total
    edges: list[Dim] = [0]
    for s in listed:
        edges.append(edges[-1] + s)
    if isinstance(edges[-1], int) and isinstance(length, int) and edges[-1] != length:
        n.fail(f"sizes {list(known)} must add up to the extent {length} of axis {at}")
    return _parts(n, x, at, edges)


def _parts(n: Node, x: Instruction, axis: int, edges: list[Dim]) -> tuple[Instruction, ...]:
    inner = n.unmoved(x)
    if inner is None:
        return tuple(x if len(edges) == 2 else n.slice(x, [axis], [a], [b]) for a, b in pairwise(edges))
    order = (0, *range(2, x.shape.rank), 1)
    return tuple(n.channels_last(n.slice(inner, [order[axis]], [a], [b])) for a, b in pairwise(edges))


@converts("Slice")
def slice_(n: Node, x: Instruction, begin: Instruction, size: Instruction) -> Instruction:
    starts, sizes = n.dims(begin), n.dims(size)
    rank = x.shape.rank
    if starts is not None and sizes is not None:
        if len(starts) != rank or len(sizes) != rank:
            n.fail(f"one begin and one size an axis are needed, got {list(starts)} and {list(sizes)} for rank {rank}")
        ends: list[Dim] = []
        for axis, (s, c) in enumerate(zip(starts, sizes, strict=True)):
            length = x.shape.dims[axis]
            known = isinstance(s, int) and isinstance(c, int) and isinstance(length, int)
            if known and (compare(s, ">", length) or compare(c, "<", -1) or compare(s + c, ">", length)):
                n.fail(f"begin {s} and size {c} leave axis {axis} of extent {length}")
            ends.append(FAR if isinstance(c, int) and c == -1 else s + c)
        kept = [
            a for a in range(rank) if not (_is(starts[a], 0) and (_is(sizes[a], -1) or sizes[a] == x.shape.dims[a]))
        ]
        return n.slice(x, kept, [starts[a] for a in kept], [ends[a] for a in kept]) if kept else x
    first = n.convert(begin, dt.int64)
    count = n.convert(size, dt.int64)
    whole = n.pointwise("equal", count, n.literal(-1, dt.int64))
    last = n.pointwise("where", whole, n.literal(FAR, dt.int64), n.pointwise("add", first, count))
    made = n.add("slice", x, first, last, axes=tuple(range(rank)))
    if sizes is not None and any(not _is(s, -1) for s in sizes):  # the extents are known though the place is not
        dims = [d if _is(s, -1) else s for s, d in zip(sizes, made.shape.dims, strict=True)]
        if all(isinstance(d, int) for d in dims):
            return n.reshape(made, dims)
    return made


def _is(d: Dim, number: int) -> bool:
    return isinstance(d, int) and d == number


@converts("StridedSlice")
def strided(n: Node, x: Instruction, begin: Instruction, end: Instruction, strides: Instruction) -> Instruction:
    words = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    return strided_slice(n, x, begin, end, strides, Masks(*(n.int(w, 0) for w in words)))


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
        ordered = n.reshape(n.transpose(n.convert(paddings, dt.int64), (1, 0)), (2 * x.shape.rank,))
        return n.add("pad", x, ordered, value)
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
    pairs = known_extents(n, paddings, "the borders")
    mode = n.string("mode")
    if mode == "REFLECT":
        return n.padded(x, list(zip(pairs[::2], pairs[1::2], strict=True)), mode="reflect")
    if mode != "SYMMETRIC":
        n.fail(f"mode must be REFLECT or SYMMETRIC, got {mode!r}")
    for axis, (b, e) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        if not (isinstance(b, int) and isinstance(e, int)):
            n.unsupported("borders that are known only at run time")
        if b or e:
            x = _symmetric(n, x, axis, b, e)
    return x


def _symmetric(n: Node, x: Instruction, axis: int, before: int, after: int) -> Instruction:
    length = x.shape.dims[axis]
    if isinstance(length, int) and max(before, after) > length:
        n.fail(f"borders of {before} and {after} exceed axis {axis} of extent {length}")
    parts = [x]
    if before:
        parts.insert(0, n.add("reverse", n.slice(x, [axis], [0], [before]), axes=(axis,)))
    if after:
        parts.append(n.add("reverse", n.slice(x, [axis], [length - after], [length]), axes=(axis,)))
    return n.concat(parts, axis)


@converts("ReverseV2", "Reverse")
def reverse(n: Node, x: Instruction, axes: Instruction) -> Instruction:
    chosen = n.whole(axes, "the axes")
    if n.op_type == "Reverse":  # a truth value an axis
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
    for by, at in zip(n.whole(shift, "the shift"), n.whole(axis, "the axis"), strict=True):
        (at,) = n.axes([at], x.shape.rank)
        length = x.shape.dims[at]
        if isinstance(length, int) and length:
            by %= length
        cut: Dim = length - by if by >= 0 else -by
        x = n.concat([n.slice(x, [at], [cut], [length]), n.slice(x, [at], [0], [cut])], at)
    return x


@converts("SpaceToBatchND")
def space_to_batch_nd(n: Node, x: Instruction, block: Instruction, paddings: Instruction) -> Instruction:
    pads = known_extents(n, paddings, "the borders")
    return space_to_batch(n, x, n.whole(block, "the block"), list(zip(pads[::2], pads[1::2], strict=True)))


@converts("BatchToSpaceND")
def batch_to_space_nd(n: Node, x: Instruction, block: Instruction, crops: Instruction) -> Instruction:
    cuts = known_extents(n, crops, "the crops")
    return batch_to_space(n, x, n.whole(block, "the block"), list(zip(cuts[::2], cuts[1::2], strict=True)))


@converts("SpaceToBatch")
def space_to_batch_2d(n: Node, x: Instruction, paddings: Instruction) -> Instruction:
    pads = known_extents(n, paddings, "the borders")
    return space_to_batch(n, x, [n.int("block_size")] * 2, list(zip(pads[::2], pads[1::2], strict=True)))


@converts("BatchToSpace")
def batch_to_space_2d(n: Node, x: Instruction, crops: Instruction) -> Instruction:
    cuts = known_extents(n, crops, "the crops")
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
