"""Factorizations of matrices and what torch computes by them, in exported programs.

Compiled graphs leave these operators to torch (`FACTORIZATIONS`), which has libraries for every device and errors of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from mgx_core import DType, Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import last_two_transposed, matrix_product, with_common_batch
from mgx_core.types.dim import Dim, minimum

from ..converter import converts, converts_complex
from ..node import Complex, Node

__all__ = ["FACTORIZATIONS"]

FACTORIZATIONS = frozenset((
    "linalg_cholesky_ex", "linalg_qr", "_linalg_svd", "_linalg_eigh", "linalg_eig", "_linalg_eigvals", "_linalg_slogdet",
    "_linalg_det", "linalg_inv_ex", "_linalg_solve_ex", "linalg_solve_triangular", "triangular_solve", "linalg_lu",
    "linalg_lu_factor_ex", "linalg_lu_solve", "lu_unpack", "cholesky_solve", "cholesky_inverse", "linalg_pinv",
    "linalg_matrix_exp", "linalg_householder_product", "linalg_polar",
))  # fmt: skip

CHECK = torch.ops.aten._linalg_check_errors.default


def _checked(n: Node, index: int) -> bool:
    """Returns True if torch raises an error for a failure that the status at this place of the results reports."""
    statuses = [u for u in n.fx.users if u.target is operator.getitem and u.args[1] == index]
    readers = [r for s in statuses for r in s.users]
    return any(r.target is CHECK or CHECK in r.args for r in readers)


def _triangular(
    n: Node, a: Instruction, b: Instruction, upper: bool, left: bool = True, unit: bool = False
) -> Instruction:
    """Returns y with a y = b, or y a = b, for triangular matrices."""
    if not left:
        a, b = last_two_transposed(n, a), last_two_transposed(n, b)
        return last_two_transposed(n, _triangular(n, a, b, not upper, True, unit))
    return n.add("solve_triangular", *with_common_batch(n, a, b), upper=upper, unit=unit)


def _identity(n: Node, dims: Sequence[Dim], dtype: DType) -> Instruction:
    return n.add("eye_like", n.filled(dims, 0, dtype), dtype=dtype)


@converts("linalg_cholesky_ex")
def cholesky(n: Node, x: Instruction, upper: bool = False, check_errors: bool = False) -> tuple[Instruction, ...]:
    """Returns the factor and the order of the first leading minor that is not positive definite."""
    factor, info = n.items(n.add("cholesky", last_two_transposed(n, x, upper)))
    if check_errors or _checked(n, 1):
        definite = n.add("equal", info, n.full_like(info, 0))
        factor = n.add("require", factor, definite, message="a matrix to be factorized is not positive definite")
    return last_two_transposed(n, factor, upper), info


@converts("linalg_qr")
def qr(n: Node, x: Instruction, mode: str = "reduced") -> tuple[Instruction | None, Instruction]:
    q, r = n.items(n.add("qr", x, full=mode == "complete"))
    return (_empty(n, 0) if mode == "r" else q), r


def _empty(n: Node, index: int) -> Instruction | None:
    """Returns a result that has no elements; None if nothing reads it."""
    return n.filled(n.result_dims(index), 0, n.dtype) if n.output_used(index) else None


@converts("_linalg_svd")
def svd(
    n: Node, x: Instruction, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> tuple[Instruction | None, ...]:
    vectors = compute_uv and (n.output_used(0) or n.output_used(2))
    found = n.items(n.add("svd", x, full=full_matrices, vectors=vectors))
    if vectors:
        return tuple(found)
    return _empty(n, 0), found[0], _empty(n, 2)


@converts("_linalg_eigh")
def eigh(n: Node, x: Instruction, triangle: str = "L", compute_v: bool = True) -> tuple[Instruction | None, ...]:
    vectors = compute_v and n.output_used(1)
    found = n.items(n.add("eigh", last_two_transposed(n, x, triangle.upper() == "U"), vectors=vectors))
    return tuple(found) if vectors else (found[0], _empty(n, 1))


@converts_complex("linalg_eig")
def eig(n: Node, x: Any) -> tuple[Complex, Complex]:
    """Returns complex eigenvalues and eigenvectors of real matrices."""
    if isinstance(x, Complex):
        n.unsupported("the matrices are complex, real ones are required; call eig under torch.compile(backend='mgx')")
    parts = n.items(n.add("eig", x))
    return Complex(parts[0], parts[1]), Complex(parts[2], parts[3])


@converts_complex("_linalg_eigvals", "linalg_eigvals")
def eigenvalues(n: Node, x: Any) -> Complex:
    return eig(n, x)[0]


def _lu(n: Node, x: Instruction, wide: bool = False) -> tuple[Instruction, Instruction]:
    packed, pivots = n.items(n.add("lu", n.convert(x, dt.float64) if wide else x))
    return packed, pivots


def _diagonal(n: Node, x: Instruction) -> Instruction:
    return n.add("diagonal", x, axis1=x.shape.rank - 2, axis2=x.shape.rank - 1)


def _sign(n: Node, diagonal: Instruction, pivots: Instruction) -> Instruction:
    """Returns the sign of the determinant: that of the diagonal and of the permutation; zero for a singular matrix."""
    last = pivots.shape.rank - 1
    swapped = n.convert(n.pointwise("not", n.add("equal", pivots, _counted(n, pivots))), diagonal.shape.dtype)
    flips = n.pointwise(
        "sub", n.literal(1, diagonal.shape.dtype), n.pointwise("mul", swapped, n.literal(2, diagonal.shape.dtype))
    )
    return n.reduce("reduce_prod", n.pointwise("mul", n.pointwise("sign", diagonal), flips), [last], keep=False)


def _counted(n: Node, like: Instruction) -> Instruction:
    """Returns 1, 2, 3 and so on along the last axis."""
    return n.add("prefix_scan_sum", n.full_like(like, 1), axis=like.shape.rank - 1)


@converts("_linalg_slogdet")
def slogdet(n: Node, x: Instruction) -> tuple[Instruction | None, ...]:
    """Returns the sign of the determinant, the logarithm of its size, and both factors with the pivots."""
    packed, pivots = _lu(n, x, wide=True)
    diagonal = _diagonal(n, packed)
    sign = _sign(n, diagonal, pivots)
    size = n.pointwise("log", n.pointwise("abs", diagonal))
    log = n.reduce("reduce_sum", size, [size.shape.rank - 1], keep=False)
    return n.convert(sign, n.dtype), n.convert(log, n.dtype), n.convert(packed, n.dtype), pivots


@converts("_linalg_det")
def determinant(n: Node, x: Instruction) -> tuple[Instruction, ...]:
    packed, pivots = _lu(n, x)
    return n.add("det", x), packed, pivots


def _singular(n: Node, packed: Instruction) -> Instruction:
    """Returns int32 [..]: 0, or the place, from 1, of the first zero on the diagonal of U."""
    rank = packed.shape.rank
    least = minimum(*packed.shape.dims[-2:])
    if least == 0:
        return n.filled(packed.shape.dims[:-2], 0, dt.int32)
    square = n.slice(packed, [rank - 2, rank - 1], [0, 0], [least, least])
    zero = n.pointwise("equal", _diagonal(n, square), n.literal(0, packed.shape.dtype))
    marks = n.convert(zero, dt.int32)
    axis = marks.shape.rank - 1
    count = n.reduce("reduce_sum", marks, [axis], keep=False)  # an empty matrix has no largest or first mark
    seen = n.add("prefix_scan_sum", marks, axis=axis)
    before = n.convert(n.pointwise("equal", seen, n.literal(0, dt.int32)), dt.int32)
    place = n.pointwise("add", n.reduce("reduce_sum", before, [axis], keep=False), n.literal(1, dt.int32))
    none = n.pointwise("equal", count, n.literal(0, dt.int32))
    return n.pointwise("where", none, n.literal(0, dt.int32), place)


def _regular(n: Node, x: Instruction, info: Instruction, index: int, check: bool) -> Instruction:
    """Returns x, which requires that matrices are not singular if torch checks it."""
    if not check and not _checked(n, index):
        return x
    regular = n.add("equal", info, n.full_like(info, 0))
    return n.add(
        "require", x, regular, message="a matrix is singular: it has no inverse, and a system no single solution"
    )


def _permutation(n: Node, packed: Instruction, pivots: Instruction) -> Instruction:
    """Returns the matrix that permutes the rows of the factorized matrix to those of L U."""
    order = n.add("pivot_order", pivots, packed)
    places = n.add("sub", _counted(n, order), n.full_like(order, 1))
    rank = order.shape.rank
    same = n.pointwise("equal", n.unsqueeze(order, [rank]), n.unsqueeze(places, [rank - 1]))
    return n.convert(same, packed.shape.dtype)


def _unpacked(n: Node, packed: Instruction) -> tuple[Instruction, Instruction]:
    """Returns L [.., m, k] with ones on its diagonal, and U [.., k, n], with k = min(m, n)."""
    rank = packed.shape.rank
    least = minimum(*packed.shape.dims[-2:])
    left = n.slice(packed, [rank - 1], [0], [least])
    ones = _identity(n, (packed.shape.dims[-2], least), packed.shape.dtype)
    lower = n.pointwise("add", n.add("trilu", left, upper=False, k=-1), ones)
    return lower, n.add("trilu", n.slice(packed, [rank - 2], [0], [least]), upper=True, k=0)


@converts("linalg_lu")
def lu(n: Node, x: Instruction, pivot: bool = True) -> tuple[Instruction | None, ...]:
    """Returns P, L and U, with x = P L U."""
    _pivoted(n, pivot)
    packed, pivots = _lu(n, x)
    return last_two_transposed(n, _permutation(n, packed, pivots)), *_unpacked(n, packed)


def _pivoted(n: Node, pivot: bool) -> None:
    if not pivot:
        n.unsupported("pivot=False is not supported: without pivots the factors are inexact; use pivot=True")


@converts("linalg_lu_factor_ex")
def lu_factor(n: Node, x: Instruction, pivot: bool = True, check_errors: bool = False) -> tuple[Instruction, ...]:
    _pivoted(n, pivot)
    packed, pivots = _lu(n, x)
    info = _singular(n, packed)
    return _regular(n, packed, info, 2, check_errors), pivots, info


@converts("lu_unpack")
def lu_unpack(
    n: Node, packed: Instruction, pivots: Instruction, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Instruction | None, ...]:
    p = last_two_transposed(n, _permutation(n, packed, pivots)) if unpack_pivots else _empty(n, 0)
    return p, *(_unpacked(n, packed) if unpack_data else (_empty(n, 1), _empty(n, 2)))


@converts("linalg_lu_solve")
def lu_solve(
    n: Node, packed: Instruction, pivots: Instruction, b: Instruction, left: bool = True, adjoint: bool = False
) -> Instruction:
    """Returns y with a y = b, or y a = b, for the factorized matrix a, or its transpose if `adjoint`."""
    if not left:
        turned = last_two_transposed(n, b)
        return last_two_transposed(n, lu_solve(n, packed, pivots, turned, True, not adjoint))
    order = _permutation(n, packed, pivots)
    if not adjoint:
        half = _triangular(n, packed, matrix_product(n, order, b), False, True, True)
        return _triangular(n, packed, half, True)
    turned = last_two_transposed(n, packed)
    half = _triangular(n, turned, b, False)
    return matrix_product(n, last_two_transposed(n, order), _triangular(n, turned, half, True, True, True))


@converts("linalg_inv_ex")
def inverse(n: Node, x: Instruction, check_errors: bool = False) -> tuple[Instruction, Instruction | None]:
    """Returns the inverse and the place of the first zero pivot, from 1; 0 for a regular matrix."""
    if check_errors or _checked(n, 1):
        return n.add("inverse", x), n.filled(n.result_dims(1), 0, dt.int32) if n.output_used(1) else None
    packed, pivots = _lu(n, x, wide=True)
    one = _identity(n, x.shape.dims[-2:], dt.float64)
    found = lu_solve(n, packed, pivots, n.broadcast_to(one, x.shape.dims))
    return n.convert(found, n.dtype), _singular(n, packed)


@converts("_linalg_solve_ex")
def solve(
    n: Node, a: Instruction, b: Instruction, left: bool = True, check_errors: bool = False
) -> tuple[Instruction, ...]:
    """Returns y with a y = b, or y a = b; both factors of a, the pivots, and the place of the first zero pivot."""
    packed, pivots = _lu(n, a, wide=True)
    vector = b.shape.rank == 1 or b.shape.dims == a.shape.dims[:-1]
    wide = n.convert(b, dt.float64)
    found = lu_solve(n, packed, pivots, n.unsqueeze(wide, [-1]) if vector else wide, left or vector)
    info = _singular(n, packed)
    found = n.convert(n.squeeze(found, [-1]) if vector else found, n.dtype)
    return _regular(n, found, info, 3, check_errors), n.convert(packed, n.dtype), pivots, info


@converts("linalg_solve_triangular")
def solve_triangular(
    n: Node, a: Instruction, b: Instruction, upper: bool, left: bool = True, unitriangular: bool = False
) -> Instruction:
    return _triangular(n, a, b, upper, left, unitriangular)


@converts("triangular_solve")
def triangular_solve(
    n: Node, b: Instruction, a: Instruction, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Instruction, Instruction]:
    turned = last_two_transposed(n, a, transpose)
    return _triangular(n, turned, b, upper is not transpose, True, unitriangular), a


@converts("cholesky_solve")
def cholesky_solve(n: Node, b: Instruction, factor: Instruction, upper: bool = False) -> Instruction:
    lower = last_two_transposed(n, factor, upper)
    return _triangular(n, last_two_transposed(n, lower), _triangular(n, lower, b, False), True)


@converts("cholesky_inverse")
def cholesky_inverse(n: Node, factor: Instruction, upper: bool = False) -> Instruction:
    one = n.broadcast_to(_identity(n, factor.shape.dims[-2:], factor.shape.dtype), factor.shape.dims)
    return cholesky_solve(n, one, factor, upper)


@converts("linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(
    n: Node, x: Instruction, atol: Instruction | None = None, rtol: Instruction | None = None, hermitian: bool = False
) -> Instruction:
    """Returns the pseudo-inverse: singular values up to max(atol, rtol times the largest) count as zero.

    hermitian: only the lower triangle of x is read.
    """
    if hermitian:
        below = last_two_transposed(n, n.add("trilu", x, upper=False, k=-1))
        x = n.pointwise("add", n.add("trilu", x, upper=False, k=0), below)
    u, values, v = n.items(n.add("svd", n.convert(x, dt.float64)))
    last = values.shape.rank - 1
    least = n.literal(0, dt.float64)
    if atol is not None:
        least = n.unsqueeze(n.convert(atol, dt.float64), [-1])
    if rtol is not None:
        largest = n.slice(values, [last], [0], [1])
        least = n.pointwise("max", least, n.pointwise("mul", n.unsqueeze(n.convert(rtol, dt.float64), [-1]), largest))
    kept = n.pointwise("greater", values, least)
    inverted = n.pointwise("where", kept, n.pointwise("recip", values), n.literal(0, dt.float64))
    scaled = n.pointwise("mul", last_two_transposed(n, v), n.unsqueeze(inverted, [last]))
    return n.convert(matrix_product(n, scaled, last_two_transposed(n, u)), n.dtype)


@converts("linalg_matrix_exp")
def matrix_exp(n: Node, x: Instruction) -> Instruction:
    return n.add("matrix_exp", x)


@converts("linalg_householder_product")
def householder_product(n: Node, x: Instruction, tau: Instruction) -> Instruction:
    """Returns the first columns of the product of reflections 1 - tau v v'; x holds each v below its diagonal, which is one."""
    rank = x.shape.rank
    one = _identity(n, x.shape.dims[-2:], x.shape.dtype)
    vectors = n.pointwise("add", n.add("trilu", x, upper=False, k=-1), one)
    found = n.broadcast_to(one, x.shape.dims)
    for i in reversed(range(n.static(tau.shape.dims[-1], "the number of reflections"))):
        v = n.slice(vectors, [rank - 1], [i], [i + 1])
        factor = n.unsqueeze(n.slice(tau, [rank - 2], [i], [i + 1]), [rank - 1])
        change = matrix_product(n, n.pointwise("mul", v, factor), matrix_product(n, last_two_transposed(n, v), found))
        found = n.pointwise("sub", found, change)
    return found


@converts("linalg_polar")
def polar(n: Node, x: Instruction) -> tuple[Instruction, Instruction]:
    """Returns u and h, with x = u h: u has orthonormal columns, h is symmetric and positive semidefinite."""
    u, values, v = n.items(n.add("svd", x))
    scaled = n.pointwise("mul", last_two_transposed(n, v), n.unsqueeze(values, [values.shape.rank - 1]))
    return matrix_product(n, u, v), matrix_product(n, scaled, v)
