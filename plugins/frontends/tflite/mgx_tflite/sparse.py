"""Converts sparse constants to dense arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgx_core import ParseError, UnsupportedError
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType

__all__ = ["dense"]


def dense(raw: Array, dtype: DType, dims: list[int], sparsity: Any, limit: int) -> Array:
    """Returns the dense array of a sparse constant: dimensions in traversal order, the inner blocks last.

    limit: maximum bytes of the element indices.
    Errors: ParseError for metadata that does not fit the extents or the data.
    """
    order = [int(v) for v in sparsity.TraversalOrderAsNumpy()]
    blocks = [int(v) for v in sparsity.BlockMapAsNumpy()] if sparsity.BlockMapLength() else []
    rank = len(dims)
    if sorted(order) != list(range(rank + len(blocks))) or sparsity.DimMetadataLength() != len(order):
        raise ParseError(f"traversal order {order} with blocks {blocks} does not fit rank {rank}")
    if any(not 0 <= b < rank for b in blocks):
        raise ParseError(f"blocks {blocks} do not fit rank {rank}")
    levels = [sparsity.DimMetadata(k) for k in range(len(order))]
    values = raw.view(dtype.numpy)
    if dtype.bits < 8:
        raise UnsupportedError(f"a sparse constant of type {dtype}")
    sizes = list(dims)
    inner: dict[int, int] = {}
    for k, level in zip(order, levels, strict=True):
        if k >= rank:
            inner[k] = int(level.DenseSize())
            if inner[k] < 1 or sizes[blocks[k - rank]] % inner[k]:
                raise ParseError(f"a block of {inner[k]} does not divide extent {sizes[blocks[k - rank]]}")
    for k, size in inner.items():
        sizes[blocks[k - rank]] //= size
    extents = [sizes[k] if k < rank else inner[k] for k in order]
    # position of each stored element along each level, expanded level by level
    places = np.zeros((1, 0), np.int64)
    starts = np.zeros(1, np.int64)  # the parent entry of each row in the level above
    for level, extent in zip(levels, extents, strict=True):
        places, starts = _expanded(level, extent, places, starts, limit)
    if len(places) != values.size:
        raise ParseError(f"the sparse constant has {values.size} values for {len(places)} positions")
    out = np.zeros([sizes[k] if k < rank else inner[k] for k in range(len(order))], dtype.numpy)
    if math.prod(out.shape) != math.prod(dims):
        raise ParseError(f"blocks do not cover extents {dims}")
    back = np.argsort(order)
    out[tuple(places[:, back[k]] for k in range(len(order)))] = values
    axes: list[int] = []
    for axis in range(rank):
        axes.append(axis)
        axes += [rank + j for j, b in enumerate(blocks) if b == axis]
    return np.ascontiguousarray(out.transpose(axes)).reshape(dims)


def _expanded(level: Any, extent: int, places: Array, rows: Array, limit: int) -> tuple[Array, Array]:
    count = len(places)
    if level.Format() == 0:
        if int(level.DenseSize()) != extent:
            raise ParseError(f"a dense level has size {level.DenseSize()}, {extent} is required")
        _require(count * extent, places.shape[1] + 1, limit)
        grown = np.repeat(places, extent, 0)
        own = np.tile(np.arange(extent), count)
        return np.column_stack([grown, own]), (rows[:, None] * extent + np.arange(extent)).reshape(-1)
    segments, indices = _vector(level, "Segments"), _vector(level, "Indices")
    if rows.size and (int(rows.max()) + 1 >= segments.size or (np.diff(segments) < 0).any()):
        raise ParseError("the segments of a sparse constant do not fit its rows")
    if segments.size and (int(segments[-1]) > indices.size or int(segments[0]) < 0):
        raise ParseError("the segments of a sparse constant are outside its indices")
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < extent:
        raise ParseError(f"an index of a sparse constant is outside extent {extent}")
    lengths = segments[rows + 1] - segments[rows]
    if lengths.size and int(lengths.max()) > extent:
        raise ParseError(f"a row of a sparse constant has {lengths.max()} entries, at most {extent} are possible")
    _require(int(lengths.sum()), places.shape[1] + 1, limit)
    at = np.concatenate([np.arange(segments[r], segments[r + 1]) for r in rows]) if rows.size else np.zeros(0, np.int64)
    return np.column_stack([np.repeat(places, lengths, 0), indices[at]]), at


def _require(count: int, levels: int, limit: int) -> None:
    if 8 * count * levels > limit:
        raise ParseError(f"{count} positions of a sparse constant exceed option limit_bytes, {limit}")


def _vector(level: Any, word: str) -> Array:
    """Returns segments or indices, which have one of three widths."""
    kinds = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}
    kind = kinds.get(getattr(level, f"Array{word}Type")())
    vector = None if kind is None else level.union(f"Array{word}", kind)
    if vector is None:
        raise ParseError("a sparse level lacks its segments or indices")
    return np.asarray(vector.ValuesAsNumpy()).astype(np.int64)
