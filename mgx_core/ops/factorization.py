"""Factorizations of matrices, triangular systems and the matrix exponential.

They are computed in float64 and rounded once.  Factors are unique up to signs only, where their docstrings say so.
"""

from __future__ import annotations

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import may_equal, minimum
from ..types.dtype import of
from ..types.shape import Shape, TupleShape
from .declaration import op
from .linear import square
from .operation import Operation
from .scalar import convert, widen

__all__ = ["Cholesky", "Eig", "Eigh", "Lu", "MatrixExp", "PivotOrder", "Qr", "SolveTriangular", "Svd"]


def _matrices(x: Shape) -> None:
    """Errors: ShapeError unless x is float [.., m, n]."""
    if x.rank < 2:
        raise ShapeError(f"x must have at least two axes, got {x}")
    if not x.dtype.is_float:
        raise ShapeError(f"x must be of a float type, got {x.dtype}")


def _wide(x: Array) -> Array:
    return np.asarray(widen(x).astype(np.float64))


def _narrow(found: Array, like: Array) -> Array:
    return convert(np.ascontiguousarray(found), of(like.dtype))


@op("cholesky")
class Cholesky(Operation):
    """The lower triangular factor L of each symmetric positive definite matrix L L'; only the lower triangle of x is read.

    x: float [.., n, n] -> (L [.., n, n], int32 [..]: 0, or the order of the first leading minor that is not positive definite;
    L is NaN then).  Errors: ShapeError unless square.  Source: LAPACK potrf.
    """

    def infer(self, x: Shape) -> TupleShape:
        square(x)
        return TupleShape((x.as_standard(), Shape.of(dt.int32, x.dims[:-2])))

    def compute(self, x: Array) -> tuple[Array, Array]:
        wide = np.tril(_wide(x))
        wide = wide + np.swapaxes(np.tril(wide, -1), -1, -2)
        info = np.zeros(x.shape[:-2], np.int32)
        found = np.full(wide.shape, np.nan)
        for place in np.ndindex(info.shape):
            factor = _cholesky(wide[place])
            if factor is None:
                info[place] = _first_indefinite(wide[place])
            else:
                found[place] = factor
        return _narrow(found, x), info


def _cholesky(a: Array) -> Array | None:
    """Returns the factor of one symmetric matrix; None if it is not positive definite."""
    try:
        found = np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found).all() else None


def _first_indefinite(a: Array) -> int:
    """Returns the order of the first leading minor that is not positive definite, by bisection."""
    low, high = 0, len(a)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _cholesky(a[:middle, :middle]) is None else (middle, high)
    return high


@op("qr")
class Qr(Operation):
    """Orthogonal and upper triangular factors of each matrix: x = q r.

    x: float [.., m, n] -> (q [.., m, k], r [.., k, n]) with k = min(m, n), or k = m if `full`.  Columns of q and rows of r are
    unique up to signs.  Errors: ShapeError for fewer than two axes.  Source: LAPACK geqrf.
    """

    full: bool = False

    def infer(self, x: Shape) -> TupleShape:
        _matrices(x)
        *batch, m, n = x.dims
        k = m if self.full else minimum(m, n)
        return TupleShape((x.with_dims((*batch, m, k)), x.with_dims((*batch, k, n))))

    def compute(self, x: Array) -> tuple[Array, Array]:
        q, r = np.linalg.qr(_wide(x), "complete" if self.full else "reduced")
        return _narrow(q, x), _narrow(r, x)


@op("svd")
class Svd(Operation):
    """Singular values of each matrix, descending, and with `vectors` the orthogonal factors: x = u diag(s) v.

    x: float [.., m, n] -> (u [.., m, k], s [.., min(m, n)], v [.., l, n]) with k = l = min(m, n), or k = m and l = n if `full`;
    without `vectors` only (s).  Vectors are unique up to signs at most.
    Errors: ShapeError for fewer than two axes; ParameterError at run time for NaN and infinity.  Source: LAPACK gesdd.
    """

    full: bool = False
    vectors: bool = True

    def infer(self, x: Shape) -> TupleShape:
        _matrices(x)
        *batch, m, n = x.dims
        least = minimum(m, n)
        values = x.with_dims((*batch, least))
        if not self.vectors:
            return TupleShape((values,))
        u, v = (m, n) if self.full else (least, least)
        return TupleShape((x.with_dims((*batch, m, u)), values, x.with_dims((*batch, v, n))))

    def compute(self, x: Array) -> tuple[Array, ...]:
        try:
            if not self.vectors:
                return (_narrow(np.linalg.svd(_wide(x), compute_uv=False), x),)
            return tuple(_narrow(part, x) for part in np.linalg.svd(_wide(x), full_matrices=self.full))
        except np.linalg.LinAlgError:
            raise ParameterError("the singular values of a matrix with NaN or infinity do not exist") from None


@op("eigh")
class Eigh(Operation):
    """Eigenvalues of each symmetric matrix, ascending, and with `vectors` its orthonormal eigenvectors, one per column.

    Only the lower triangle of x is read.  x: float [.., n, n] -> (values [.., n], vectors [.., n, n]), without `vectors` only
    (values).  Vectors are unique up to signs at most.
    Errors: ShapeError unless square; ParameterError at run time for NaN and infinity.  Source: LAPACK syevd.
    """

    vectors: bool = True

    def infer(self, x: Shape) -> TupleShape:
        square(x)
        values = x.with_dims(x.dims[:-1])
        return TupleShape((values, x.as_standard()) if self.vectors else (values,))

    def compute(self, x: Array) -> tuple[Array, ...]:
        wide = np.tril(_wide(x))
        if not np.isfinite(wide).all():
            raise ParameterError("the eigenvalues of a matrix with NaN or infinity do not exist")
        if not self.vectors:
            return (_narrow(np.linalg.eigvalsh(wide), x),)
        values, vectors = np.linalg.eigh(wide)
        return _narrow(values, x), _narrow(vectors, x)


@op("eig")
class Eig(Operation):
    """Eigenvalues of each matrix, in no order, and eigenvectors of norm 1, one per column, as real and imaginary parts.

    x: float [.., n, n] -> (real parts of values [.., n], imaginary parts [.., n], real parts of vectors [.., n, n],
    imaginary parts [.., n, n]).
    Errors: ShapeError unless square; ParameterError at run time for NaN and infinity.  Source: LAPACK geev.
    """

    def infer(self, x: Shape) -> TupleShape:
        square(x)
        values = x.with_dims(x.dims[:-1])
        return TupleShape((values, values, x.as_standard(), x.as_standard()))

    def compute(self, x: Array) -> tuple[Array, ...]:
        wide = _wide(x)
        if not np.isfinite(wide).all():
            raise ParameterError("the eigenvalues of a matrix with NaN or infinity do not exist")
        values, vectors = np.linalg.eig(wide)
        return tuple(_narrow(part, x) for part in (values.real, values.imag, vectors.real, vectors.imag))


@op("lu")
class Lu(Operation):
    """Triangular factors of each matrix with partial pivoting, packed in one: U, and below its diagonal L without its ones.

    x: float [.., m, n] -> (factors [.., m, n], int32 [.., min(m, n)]: the row, counted from 1, with which row i was swapped at
    step i).  A zero on the diagonal of U marks a singular matrix.
    Errors: ShapeError for fewer than two axes.  Source: LAPACK getrf.
    """

    def infer(self, x: Shape) -> TupleShape:
        _matrices(x)
        return TupleShape((x.as_standard(), Shape.of(dt.int32, (*x.dims[:-2], minimum(*x.dims[-2:])))))

    def compute(self, x: Array) -> tuple[Array, Array]:
        *batch, m, n = x.shape
        count = min(m, n)
        a = _wide(x).reshape(int(np.prod(batch)), m, n).copy()
        pivots = np.zeros((len(a), count), np.int32)
        every = np.arange(len(a))
        for k in range(count):
            best = k + np.abs(a[:, k:, k]).argmax(1)
            pivots[:, k] = best + 1
            a[every, k], a[every, best] = a[every, best], a[every, k].copy()
            pivot = a[:, k, k, None]
            a[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)
            a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]
        return _narrow(a.reshape(x.shape), x), pivots.reshape(*batch, count)


@op("pivot_order", exact=True)
class PivotOrder(Operation):
    """The order of rows that the swaps of an LU factorization lead to: row i of the product L U is row order[i] of the matrix.

    pivots: int32 [.., k] as `lu` returns them; x: [.., m, n], of which only the extents matter -> int64 [.., m].
    Errors: ShapeError for other types or ranks.  Source: torch.lu_unpack.
    """

    def infer(self, pivots: Shape, x: Shape) -> Shape:
        if pivots.dtype is not dt.int32 or pivots.rank != x.rank - 1:
            raise ShapeError(f"pivots must be int32 with one axis less than x, got {pivots} and {x}")
        return Shape.of(dt.int64, x.dims[:-1])

    def compute(self, pivots: Array, x: Array) -> Array:
        *batch, m, _ = x.shape
        steps = pivots.reshape(int(np.prod(batch)), pivots.shape[-1])
        order = np.broadcast_to(np.arange(m), (len(steps), m)).copy()
        every = np.arange(len(steps))
        for k in range(steps.shape[1]):
            with_row = steps[:, k] - 1
            order[every, k], order[every, with_row] = order[every, with_row], order[every, k].copy()
        return order.reshape(*batch, m)


@op("solve_triangular")
class SolveTriangular(Operation):
    """Solves a y = b for triangular matrices a, of which only that triangle is read.

    a: float [.., n, n]; b: of its type, [.., n, k], both with the same batch axes -> y [.., n, k].  `upper` selects the triangle;
    `unit` takes the diagonal as ones.  A zero on the diagonal gives infinity or NaN.
    Errors: ShapeError for other types, ranks or extents.  Source: BLAS trsm.
    """

    upper: bool = False
    unit: bool = False

    def infer(self, a: Shape, b: Shape) -> Shape:
        square(a)
        if b.dtype is not a.dtype or b.rank != a.rank:
            raise ShapeError(f"b must have the type and rank of a, got {a} and {b}")
        if not all(map(may_equal, a.dims[:-1], b.dims[:-1])):
            raise ShapeError(f"b must have the batch axes and rows of a, got {a} and {b}")
        return b.as_standard()

    def compute(self, a: Array, b: Array) -> Array:
        wide, found = _wide(a), _wide(b).copy()
        size = a.shape[-1]
        for i in reversed(range(size)) if self.upper else range(size):
            known = slice(i + 1, size) if self.upper else slice(0, i)
            found[..., i, :] -= (wide[..., i, None, known] @ found[..., known, :])[..., 0, :]
            if not self.unit:
                found[..., i, :] /= wide[..., i, i, None]
        return _narrow(found, b)


TERMS = 18  # of the exponential's Taylor series: exact to float64 for norms up to 1/2


@op("matrix_exp")
class MatrixExp(Operation):
    """Exponential of each matrix, by scaling and squaring.

    x: float [.., n, n] -> the same shape.  Errors: ShapeError unless square.  Source: torch.linalg.matrix_exp.
    """

    def infer(self, x: Shape) -> Shape:
        square(x)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        wide = _wide(x)
        if not wide.size:
            return x.copy()
        norm = np.abs(wide).sum(-2).max(-1)
        halvings = np.where(np.isfinite(norm) & (norm > 0.5), np.ceil(np.log2(np.maximum(norm, 0.5) * 2)), 0)
        halvings = halvings[..., None, None].astype(np.int64)
        small = wide / np.exp2(halvings)
        one = np.broadcast_to(np.eye(x.shape[-1]), wide.shape)
        found = one
        for k in range(TERMS, 0, -1):
            found = one + small @ found / k
        for step in range(int(halvings.max())):
            found = np.where(halvings > step, found @ found, found)
        return _narrow(found, x)
