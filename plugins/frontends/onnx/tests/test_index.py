"""Gather and Scatter families, OneHot and Trilu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(11)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)
LATE_AND_FIXED = pytest.mark.parametrize("fixed", [(), (1, 2)], ids=["late", "fixed"])


@LATE_AND_FIXED
@pytest.mark.parametrize("axis", [0, -1])
def test_gather(agree: Callable[..., Any], axis: int, fixed: tuple[int, ...]) -> None:
    agree("Gather", X, np.array([[0, -1], [2, -3]]), axis=axis, fixed=fixed)
    agree("Gather", X, np.array(1, np.int32), axis=axis, fixed=fixed)
    agree("GatherElements", X, RNG.integers(-3, 3, (2, 2, 2)), axis=axis, fixed=fixed)


@pytest.mark.parametrize(("batch", "lens"), [(0, (2, 2)), (1, (3, 2)), (1, (3, 4, 1))])
def test_gather_nd(agree: Callable[..., Any], batch: int, lens: tuple[int, ...]) -> None:
    agree("GatherND", X, RNG.integers(-3, 3, lens), batch_dims=batch)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_scatter(agree: Callable[..., Any], reduction: str) -> None:
    at = RNG.permuted(np.broadcast_to(np.arange(-3, 0)[:, None, None], (3, 4, 5)), axis=0)
    agree("ScatterElements", X, at, RNG.standard_normal((3, 4, 5)).astype(np.float32), axis=0, reduction=reduction)
    slices = np.array([[0, 1], [2, -1], [1, 0]])
    agree("ScatterND", X, slices, RNG.standard_normal((3, 5)).astype(np.float32), reduction=reduction)


def test_scatter_of_opset_9(agree: Callable[..., Any]) -> None:
    agree("Scatter", X, np.array([[[1, 0]]]), np.ones((1, 1, 2), np.float32), axis=1, opset=10)


@LATE_AND_FIXED
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(agree: Callable[..., Any], axis: int, fixed: tuple[int, ...]) -> None:
    agree("OneHot", np.array([[0, 2], [-1, 9]]), np.array(3), np.array([2, 5], np.float32), axis=axis, fixed=fixed)


def test_one_hot_of_floats(run: Callable[..., Any]) -> None:
    (out,) = run("OneHot", np.array([1.7, -1.2], np.float32), np.float32(3), np.array([0, 1]), fixed=(1,))
    assert out.tolist() == [[0, 1, 0], [0, 0, 1]]


@LATE_AND_FIXED
@pytest.mark.parametrize("k", [-7, -1, 0, 1, 7])
@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(agree: Callable[..., Any], k: int, upper: int, fixed: tuple[int, ...]) -> None:
    agree("Trilu", X, np.array(k), upper=upper, fixed=fixed)


def test_trilu_of_other_types(run: Callable[..., Any]) -> None:
    for dtype in (np.bool_, ml_dtypes.bfloat16, np.uint8):
        x = np.ones((3, 3), dtype)
        (out,) = run("Trilu", x, upper=0)
        assert out.dtype == x.dtype
        assert out.astype(np.int32).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_tensor_scatter(run: Callable[..., Any]) -> None:
    cache, update = np.zeros((2, 4, 1), np.float32), np.array([[[1], [2]], [[3], [4]]], np.float32)
    (out,) = run("TensorScatter", cache, update, np.array([0, 3]), opset=24, mode="circular", axis=1)
    assert out[..., 0].tolist() == [[1, 2, 0, 0], [4, 0, 0, 3]]


@LATE_AND_FIXED
@pytest.mark.parametrize(
    ("op", "inputs", "options"),
    [
        ("Gather", [X, np.array([3])], {}),
        ("Gather", [X, np.array([-4])], {}),
        ("Gather", [X, np.array([0])], {"axis": 3}),
        ("GatherElements", [X, np.array([[[5]]])], {"axis": 2}),
        ("GatherND", [X, np.array([[0, 4]])], {}),
        ("GatherND", [X, np.array([[0]])], {"batch_dims": 2}),
        ("ScatterElements", [X, np.array([[[-6]]]), np.zeros((1, 1, 1), np.float32)], {"axis": 2}),
        ("ScatterElements", [X, np.array([[[0]]]), np.zeros((1, 1, 1), np.float32)], {"reduction": "mean"}),
        ("ScatterND", [X, np.array([[3, 0]]), np.zeros((1, 5), np.float32)], {}),
        ("ScatterND", [X, np.array([[0, 0]]), np.zeros((1, 4), np.float32)], {}),
        ("OneHot", [np.array([1]), np.array(-2), np.array([0, 1])], {}),
        ("OneHot", [np.array([1]), np.array([2, 2]), np.array([0, 1])], {}),
        ("Trilu", [X[0, 0]], {}),
    ],
)
def test_refused(
    run: Callable[..., Any], op: str, inputs: list[Any], options: dict[str, Any], fixed: tuple[int, ...]
) -> None:
    with pytest.raises(MgxError):
        run(op, *inputs, fixed=[k for k in fixed if k < len(inputs)], **options)
