"""Ops whose result extents depend on data."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.nms import Nonmaxsuppression
from mgx_core.ops.select import Compress, Nonzero, Unique
from mgx_core.types.shape import Shape

N = dim.symbol("n", 1, 64)
RNG = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", [np.bool_, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.uint4])
def test_nonzero(dtype: Any) -> None:
    x = RNG.integers(0, 2, (3, 4)).astype(dtype)
    np.testing.assert_array_equal(Nonzero().evaluate([x]), np.stack(np.nonzero(x.astype(np.float32))))
    assert Nonzero().evaluate([np.asarray(1, dtype)]).tolist() == [[0]]
    assert Nonzero().evaluate([np.zeros((2, 0), dtype)]).shape == (2, 0)


def test_nonzero_extent() -> None:
    found = Nonzero().result([Shape.of(dt.float32, (N, 3))])
    assert found.dtype is dt.int64
    assert found.dims[0] == 2
    assert dim.bounds(found.dims[1]) == (0, 192)


def test_compress() -> None:
    x = np.arange(6).reshape(2, 3)
    assert Compress(axis=-1).evaluate([x, np.array([True, False, True])]).tolist() == [[0, 2], [3, 5]]
    assert Compress(axis=0).evaluate([x, np.array([False])]).shape == (0, 3)
    assert Compress().evaluate([x, np.array([False, True, False, True])]).tolist() == [1, 3]
    shape, flags = Shape.of(dt.float32, (N, 3)), Shape.of(dt.bool_, (2,))
    assert dim.bounds(Compress(axis=1).result([shape, flags]).dims[1]) == (0, 2)
    for op, condition in (
        (Compress(axis=1), Shape.of(dt.bool_, (4,))),
        (Compress(axis=1), Shape.of(dt.int64, (3,))),
        (Compress(axis=2), flags),
        (Compress(), Shape.of(dt.bool_, (2, 2))),
    ):
        with pytest.raises(ShapeError):
            op.result([shape, condition])
    with pytest.raises(ShapeError):
        Compress(axis=1).evaluate([x, np.ones(4, np.bool_)])


def test_unique_of_nan() -> None:
    x = np.array([np.nan, 1, np.nan], np.float32)
    values, first, places, counts = Unique().evaluate([x])
    np.testing.assert_array_equal(values, [1, np.nan])
    assert counts.tolist() == [1, 2]
    values, first, places, counts = Unique(equal_nan=False).evaluate([x])
    np.testing.assert_array_equal(values, [1, np.nan, np.nan])
    assert (first.tolist(), places.tolist(), counts.tolist()) == ([1, 0, 2], [1, 0, 2], [1, 1, 1])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("ordered", [True, False])
def test_unique(axis: int | None, ordered: bool) -> None:
    x = RNG.integers(0, 2, (4, 3, 2)).astype(np.float32)
    rows = list(x.reshape(-1)) if axis is None else list(np.moveaxis(x, axis, 0))
    keys = [tuple(np.reshape(r, -1)) for r in rows]
    kinds = sorted(set(keys)) if ordered else list(dict.fromkeys(keys))
    values, first, inverse, counts = Unique(axis=axis, sorted=ordered).evaluate([x])
    expected = [rows[keys.index(k)] for k in kinds]
    np.testing.assert_array_equal(values, np.stack(expected, 0 if axis is None else axis))
    assert first.tolist() == [keys.index(k) for k in kinds]
    assert inverse.tolist() == [kinds.index(k) for k in keys]
    assert counts.tolist() == [keys.count(k) for k in kinds]
    items: Any = Unique(axis=axis).result([Shape.of(dt.float32, (4, 3, 2))])
    assert [s.rank for s in items.items] == [1 if axis is None else 3, 1, 1, 1]


def test_unique_of_odd_things() -> None:
    words: Any = Unique(sorted=False).evaluate([np.array(["b", "a", "b"], object)])
    assert [v.tolist() for v in words] == [["b", "a"], [0, 1], [0, 1, 0], [2, 1]]
    halves: Any = Unique().evaluate([np.array([2, -1, 2]).astype(ml_dtypes.bfloat16)])
    assert halves[0].astype(np.float32).tolist() == [-1, 2]
    assert halves[0].dtype == ml_dtypes.bfloat16
    nothing: Any = Unique().evaluate([np.zeros(0)])
    assert [len(v) for v in nothing] == [0, 0, 0, 0]
    hollow: Any = Unique(axis=0).evaluate([np.zeros((3, 0))])
    assert hollow[0].shape == (1, 0)
    assert hollow[3].tolist() == [3]


def plain_nms(boxes: Any, scores: Any, most: int, iou: float, least: float) -> list[list[int]]:
    """Returns the boxes selected by the definition, box by box."""
    found = []
    for b in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            kept: list[int] = []
            for i in sorted(range(boxes.shape[1]), key=lambda i: (-scores[b, c, i], i)):
                if scores[b, c, i] <= least or len(kept) == most:
                    continue
                if all(overlap(boxes[b, i], boxes[b, j]) <= iou for j in kept):
                    kept.append(i)
            found += [[b, c, i] for i in kept]
    return found


def overlap(p: Any, q: Any) -> float:
    low = [max(min(p[i], p[i + 2]), min(q[i], q[i + 2])) for i in (0, 1)]
    high = [min(max(p[i], p[i + 2]), max(q[i], q[i + 2])) for i in (0, 1)]
    shared = max(0.0, high[0] - low[0]) * max(0.0, high[1] - low[1])
    areas = [abs((r[2] - r[0]) * (r[3] - r[1])) for r in (p, q)]
    return 0.0 if min(areas) <= 0 else shared / (sum(areas) - shared)


@pytest.mark.parametrize("most", [0, 2, 100])
def test_nms(most: int) -> None:
    boxes = RNG.uniform(0, 1, (2, 30, 4)).astype(np.float32)
    scores = (RNG.integers(0, 20, (2, 3, 30)) / 20).astype(np.float32)
    operands = [boxes, scores, np.array([most]), np.array([0.3], np.float32), np.array(0.25, np.float32)]
    assert Nonmaxsuppression().evaluate(operands).tolist() == plain_nms(boxes, scores, most, 0.3, 0.25)
    middles = np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, np.abs(boxes[..., 2:] - boxes[..., :2])], -1)
    again = Nonmaxsuppression(center_point_box=True).evaluate([middles.astype(np.float64), scores, *operands[2:]])
    assert again.tolist() == plain_nms(boxes, scores, most, 0.3, 0.25)


def test_nms_defaults_and_errors() -> None:
    boxes, scores = np.zeros((1, 2, 4), np.float32), np.zeros((1, 1, 2), np.float32)
    assert Nonmaxsuppression().evaluate([boxes, scores]).shape == (0, 3)
    assert Nonmaxsuppression().evaluate([boxes, scores - 1, np.array(5)]).tolist() == [[0, 0, 0], [0, 0, 1]]
    with pytest.raises(ShapeError, match="iou_threshold"):
        Nonmaxsuppression().evaluate([boxes, scores, np.array(1), np.array(1.5, np.float32)])
    good = [Shape.of(dt.float32, (1, N, 4)), Shape.of(dt.float32, (1, 2, N))]
    found = Nonmaxsuppression().result(good)
    assert dim.bounds(found.dims[0]) == (0, 128)
    assert found.dims[1] == 3
    for bad in (
        [good[0], Shape.of(dt.float32, (2, 2, N))],
        [good[0], Shape.of(dt.int8, (1, 2, N))],
        [*good, Shape.of(dt.float32, ())],
    ):
        with pytest.raises(ShapeError):
            Nonmaxsuppression().result(bad)
