"""Solvers for banded systems of equations, without dense matrices."""

from __future__ import annotations

import numpy as np

from mgx_core.errors import ShapeError
from mgx_core.types.argument import Array

__all__ = ["banded_triangular", "tridiagonal"]


def tridiagonal(diagonals: Array, right: Array) -> Array:
    """Returns the solutions [.., n, k] of matrices with three diagonals [.., 3, n]: above, on and below the main one.

    Rows are exchanged so that the larger of two pivots is taken.  Errors: ShapeError for matrices that have no inverse.
    """
    size = diagonals.shape[-1]
    if diagonals.shape[-2] != 3 or right.shape[-2] != size:
        raise ShapeError(f"3 diagonals of {right.shape[-2]} numbers are needed, got {diagonals.shape[-2:]}")
    batch = np.broadcast_shapes(diagonals.shape[:-2], right.shape[:-2])
    above, main, below = (np.broadcast_to(diagonals[..., k, :], (*batch, size)) for k in range(3))
    # of each row, what lies on the diagonal and on the two right of it, and the right side
    rows = np.zeros((*batch, size, 3), diagonals.dtype)
    y = np.broadcast_to(right, (*batch, *right.shape[-2:])).copy()
    if not size:
        return y
    none = np.zeros_like(main[..., 0])
    here = np.stack([main[..., 0], above[..., 0] if size > 1 else none, none], -1)
    for k in range(size - 1):
        under = np.stack([below[..., k + 1], main[..., k + 1], above[..., k + 1] if k + 2 < size else none], -1)
        swap = (np.abs(under[..., 0]) > np.abs(here[..., 0]))[..., None]
        pivot, other = np.where(swap, under, here), np.where(swap, here, under)
        first, second = np.where(swap, y[..., k + 1, :], y[..., k, :]), np.where(swap, y[..., k, :], y[..., k + 1, :])
        _require(pivot[..., 0])
        factor = other[..., :1] / pivot[..., :1]
        rows[..., k, :], y[..., k, :] = pivot, first
        y[..., k + 1, :] = second - factor * first
        left = other - factor * pivot
        here = np.concatenate([left[..., 1:], none[..., None]], -1)
    _require(here[..., 0])
    rows[..., size - 1, :] = here
    for k in reversed(range(size)):
        for away in (1, 2):
            if k + away < size:
                y[..., k, :] -= rows[..., k, away, None] * y[..., k + away, :]
        y[..., k, :] /= rows[..., k, 0, None]
    return y


def _require(pivots: Array) -> None:
    if (pivots == 0).any():
        raise ShapeError("matrices that can be inverted are needed")


def banded_triangular(diagonals: Array, right: Array, lower: bool, adjoint: bool) -> Array:
    """Returns the solutions [.., n, k] of triangular matrices by their diagonals [.., count, n].

    lower: the main diagonal is the first and the others lie below it, each one further away, else it is the last and the others
    lie above it; a number stands in the column of its row's index; adjoint: the transposed matrices are meant.
    Errors: ShapeError for matrices that have no inverse.
    """
    count, size = diagonals.shape[-2:]
    if right.shape[-2] != size:
        raise ShapeError(f"diagonals of {right.shape[-2]} numbers are needed, got {size}")
    batch = np.broadcast_shapes(diagonals.shape[:-2], right.shape[:-2])
    bands = np.broadcast_to(diagonals if lower else diagonals[..., ::-1, :], (*batch, count, size))
    _require(bands[..., 0, :])
    y = np.broadcast_to(right, (*batch, *right.shape[-2:])).copy()
    # the element between row r and the one that is k away from it towards the solved ones
    forward = lower != adjoint
    for r in range(size) if forward else reversed(range(size)):
        for k in range(1, min(count, r + 1 if forward else size - r)):
            other = r - k if forward else r + k
            row = other if adjoint else r
            y[..., r, :] -= bands[..., k, row, None] * y[..., other, :]
        y[..., r, :] /= bands[..., 0, r, None]
    return y
