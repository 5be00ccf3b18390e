"""Data rearrangement: space-to-batch, space-to-depth, batched gather and padding with run-time widths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ParseError
from ..ir.instruction import Instruction
from ..types import dtype as dt
from ..types.dim import Dim, product
from .builder import InstructionBuilder
from .channels_last import ChannelsLastBuilder

__all__ = [
    "batch_to_space", "depth_to_space", "gather_in_batches", "padded_at_run_time", "padded_symmetrically",
    "space_to_batch", "space_to_depth",
]  # fmt: skip


def space_to_batch(
    n: InstructionBuilder, x: Instruction, block: Sequence[int], pads: Sequence[tuple[Dim, Dim]]
) -> Instruction:
    """Returns x [b, *s, ..] padded, with blocks of `block` along s moved to the batch axis (TensorFlow's SpaceToBatchND)."""
    k, rank = len(block), x.shape.rank
    _blocks(block, rank, len(pads))
    if any(not isinstance(p, int) or p != 0 for pair in pads for p in pair):
        begins = [0, *(p[0] for p in pads), *(0,) * (rank - k - 1)]
        ends = [0, *(p[1] for p in pads), *(0,) * (rank - k - 1)]
        x = n.add("pad", x, pads=(*begins, *ends))
    dims = x.shape.dims
    split: list[Dim] = [dims[0]]
    for d, b in zip(dims[1 : k + 1], block, strict=True):
        if isinstance(d, int) and d % b:
            raise ParseError(f"a padded extent of {d} does not divide into blocks of {b}")
        split += [d // b, b]
    x = n.reshape(x, (*split, *dims[k + 1 :]))
    order = [*range(2, 2 * k + 1, 2), 0, *range(1, 2 * k, 2), *range(2 * k + 1, x.shape.rank)]
    x = n.transpose(x, order)
    whole: Dim = dims[0]
    for b in block:
        whole = whole * b
    return n.reshape(x, (whole, *split[1::2], *dims[k + 1 :]))


def batch_to_space(
    n: InstructionBuilder, x: Instruction, block: Sequence[int], crops: Sequence[tuple[Dim, Dim]]
) -> Instruction:
    """Returns the inverse of `space_to_batch`, cropped instead of padded."""
    k = len(block)
    dims = x.shape.dims
    _blocks(block, x.shape.rank, len(crops))
    count = int(np.prod(block))
    if isinstance(dims[0], int) and dims[0] % count:
        raise ParseError(f"a batch of {dims[0]} does not divide into blocks of {list(block)}")
    batch = dims[0] // count
    x = n.reshape(x, (*block, batch, *dims[1:]))
    order = [k]
    for axis in range(k):
        order += [k + 1 + axis, axis]
    x = n.transpose(x, [*order, *range(2 * k + 1, x.shape.rank)])
    spatial = [d * b for d, b in zip(dims[1 : k + 1], block, strict=True)]
    x = n.reshape(x, (batch, *spatial, *dims[k + 1 :]))
    if all(isinstance(c, int) and c == 0 for pair in crops for c in pair):
        return x
    ends = [d - c[1] for d, c in zip(spatial, crops, strict=True)]
    return n.slice(x, range(1, k + 1), [c[0] for c in crops], ends)


def _blocks(block: Sequence[int], rank: int, pairs: int) -> None:
    if not block or min(block) < 1 or len(block) >= rank or pairs != len(block):
        raise ParseError(f"blocks {list(block)} with {pairs} pairs of borders do not fit a tensor of rank {rank}")


def padded_at_run_time(
    n: InstructionBuilder, x: Instruction, pads: Instruction, value: Instruction | None = None
) -> Instruction:
    """Returns x padded by the run-time widths in an integer operand [rank, 2], with zeros or one value."""
    ordered = n.reshape(n.transpose(n.convert(pads, dt.int64), (1, 0)), (2 * x.shape.rank,))
    return n.add("pad", x, ordered, value)


def space_to_depth(n: InstructionBuilder, x: Instruction, size: int) -> Instruction:
    """Returns x [b, h, w, c] with each size x size block moved to the channel axis."""
    b, h, w, c = _image(x, size)
    x = n.reshape(x, (b, h // size, size, w // size, size, c))
    return n.reshape(n.transpose(x, (0, 1, 3, 2, 4, 5)), (b, h // size, w // size, c * size * size))


def depth_to_space(n: InstructionBuilder, x: Instruction, size: int) -> Instruction:
    """Returns the inverse of `space_to_depth`."""
    b, h, w, c = _image(x, size)
    if isinstance(c, int) and c % (size * size):
        raise ParseError(f"{c} channels do not make blocks of {size} x {size}")
    rest = c // (size * size)
    x = n.reshape(x, (b, h, w, size, size, rest))
    return n.reshape(n.transpose(x, (0, 1, 3, 2, 4, 5)), (b, h * size, w * size, rest))


def _image(x: Instruction, size: int) -> tuple[Dim, ...]:
    if x.shape.rank != 4 or size < 1:
        raise ParseError(f"an image [n, h, w, c] and a block size of at least 1 are needed, got {x.shape} and {size}")
    return x.shape.dims


def gather_in_batches(
    n: InstructionBuilder, x: Instruction, indices: Instruction, axis: int, batch: int
) -> Instruction:
    """Gathers slices of x [b.., p.., n, q..] along `axis` at indices [b.., i..] per batch entry -> [b.., p.., i.., q..]."""
    rank = x.shape.rank
    (axis,) = n.axes([axis], rank)
    if batch < 0:
        batch += indices.shape.rank
    if not 0 <= batch <= min(axis, indices.shape.rank):
        raise ParseError(f"{batch} batch axes do not fit axis {axis} of {x.shape} and indices {indices.shape}")
    if indices.shape.dtype not in (dt.int32, dt.int64):
        indices = n.convert(indices, dt.int64)
    if not batch:
        return n.add("gather", x, indices, axis=axis)
    before, dims = x.shape.dims[batch:axis], x.shape.dims
    if before:  # gather on the first axis after the batch, then transpose back
        x = n.transpose(x, [*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)])
    lead = product(dims[:batch])
    own = indices.shape.dims[batch:]
    rest = x.shape.dims[batch + 1 :]
    flat = n.reshape(x, (lead * dims[axis], *rest))
    at = n.reshape(n.convert(indices, dt.int64), (lead, product(own)))
    starts = _starts(n, flat, lead, dims[axis])
    picked = n.add("gather", flat, n.pointwise("add", at, starts), axis=0)
    made = n.reshape(picked, (*dims[:batch], *own, *rest))
    if not before:
        return made
    k, m = len(own), len(before)
    places = range(batch, made.shape.rank)
    order = [*places[k : k + m], *places[:k], *places[k + m :]]
    return n.transpose(made, [*range(batch), *order])


def _starts(n: InstructionBuilder, flat: Instruction, lead: Dim, step: Dim) -> Instruction:
    """Returns the offsets [lead, 1] of the batch entries in `flat`, whose first extent is lead * step."""
    if lead == 1:
        return n.literal(np.zeros((1, 1), np.int64))
    if isinstance(lead, int) and isinstance(step, int):
        return n.literal(np.arange(lead, dtype=np.int64).reshape(-1, 1) * step)
    rows = n.broadcast_to(n.literal(np.ones((1, 1), np.int64)), (lead, 1))
    numbers = n.add("prefix_scan_sum", rows, axis=0, exclusive=True)
    if isinstance(step, int):
        return n.pointwise("mul", numbers, n.literal(np.int64(step)))
    total, count = (n.add("dimensions_of", v, start=0, end=1) for v in (flat, rows))
    some = n.pointwise("max", count, n.literal(np.ones(1, np.int64)))
    return n.pointwise("mul", numbers, n.pointwise("div", total, some))


def padded_symmetrically(n: ChannelsLastBuilder, x: Instruction, pads: Sequence[tuple[Dim, Dim]]) -> Instruction:
    """Returns x padded symmetrically (edges included).  Errors: UnsupportedError if pads are not known at parse time."""
    for axis, (before, after) in enumerate(pads):
        length, parts = x.shape.dims[axis], [x]
        if not (isinstance(before, int) and isinstance(after, int)):
            n.unsupported("borders that are known only at run time")
        if isinstance(length, int) and max(before, after) > length:
            n.fail(f"pads of {before} and {after} exceed axis {axis} of extent {length}")
        if before:
            parts.insert(0, n.add("reverse", n.slice(x, [axis], [0], [before]), axes=(axis,)))
        if after:
            parts.append(n.add("reverse", n.slice(x, [axis], [length - after], [length]), axes=(axis,)))
        x = n.concat(parts, axis)
    return x
