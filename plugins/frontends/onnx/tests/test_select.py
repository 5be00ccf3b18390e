"""NonZero, Compress, Unique, NonMaxSuppression: results whose extents depend on the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("fixed", [(), (0,)])
def test_non_zero(agree: Callable[..., Any], fixed: tuple[int, ...]) -> None:
    agree("NonZero", RNG.integers(0, 2, (3, 4)).astype(np.float32), fixed=fixed)
    agree("NonZero", np.array([False, True, True]), fixed=fixed)
    agree("NonZero", np.zeros((2, 2), np.int64), fixed=fixed)


def test_compress(agree: Callable[..., Any], run: Callable[..., Any]) -> None:
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    agree("Compress", x, np.array([True, False, True]), axis=1)
    agree("Compress", x, np.array([False, True]), axis=0)
    agree("Compress", x, np.array([False, True, True]))
    np.testing.assert_array_equal(run("Compress", x, x > 0)[0], x[x > 0])  # not a vector, as the standard requires
    np.testing.assert_array_equal(run("Compress", x, np.array([[False], [True]]), axis=0)[0], x[1:2])
    with pytest.raises(MgxError, match="longer"):
        run("Compress", x, np.ones(5, np.bool_), axis=1)


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_unique(agree: Callable[..., Any], ordered: int, axis: int | None) -> None:
    x = RNG.integers(0, 3, (5, 2)).astype(np.float32)
    agree("Unique", x, outputs=4, sorted=ordered, **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression(agree: Callable[..., Any], center: int) -> None:
    boxes = RNG.uniform(0, 1, (2, 40, 4)).astype(np.float32)
    scores = RNG.uniform(0, 1, (2, 3, 40)).astype(np.float32)
    operands = [np.array([4]), np.array([0.2], np.float32), np.array([0.4], np.float32)]
    for given in (operands, operands[:2], operands[:1]):
        (out,) = agree("NonMaxSuppression", boxes, scores, *given, center_point_box=center)
        assert len(out)
    (none,) = agree("NonMaxSuppression", boxes, scores, center_point_box=center)
    assert none.shape == (0, 3)


def test_refused(run: Callable[..., Any]) -> None:
    boxes, scores = np.zeros((1, 2, 4), np.float32), np.zeros((1, 1, 3), np.float32)
    with pytest.raises(MgxError, match="boxes and scores"):
        run("NonMaxSuppression", boxes, scores)
    with pytest.raises(MgxError, match="center_point_box"):
        run("NonMaxSuppression", boxes, scores[..., :2], center_point_box=2)
    with pytest.raises(MgxError, match="axis"):
        run("Unique", boxes, axis=3)
