"""Pooling: fixed windows, and adaptive pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim

from ..converter import Converter, converts
from ..node import Node
from .convolution import filled

__all__: list[str] = []


def windows(rank: int, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> dict[str, Any]:
    """Returns the window attributes under the names of pooling ops."""
    lengths = filled(size, rank)
    empty = stride is None or (isinstance(stride, Sequence) and not stride)
    return {
        "lengths": lengths,
        "stride": lengths if empty else filled(stride, rank),
        "padding": filled(padding, rank),
        "dilations": filled(dilation, rank),
        "ceil_mode": bool(ceil),
    }


def batched(n: Node, x: Instruction, rank: int, compute: Any) -> Any:
    """Runs a function on a batched image; adds and removes the batch axis if the operand has none."""
    if x.shape.rank == rank + 2:
        return compute(x)
    out = compute(n.unsqueeze(x, [0]))
    return tuple(n.squeeze(o, [0]) for o in out) if isinstance(out, tuple) else n.squeeze(out, [0])


def max_pool(rank: int, indices: bool) -> Converter:
    def convert(
        n: Node,
        x: Instruction,
        size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        given = windows(rank, size, stride, padding, dilation, ceil_mode)

        def pooled(image: Instruction) -> Any:
            if not indices or not n.output_used(1):
                out = n.add("pooling", image, mode="max", **given)
                return (out, None) if indices and x.shape.rank == rank + 2 else (out, out) if indices else out
            both = n.add("max_pool_indices", image, **given)
            plane = n.graph.scalar(n, n.size(image, range(2, rank + 2)))
            return n.get(both, 0), n.pointwise("mod", n.get(both, 1), plane)

        return batched(n, x, rank, pooled)

    return convert


def average_pool(rank: int) -> Converter:
    def convert(
        n: Node,
        x: Instruction,
        size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> Instruction:
        given = windows(rank, size, stride, padding, 1, ceil_mode)

        def pooled(image: Instruction) -> Instruction:
            if image.shape.dtype.is_float:
                return means(image)
            # torch truncates: noninteger quotients of integers differ from integers by more than the margin
            found = means(n.convert(image, dt.float64))
            margin = n.full_like(found, 0.25 / max(prod(given["lengths"]), divisor or 1))
            found = n.add("add", found, n.add("mul", n.add("sign", found), margin))
            return n.convert(n.add("trunc", found), n.dtype)

        def means(image: Instruction) -> Instruction:
            if divisor is None:
                return n.add("pooling", image, mode="average", count_include_pad=count_include_pad, **given)
            border = _reached(n, given, image.shape.dims[2:], n.result_dims()[-rank:])
            framed = n.add("pad", image, pads=(0, 0, *given["padding"], 0, 0, *border))
            bare = {**given, "padding": (0,) * rank, "ceil_mode": False}
            mean = n.add("pooling", framed, mode="average", count_include_pad=True, **bare)
            return n.add("mul", mean, n.full_like(mean, prod(given["lengths"]) / divisor))

        return batched(n, x, rank, pooled)

    return convert


def _reached(n: Node, given: dict[str, Any], dims: Sequence[Any], results: Sequence[Any]) -> list[int]:
    """Returns the end padding that the windows reach, which exceeds the stated padding in ceil mode."""
    found = []
    for axis, (d, out) in enumerate(zip(dims, results, strict=True)):
        padding = given["padding"][axis]
        if not given["ceil_mode"]:
            found.append(padding)
            continue
        end = (out - 1) * given["stride"][axis] + given["lengths"][axis]
        found.append(max(padding, n.static(end - d - padding, "the padding of pooling in ceil mode")))
    return found


for _rank in (1, 2, 3):
    converts(f"max_pool{_rank}d")(max_pool(_rank, False))
    converts(f"max_pool{_rank}d_with_indices")(max_pool(_rank, True))
    converts(f"avg_pool{_rank}d")(average_pool(_rank))


def adaptive(rank: int, mode: str) -> Converter:
    def convert(n: Node, x: Instruction, size: Any) -> Any:
        wanted = filled(size, rank)

        def pooled(image: Instruction) -> Instruction:
            wide = n.convert(image, dt.float32) if mode == "average" and image.shape.dtype.bits < 32 else image
            if all(w == 1 for w in wanted):
                name = f"reduce_{'mean' if mode == 'average' else 'max'}"
                return n.convert(n.add(name, wide, axes=tuple(range(2, rank + 2))), n.dtype)
            dims = image.shape.dims[2:]
            if all(w is None or (isinstance(d, int) and d % w == 0) for d, w in zip(dims, wanted, strict=True)):
                lengths = tuple(
                    n.static(d // (d if w is None else w), "the window of adaptive pooling")
                    for d, w in zip(dims, wanted, strict=True)
                )
                return n.add("pooling", image, mode=mode, lengths=lengths, stride=lengths)
            for axis, (d, w) in enumerate(zip(dims, wanted, strict=True), 2):
                wide = _cells(n, wide, axis, d, w, mode)
            return n.convert(wide, n.dtype)

        return batched(n, x, rank, pooled)

    return convert


def _cells(n: Node, x: Instruction, axis: int, length: Dim, count: int | None, mode: str) -> Instruction:
    """Returns means or maxima of `count` adaptive cells along one axis; boundaries are rounded outward."""
    if count is None or count == length:
        return x
    pieces = []
    for i in range(count):
        start, end = length * i // count, (length * (i + 1) + count - 1) // count
        piece = n.slice(x, [axis], [start], [end])
        pieces.append(n.add(f"reduce_{'mean' if mode == 'average' else 'max'}", piece, axes=(axis,)))
    return n.add("concat", *pieces, axis=axis) if count > 1 else pieces[0]


def adaptive_max(rank: int) -> Converter:
    """Returns the maxima of adaptive cells and their flat indices; elements are gathered per cell, short cells padded."""
    values = adaptive(rank, "max")

    def convert(n: Node, x: Instruction, size: Any) -> Any:
        if not n.output_used(1):
            return values(n, x, size), None
        dims = [n.static(d, "the operand's extent of adaptive pooling") for d in x.shape.dims[-rank:]]
        places = np.zeros((1, 1), np.int64)  # [cells, elements of a cell], flat indices over the axes so far
        for d, w in zip(dims, filled(size, rank), strict=True):
            along = _members(d, d if w is None else w)
            places = places[:, None, :, None] * d + along[None, :, None, :]
            places = places.reshape(places.shape[0] * along.shape[0], -1)
        lead = x.shape.dims[:-rank]
        plane = n.reshape(x, (*lead, prod(dims)))
        table = n.literal(places, dt.int64)
        cells = n.add("gather", plane, table, axis=-1)
        best = n.add("argmax", cells, axis=-1)
        top = n.reshape(n.add("gather_elements", cells, best, axis=-1), n.result_dims(0))
        where = n.add("gather_elements", n.broadcast_to(table, cells.shape.dims), best, axis=-1)
        return top, n.reshape(where, n.result_dims(1))

    return convert


def _members(length: int, count: int) -> Array:
    """Returns element indices [cell, element] of `count` cells along an axis; shorter cells repeat their last element."""
    starts = np.arange(count) * length // count
    ends = -(-(np.arange(count) + 1) * length // count)
    return np.minimum(starts[:, None] + np.arange((ends - starts).max())[None, :], ends[:, None] - 1)


for _rank in (1, 2, 3):
    converts(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(adaptive(_rank, "average"))
    converts(f"adaptive_max_pool{_rank}d")(adaptive_max(_rank))
