"""Factorizations of matrices, triangular systems, the matrix exponential, and conditions on values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.factorization import Cholesky, Eig, Eigh, Lu, MatrixExp, PivotOrder, Qr, SolveTriangular, Svd
from mgx_core.ops.require import Require
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(3)


def rand(*dims: int) -> Any:
    return RNG.uniform(-1, 1, dims)


def turned(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def symmetric(n: int) -> Any:
    x = rand(2, n, n)
    return x @ turned(x) + np.eye(n)


def test_cholesky() -> None:
    x = symmetric(5)
    factor, info = Cholesky().evaluate([np.tril(x) + np.triu(rand(5, 5), 1)])  # only the lower triangle is read
    np.testing.assert_allclose(factor @ turned(factor), x, rtol=1e-12)
    np.testing.assert_array_equal(np.triu(factor, 1), 0)
    assert info.tolist() == [0, 0]
    for wrong in range(1, 7):
        bad = np.diag([1.0] * 6)
        bad[wrong - 1, wrong - 1] = -1
        factor, info = Cholesky().evaluate([bad])
        assert int(info) == wrong
        assert np.isnan(factor).all()
    assert int(Cholesky().evaluate([np.full((2, 2), np.nan)])[1]) == 1


@pytest.mark.parametrize("dims", [(2, 5, 3), (2, 3, 5), (4, 4), (2, 0, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_qr_and_svd(dims: tuple[int, ...], full: bool) -> None:
    x = rand(*dims)
    q, r = Qr(full=full).evaluate([x])
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(
        turned(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), turned(q).shape[:-1] + q.shape[-1:]), atol=1e-12
    )
    u, s, v = Svd(full=full).evaluate([x])
    k = min(dims[-2:])
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ v[..., :k, :], x, atol=1e-12)
    (alone,) = Svd(vectors=False).evaluate([x])
    np.testing.assert_allclose(alone, s, rtol=1e-12)
    for op, found in ((Qr(full=full), (q, r)), (Svd(full=full), (u, s, v)), (Svd(vectors=False), (alone,))):
        assert [tuple(p.dims) for p in op.result([Shape("double", dims)]).sub_shapes()] == [f.shape for f in found]


def test_extents_of_factors_of_symbolic_matrices() -> None:
    n = symbol("n", 1, 9)
    q, r = Qr().result([Shape("float", (n, 3))]).sub_shapes()
    assert q.dims[0] == n
    assert q.dims[1] == r.dims[0]
    assert Eigh().result([Shape("float", (n, n))]).sub_shapes()[0].dims == (n,)


def test_eigenvalues() -> None:
    x = symmetric(4)
    values, vectors = Eigh().evaluate([np.tril(x)])
    np.testing.assert_allclose((vectors * values[..., None, :]) @ turned(vectors), x, rtol=1e-10)
    np.testing.assert_allclose(Eigh(vectors=False).evaluate([x])[0], values, rtol=1e-10)
    general = rand(2, 4, 4)
    parts = Eig().evaluate([general])
    values, vectors = parts[0] + 1j * parts[1], parts[2] + 1j * parts[3]
    np.testing.assert_allclose(general @ vectors, vectors * values[..., None, :], atol=1e-10)


@pytest.mark.parametrize("dims", [(2, 5, 3), (3, 5), (4, 4), (2, 0, 0)])
def test_lu(dims: tuple[int, ...]) -> None:
    x = rand(*dims)
    packed, pivots = Lu().evaluate([x])
    k = min(dims[-2:])
    lower = np.tril(packed[..., :k], -1) + np.eye(dims[-2], k)
    order = PivotOrder().evaluate([pivots, x])
    np.testing.assert_allclose(
        lower @ np.triu(packed[..., :k, :]), np.take_along_axis(x, order[..., None], -2), atol=1e-12
    )
    assert k == 0 or np.abs(lower).max() <= 1
    singular, _ = Lu().evaluate([np.ones((3, 3))])
    np.testing.assert_array_equal(np.diag(singular), [1, 0, 0])


def test_the_upper_triangle_of_a_symmetric_matrix_is_not_read() -> None:
    x = np.array([[2.0, np.nan], [1.0, 2.0]])
    for vectors in (False, True):
        np.testing.assert_allclose(Eigh(vectors=vectors).evaluate([x])[0], [1, 3], rtol=1e-15)


def test_overflow_and_division_by_zero_do_not_warn() -> None:
    """A warning would be an error of this test."""
    packed, _ = Lu().evaluate([np.array([[1e308, 1e308], [1e308, -1e308]])])
    np.testing.assert_array_equal(packed, [[1e308, 1e308], [1, -np.inf]])
    for upper in (False, True):
        assert not np.isfinite(SolveTriangular(upper=upper).evaluate([np.zeros((2, 2)), np.ones((2, 1))])).any()


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(upper: bool, unit: bool) -> None:
    a, b = rand(2, 4, 4) + 2 * np.eye(4), rand(2, 4, 3)
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        triangle[..., range(4), range(4)] = 1
    found = SolveTriangular(upper=upper, unit=unit).evaluate([a, b])
    np.testing.assert_allclose(triangle @ found, b, rtol=1e-10)
    assert np.isinf(SolveTriangular().evaluate([np.zeros((1, 1)), np.ones((1, 1))])).all()


@pytest.mark.parametrize("size", [0.01, 1, 30])
def test_the_exponential_of_a_matrix(size: float) -> None:
    """That of a symmetric matrix, by its eigenvalues; a batch has one matrix of zeros."""
    x = rand(4, 4)
    x = size * (x + x.T) / 4
    values, vectors = np.linalg.eigh(x)
    want = (vectors * np.exp(values)) @ vectors.T
    found = MatrixExp().evaluate([np.stack([x, np.zeros((4, 4))])])
    np.testing.assert_allclose(found[0], want, rtol=1e-9, atol=1e-12 * np.abs(want).max())
    np.testing.assert_array_equal(found[1], np.eye(4))
    assert MatrixExp().evaluate([np.zeros((0, 0))]).shape == (0, 0)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_factors_have_the_type_of_the_matrix(kind: Any) -> None:
    x = symmetric(3).astype(kind)
    for op in (Cholesky(), Qr(), Svd(), Eigh(), Eig(), Lu()):
        shapes = op.result([Shape.of(dt.of(x.dtype), x.shape)]).sub_shapes()
        assert [dt.of(f.dtype) for f in op.evaluate([x])] == [s.dtype for s in shapes]
    assert MatrixExp().evaluate([x]).dtype == kind


def test_operands_that_are_rejected() -> None:
    wide, whole, pivots = Shape("float", (2, 3)), Shape("int64", (2, 2)), Shape("int32", (3,))
    for op in (Cholesky(), Eigh(), Eig(), MatrixExp()):
        with pytest.raises(ShapeError, match="square"):
            op.result([wide])
    for op in (Qr(), Svd(), Lu()):
        with pytest.raises(ShapeError, match="float type"):
            op.result([whole])
        with pytest.raises(ShapeError, match="two axes"):
            op.result([Shape("float", (2,))])
    with pytest.raises(ShapeError, match="type and rank"):
        SolveTriangular().result([Shape("float", (3, 3)), Shape("double", (3, 2))])
    with pytest.raises(ShapeError, match="batch axes and rows"):
        SolveTriangular().result([Shape("float", (3, 3)), wide])
    with pytest.raises(ShapeError, match="one axis less"):
        PivotOrder().result([pivots, pivots])
    for op in (Svd(), Eigh(), Eig()):
        with pytest.raises(ParameterError, match="NaN or infinity do not exist"):
            op.evaluate([np.full((2, 2), np.nan)])


def test_a_condition_is_checked_at_run_time() -> None:
    x = rand(3)
    np.testing.assert_array_equal(Require(message="negative").evaluate([x, np.array([True, True])]), x)
    with pytest.raises(ParameterError, match="a number is negative"):
        Require(message="a number is negative").evaluate([x, np.array([True, False])])
    with pytest.raises(ShapeError, match="must be bool"):
        Require(message="").result([Shape("float", (3,)), Shape("float", (3,))])
