"""Data movement: Reshape, Transpose, Expand, Tile, DepthToSpace and similar."""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import common_dims
from mgx_core.ops.reshape import resolve
from mgx_core.types.dim import Dim, product

from ..converter import converts
from ..node import Node

__all__ = ["bounded", "known_ints"]


def known_ints(n: Node, x: Instruction | None) -> list[int] | None:
    """Returns an integer operand as ints if it is constant at parse time, else None."""
    found = n.dims(x)
    if found is None or not all(isinstance(d, int) for d in found):
        return None
    return [int(d) for d in found]


def bounded(n: Node, dims: Sequence[Dim], size: int) -> tuple[Dim, ...]:
    """Returns the extents of a result after checks.  Errors: ParseError for negative ones, or above the limit of bytes."""
    if any(isinstance(d, int) and d < 0 for d in dims):
        n.fail(f"extents must not be negative, got {list(dims)}")
    total = product(dims)
    limit = n.parser.options.limit_bytes
    if isinstance(total, int) and total * max(size, 1) > limit:
        n.fail(f"{list(dims)} takes more than the {limit} bytes that option limit_bytes allows")
    return tuple(dims)


@converts("Reshape")
def reshape_1(n: Node, x: Instruction) -> Instruction:
    return _reshape(n, x, n.attr("shape", []), False)


@converts("Reshape", since=5)
def reshape_5(n: Node, x: Instruction, shape: Instruction | None = None) -> Instruction:
    if shape is None:  # some models use the form of an older opset
        return reshape_1(n, x)
    allowzero = bool(n.attr("allowzero", 0)) and n.version >= 14
    wanted = n.dims(shape)
    if wanted is None:
        return n.add("reshape", x, shape, allowzero=allowzero)
    return _reshape(n, x, wanted, allowzero)


def _reshape(n: Node, x: Instruction, wanted: Sequence[Dim], allowzero: bool) -> Instruction:
    zeros = [i for i, d in enumerate(wanted) if isinstance(d, int) and d == 0]
    if not x.shape.ranked and (allowzero or not zeros):
        return n.add("reshape", x, dims=tuple(wanted), allowzero=allowzero)
    if not allowzero:
        if zeros and zeros[-1] >= x.shape.rank:
            n.fail(f"shape {list(wanted)} copies axis {zeros[-1]} of a tensor of rank {x.shape.rank}")
        wanted = [x.shape.dims[i] if i in zeros else d for i, d in enumerate(wanted)]
    # remaining zeros are literal (allowzero): a -1 beside one is 0
    dims = resolve(
        x.shape.dims, wanted, allowzero or (bool(zeros) and -1 not in [d for d in wanted if isinstance(d, int)])
    )
    return n.reshape(x, dims)


@converts("Flatten")
def flatten(n: Node, x: Instruction) -> Instruction:
    axis = n.attr("axis", 1)
    if axis < 0 and n.version < 11:
        n.fail(f"axis must not be negative before opset 11, got {axis}")
    return n.add("flatten", x, axis=axis)


@converts("Transpose")
def transpose(n: Node, x: Instruction) -> Instruction:
    perm = n.attr("perm", None)
    if perm is None:
        perm = list(reversed(range(x.shape.rank)))
    # the standard has no negative axes here, but torch's older exporter writes them (`repeat_interleave` along the last axis)
    counted = [axis + x.shape.rank if axis < 0 else axis for axis in perm]
    if sorted(counted) != list(range(x.shape.rank)):
        n.fail(f"perm must be a permutation of {x.shape.rank} axes, got {perm}")
    return n.transpose(x, counted)


@converts("Squeeze")
def squeeze(n: Node, x: Instruction, axes: Instruction | None = None) -> Instruction:
    if axes is not None:
        found = known_ints(n, axes)
        return n.add("squeeze", x, axes) if found is None else n.squeeze(x, found)
    return n.squeeze(x, n.attr("axes", []))


@converts("Unsqueeze")
def unsqueeze(n: Node, x: Instruction, axes: Instruction | None = None) -> Instruction:
    if axes is not None:
        found = known_ints(n, axes)
        return n.add("unsqueeze", x, axes) if found is None else n.unsqueeze(x, found)
    return n.unsqueeze(x, n.attr("axes"))


@converts("Expand", since=8)
def expand(n: Node, x: Instruction, shape: Instruction) -> Instruction:
    dims = n.dims(shape)
    if dims is None:
        return n.add("broadcast_with_dims", x, shape)
    bounded(n, dims, x.shape.dtype.size)
    return n.broadcast_to(x, bounded(n, common_dims(x.shape.dims, dims), x.shape.dtype.size))


@converts("Tile")
def tile_1(n: Node, x: Instruction, tiles: Instruction, axis: Instruction) -> Instruction:
    times, on = n.constant(tiles), n.constant(axis)
    if times is None or on is None or times.size != 1 or on.size != 1:
        return n.unsupported("tiles and axis must be constants of one element")
    (at,) = n.axes([int(on.reshape(-1)[0])], x.shape.rank)
    return tiled(n, x, [int(times.reshape(-1)[0]) if i == at else 1 for i in range(x.shape.rank)])


@converts("Tile", since=6)
def tile_6(n: Node, x: Instruction, repeats: Instruction) -> Instruction:
    times = n.dims(repeats)
    return n.add("tile", x, repeats) if times is None else tiled(n, x, times)


def tiled(n: Node, x: Instruction, repeats: Sequence[Dim]) -> Instruction:
    """Tiles x: inserts an axis before each repeated one, broadcasts it and merges both."""
    dims = x.shape.dims
    if len(repeats) != len(dims) or any(isinstance(r, int) and r < 0 for r in repeats):
        n.fail(f"one nonnegative repeat per axis is required, got {list(repeats)} for {x.shape}")
    out = bounded(n, [d * r for d, r in zip(dims, repeats, strict=True)], x.shape.dtype.size)
    spread: list[Dim] = []
    wide: list[Dim] = []
    for d, r in zip(dims, repeats, strict=True):
        if r != 1:
            spread.append(1)
            wide.append(r)
        spread.append(d)
        wide.append(d)
    if spread == list(dims):
        return x
    return n.reshape(n.broadcast_to(n.reshape(x, spread), wide), out)


def _blocks(n: Node, x: Instruction) -> tuple[int, str]:
    size, mode = n.attr("blocksize"), n.attr("mode", "DCR")
    if x.shape.rank != 4:
        n.fail(f"the input must have rank 4, got {x.shape}")
    if size < 1:
        n.fail(f"blocksize must be at least 1, got {size}")
    if mode not in ("DCR", "CRD"):
        n.fail(f"mode must be DCR or CRD, got {mode!r}")
    return size, mode


@converts("DepthToSpace")
def depth_to_space(n: Node, x: Instruction) -> Instruction:
    size, mode = _blocks(n, x)
    batch, depth, high, wide = x.shape.dims
    if isinstance(depth, int) and depth % (size * size):
        n.fail(f"the {depth} channels must be a multiple of blocksize squared ({size * size})")
    rest = depth // (size * size)
    if mode == "DCR":
        x = n.transpose(n.reshape(x, (batch, size, size, rest, high, wide)), (0, 3, 4, 1, 5, 2))
    else:
        x = n.transpose(n.reshape(x, (batch, rest, size, size, high, wide)), (0, 1, 4, 2, 5, 3))
    return n.reshape(x, (batch, rest, high * size, wide * size))


@converts("SpaceToDepth")
def space_to_depth(n: Node, x: Instruction) -> Instruction:
    size, mode = _blocks(n, x)
    batch, depth, high, wide = x.shape.dims
    if any(isinstance(d, int) and d % size for d in (high, wide)):
        n.fail(f"height {high} and width {wide} must be multiples of blocksize {size}")
    x = n.reshape(x, (batch, depth, high // size, size, wide // size, size))
    x = n.transpose(x, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return n.reshape(x, (batch, depth * size * size, high // size, wide // size))


@converts("ReverseSequence", since=10)
def reverse_sequence(n: Node, x: Instruction, sequence_lens: Instruction | None = None) -> Instruction:
    if sequence_lens is None:  # MIGraphX's form
        sequence_lens = n.literal(n.attr("sequence_lens"), dt.int64)
    return n.add(
        "reverse_sequence",
        x,
        sequence_lens,
        batch_axis=n.attr("batch_axis", 1),
        time_axis=n.attr("time_axis", 0),
    )
