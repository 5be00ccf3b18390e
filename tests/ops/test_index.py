"""Elements selected by position; checked by onnx's reference evaluator where numpy has no such function."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.index import Gather, GatherElements, Gathernd, Onehot, Trilu
from mgx_core.types.shape import Shape

N = dim.symbol("n", 1, 64)
RNG = np.random.default_rng(7)


def f32(*dims: dim.Dim) -> Shape:
    return Shape.of(dt.float32, dims)


def i64(*dims: dim.Dim) -> Shape:
    return Shape.of(dt.int64, dims)


def witness(op: str, inputs: list[Any], **attributes: Any) -> Any:
    names = [f"i{k}" for k in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], **attributes)
    return ReferenceEvaluator(node).run(None, dict(zip(names, inputs, strict=True)))[0]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.int4, object])
def test_gather(axis: int, dtype: Any) -> None:
    x = RNG.integers(-7, 8, (3, 4, 5)).astype(dtype)
    for indices in (np.array(1), np.array([[0, -1], [2, -3]]), np.zeros((0, 2), np.int32), np.array([1], np.uint8)):
        out = Gather(axis=axis).evaluate([x, indices])
        expected = x.take(indices.astype(np.int64), axis)
        assert out.dtype == x.dtype
        assert out.tolist() == expected.tolist()
        assert Gather(axis=axis).result([f32(3, 4, 5), i64(*indices.shape)]).dims == out.shape


@pytest.mark.parametrize("op", [Gather(), GatherElements(), Gathernd()])
def test_positions_outside(op: Any) -> None:
    x = np.zeros((3, 2))
    for bad in (3, -4, 1 << 40):
        with pytest.raises(ShapeError, match=r"\[-3, 2\]"):
            op.evaluate([x, np.array([[bad]])])
    for far in (1 << 63, (1 << 64) - 1):  # which int64 would interpret as positions counted from the end
        with pytest.raises(ShapeError, match=rf"\[-3, 2\], got {far}"):
            op.evaluate([x, np.array([[far]], np.uint64)])
    with pytest.raises(ShapeError, match="integers"):
        op.result([f32(3, 2), f32(1, 1)])


def test_positions_outside_where_there_are_no_elements() -> None:
    for axis in (1, -1):
        with pytest.raises(ShapeError, match=r"\[-1, 0\], got 2"):
            Gather(axis=axis).evaluate([np.zeros((0, 1, 1)), np.array([2, 0])])
    assert Gather(axis=1).evaluate([np.zeros((0, 2, 1)), np.array([1, -2, 0])]).shape == (0, 3, 1)


def test_gather_shapes() -> None:
    assert Gather(axis=1).result([f32(N, 4), i64(2, N)]).dims == (N, 2, N)
    with pytest.raises(ShapeError, match="empty"):
        Gather().result([f32(0, 4), i64(2)])
    assert Gather().result([f32(0, 4), i64(0)]).dims == (0, 4)
    with pytest.raises(ShapeError):
        Gather().result([f32(), i64(2)])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis: int) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    indices = RNG.integers(-3, 3, (3, 4, 5))
    expected = witness("GatherElements", [x, np.where(indices < 0, indices + x.shape[axis], indices)], axis=axis)
    np.testing.assert_array_equal(GatherElements(axis=axis).evaluate([x, indices]), expected)
    part = indices[:2, :3, :2]
    np.testing.assert_array_equal(GatherElements(axis=axis).evaluate([x, part]), expected[:2, :3, :2])
    for bad in (i64(3, 4), i64(9, 9, 9)):
        with pytest.raises(ShapeError):
            GatherElements(axis=axis).result([f32(3, 4, 5), bad])


@pytest.mark.parametrize(
    ("batch", "lens", "indices"),
    [(0, (3, 4, 5), (2, 2)), (0, (3, 4, 5), (3,)), (1, (3, 4, 5), (3, 1)), (2, (3, 4, 5), (3, 4, 1)), (1, (3, 4, 5), (3, 6, 2)),
     (0, (3, 4, 5), (2, 3, 1))],
)  # fmt: skip
def test_gathernd(batch: int, lens: tuple[int, ...], indices: tuple[int, ...]) -> None:
    x = RNG.standard_normal(lens).astype(np.float32)
    at = RNG.integers(0, 3, indices)
    expected = witness("GatherND", [x, at], batch_dims=batch)
    made = Gathernd(batch_dims=batch)
    np.testing.assert_array_equal(made.evaluate([x, at]), expected)
    assert made.result([f32(*lens), i64(*indices)]).dims == expected.shape
    np.testing.assert_array_equal(made.evaluate([x, at - np.array(lens[batch : batch + indices[-1]])]), expected)


def test_gathernd_shapes() -> None:
    assert Gathernd(batch_dims=1).result([f32(N, 4, 5), i64(N, 7, 1)]).dims == (N, 7, 5)
    assert not Gathernd().result([f32(3, 4), i64(2, N)]).ranked
    for op, at in ((Gathernd(batch_dims=2), i64(3, 1)), (Gathernd(), i64(2, 3)), (Gathernd(batch_dims=1), i64(4, 1))):
        with pytest.raises(ShapeError):
            op.result([f32(3, 4), at])


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
def test_onehot(axis: int) -> None:
    indices = np.array([[0, 2], [-1, 4], [3, -9]])
    values = np.array([2, 5], np.int32)
    late = Onehot(axis=axis).evaluate([indices, np.array([4]), values])
    np.testing.assert_array_equal(late, Onehot(axis=axis, depth=4).evaluate([indices, None, values]))
    moved = np.moveaxis(late, axis, -1)
    assert moved[0].tolist() == [[5, 2, 2, 2], [2, 2, 5, 2]]
    assert moved[1].tolist() == [[2, 2, 2, 5], [2, 2, 2, 2]]
    assert moved[2].tolist() == [[2, 2, 2, 5], [2, 2, 2, 2]]


def test_onehot_shapes() -> None:
    values = Shape.of(dt.float16, (2,))
    assert Onehot(axis=0, depth=N).result([i64(3), None, values]) == Shape.of(dt.float16, (N, 3))
    assert Onehot().result([i64(3), i64(), values]).dims[0] == 3
    assert Onehot(depth=3).evaluate([np.array([1.9]), None, np.array([0, 1])]).tolist() == [[0, 1, 0]]
    for op, operands in (
        (Onehot(), [i64(3), None, values]),
        (Onehot(axis=2), [i64(3), i64(), values]),
        (Onehot(), [i64(3), i64(), Shape.of(dt.float16, (3,))]),
        (Onehot(), [i64(3), i64(2), values]),
    ):
        with pytest.raises(ShapeError):
            op.result(operands)
    with pytest.raises(ShapeError, match="negative"):
        Onehot().evaluate([np.array([0]), np.array(-1), np.array([0, 1])])


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("k", [-9, -1, 0, 2, 9])
def test_trilu(upper: bool, k: int) -> None:
    x = RNG.integers(1, 9, (2, 3, 4))
    expected = np.triu(x, k) if upper else np.tril(x, k)
    np.testing.assert_array_equal(Trilu(upper=upper, k=k).evaluate([x]), expected)
    np.testing.assert_array_equal(Trilu(upper=upper).evaluate([x, np.array(k)]), expected)
    with pytest.raises(ShapeError):
        Trilu().result([f32(3)])
