"""Reverses PNG's row filters."""

from __future__ import annotations

import numpy as np

from mgx_core.errors import ShapeError
from mgx_core.types.argument import Array
from mgx_core.types.memory_limit import require_memory

__all__ = ["SIGNATURE", "unfiltered"]

SIGNATURE = b"\x89PNG\r\n\x1a\n"

TALL = 16  # minimum number of rows for which vectorizing over diagonals pays off


def unfiltered(lines: Array, step: int) -> Array:
    """Reverses the filters of scanlines [rows, n], each preceded by its filter type.

    step: bytes per pixel.  Errors: ShapeError for an unknown filter.
    """
    how = lines[:, 0]
    if (how > 4).any():
        raise ShapeError(f"PNG has no filter {how.max()}")
    if len(lines) >= TALL and (how > 2).any():
        return _along_diagonals(how, lines[:, 1:], step)
    out = np.zeros((len(lines), lines.shape[1] - 1), np.uint8)
    above = np.zeros(lines.shape[1] - 1, np.uint8)
    for k, (kind, row) in enumerate(zip(how.tolist(), lines[:, 1:], strict=True)):
        if kind == 1:
            for place in range(step):
                out[k, place::step] = np.cumsum(row[place::step], dtype=np.uint8)
        elif kind in (0, 2):
            out[k] = row + above if kind == 2 else row
        else:
            for place in range(step):
                out[k, place::step] = _predicted(row[place::step].tolist(), above[place::step].tolist(), kind)
        above = out[k]
    return out


def _along_diagonals(how: Array, lines: Array, step: int) -> Array:
    """Reconstructs anti-diagonals of pixels at once: each pixel depends on its left, upper and upper left neighbor."""
    rows, columns = len(lines), lines.shape[1] // step
    require_memory((rows + 1, columns + 1, step), 2)
    # zero padding above and to the left; one plane per byte of a pixel, so that loops are as long as diagonals
    held = np.zeros((step, rows + 1, columns + 1), np.int16)
    held[:, 1:, 1:] = lines.reshape(rows, columns, step).transpose(2, 0, 1)
    flat, wide = held.reshape(step, -1), columns + 1
    kinds = [(how == k).astype(np.int16) for k in range(5)]
    for k in range(rows + columns - 1):
        first, last = max(0, k - columns + 1), min(rows - 1, k)
        begin, end = (first + 1) * wide + k - first + 1, (last + 1) * wide + k - last + 2

        def at(back: int, begin: int = begin, end: int = end) -> Array:
            return flat[:, begin - back : end - back : columns]

        left, above, corner = at(1), at(wide), at(wide + 1)
        far_left, far_above = np.abs(above - corner), np.abs(left - corner)
        far = np.abs(left + above - 2 * corner)
        nearest = np.where((far_left <= far_above) & (far_left <= far), left, np.where(far_above <= far, above, corner))
        _, by_left, by_above, by_both, by_nearest = (v[first : last + 1] for v in kinds)
        guess = by_left * left + by_above * above + by_both * ((left + above) >> 1) + by_nearest * nearest
        now = at(0)
        np.bitwise_and(now + guess, 255, out=now)
    return held[:, 1:, 1:].transpose(1, 2, 0).astype(np.uint8).reshape(rows, columns * step)


def _predicted(row: list[int], above: list[int], kind: int) -> list[int]:
    """Reconstructs one byte of each pixel of a row."""
    left = corner = 0
    for k, (byte, up) in enumerate(zip(row, above, strict=True)):
        if kind == 3:
            guess = (left + up) >> 1
        else:
            far_left, far_above, far = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if far_left <= far_above and far_left <= far else up if far_above <= far else corner
        row[k] = left = (byte + guess) & 255
        corner = up
    return row
