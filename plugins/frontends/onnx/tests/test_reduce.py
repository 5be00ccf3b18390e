"""Reductions with axes as attributes, constants and run-time values; softmax family, scans, top-k and losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(11)
X = RNG.uniform(0.5, 2, (2, 3, 4)).astype(np.float32)

FORMULAS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
}


@pytest.mark.parametrize("op", FORMULAS)
@pytest.mark.parametrize("axes", [(1,), (-1, 0)])
@pytest.mark.parametrize("keep", [True, False])
def test_axes_by_attribute_constant_and_value(run: Any, op: str, axes: tuple[int, ...], keep: bool) -> None:
    expected = FORMULAS[op](X.astype(np.float64), axis=axes, keepdims=keep)
    vector = np.array(axes, np.int64)
    old = run(op, X, opset=11, axes=list(axes), keepdims=int(keep))[0]
    known = run(op, X, vector, opset=18, fixed=[1], keepdims=int(keep))[0]
    late = run(op, X, vector, opset=18, keepdims=int(keep))[0]
    for out in (old, known, late):
        assert out.dtype == np.float32
        np.testing.assert_allclose(out, expected, rtol=1e-5, strict=False)
        assert out.shape == expected.shape


@pytest.mark.parametrize("op", FORMULAS)
def test_no_axes(run: Any, op: str) -> None:
    none = np.zeros(0, np.int64)
    total = FORMULAS[op](X.astype(np.float64), axis=None, keepdims=True)
    for given in ([X], [X, none]):
        for constants in ([], [1][: len(given) - 1]):
            np.testing.assert_allclose(run(op, *given, opset=18, fixed=constants)[0], total, rtol=1e-5)
            same = run(op, *given, opset=18, fixed=constants, noop_with_empty_axes=1, keepdims=0)[0]
            np.testing.assert_allclose(same, FORMULAS[op](X, axis=()), rtol=1e-5)
    assert run(op, X, opset=18, keepdims=0)[0].shape == ()
    assert run(op, np.float32(2), opset=18)[0].shape == ()


def test_types(run: Any) -> None:
    x = np.int32([[3, 4], [5, 12]])
    assert run("ReduceL2", x, opset=11, axes=[1], keepdims=0)[0].tolist() == [5, 13]
    assert run("ReduceMax", x > 4, opset=20, keepdims=0)[0].item() is True
    half = np.float16([300, 300])
    assert run("ReduceL2", half, opset=11, keepdims=0)[0] == np.float16(424.2641)


def test_log_sum_exp_of_extremes(run: Any) -> None:
    x = np.float32([[1000, 1000], [-np.inf, -np.inf], [np.inf, 1], [-1000, -1000]])
    out = run("ReduceLogSumExp", x, opset=11, axes=[1], keepdims=0)[0]
    np.testing.assert_allclose(out, [1000 + np.log(2), -np.inf, np.inf, -1000 + np.log(2)], rtol=1e-6)
    empty = run("ReduceLogSumExp", np.zeros((2, 0), np.float32), opset=11, axes=[1], keepdims=0)[0]
    assert empty.tolist() == [-np.inf, -np.inf]


def test_bad_axes(run: Any) -> None:
    for given in ({"axes": [3]}, {"axes": [0, -3]}):
        with pytest.raises(MgxError, match="axes must"):
            run("ReduceSum", X, opset=11, **given)
    with pytest.raises(MgxError, match="axes must"):
        run("ReduceSum", X, np.array([7]))


def test_positions(run: Any) -> None:
    x = np.float32([[2, 1, 2], [0, 3, 3]])
    assert run("ArgMax", x)[0].tolist() == [[0, 1, 1]]
    assert run("ArgMax", x, axis=-1, keepdims=0, select_last_index=1)[0].tolist() == [2, 2]
    assert run("ArgMin", x, axis=1, keepdims=0)[0].tolist() == [1, 0]
    with pytest.raises(MgxError, match="axis must lie"):
        run("ArgMin", x, axis=2)


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_softmax_family_flattened_before_opset_13(run: Any) -> None:
    flat = X.reshape(2, 12)
    old = softmax(flat, 1).reshape(X.shape)
    np.testing.assert_allclose(run("Softmax", X, opset=11)[0], old, rtol=1e-5)
    np.testing.assert_allclose(run("LogSoftmax", X, opset=1)[0], np.log(old), rtol=1e-5)
    whole = softmax(X.reshape(1, 24), 1).reshape(X.shape)
    np.testing.assert_allclose(run("Softmax", X, opset=11, axis=0)[0], whole, rtol=1e-5)
    np.testing.assert_allclose(run("Softmax", X, opset=13)[0], softmax(X, 2), rtol=1e-5)
    np.testing.assert_allclose(run("Softmax", X, opset=13, axis=0)[0], softmax(X, 0), rtol=1e-5)
    one_hot = (flat == flat.max(1, keepdims=True)).astype(np.float32).reshape(X.shape)
    np.testing.assert_array_equal(run("Hardmax", X, opset=11)[0], one_hot)
    with pytest.raises(MgxError, match="axis must lie"):
        run("Softmax", X, axis=3)


@pytest.mark.parametrize("constants", [(), (1,)])
def test_running_sums_and_products(run: Any, constants: Any) -> None:
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    assert run("CumSum", x, np.array(1), fixed=constants)[0].tolist() == [[1, 3, 6], [4, 9, 15]]
    out = run("CumSum", x, np.int32(-2), fixed=constants, reverse=1, exclusive=1)[0]
    assert out.tolist() == [[4, 5, 6], [0, 0, 0]]
    assert run("CumProd", x, np.array(1), opset=26, fixed=constants)[0].tolist() == [[1, 2, 6], [4, 20, 120]]
    wrong = "axis must lie in" if constants else r"indices must lie in \[-2, 1\], got 2"  # which look up the axis
    with pytest.raises(MgxError, match=wrong):
        run("CumSum", x, np.array(2), fixed=constants)


def test_topk(run: Any) -> None:
    x = np.float32([[3, 1, 3, 2]])
    for options in ({"opset": 1, "k": 2, "inputs": [x]}, {"inputs": [x, np.array([2])]}):
        inputs = options.pop("inputs")
        values, indices = run("TopK", *inputs, outputs=2, **options)
        assert (values.tolist(), indices.tolist()) == ([[3, 3]], [[0, 2]])
    values, indices = run("TopK", x, np.array([2]), outputs=2, fixed=[1], largest=0)
    assert (values.tolist(), indices.tolist()) == ([[1, 2]], [[1, 3]])
    for constants in ((), (1,)):
        with pytest.raises(MgxError, match="k must lie"):
            run("TopK", x, np.array([5]), outputs=2, fixed=constants)


LOGS = np.log(softmax(X, 1))
LABELS = np.array([[0, 1, 2, 0], [2, 2, 1, 9]])


def test_losses(run: Any) -> None:
    weight = np.float32([1, 2, 3])
    kept = LABELS != 9
    index = np.where(kept, LABELS, 0)
    picked = -np.take_along_axis(LOGS, index[:, None], 1)[:, 0]
    share = weight[index] * kept
    for op, x in (("NegativeLogLikelihoodLoss", LOGS), ("SoftmaxCrossEntropyLoss", X)):
        mean = run(op, x, LABELS, weight, ignore_index=9)[0]
        assert mean.shape == ()
        np.testing.assert_allclose(mean, (picked * share).sum() / share.sum(), rtol=1e-5)
        each = run(op, x, LABELS, ignore_index=9, reduction="none")[0]
        np.testing.assert_allclose(each, picked * kept, rtol=1e-5)
        with pytest.raises(MgxError, match="targets must lie"):
            run(op, x, LABELS)
        with pytest.raises(MgxError, match="reduction must be"):
            run(op, x, LABELS, reduction="most")
    half = X.astype(np.float16)
    loss, logs = run("SoftmaxCrossEntropyLoss", half, LABELS % 3, outputs=2)
    assert loss.dtype == logs.dtype == np.float16
    np.testing.assert_allclose(logs, np.log(softmax(half.astype(np.float32), 1)), rtol=2e-3)
