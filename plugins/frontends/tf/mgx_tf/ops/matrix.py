"""Matrix decompositions, inverses and solvers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim

from .banded import banded_triangular, tridiagonal

__all__: list[str] = []


@op("tf_matrix")
class Matrix(Operation):
    """A matrix decomposition, inverse or solver of TensorFlow, selected by `function`.

    x: float [.., m, n]; y: the right-hand side of solvers; flags: names of the operator's attributes that are true; regular: the
    l2 regularizer of least squares.
    Errors: ShapeError for other ranks and singular matrices.  Source: TensorFlow's operators of these names.
    """

    function: str
    flags: tuple[str, ...] = ()
    regular: float = 0.0

    def infer(self, x: Shape, y: Shape | None = None) -> Any:
        if x.rank < 2 or not x.dtype.is_float:
            raise ShapeError(f"float matrices are required, got {x}")
        if y is not None and y.dtype is not x.dtype:
            raise ShapeError(f"operands of one type are required, got {x} and {y}")
        *batch, m, n = x.dims
        match self.function:
            case "Cholesky":
                return x.as_standard()
            case "MatrixSolve" | "MatrixTriangularSolve" | "TridiagonalSolve" | "BandedTriangularSolve":
                if y is None:
                    raise ShapeError("a right side is required")
                if self.function == "TridiagonalSolve" and isinstance(m, int) and m != 3:
                    raise ShapeError(f"three diagonals are required, got {m}")
                return y.as_standard()
            case "MatrixSolveLs":
                if y is None:
                    raise ShapeError("a right side is required")
                return y.with_dims((*batch, n, y.dims[-1]))
            case "MatrixSquareRoot":
                return x.as_standard()
            case "Lu":
                return TupleShape([x.as_standard(), Shape.of(dt.int32, x.dims[:-1])])
            case "Eig":
                return TupleShape([x.with_dims((*batch, n))] * 2 + [x.as_standard()] * 2)
            case "LogMatrixDeterminant":
                return TupleShape([x.with_dims(batch), x.with_dims(batch)])
            case "SelfAdjointEigV2":
                return TupleShape([x.with_dims((*batch, n)), x.as_standard()])
        if not isinstance(m, int) or not isinstance(n, int):
            raise ShapeError(f"matrices of known extents are required, got {x}")
        least = min(m, n)
        full = "full_matrices" in self.flags

        def of(*dims: Dim) -> Shape:
            return x.with_dims((*batch, *dims))

        if self.function == "Svd":
            return TupleShape([of(least), of(m, m if full else least), of(n, n if full else least)])
        return TupleShape([of(m, m if full else least), of(m if full else least, n)])

    def compute(self, x: Array, y: Array | None = None) -> Any:
        try:
            return self._computed(x, y)
        except np.linalg.LinAlgError as error:
            raise ShapeError(f"{self.function}: {error}") from None

    def _computed(self, x: Array, y: Array | None) -> Any:
        kind = x.dtype
        adjoint = "adjoint" in self.flags
        match self.function:
            case "Cholesky":
                return np.linalg.cholesky(x).astype(kind)
            case "MatrixSolve" | "MatrixTriangularSolve":
                a = x
                if self.function == "MatrixTriangularSolve":
                    a = np.tril(x) if "lower" in self.flags else np.triu(x)
                assert y is not None
                return np.linalg.solve(np.swapaxes(a, -1, -2) if adjoint else a, y).astype(kind)
            case "TridiagonalSolve":
                assert y is not None
                return tridiagonal(x, y)
            case "BandedTriangularSolve":
                assert y is not None
                return banded_triangular(x, y, "lower" in self.flags, adjoint)
            case "MatrixSolveLs":
                assert y is not None
                return _least_squares(x.astype(np.float64), y, self.regular).astype(kind)
            case "MatrixSquareRoot":
                return _square_root(x.astype(np.float64)).astype(kind)
            case "Lu":
                return _lu(x)
            case "Eig":
                found, axes = np.linalg.eig(x)
                parts = (found.real, found.imag, axes.real, axes.imag)
                return tuple(np.asarray(p, kind) for p in parts)
            case "LogMatrixDeterminant":
                sign, log = np.linalg.slogdet(x)
                return np.asarray(sign, kind), np.asarray(log, kind)
            case "SelfAdjointEigV2":
                values, vectors = np.linalg.eigh(x)
                return values.astype(kind), vectors.astype(kind)
            case "Svd":
                u, s, v = np.linalg.svd(x, full_matrices="full_matrices" in self.flags)
                return s.astype(kind), u.astype(kind), np.swapaxes(v, -1, -2).astype(kind)
        q, r = np.linalg.qr(x, "complete" if "full_matrices" in self.flags else "reduced")
        return q.astype(kind), r.astype(kind)


def _least_squares(a: Array, y: Array, regular: float) -> Array:
    """Returns the least-squares solution of minimum norm."""
    back = np.swapaxes(a, -1, -2)
    if a.shape[-2] >= a.shape[-1]:
        return np.asarray(np.linalg.solve(back @ a + regular * np.eye(a.shape[-1]), back @ y))
    return np.asarray(back @ np.linalg.solve(a @ back + regular * np.eye(a.shape[-2]), y))


def _square_root(a: Array) -> Array:
    """Returns the principal square root, by the Denman-Beavers iteration."""
    root, inverse = a, np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    for _ in range(60):
        root, inverse = (root + np.linalg.inv(inverse)) / 2, (inverse + np.linalg.inv(root)) / 2
    return root


def _lu(x: Array) -> tuple[Array, Array]:
    """Returns both factors packed in one matrix and the row permutation, with partial pivoting."""
    a = x.copy()
    size = a.shape[-1]
    order = np.broadcast_to(np.arange(size, dtype=np.int32), a.shape[:-1]).copy()
    for rows, places in zip(a.reshape(-1, size, size), order.reshape(-1, size), strict=True):
        for k in range(size):
            best = k + int(np.abs(rows[k:, k]).argmax())
            if rows[best, k] == 0:
                raise ShapeError("Lu: an invertible matrix is required")
            rows[[k, best]], places[[k, best]] = rows[[best, k]], places[[best, k]]
            rows[k + 1 :, k] /= rows[k, k]
            rows[k + 1 :, k + 1 :] -= np.outer(rows[k + 1 :, k], rows[k, k + 1 :])
    return a, order
