"""Cumulative sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.scan import PrefixScanProd, PrefixScanSum
from mgx_core.types.shape import Shape


def run(op: Any, x: Any) -> Any:
    array = np.asarray(x)
    shape = op.result([Shape(dt.of(array.dtype), array.shape)])
    out = op.evaluate([array])
    assert (dt.of(out.dtype), list(out.shape)) == (shape.dtype, shape.lens())
    return out


@pytest.mark.parametrize(
    ("attributes", "sums", "products"),
    [
        ({}, [1, 3, 6], [1, 2, 6]),
        ({"exclusive": True}, [0, 1, 3], [1, 1, 2]),
        ({"reverse": True}, [6, 5, 3], [6, 6, 3]),
        ({"exclusive": True, "reverse": True}, [5, 3, 0], [6, 3, 1]),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, np.float32, np.float64])
def test_directions(attributes: Any, sums: Any, products: Any, dtype: Any) -> None:
    x = np.array([1, 2, 3], dtype)
    assert run(PrefixScanSum(**attributes), x).tolist() == sums
    assert run(PrefixScanProd(**attributes), x).tolist() == products
    assert run(PrefixScanSum(axis=1, **attributes), x.reshape(1, 3, 1)).reshape(-1).tolist() == sums


def test_edges() -> None:
    assert run(PrefixScanSum(axis=0, exclusive=True), np.zeros((0, 2), np.float32)).shape == (0, 2)
    assert run(PrefixScanSum(axis=1), np.zeros((0, 2), np.float32)).shape == (0, 2)
    assert run(PrefixScanSum(), np.int8([100, 100])).tolist() == [100, -56]
    assert PrefixScanSum().evaluate([np.float32([[1, 2], [3, 4]]), np.array(-1)]).tolist() == [[1, 3], [3, 7]]
    assert PrefixScanSum(axis=5).result([Shape("float32", [2]), Shape("int32", [])]) == Shape("float32", [2])
    with pytest.raises(ShapeError, match="one integer"):
        PrefixScanSum().result([Shape("float32", [2]), Shape("float32", [])])
    with pytest.raises(ShapeError, match="axis must lie"):
        PrefixScanSum(axis=1).result([Shape("float32", [2])])
    with pytest.raises(ShapeError, match="number type"):
        PrefixScanProd().result([Shape("bool", [2])])
