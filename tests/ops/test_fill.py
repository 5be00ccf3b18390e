"""Tensors that are filled without data: ranges, constants, identity matrices."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError, UnsupportedError
from mgx_core.ops.fill import Allocate, DimensionsOf, DynamicRange, EyeLike, Fill, Unknown
from mgx_core.types.shape import Shape

N = dim.symbol("n", 1, 64)
X = Shape.of(dt.float32, (2, N, 4))


@pytest.mark.parametrize(("start", "end"), [(0, None), (1, None), (-2, None), (0, -1), (1, 9), (-9, 2), (2, 1)])
def test_dimensions_of(start: int, end: int | None) -> None:
    made = DimensionsOf(start=start, end=end)
    expected = [2, 3, 4][start:end]
    assert made.evaluate([np.zeros((2, 3, 4))]).tolist() == expected
    assert made.result([X]) == Shape.of(dt.int64, (len(expected),))


def test_dimensions_of_an_open_rank() -> None:
    found = DimensionsOf().result([Shape.unranked(dt.float32)])
    assert found.rank == 1
    assert found.dynamic()


def test_fill() -> None:
    assert Fill().result([Shape.of(dt.int8, (1,)), X]) == Shape.of(dt.int8, (2, N, 4))
    assert Fill().evaluate([np.array([7], np.int8), np.zeros((2, 2))]).tolist() == [[7, 7], [7, 7]]
    with pytest.raises(ShapeError):
        Fill().result([Shape.of(dt.int8, (2,)), X])


@pytest.mark.parametrize(
    ("start", "limit", "delta", "dtype"),
    [(3, 9, 3, np.int64), (10, 4, -2, np.int32), (5, 5, 1, np.int64), (5, 9, -1, np.int16), (0, 1, 0.1, np.float64),
     (1, 5, 2, np.uint64), (0, 10, 3, np.uint8), (-1.5, 2, 0.5, np.float32), (0, 300, 1, ml_dtypes.bfloat16),
     (2, 0, -0.25, np.float16)],
)  # fmt: skip
def test_dynamic_range(start: float, limit: float, delta: float, dtype: Any) -> None:
    operands = [np.asarray(v).astype(dtype) for v in (start, limit, delta)]
    out = DynamicRange().evaluate(operands)
    assert out.dtype == np.dtype(dtype)
    wide = np.float64 if dtype in (np.float64,) else np.float32
    expected = (np.arange(len(out), dtype=wide) * operands[2].astype(wide) + operands[0].astype(wide)).astype(dtype)
    assert out.tolist() == expected.tolist()
    assert len(out) == len(np.arange(*(v.astype(np.float64) for v in operands)))


def test_dynamic_range_shapes() -> None:
    one = Shape.of(dt.int64, ())
    assert DynamicRange().result([one, one, one]).dynamic()
    assert DynamicRange(length=N).result([one, one, one]).dims == (N,)
    operands = [np.array(0), np.array(5), np.array(1)]
    assert DynamicRange(length=5).evaluate(operands).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ShapeError, match="5 elements, not 4"):
        DynamicRange(length=4).evaluate(operands)
    with pytest.raises(ShapeError):
        DynamicRange().result([one, Shape.of(dt.int32, ()), one])
    for bad in ((0, 5, 0), (0.0, np.inf, 1.0), (0.0, np.nan, 1.0)):
        with pytest.raises(ShapeError):
            DynamicRange().evaluate([np.asarray(v) for v in bad])


@pytest.mark.parametrize("k", [-9, -1, 0, 2, 9])
def test_eye_like(k: int) -> None:
    x = np.zeros((3, 4), np.float16)
    np.testing.assert_array_equal(EyeLike(k=k).evaluate([x]), np.eye(3, 4, k))
    assert EyeLike(k=k, dtype=dt.bfloat16).evaluate([x]).dtype == ml_dtypes.bfloat16
    assert EyeLike(dtype=dt.int8).result([Shape.of(dt.float32, (N, 3))]) == Shape.of(dt.int8, (N, 3))
    with pytest.raises(ShapeError):
        EyeLike().result([X])


def test_allocate() -> None:
    assert Allocate(shape=X).result([]) == X
    assert Allocate(shape=Shape(dt.int8, (2, 3))).evaluate([]).shape == (2, 3)
    late = Allocate(buf_type=dt.int16)
    assert late.result([Shape.of(dt.int64, (2,))]).rank == 2
    assert late.evaluate([np.array([2, 3])]).dtype == np.int16
    with pytest.raises(ShapeError, match="negative"):
        late.evaluate([np.array([-1])])
    with pytest.raises(ShapeError, match="extents"):
        Allocate().result([])


def test_unknown() -> None:
    made = Unknown(op="Frobnicate")
    assert made.result([X]) == X
    with pytest.raises(UnsupportedError, match="Frobnicate"):
        made.evaluate([np.zeros(1)])
