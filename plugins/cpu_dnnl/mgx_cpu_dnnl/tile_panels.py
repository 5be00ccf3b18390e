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
    steps = -(-k // (fours * few))
    whole = np.zeros((steps, fours, few, tiles, 16), matrix.dtype)
    whole.reshape(-1, tiles * 16)[:k, :n] = matrix
    rows = whole.transpose(3, 0, 1, 4, 2)  # [tiles, steps, fours, 16, few]
    full = tiles // 4 * 4
    most = rows[:full].reshape(-1, 4, steps, fours, 16, few).swapaxes(1, 2)
    rest = rows[full:].swapaxes(0, 1)
    made: Array = aligned_bytes(whole.nbytes).view(matrix.dtype)  # no tile row crosses a cache line
    made[: most.size], made[most.size :] = most.reshape(-1), rest.reshape(-1)
    return made
