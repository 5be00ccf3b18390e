"""Determinants and inverses of small matrices, and triangular systems, compared with the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

rng = np.random.default_rng(12)
Check = Callable[..., None]


@pytest.mark.parametrize("name", ["det", "inverse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lens", [(1, 1), (2, 2), (40, 3, 3), (2, 3, 8, 8), (64, 64), (0, 3, 3)], ids=str)
def test_matrices(agrees: Check, name: str, dtype: Any, lens: tuple[int, ...]) -> None:
    x = rng.standard_normal(lens).astype(dtype)
    tolerance = 1e-4 if name == "inverse" and dtype is np.float32 else 1e-5 if dtype is np.float32 else 1e-9
    agrees(mgx.op(name), x, tolerance=tolerance)


def test_pivots(agrees: Check) -> None:
    """A zero on the diagonal, an odd and an even number of swaps, and results that are exact."""
    for x in ([[0, 2], [4, 1]], [[0, 1, 0], [0, 0, 2], [4, 0, 0]], [[1e-30, 1], [1, 1]], [[2, 0], [0, 1e-300]]):
        for name in ("det", "inverse"):
            agrees(mgx.op(name), np.array(x, np.float64), tolerance=1e-15)


@pytest.mark.parametrize(
    "x", [[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[0, 1], [0, np.nan]], [[1, np.nan], [2, 3]]], ids=str
)
def test_determinants_of_singular_matrices_and_nan(agrees: Check, x: Any) -> None:
    agrees(mgx.op("det"), np.array(x, np.float32))


def test_inverses_of_singular_matrices_are_refused(fails: Check) -> None:
    good = rng.standard_normal((3, 4, 4)).astype(np.float32)
    bad = good.copy()
    bad[1, :, 2] = 0
    fails("a matrix to be inverted is singular", mgx.op("inverse"), [bad], [good], mgx.ParameterError)
    tiny = np.eye(3) * 1e-120  # whose determinant is 0 in double precision
    fails("a matrix to be inverted is singular", mgx.op("inverse"), [tiny * [1, 1, 0]], [tiny], mgx.ParameterError)


def test_large_matrices_are_left_to_lapack() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("det"), m.add_parameter("x", mgx.Shape("float32", [65, 65])))])
    program.compile(mgx.get_target("cpu"))
    x = rng.standard_normal((65, 65)).astype(np.float32) / 8
    np.testing.assert_allclose(program.run({"x": x})[0], np.linalg.det(x.astype(np.float64)), rtol=1e-5)
    (placement,) = [p for i in program.executable.instances() for p in i.placements]  # type: ignore[union-attr]
    assert placement.place == "host"


@pytest.mark.pairs
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "lens", [(1, 1, 1), (40, 3, 2), (2, 3, 8, 9), (2, 64, 64), (130, 1), (0, 3, 3), (2, 3, 0)], ids=str
)
def test_triangular_systems(agrees: Check, lens: tuple[int, ...], dtype: str, upper: bool, unit: bool) -> None:
    """Only one triangle is read, without the diagonal if it is taken as ones."""
    *batch, n, _ = lens
    kind = mgx.dtype.of(dtype).numpy
    a = rng.standard_normal((*batch, n, n)) / (4 * n) + np.eye(n) * 2
    unread = np.tri(n, dtype=bool) if upper else ~np.tri(n, k=-1, dtype=bool)
    a[..., unread if unit else unread & ~np.eye(n, dtype=bool)] = np.nan
    b = rng.standard_normal(lens)
    tolerance = {"float32": 1e-5, "float64": 1e-13}[dtype]
    agrees(mgx.op("solve_triangular", upper=upper, unit=unit), a.astype(kind), b.astype(kind), tolerance=tolerance)


def test_a_zero_on_the_diagonal_gives_infinity(agrees: Check) -> None:
    a = np.array([[2, 0], [1, 0]], np.float32)
    agrees(mgx.op("solve_triangular"), a, np.array([[2, 4], [3, 2]], np.float32))
