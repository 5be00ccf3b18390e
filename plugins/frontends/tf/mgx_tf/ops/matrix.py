"""Decompositions and solutions of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim

__all__: list[str] = []


@op("tf_matrix")
class Matrix(Operation):
    """One of TensorFlow's functions of matrices, by its name; flags: its attributes that are true.

    x: float [.., m, n], y: a right side where the function takes one.
    Errors: ShapeError for other ranks, matrices that have no answer.  Source: TensorFlow's operators of these names.
    """

    function: str
    flags: tuple[str, ...] = ()

    def infer(self, x: Shape, y: Shape | None = None) -> Any:
        if x.rank < 2 or not x.dtype.is_float:
            raise ShapeError(f"float matrices are needed, got {x}")
        *batch, m, n = x.dims
        match self.function:
            case "Cholesky":
                return x.as_standard()
            case "MatrixSolve" | "MatrixTriangularSolve":
                if y is None:
                    raise ShapeError("a right side is needed")
                return y.as_standard()
            case "LogMatrixDeterminant":
                return TupleShape([x.with_dims(batch), x.with_dims(batch)])
            case "SelfAdjointEigV2":
                return TupleShape([x.with_dims((*batch, n)), x.as_standard()])
        if not isinstance(m, int) or not isinstance(n, int):
            raise ShapeError(f"matrices of known extents are needed, got {x}")
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
