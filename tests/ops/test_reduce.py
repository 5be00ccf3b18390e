"""Reductions, argmin and argmax, softmax and related ops."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError, UnrankedError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops.reduce import (
    Argmax,
    Argmin,
    ReduceAll,
    ReduceAny,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from mgx_core.ops.softmax import Hardmax, Logsoftmax, Softmax
from mgx_core.rules.engine import Builder
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(5)


def run(op: Any, *xs: Any) -> Any:
    arrays = [np.asarray(x) for x in xs]
    shape = op.result([Shape(dt.of(a.dtype), a.shape) for a in arrays])
    out = op.evaluate(arrays)
    assert dt.of(out.dtype) is shape.dtype
    assert len(out.shape) == shape.rank
    assert all(dim.may_equal(n, d) for n, d in zip(out.shape, shape.dims, strict=True))
    return out


PAIRS = [(ReduceSum, np.sum), (ReduceMean, np.mean), (ReduceProd, np.prod), (ReduceMax, np.max), (ReduceMin, np.min)]


@pytest.mark.parametrize(("cls", "function"), PAIRS, ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("axes", [(), (0,), (-1,), (2, 0), (0, 1, 2)])
def test_against_numpy(cls: Any, function: Any, dtype: Any, axes: tuple[int, ...]) -> None:
    x = RNG.uniform(0.5, 1.5, (2, 3, 4)).astype(dtype)
    expected = function(x.astype(np.float64), axis=axes or None, keepdims=True)
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(run(cls(axes=axes), x).astype(np.float64), expected, rtol=24 * 1e-7 + eps)
    if axes:
        given = run(cls(), x, np.array(axes))
        np.testing.assert_array_equal(given, run(cls(axes=axes), x))


def test_axes_known_at_run_time() -> None:
    x = np.arange(6.0).reshape(2, 3)
    none = np.zeros(0, np.int64)
    np.testing.assert_array_equal(run(ReduceSum(), x, none), [[15]])
    np.testing.assert_array_equal(run(ReduceSum(noop_with_empty_axes=True), x, none), x)
    with pytest.raises(ShapeError, match="axes must lie"):
        ReduceSum().evaluate([x, np.array([2])])
    with pytest.raises(ShapeError, match="vector of int64"):
        ReduceSum().result([Shape("float32", [2]), Shape("float32", [1])])


def test_integers() -> None:
    x = np.int8([[100, 100], [-7, 2]])
    assert run(ReduceSum(axes=(1,)), x).tolist() == [[-56], [-5]]
    assert run(ReduceMean(axes=(1,)), x).tolist() == [[100], [-2]]
    assert run(ReduceMax(axes=(1,)), x).tolist() == [[100], [2]]
    assert run(ReduceSum(), np.array([7, 7], ml_dtypes.int4)).tolist() == [-2]


def test_over_no_elements() -> None:
    x = np.zeros((2, 0), np.float32)
    assert run(ReduceSum(axes=(1,)), x).tolist() == [[0], [0]]
    assert run(ReduceProd(axes=(1,)), x).tolist() == [[1], [1]]
    assert run(ReduceMax(axes=(1,)), x).tolist() == [[-np.inf], [-np.inf]]
    assert run(ReduceMin(axes=(1,)), x).tolist() == [[np.inf], [np.inf]]
    np.testing.assert_array_equal(run(ReduceMean(axes=(1,)), x), [[np.nan], [np.nan]])
    assert run(ReduceMax(axes=(1,)), x.astype(np.int8)).tolist() == [[-128], [-128]]
    assert run(ReduceMin(axes=(1,)), x.astype(np.bool_)).tolist() == [[True], [True]]
    assert run(ReduceMax(axes=(1,)), x.astype(ml_dtypes.float8_e4m3fn)).astype(np.float32).tolist() == [[-448], [-448]]
    assert run(ReduceAny(axes=(1,)), x.astype(np.bool_)).tolist() == [[False], [False]]
    assert run(ReduceAll(axes=(1,)), x.astype(np.bool_)).tolist() == [[True], [True]]
    assert run(ReduceSum(axes=(0,)), x).shape == (1, 0)
    with pytest.raises(ShapeError, match="mean of no int8"):
        ReduceMean(axes=(1,)).evaluate([x.astype(np.int8)])


def test_logic_and_scalars() -> None:
    x = np.array([[True, False], [True, True]])
    assert run(ReduceAny(axes=(1,)), x).tolist() == [[True], [True]]
    assert run(ReduceAll(axes=(1,)), x).tolist() == [[False], [True]]
    assert run(ReduceMax(axes=(0,)), x).tolist() == [[True, True]]
    assert run(ReduceSum(), np.float32(3)).shape == ()
    assert np.isnan(run(ReduceMax(), np.float32([1, np.nan])))[0]


def test_long_sums_do_not_depend_on_the_layout() -> None:
    x = np.full((1, 100_000), 0.1, np.float32)
    exact = np.float32(0.1).astype(np.float64) * 100_000
    assert run(ReduceSum(axes=(1,)), x)[0, 0] == np.float32(exact)
    assert run(ReduceSum(axes=(0,)), x.T)[0, 0] == np.float32(exact)
    assert run(ReduceMean(axes=(0,)), x.T)[0, 0] == np.float32(0.1)


def test_bad_operands() -> None:
    with pytest.raises(ShapeError, match="axes must lie"):
        ReduceSum(axes=(2,)).result([Shape("float32", [2, 3])])
    with pytest.raises(ShapeError, match="differ"):
        ReduceSum(axes=(1, -1)).result([Shape("float32", [2, 3])])
    with pytest.raises(ShapeError, match="type bool"):
        ReduceSum().result([Shape("bool", [2])])
    with pytest.raises(UnrankedError):
        ReduceSum().result([Shape.unranked(dt.float32)])


def test_symbolic_extents_pass_through() -> None:
    n = dim.symbol("n", 1, 8)
    assert ReduceSum(axes=(1,)).result([Shape("float32", [n, 4])]) == Shape("float32", [n, 1])
    assert Argmax(axis=0).result([Shape("float32", [n, 4])]) == Shape("int64", [1, 4])
    assert Softmax().result([Shape("float16", [n, 4])]) == Shape("float16", [n, 4])


def test_positions() -> None:
    x = np.float32([[1, 3, 3], [2, 2, 0]])
    assert run(Argmax(axis=1), x).tolist() == [[1], [0]]
    assert run(Argmax(axis=-1, select_last_index=True), x).tolist() == [[2], [1]]
    assert run(Argmin(axis=0), x).tolist() == [[0, 1, 1]]
    assert run(Argmin(axis=0, select_last_index=True), np.int8([[1], [1]])).tolist() == [[1]]
    assert run(Argmax(axis=0), np.array([1, 2], ml_dtypes.bfloat16)).tolist() == [1]
    with pytest.raises(ShapeError, match="must not be empty"):
        Argmax(axis=1).result([Shape("float32", [2, 0])])
    with pytest.raises(ShapeError, match="axis must lie"):
        Argmax(axis=2).result([Shape("float32", [2, 3])])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(dtype: Any, axis: int) -> None:
    x = RNG.uniform(-3, 3, (2, 3, 4)).astype(dtype)
    powers = np.exp(x.astype(np.float64))
    expected = powers / powers.sum(axis, keepdims=True)
    eps = float(ml_dtypes.finfo(dtype).eps)
    # x - max is up to 6
    np.testing.assert_allclose(run(Softmax(axis=axis), x).astype(np.float64), expected, rtol=8 * eps)
    logs = np.log(expected)
    np.testing.assert_allclose(run(Logsoftmax(axis=axis), x).astype(np.float64), logs, rtol=2 * eps, atol=6 * eps)


@pytest.mark.parametrize("op", [Softmax(axis=1), Logsoftmax(axis=0)], ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_softmax_in_simpler_ops(op: Any, dtype: Any) -> None:
    x = RNG.uniform(-3, 3, (2, 3, 4)).astype(dtype)
    module = Module()
    given = module.add_parameter("x", Shape(dt.of(dtype), x.shape))
    whole = module.add(op, given)
    module.replace(whole, op.decompose(Builder(module, whole), given))
    out = Interpreter().run(module, [x])[0]
    assert out.dtype == dtype
    np.testing.assert_allclose(out, op.evaluate([x]), rtol=float(np.finfo(dtype).eps))


def test_softmax_of_extremes() -> None:
    np.testing.assert_array_equal(run(Softmax(), np.float32([1e4, 1e4 - 200, -np.inf])), [1, 0, 0])
    np.testing.assert_array_equal(run(Logsoftmax(), np.float32([1e4, -np.inf])), [0, -np.inf])
    assert run(Softmax(), np.zeros((2, 0), np.float32)).shape == (2, 0)
    assert run(Logsoftmax(axis=0), np.zeros((2, 0), np.float16)).shape == (2, 0)
    with pytest.raises(ShapeError, match="float type"):
        Softmax().result([Shape("int32", [2])])


def test_hardmax_selects_the_first() -> None:
    assert run(Hardmax(), np.float32([[1, 3, 3], [5, 0, 1]])).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert run(Hardmax(axis=0), np.float16([[1, 3], [5, 0]])).tolist() == [[0, 1], [1, 0]]
