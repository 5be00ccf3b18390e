"""Scatter ops, compared with onnx's reference evaluator and plain loops."""

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
from mgx_core.ops import scatter
from mgx_core.ops.scatter import TensorScatter
from mgx_core.types.shape import Shape

N = dim.symbol("n", 1, 64)
RNG = np.random.default_rng(5)
ELEMENTS = {r: getattr(scatter, f"Scatter{r.title()}") for r in ("none", "add", "mul", "min", "max")}
SLICES = {r: getattr(scatter, f"Scatternd{r.title()}") for r in ("none", "add", "mul", "min", "max")}


def f32(*dims: dim.Dim) -> Shape:
    return Shape.of(dt.float32, dims)


def i64(*dims: dim.Dim) -> Shape:
    return Shape.of(dt.int64, dims)


def witness(op: str, inputs: list[Any], **attributes: Any) -> Any:
    node = helper.make_node(op, ["a", "b", "c"], ["y"], **attributes)
    return ReferenceEvaluator(node).run(None, dict(zip("abc", inputs, strict=True)))[0]


@pytest.mark.parametrize("reduction", list(ELEMENTS))
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_elements(reduction: str, axis: int, dtype: Any) -> None:
    data = RNG.integers(-9, 9, (3, 4, 5)).astype(dtype)
    own = np.arange(3).reshape([-1 if i == axis % 3 else 1 for i in range(3)])
    at = RNG.permuted(np.broadcast_to(own, [3] * 3), axis=axis)
    if reduction != "none":  # several updates of one element are defined only then
        at = RNG.integers(0, 3, (3, 3, 3))
    updates = RNG.integers(-9, 9, (3, 3, 3)).astype(dtype)
    expected = witness("ScatterElements", [data, at, updates], axis=axis, reduction=reduction)
    before = data.copy()
    made = ELEMENTS[reduction](axis=axis)
    np.testing.assert_array_equal(made.evaluate([data, at, updates]), expected)
    np.testing.assert_array_equal(made.evaluate([data, at - data.shape[axis], updates]), expected)
    np.testing.assert_array_equal(data, before)
    assert made.result([f32(N, 4, 5), i64(3, 3, 3), f32(3, 3, 3)]).dims == (N, 4, 5)


@pytest.mark.parametrize("reduction", list(SLICES))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_slices(reduction: str, k: int) -> None:
    data = RNG.integers(-9, 9, (3, 4, 5)).astype(np.float32)
    at = RNG.permutation(np.stack(np.meshgrid(*[np.arange(2)] * k, indexing="ij"), -1).reshape(-1, k))
    if reduction != "none":
        at = RNG.integers(0, 3, (2, 6, k))
    updates = RNG.integers(-9, 9, (*at.shape[:-1], *data.shape[k:])).astype(np.float32)
    expected = witness("ScatterND", [data, at, updates], reduction=reduction)
    made = SLICES[reduction]()
    np.testing.assert_array_equal(made.evaluate([data, at, updates]), expected)
    np.testing.assert_array_equal(made.evaluate([data, at - np.array(data.shape[:k]), updates]), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_once(dtype: Any) -> None:
    """A hundred small numbers added to 1 change it, though each one alone is rounded away."""
    small = np.asarray(2.0**-12, dtype)
    out = ELEMENTS["add"]().evaluate([np.ones(1, dtype), np.zeros(512, np.int64), np.full(512, small)])
    assert out.dtype == np.dtype(dtype)
    assert out.astype(np.float32).tolist() == [1.125]


def test_strings_and_bools() -> None:
    words = np.array(["a", "b"], object)
    assert ELEMENTS["none"]().evaluate([words, np.array([1]), np.array(["z"], object)]).tolist() == ["a", "z"]
    flags = np.array([False, True])
    assert ELEMENTS["max"]().evaluate([flags, np.array([0]), np.array([True])]).tolist() == [True, True]
    with pytest.raises(ShapeError, match="combined"):
        ELEMENTS["add"]().result([Shape.of(dt.string, (2,)), i64(1), Shape.of(dt.string, (1,))])


def test_positions_outside() -> None:
    data, ones = np.zeros(3), np.ones(2)
    for at in ([0, 3], [-4, 1]):
        for op in (ELEMENTS["add"](), SLICES["add"]()):
            shaped = np.array(at) if op.name == "scatter_add" else np.array(at)[:, None]
            with pytest.raises(ShapeError, match=r"\[-3, 2\]"):
                op.evaluate([data, shaped, ones])
    skipping = ELEMENTS["add"](skip_out_of_bounds=True)
    assert skipping.evaluate([data, np.array([0, 3]), ones]).tolist() == [1, 0, 0]
    matrix = ELEMENTS["none"](axis=1, skip_out_of_bounds=True)
    out = matrix.evaluate([np.zeros((2, 2)), np.array([[5, 1], [-2, -7]]), np.array([[1, 2], [3, 4]])])
    assert out.tolist() == [[0, 2], [3, 0]]


@pytest.mark.parametrize(
    "operands",
    [[f32(3), i64(2, 1), f32(2, 1)], [f32(3), i64(2), f32(3)], [f32(3), f32(2), f32(2)], [f32(3), i64(2), i64(2)]],
)
def test_unfitting_operands(operands: list[Shape]) -> None:
    with pytest.raises(ShapeError):
        ELEMENTS["none"]().result(operands)


def test_unfitting_slices() -> None:
    for at, updates in ((i64(2, 3), f32(2)), (i64(2, 1), f32(2, 3)), (i64(), f32())):
        with pytest.raises(ShapeError):
            SLICES["none"]().result([f32(3, 4), at, updates])
    with pytest.raises(ShapeError):
        SLICES["none"]().evaluate([np.zeros((3, 4)), np.zeros((2, 1), np.int64), np.zeros((2, 3))])
    assert SLICES["none"]().result([f32(N, 4), i64(N, 1), f32(N, 4)]).dims == (N, 4)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(axis: int, mode: str) -> None:
    cache, starts = np.zeros((2, 5, 5), np.float32), np.array([1, 3 if mode == "circular" else 2])
    update = RNG.standard_normal((2, 3, 5) if axis == 1 else (2, 5, 3)).astype(np.float32)
    expected = cache.copy()
    for b in range(2):
        for s in range(3):
            to, of = (b, (starts[b] + s) % 5), (b, s)
            if axis == 1:
                expected[to] = update[of]
            else:
                expected[b, :, to[1]] = update[b, :, s]
    made = TensorScatter(axis=axis, mode=mode)
    np.testing.assert_array_equal(made.evaluate([cache, update, starts]), expected)
    assert made.evaluate([cache, update])[1].any()


def test_tensor_scatter_refuses() -> None:
    with pytest.raises(ShapeError, match="leave"):
        TensorScatter().evaluate([np.zeros((1, 4, 2)), np.ones((1, 2, 2)), np.array([3])])
    for op, operands in (
        (TensorScatter(axis=0), [f32(2, 4, 1), f32(1, 4, 1)]),
        (TensorScatter(), [f32(2, 4, 1), f32(2, 5, 1)]),
        (TensorScatter(), [f32(2, 4, 1), f32(2, 2, 3)]),
        (TensorScatter(), [f32(2, 4, 1), f32(2, 2, 1), i64(3)]),
    ):
        with pytest.raises(ShapeError):
            op.result(operands)
