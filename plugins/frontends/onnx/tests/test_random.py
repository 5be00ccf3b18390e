"""Random tensors: type, extents, range and moments; the same seed gives the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from mgx_core import MgxError

LIKE = np.zeros((100, 200), np.float64)


@pytest.mark.parametrize(
    ("op", "inputs", "options"),
    [
        ("RandomUniform", [], {"shape": [100, 200], "low": -1.0, "high": 3.0}),
        ("RandomUniformLike", [LIKE], {"low": -1.0, "high": 3.0, "dtype": TensorProto.FLOAT}),
        ("RandomNormal", [], {"shape": [100, 200], "mean": 1.0, "scale": 2.0}),
        ("RandomNormalLike", [LIKE], {"mean": 1.0, "scale": 2.0, "dtype": TensorProto.FLOAT}),
    ],
)
def test_moments_and_seeds(run: Callable[..., Any], op: str, inputs: list[Any], options: dict[str, Any]) -> None:
    (first,) = run(op, *inputs, seed=3.5, **options)
    assert first.dtype == np.float32
    assert first.shape == (100, 200)
    assert abs(first.mean() - 1) < 0.1
    if "low" in options:
        assert first.min() >= -1
        assert first.max() < 3
        assert abs(first.std() - 4 / np.sqrt(12)) < 0.1
    else:
        assert abs(first.std() - 2) < 0.1
    np.testing.assert_array_equal(first, run(op, *inputs, seed=3.5, **options)[0])
    assert (first != run(op, *inputs, seed=3.25, **options)[0]).any()
    assert (run(op, *inputs, **options)[0] != run(op, *inputs, **options)[0]).any()


def test_types(run: Callable[..., Any]) -> None:
    assert run("RandomNormalLike", LIKE)[0].dtype == np.float64
    assert run("RandomUniform", shape=[2], dtype=TensorProto.FLOAT16)[0].dtype == np.float16
    with pytest.raises(MgxError, match="float type"):
        run("RandomUniform", shape=[2], dtype=TensorProto.INT32)
    with pytest.raises(MgxError, match="negative"):
        run("RandomUniform", shape=[-2])


def test_bernoulli(run: Callable[..., Any]) -> None:
    p = np.tile(np.array([0.0, 0.25, 1.0], np.float32), (4000, 1))
    (out,) = run("Bernoulli", p, seed=1.0)
    assert out.dtype == np.float32
    assert set(np.unique(out)) == {0, 1}
    means = out.mean(0)
    assert means[0] == 0
    assert means[2] == 1
    assert abs(means[1] - 0.25) < 0.03
    assert run("Bernoulli", p, dtype=TensorProto.BOOL)[0].dtype == np.bool_


def test_multinomial(run: Callable[..., Any]) -> None:
    weights = np.array([[1, 3, 0], [2, 1, 1]], np.float32)
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    (out,) = run("Multinomial", logs, sample_size=8000, seed=2.0, dtype=TensorProto.INT64)
    assert out.dtype == np.int64
    assert out.shape == (2, 8000)
    for row, weight in zip(out, weights, strict=True):
        parts = np.bincount(row, minlength=3) / 8000
        np.testing.assert_allclose(parts, weight / weight.sum(), atol=0.03)
    with pytest.raises(MgxError, match="dtype"):
        run("Multinomial", logs, dtype=TensorProto.FLOAT)
