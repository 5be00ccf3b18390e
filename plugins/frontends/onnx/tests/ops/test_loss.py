"""Negative log-likelihood and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import Module
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.rules.decomposition import decomposed
from mgx_core.types.argument import shape_of
from mgx_core.types.shape import Shape, TupleShape
from mgx_onnx.ops.dropout import Dropout
from mgx_onnx.ops.loss import NegativeLogLikelihoodLoss

X = np.log(np.float32([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]))
TARGET = np.array([0, 1, 0])
WEIGHT = np.float32([1, 2, 3])


@pytest.mark.parametrize(
    ("reduction", "ignored", "weighted", "expected"),
    [
        ("none", None, False, -np.log([0.5, 0.8, 0.2])),
        ("sum", None, False, -np.log(0.08)),
        ("mean", None, False, -np.log(0.08) / 3),
        ("mean", None, True, -(np.log(0.1) + 2 * np.log(0.8)) / 4),
        ("mean", 0, False, -np.log(0.8)),
        ("none", 1, True, [-np.log(0.5), 0, -np.log(0.2)]),
        ("sum", 0, True, -2 * np.log(0.8)),
    ],
)
def test_likelihood(reduction: Any, ignored: Any, weighted: bool, expected: Any) -> None:
    op = NegativeLogLikelihoodLoss(reduction=reduction, ignore_index=ignored)
    inputs = [X, TARGET, WEIGHT] if weighted else [X, TARGET]
    out = op.evaluate(inputs)
    assert out.shape == tuple(op.result([Shape(str(a.dtype), a.shape) for a in inputs]).lens())
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 1, -100])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_likelihood_is_decomposed(reduction: Any, ignored: Any, weighted: bool, kind: Any) -> None:
    op = NegativeLogLikelihoodLoss(reduction=reduction, ignore_index=ignored)
    rng = np.random.default_rng(2)
    for dims in ((), (4,), (2, 3), (0,)):
        target = rng.integers(0, 5, (6, *dims))
        target = np.where(rng.random(target.shape) < 0.3, -100, target) if ignored == -100 else target.astype(np.int32)
        inputs = [rng.standard_normal((6, 5, *dims)).astype(kind), target]
        inputs += [rng.random(5).astype(kind)] if weighted else []
        parts = decomposed(op, [shape_of(a) for a in inputs])
        assert isinstance(parts, Module)
        (made,) = Interpreter().run(parts, inputs)
        wanted = op.evaluate(inputs)
        assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(made, wanted, rtol=1e-6)


def test_parts_refuse_classes_out_of_range() -> None:
    parts = decomposed(NegativeLogLikelihoodLoss(), [shape_of(X), shape_of(TARGET)])
    assert isinstance(parts, Module)
    for bad in (3, -1):
        with pytest.raises(ShapeError, match="indices must lie"):
            Interpreter().run(parts, [X, np.array([0, 1, bad])])


def test_classes_out_of_range_and_ignored_ones() -> None:
    deep = np.stack([X, X], -1)
    target = np.stack([TARGET, [-9, -9, 2]], -1)
    out = NegativeLogLikelihoodLoss(reduction="none", ignore_index=-9).evaluate([deep, target])
    np.testing.assert_allclose(out[:, 1], [0, 0, -np.log(0.6)], rtol=1e-6)
    for bad in (3, -1):
        with pytest.raises(ShapeError, match=r"\[0, 2\]"):
            NegativeLogLikelihoodLoss().evaluate([X, np.array([0, 1, bad])])
    with pytest.raises(ShapeError, match="target must have dims"):
        NegativeLogLikelihoodLoss().result([Shape("float32", [3, 4]), Shape("int64", [4])])
    with pytest.raises(ShapeError, match="weight must be"):
        NegativeLogLikelihoodLoss().result([Shape("float32", [3, 4]), Shape("int64", [3]), Shape("float32", [3])])


def test_dropout() -> None:
    x = np.ones((50, 40), np.float32)
    shape = Dropout(seed=3).result([Shape("float32", [50, 40]), Shape("float32", []), Shape("bool", [])])
    assert shape == TupleShape([Shape("float32", [50, 40]), Shape("bool", [50, 40])])
    out, kept = Dropout(seed=3).evaluate([x, np.float32(0.25), np.array(True)])
    assert abs(kept.mean() - 0.75) < 0.05
    np.testing.assert_allclose(out, np.where(kept, np.float32(4 / 3), 0), rtol=1e-6)
    again, _ = Dropout(seed=3).evaluate([x, np.float32(0.25), np.array(True)])
    np.testing.assert_array_equal(out, again)
    same, kept = Dropout().evaluate([x, np.float32(0.25), np.array(False)])
    assert kept.all()
    np.testing.assert_array_equal(same, x)
    with pytest.raises(ParameterError, match="ratio must lie"):
        Dropout().evaluate([x, np.float32(1), np.array(True)])
