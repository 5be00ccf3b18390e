"""Solvers for banded linear systems that do not build dense matrices."""

from __future__ import annotations

import numpy as np

from mgx_core.errors import ShapeError
from mgx_core.types.argument import Array

__all__ = ["banded_triangular", "tridiagonal"]


def tridiagonal(diagonals: Array, right: Array) -> Array:
    """Solves tridiagonal systems [.., 3, n] (superdiagonal, diagonal, subdiagonal) with partial pivoting; returns [.., n, k].

    Errors: ShapeError for singular matrices.
    """
    size = diagonals.shape[-1]
    if diagonals.shape[-2] != 3 or right.shape[-2] != size:
        raise ShapeError(f"3 diagonals of length {right.shape[-2]} are required, got {diagonals.shape[-2:]}")
    batch = np.broadcast_shapes(diagonals.shape[:-2], right.shape[:-2])
    above, main, below = (np.broadcast_to(diagonals[..., k, :], (*batch, size)) for k in range(3))
    # of each row: the diagonal element, the two to its right, and the right-hand side
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
        raise ShapeError("invertible matrices are required")


def banded_triangular(diagonals: Array, right: Array, lower: bool, adjoint: bool) -> Array:
    """Solves banded triangular systems given by their diagonals [.., count, n]; returns [.., n, k].

    lower: the main diagonal is the first one, and each following one is one further below it; otherwise it is the last one, and
    those before it are above it.  Elements are stored at the column index of their row; adjoint: solves with the transpose.
    Errors: ShapeError for singular matrices.
    """
    count, size = diagonals.shape[-2:]
    if right.shape[-2] != size:
        raise ShapeError(f"diagonals of length {right.shape[-2]} are required, got {size}")
    batch = np.broadcast_shapes(diagonals.shape[:-2], right.shape[:-2])
    bands = np.broadcast_to(diagonals if lower else diagonals[..., ::-1, :], (*batch, count, size))
    _require(bands[..., 0, :])
    y = np.broadcast_to(right, (*batch, *right.shape[-2:])).copy()
    # eliminates the already solved unknowns, k rows away from row r
    forward = lower != adjoint
    for r in range(size) if forward else reversed(range(size)):
        for k in range(1, min(count, r + 1 if forward else size - r)):
            other = r - k if forward else r + k
            row = other if adjoint else r
            y[..., r, :] -= bands[..., k, row, None] * y[..., other, :]
        y[..., r, :] /= bands[..., 0, r, None]
    return y
