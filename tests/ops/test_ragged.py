"""Reductions of slices of different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import dim
from mgx_core.errors import ShapeError
from mgx_core.ops.ragged import ReduceSlices
from mgx_core.types.shape import Shape

X = np.random.default_rng(1).standard_normal((7, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("reduction", "reduce"), [("sum", np.sum), ("mean", np.mean), ("max", np.max), ("min", np.min)]
)
def test_slices_that_overlap_or_exceed_the_axis(reduction: Any, reduce: Any) -> None:
    starts, ends = np.array([0, 2, 5, -2, -90]), np.array([3, 4, 90, -1, 2])
    found = ReduceSlices(reduction=reduction).evaluate([X, starts, ends])
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    wanted = [reduce(X[start:end], axis=0) for start, end in zip(starts, ends, strict=True)]
    np.testing.assert_allclose(found, np.stack(wanted), rtol=1e-6)


@pytest.mark.parametrize(("reduction", "wanted"), [("sum", 0), ("mean", np.nan), ("max", -np.inf), ("min", np.inf)])
def test_slices_without_elements(reduction: Any, wanted: float) -> None:
    found = ReduceSlices(reduction=reduction).evaluate([X, np.array([4, 5]), np.array([4, 1])])
    np.testing.assert_array_equal(found, np.full((2, 3), wanted, np.float32))


def test_no_slices() -> None:
    none = np.zeros(0, np.int64)
    found = ReduceSlices().evaluate([X, none, none])
    assert isinstance(found, np.ndarray) and found.shape == (0, 3)


def test_inferred_shape() -> None:
    n, k = dim.symbol("n", 1, 64), dim.symbol("k", 1, 64)
    places = Shape("int64", [k])
    assert ReduceSlices().infer(Shape("float32", [n, 3]), places, places) == Shape.of(
        Shape("float32", []).dtype, [k, 3]
    )


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ((Shape("float32", []), Shape("int64", [2]), Shape("int64", [2])), "x must have at least one axis"),
        ((Shape("bool", [4]), Shape("int64", [2]), Shape("int64", [2])), "a type with reduce_sum, got bool"),
        (
            (Shape("float32", [4]), Shape("int64", [2]), Shape("int64", [3])),
            "the numbers of starts and ends must be equal",
        ),
    ],
)
def test_refused_operands(shapes: tuple[Shape, Shape, Shape], said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        ReduceSlices().infer(*shapes)
