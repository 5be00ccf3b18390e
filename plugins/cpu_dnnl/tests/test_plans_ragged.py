"""Reductions of slices of different lengths by the native loop, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mgx_core as mgx

RNG = np.random.default_rng(4)


@pytest.mark.pairs
@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dims", [(50,), (50, 7), (50, 3, 70)])
def test_floats(agrees: Callable[..., None], dims: tuple[int, ...], dtype: Any, reduction: str) -> None:
    starts = RNG.integers(-60, 60, 300)
    ends = starts + RNG.integers(-2, 12, 300)
    x = RNG.standard_normal(dims).astype(dtype)
    agrees(mgx.op("reduce_slices", reduction=reduction), x, starts, ends, tolerance=1e-2 if x.itemsize == 2 else 1e-5)


@pytest.mark.parametrize("reduction", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_that_wrap(agrees: Callable[..., None], dtype: Any, reduction: str) -> None:
    most = np.iinfo(dtype).max
    x = RNG.integers(-most, most, (20, 5), dtype=dtype)
    agrees(mgx.op("reduce_slices", reduction=reduction), x, np.array([0, 4, 9]), np.array([20, 4, 12]), tolerance=0)


def test_long_slices(agrees: Callable[..., None]) -> None:
    """Sums of many floats do not depend on their order."""
    x = (RNG.standard_normal((200000, 2)) * 1e3).astype(np.float32)
    agrees(mgx.op("reduce_slices", reduction="sum"), x, np.array([0, 1]), np.array([200000, 199000]), tolerance=1e-6)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min"])
def test_nan(agrees: Callable[..., None], reduction: str) -> None:
    x = np.array([[1, np.nan], [np.nan, 2], [3, 4], [np.inf, -np.inf]], np.float32)
    agrees(mgx.op("reduce_slices", reduction=reduction), x, np.array([0, 2, 1]), np.array([2, 4, 1]), tolerance=1e-6)
