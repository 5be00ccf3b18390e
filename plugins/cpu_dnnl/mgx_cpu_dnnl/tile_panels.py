"""Packs weights into the panels that AMX tiles and dot products of bytes read."""

from __future__ import annotations

from typing import Final

import numpy as np

from mgx_core.types.argument import Array

from .recipes import aligned_bytes

__all__ = ["pack_panels"]

FOUR: Final = 4  # adjacent bytes along the depth


def pack_panels(matrix: Array, step: int) -> Array:
    """Packs a matrix [k, n] of bytes or bfloat16 into the panels of `byte_tiles.h` (or `byte_dots.h`), in order.

    step: depth per instruction, in bytes.
    """
    k, n = matrix.shape
    few = FOUR // matrix.itemsize  # adjacent elements
    fours, tiles = step // FOUR, -(-n // 16)
    steps, full = -(-k // (fours * few)), tiles // 4 * 4
    depth, cut = steps * fours * few, full * 16
    # no tile row crosses a cache line
    made: Array = aligned_bytes(depth * tiles * 16 * matrix.itemsize).view(matrix.dtype)
    if (k, n) != (depth, tiles * 16):
        whole = np.zeros((depth, tiles * 16), matrix.dtype)
        whole[:k, :n] = matrix
        matrix = whole
    most = made[: cut * depth].reshape(full // 4, steps, 4, fours, 16, few)
    rest = made[cut * depth :].reshape(steps, tiles - full, fours, 16, few)
    for f in range(few):  # whole rows of columns, which numpy copies faster than groups of `few` elements
        rows = matrix[f::few]
        most[..., f] = rows[:, :cut].reshape(steps, fours, full // 4, 4, 16).transpose(2, 0, 3, 1, 4)
        rest[..., f] = rows[:, cut:].reshape(steps, fours, tiles - full, 16).transpose(0, 2, 1, 3)
    return made
