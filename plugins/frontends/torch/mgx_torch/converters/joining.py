"""Splits, concatenations and repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core.types.dim import Dim

from ..complex_parts import by_parts
from ..converter import converts
from ..node import Node

__all__ = ["parts"]


def parts(n: Node, x: Instruction, axis: int, sizes: Sequence[Dim]) -> list[Instruction]:
    """Returns consecutive parts along an axis."""
    out, start = [], 0
    for size in sizes:
        out.append(n.slice(x, [axis], [start], [start + size]))
        start = start + size  # type: ignore[assignment]
    return out


@by_parts("split.Tensor", "split", "split_with_sizes", "chunk", "tensor_split", "split_copy", "split_with_sizes_copy")
def split(n: Node, x: Instruction, sizes: Any, dim: int = 0) -> list[Instruction]:
    axis = n.axis(dim, x.shape.rank)
    return parts(n, x, axis, [n.result_dims(i)[axis] for i in range(len(n.value))])


@by_parts("unbind.int", "unbind", "unbind_copy")
def unbind(n: Node, x: Instruction, dim: int = 0) -> list[Instruction]:
    axis = n.axis(dim, x.shape.rank)
    return [n.squeeze(n.slice(x, [axis], [i], [i + 1]), [axis]) for i in range(len(n.value))]


def joined(n: Node, xs: Sequence[Instruction], dim: int) -> Instruction:
    rank = n.result().dim()
    full = [n.convert(x, n.dtype) for x in xs if x.shape.dims != (0,) or rank == 1]  # torch ignores empty vectors
    if not full:
        return n.convert(xs[0], n.dtype)
    return full[0] if len(full) == 1 else n.add("concat", *full, axis=n.axis(dim, rank))


@by_parts("cat", "concat", "concatenate")
def cat(n: Node, xs: Sequence[Instruction], dim: int = 0) -> Instruction:
    return joined(n, xs, dim)


@by_parts("stack")
def stack(n: Node, xs: Sequence[Instruction], dim: int = 0) -> Instruction:
    axis = n.axis(dim, n.result().dim())
    return joined(n, [n.unsqueeze(x, [axis]) for x in xs], axis)


@by_parts("repeat", "tile")
def repeat(n: Node, x: Instruction, repeats: Sequence[Dim]) -> Instruction:
    missing = len(repeats) - x.shape.rank
    if missing > 0:
        x = n.unsqueeze(x, range(missing))
    times = (1,) * -missing + tuple(repeats)
    if all(r == 1 for r in times):
        return x
    if all(r == 1 or d == 1 for r, d in zip(times, x.shape.dims, strict=True)):
        return n.broadcast_to(x, [r * d for r, d in zip(times, x.shape.dims, strict=True)])
    return n.add("tile", x, repeats=times)


@by_parts("repeat_interleave.self_int")
def repeat_interleave(
    n: Node, x: Instruction, repeats: Any, dim: int | None = None, *, output_size: Any = None
) -> Instruction:
    if dim is None:
        x, dim = n.reshape(x, (n.size(x, range(x.shape.rank)),)), 0
    axis = n.axis(dim, x.shape.rank)
    dims = list(x.shape.dims)
    wide = n.broadcast_to(n.unsqueeze(x, [axis + 1]), [*dims[: axis + 1], repeats, *dims[axis + 1 :]])
    return n.reshape(wide, [*dims[:axis], dims[axis] * repeats, *dims[axis + 1 :]])


@converts("meshgrid")
def meshgrid(n: Node, xs: Sequence[Instruction], **given: Any) -> list[Instruction]:
    out = []
    swapped = given.get("indexing") == "xy" and len(xs) > 1
    places = [1, 0, *range(2, len(xs))] if swapped else list(range(len(xs)))
    for i, x in enumerate(xs):
        others = [a for a in range(len(xs)) if a != places[i]]
        flat = n.reshape(x, (n.size(x, range(x.shape.rank)),))
        out.append(n.broadcast_to(n.unsqueeze(flat, others) if others else flat, n.result_dims(i)))
    return out


@converts("meshgrid.indexing")
def meshgrid_indexing(n: Node, xs: Sequence[Instruction], indexing: str = "ij") -> list[Instruction]:
    return meshgrid(n, xs, indexing=indexing)
