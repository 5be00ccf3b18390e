"""Slices and updates at run-time positions, clamped so that the slice is inside the operand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim
from mgx_core.types.memory_limit import require_memory

from ..node import Node

__all__ = ["inside", "replaced"]


def inside(n: Node, x: Instruction, sizes: Sequence[Dim], start: Instruction) -> Instruction:
    """Returns begins, one per axis, clamped so that a slice of the given extents is inside x.

    Errors: ParseError if it does not fit x, UnsupportedError for extents that are known only at run time.
    """
    if list(start.shape.dims) != [x.shape.rank]:
        n.fail(f"{x.shape.rank} begins are required, got {start.shape}")
    room = [d - s for d, s in zip(x.shape.dims, sizes, strict=True) if isinstance(d, int) and isinstance(s, int)]
    if len(room) < x.shape.rank:
        n.unsupported("extents that are known only at run time")
    if min(room, default=0) < 0:
        n.fail(f"a slice of extents {list(sizes)} does not fit {x.shape}")
    return n.pointwise(
        "clip", n.convert(start, dt.int64), n.literal([0] * len(room), np.int64), n.literal(room, np.int64)
    )


def replaced(n: Node, x: Instruction, update: Instruction, start: Instruction) -> Instruction:
    """Returns x with the slice at `start` replaced (dynamic update slice).

    Only axes up to the last one along which the slice is shorter are indexed; the others are replaced entirely.
    """
    at = inside(n, x, update.shape.dims, start)
    dims = [int(d) for d in update.shape.dims]
    count = max((k + 1 for k, d in enumerate(dims) if d != x.shape.dims[k]), default=0)
    if not count:
        return update
    require_memory((*dims[:count], count), 8, "the positions of a slice")
    places = np.stack(np.meshgrid(*(np.arange(d) for d in dims[:count]), indexing="ij"), -1)
    first = n.slice(at, [0], [0], [count])
    return n.add("scatternd_none", x, n.pointwise("add", n.literal(places), first), update)
