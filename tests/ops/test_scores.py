"""Transforms of classifier scores."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.scores import check_labels, labels_of, rows_of, transformed, two_scores
from mgx_core.types.shape import Shape

S = np.array([[1.0, -2.0, 0.0], [1000.0, -1000.0, 0.5]])


def test_transforms() -> None:
    np.testing.assert_array_equal(transformed(S, "NONE"), S)
    e = np.exp(S[0])
    np.testing.assert_allclose(transformed(S, "SOFTMAX"), [e / e.sum(), [1, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(transformed(S[:1], "SOFTMAX_ZERO"), [[e[0] / (e[0] + e[1]), e[1] / (e[0] + e[1]), 0]])
    assert transformed(np.zeros((1, 3)), "SOFTMAX_ZERO").tolist() == [[0, 0, 0]]
    np.testing.assert_allclose(
        transformed(S, "LOGISTIC"), [1 / (1 + np.exp(-S[0])), [1, 0, 1 / (1 + np.exp(-0.5))]], atol=1e-12
    )
    np.testing.assert_allclose(
        transformed(np.array([[0.5, 0.975, 0.025]]), "PROBIT"), [[0, 1.959964, -1.959964]], atol=1e-6
    )
    out = transformed(np.array([[0.0, 1.0, 2.0]]), "PROBIT")[0]
    assert out[0] == -np.inf and out[1] == np.inf and np.isnan(out[2])
    assert transformed(np.zeros((0, 3)), "SOFTMAX").shape == transformed(np.zeros((0, 3)), "PROBIT").shape == (0, 3)


def test_two_scores() -> None:
    s = np.array([0.25])
    assert two_scores(s, "NONE", True).tolist() == [[0.75, 0.25]]
    assert two_scores(s, "SOFTMAX", False).tolist() == [[-0.25, 0.25]]
    np.testing.assert_allclose(two_scores(s, "LOGISTIC", True), [[1 / (1 + np.exp(0.25)), 1 / (1 + np.exp(-0.25))]])


def test_labels_and_rows() -> None:
    assert check_labels([3, 4], []) == 2
    for ints, strings in (([], []), ([1], ["a"])):
        with pytest.raises(ParameterError, match="labels"):
            check_labels(ints, strings)
    assert labels_of(np.array([1, 0]), [], ["a", "b"]).tolist() == ["b", "a"]
    assert rows_of(Shape.of(dt.int32, (4,))) == (1, 4)
    with pytest.raises(ShapeError, match="numbers"):
        rows_of(Shape.of(dt.string, (4, 2)))
    with pytest.raises(ShapeError, match=r"\[n, f\]"):
        rows_of(Shape.of(dt.float32, (4, 2, 1)))
