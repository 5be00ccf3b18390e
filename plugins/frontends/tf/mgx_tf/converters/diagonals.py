"""Diagonals of matrices: construction, extraction, replacement, band parts."""

from __future__ import annotations

from math import prod

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.filling import count_up, places_along
from mgx_core.types.dim import Dim, minimum, product

from ..converter import converts
from ..node import Node


def _band(n: Node, k: Instruction | None) -> tuple[int, int]:
    """Returns the lowest and the highest diagonal; 0 is the main one, negative ones are below it."""
    found = [0] if k is None else n.whole(k, "the diagonals")
    if len(found) not in (1, 2) or found[0] > found[-1]:
        n.fail(f"one diagonal, or the lowest and the highest one, are required, got {found}")
    return found[0], found[-1]


def _extents(n: Node, *dims: object) -> list[int]:
    found = [d for d in dims if isinstance(d, int)]
    if len(found) < len(dims):
        n.unsupported("several diagonals, or diagonals with given extents, of matrices with symbolic extents")
    return found


def _is_symbolic(low: int, high: int, *dims: Dim) -> bool:
    """True for a single diagonal of matrices with a symbolic extent."""
    return low == high and not all(isinstance(d, int) for d in dims)


def _on_diagonal(n: Node, x: Instruction, k: int) -> Instruction:
    """Returns a mask of the k-th diagonal of the matrices x."""
    rows, columns = (places_along(n, x, x.shape.rank - axis) for axis in (2, 1))
    moved = n.pointwise("add", rows, n.literal(k, dt.int64))
    return n.pointwise("equal", n.unsqueeze(moved, [1]), n.unsqueeze(columns, [0]))


def _count(k: int, rows: Dim, columns: Dim) -> Dim:
    """Returns the length of the k-th diagonal."""
    return minimum(rows + min(k, 0), columns - max(k, 0))


def _as_column(n: Node, diagonal: Instruction, k: int, rows: Dim) -> Instruction:
    """Returns a column whose element in each row is the k-th diagonal's element of that row, 0 if there is none."""
    rank, first = diagonal.shape.rank, max(-k, 0)
    widths: list[tuple[Dim, Dim]] = [(0, 0)] * (rank - 1)
    return n.unsqueeze(n.padded(diagonal, [*widths, (first, rows - diagonal.shape.dims[-1] - first)]), [rank])


def _packed_indices(n: Node, low: int, high: int, rows: int, columns: int) -> np.ndarray:
    """Returns row and column [diagonals, longest, 2] of the elements of packed diagonals; -1 for padding."""
    if not -rows < low <= high < columns and (rows, columns) != (0, 0):
        n.fail(f"diagonals {low} to {high} are outside a matrix of {rows} rows and {columns} columns")
    align = n.string("align", "RIGHT_LEFT" if n.op_type.endswith("V3") else "LEFT_LEFT")
    longest = min(rows + min(high, 0), columns - max(low, 0))
    out = np.full((high - low + 1, longest, 2), -1, np.int64)
    for line, k in enumerate(range(high, low - 1, -1)):
        count = min(rows + min(k, 0), columns - max(k, 0))
        side = align.split("_")[0 if k >= 0 else -1]
        first = longest - count if side == "RIGHT" else 0
        at = np.arange(count)
        out[line, first : first + count] = np.stack([at + max(-k, 0), at + max(k, 0)], -1)
    return out


def _inverse_indices(places: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Returns for each matrix element its index in the packed diagonals, -1 if it is in none."""
    out = np.full((rows, columns), -1, np.int64)
    flat = places.reshape(-1, 2)
    held = flat[:, 0] >= 0
    out[flat[held, 0], flat[held, 1]] = np.flatnonzero(held)
    return out


def _gather_diagonals(n: Node, x: Instruction, count: int, places: np.ndarray, other: Instruction) -> Instruction:
    """Gathers from the last `count` axes of x, flattened, at `places`; `other` where an index is -1."""
    lead = x.shape.dims[: x.shape.rank - count]
    flat = n.reshape(x, (*lead, product(x.shape.dims[len(lead) :])))
    picked = n.add("gather", flat, n.literal(np.maximum(places, 0)), axis=len(lead))
    return n.pointwise("where", n.literal(places >= 0), picked, other) if (places < 0).any() else picked


@converts("MatrixDiag", "BatchMatrixDiag", "MatrixDiagV2", "MatrixDiagV3")
def matrix_diag(
    n: Node,
    x: Instruction,
    k: Instruction | None = None,
    height: Instruction | None = None,
    width: Instruction | None = None,
    padding: Instruction | None = None,
) -> Instruction:
    low, high = _band(n, k)
    lines = 1 if low == high else 2
    if _is_symbolic(low, high, x.shape.dims[-1]) and all(
        v is None or n.whole(v, "the extents")[0] < 0 for v in (height, width)
    ):
        side = x.shape.dims[-1] + abs(low)
        column = _as_column(n, x, low, side)
        square = n.broadcast_to(column, (*x.shape.dims[:-1], side, side))
        other = n.literal(0, x.shape.dtype) if padding is None else padding
        return n.pointwise("where", _on_diagonal(n, square, low), square, other)
    (longest,) = _extents(n, x.shape.dims[-1])
    rows, columns = (-1 if v is None else n.whole(v, "the extents")[0] for v in (height, width))
    least = longest - min(high, 0), longest + max(low, 0)
    if rows < 0 and columns < 0:
        rows = columns = max(least)
    rows, columns = (least[0] if rows < 0 else rows), (least[1] if columns < 0 else columns)
    places = _packed_indices(n, low, high, rows, columns)
    if places.shape[1] != longest or (lines == 2 and x.shape.dims[-2] != len(places)):
        n.fail(f"diagonals {low} to {high} of {rows} x {columns} do not fit {x.shape}")
    zero = n.literal(0, x.shape.dtype) if padding is None else padding
    return _gather_diagonals(n, x, lines, _inverse_indices(places, rows, columns), zero)


@converts("MatrixDiagPart", "BatchMatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
def diag_part(n: Node, x: Instruction, k: Instruction | None = None, padding: Instruction | None = None) -> Instruction:
    low, high = _band(n, k)
    if _is_symbolic(low, high, *x.shape.dims[-2:]):
        return _diagonal(n, x, low)
    rows, columns = _extents(n, *x.shape.dims[-2:])
    places = _packed_indices(n, low, high, rows, columns)
    at = np.where(places[..., 0] < 0, -1, places[..., 0] * columns + places[..., 1])
    return _gather_diagonals(
        n, x, 2, at[0] if low == high else at, n.literal(0, x.shape.dtype) if padding is None else padding
    )


def _diagonal(n: Node, x: Instruction, k: int) -> Instruction:
    """Returns the k-th diagonal of matrices with symbolic extents."""
    rank = x.shape.rank
    rows, columns = x.shape.dims[-2:]
    count = _count(k, rows, columns)
    sizes = n.add("dimensions_of", x, start=rank - 2, end=rank)
    left = n.pointwise("sub", sizes, n.literal(np.array([max(-k, 0), max(k, 0)], np.int64)))
    step = n.pointwise("add", n.slice(sizes, [0], [1], [2]), n.literal(1, dt.int64))
    first = n.pointwise("mul", step, n.literal(max(-k, 0), dt.int64))
    numbers = count_up(n, n.add("reduce_min", left, axes=(0,)), count)
    start = n.pointwise("add", first, n.literal(k, dt.int64))  # flat index of row max(-k, 0), column max(k, 0)
    at = n.pointwise("add", n.pointwise("mul", numbers, step), start)
    flat = n.reshape(x, (*x.shape.dims[: rank - 2], product((rows, columns))))
    return n.add("gather", flat, at, axis=rank - 2)


@converts("MatrixSetDiag", "BatchMatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def set_diag(n: Node, x: Instruction, diagonal: Instruction, k: Instruction | None = None) -> Instruction:
    low, high = _band(n, k)
    if _is_symbolic(low, high, *x.shape.dims[-2:]):
        # the reshape fails at run time if the diagonal has another length
        fits = n.reshape(diagonal, (*x.shape.dims[:-2], _count(low, *x.shape.dims[-2:])))
        return n.pointwise("where", _on_diagonal(n, x, low), _as_column(n, fits, low, x.shape.dims[-2]), x)
    rows, columns = _extents(n, *x.shape.dims[-2:])
    places = _inverse_indices(_packed_indices(n, low, high, rows, columns), rows, columns)
    return _gather_diagonals(n, diagonal, 1 if low == high else 2, places, x)


@converts("Diag")
def diag(n: Node, x: Instruction) -> Instruction:
    dims = _extents(n, *x.shape.dims)
    row = n.reshape(x, (1, prod(dims)))
    square = n.pointwise("where", n.literal(np.eye(prod(dims), dtype=bool)), row, n.literal(0, x.shape.dtype))
    return n.reshape(square, (*dims, *dims))


@converts("DiagPart")
def part_of_diag(n: Node, x: Instruction) -> Instruction:
    dims = _extents(n, *x.shape.dims)
    half = dims[: len(dims) // 2]
    if dims != half + half:
        n.fail(f"a tensor whose second half of axes equals the first is required, got {x.shape}")
    count = prod(half)
    flat = n.reshape(x, (count * count,))
    picked = n.add("gather", flat, n.literal(np.arange(count, dtype=np.int64) * (count + 1)), axis=0)
    return n.reshape(picked, half)
