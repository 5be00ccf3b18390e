"""Pseudo-random tensors: reproducible, in range, with the moments of their distribution."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.random import Multinomial, RandomNormal, RandomSeed, RandomUniform
from mgx_core.types.shape import Shape

SEED = np.array([7], np.uint64)


def test_seed() -> None:
    assert RandomSeed.random
    assert RandomSeed().result([]) == Shape.of(dt.uint64, (1,))
    assert RandomSeed().evaluate([]) != RandomSeed().evaluate([])
    assert RandomSeed(dtype=dt.int32).evaluate([]).dtype == np.int32
    with pytest.raises(ParameterError):
        RandomSeed(dtype=dt.float32)


@pytest.mark.parametrize("op", [RandomUniform(), RandomNormal()])
def test_same_seed_same_numbers(op: Any) -> None:
    like = np.zeros((50, 50), np.float32)
    first = op.evaluate([SEED, like])
    np.testing.assert_array_equal(first, op.evaluate([SEED, like]))
    for other in (np.array([8], np.uint64), np.array([0.5], np.float32), np.array([-7])):
        assert (first != op.evaluate([other, like])).mean() > 0.9
    n = dim.symbol("n", 1, 9)
    assert op.result([Shape.of(dt.uint64, (1,)), Shape.of(dt.float16, (n, 2))]) == Shape.of(dt.float16, (n, 2))
    with pytest.raises(ShapeError):
        op.result([Shape.of(dt.uint64, (2,)), Shape.of(dt.float16, (2,))])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_uniform_floats(dtype: Any) -> None:
    x = RandomUniform().evaluate([SEED, np.zeros(100_000, dtype)])
    assert x.dtype == np.dtype(dtype)
    wide = x.astype(np.float64)
    assert wide.min() >= 0
    assert wide.max() < 1
    assert abs(wide.mean() - 0.5) < 0.01
    assert abs(wide.var() - 1 / 12) < 0.005


def test_uniform_integers() -> None:
    x = RandomUniform().evaluate([SEED, np.zeros(10_000, np.int8)])
    assert (x.min(), x.max()) == (0, 127)


def test_normal() -> None:
    x = RandomNormal().evaluate([SEED, np.zeros(100_000, np.float32)])
    assert abs(x.mean()) < 0.02
    assert abs(x.std() - 1) < 0.02
    with pytest.raises(ShapeError):
        RandomNormal().result([Shape.of(dt.uint64, (1,)), Shape.of(dt.int8, (2,))])


def test_multinomial() -> None:
    totals = np.cumsum([[1, 0, 3], [2, 2, 0]], 1).astype(np.float32)
    draws = np.array([[0.0, 0.24, 0.25, 0.26, 0.999, 1.0], [0.0, 0.49, 0.5, 0.51, 0.999, 1.0]], np.float32)
    out = Multinomial().evaluate([totals, draws])
    assert out.dtype == np.int32
    assert out.tolist() == [[0, 0, 2, 2, 2, 2], [0, 0, 1, 1, 1, 2]]
    shared = Multinomial(dtype=dt.int64).evaluate([totals, draws[:1]])
    assert shared.tolist() == [[0, 0, 2, 2, 2, 2], [0, 0, 0, 0, 1, 2]]
    with pytest.raises(ShapeError):
        Multinomial().result([Shape.of(dt.float32, (3,)), Shape.of(dt.float32, (3,))])


def test_no_draws() -> None:
    drawn = Multinomial().evaluate([np.ones((2, 3), np.float32), np.zeros((2, 0), np.float32)])
    assert drawn.shape == (2, 0)
