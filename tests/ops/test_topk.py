"""The k largest or smallest elements."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dim
from mgx_core.errors import ShapeError
from mgx_core.ops.topk import Topk
from mgx_core.types.shape import Shape, TupleShape


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint64, np.float64])
def test_order_and_ties(dtype: Any) -> None:
    x = np.array([[3, 1, 3, 2], [0, 0, 5, 0]]).astype(dtype)
    values, indices = Topk(k=3).evaluate([x])
    assert values.dtype == x.dtype
    assert indices.dtype == np.int64
    assert values.astype(np.float32).tolist() == [[3, 3, 2], [5, 0, 0]]
    assert indices.tolist() == [[0, 2, 3], [2, 0, 1]]
    values, indices = Topk(k=2, largest=False).evaluate([x])
    assert values.astype(np.float32).tolist() == [[1, 2], [0, 0]]
    assert indices.tolist() == [[1, 3], [0, 1]]


def test_nan_counts_as_largest() -> None:
    x = np.float32([1, np.nan, 3, np.nan])
    assert Topk(k=3).evaluate([x])[1].tolist() == [1, 3, 2]
    assert Topk(k=3, largest=False).evaluate([x])[1].tolist() == [0, 2, 1]


def test_other_axis_and_k_at_run_time() -> None:
    x = np.arange(12).reshape(3, 4)
    values, indices = Topk(axis=0).evaluate([x, np.array([2])])
    assert values.tolist() == [[8, 9, 10, 11], [4, 5, 6, 7]]
    assert indices.tolist() == [[2] * 4, [1] * 4]
    shape = Topk(axis=0).result([Shape("int64", [3, 4]), Shape("int64", [1])])
    assert isinstance(shape, TupleShape)
    assert dim.bounds(shape.items[0].dims[0]) == (0, 3)
    assert Topk(k=0).evaluate([x])[0].shape == (3, 0)


def test_bad_k() -> None:
    assert Topk(k=2, axis=0).result([Shape("float32", [3, 4])]) == TupleShape(
        [Shape("float32", [2, 4]), Shape("int64", [2, 4])]
    )
    with pytest.raises(ShapeError, match=r"k must lie in \[0, 4\]"):
        Topk(k=5).result([Shape("float32", [3, 4])])
    with pytest.raises(ShapeError, match=r"k must lie in \[0, 4\], .* got -1"):
        Topk().evaluate([np.zeros((3, 4)), np.array([-1])])
    with pytest.raises(ShapeError, match="one int64"):
        Topk().result([Shape("float32", [3]), Shape("int64", [2])])
