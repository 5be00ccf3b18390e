"""Activation functions: defaults of each opset, gated and contributed forms, dropout."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import ParseError

X = np.linspace(-4, 4, 24, dtype=np.float32).reshape(2, 3, 4)
ERF = np.vectorize(math.erf)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + ERF(x / math.sqrt(2)))


@pytest.mark.parametrize(
    ("op", "attributes", "expected"),
    [
        ("LeakyRelu", {}, np.where(X < 0, 0.01 * X, X)),
        ("Elu", {"alpha": 2.0}, np.where(X < 0, 2 * np.expm1(X), X)),
        ("HardSigmoid", {}, np.clip(0.2 * X + 0.5, 0, 1)),
        ("HardSigmoid", {"alpha": 0.5, "beta": 0.1}, np.clip(0.5 * X + 0.1, 0, 1)),
        ("ThresholdedRelu", {}, np.where(X > 1, X, 0)),
        ("Shrink", {"lambd": 1.5, "bias": 1.0}, np.where(X < -1.5, X + 1, np.where(X > 1.5, X - 1, 0))),
        ("Gelu", {}, gelu(X)),
        ("Swish", {"alpha": 0.5}, X / (1 + np.exp(-0.5 * X))),
        ("Selu", {"alpha": 2.0, "gamma": 0.5}, 0.5 * np.where(X < 0, 2 * np.expm1(X), X)),
    ],
)
def test_formulas(run: Any, op: str, attributes: Any, expected: Any) -> None:
    np.testing.assert_allclose(run(op, X, opset=24, **attributes)[0], expected, rtol=1e-5, atol=1e-6)


def test_defaults_of_old_selu(run: Any) -> None:
    x = np.float64([-1.0])
    assert run("Selu", x, opset=1)[0][0] == pytest.approx(1.0507 * 1.6732 * math.expm1(-1), rel=1e-6)
    assert run("Selu", x, opset=22)[0][0] == pytest.approx(
        1.0507010221481 * 1.67326319217682 * math.expm1(-1), rel=1e-9
    )


def test_integers_where_the_standard_has_them(run: Any) -> None:
    x = np.int32([-3, 0, 3])
    assert run("Relu", x)[0].tolist() == [0, 0, 3]
    assert run("Shrink", x, bias=1.0)[0].tolist() == [-2, 0, 2]
    assert run("PRelu", x, np.int32([2]))[0].tolist() == [-6, 0, 3]


def test_prelu_slopes(run: Any) -> None:
    slope = np.float32([0.1, 0.2, 0.3])
    expected = np.where(X < 0, X * slope[:, None], X)
    np.testing.assert_allclose(run("PRelu", X, slope, opset=6)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(run("PRelu", X, slope[:, None])[0], expected, rtol=1e-6)
    with pytest.raises(ParseError, match="does not broadcast"):
        run("PRelu", X, np.ones((1, 1, 1, 1), np.float32))


def test_gated(run: Any) -> None:
    out = run("SwiGLU", X, X + 1, opset=28)[0]
    np.testing.assert_allclose(out, X / (1 + np.exp(-X)) * (X + 1), rtol=1e-5)
    half = X.astype(ml_dtypes.bfloat16)
    wide = half.astype(np.float32)
    out = run("SwiGLU", half, half, opset=28)[0]
    np.testing.assert_array_equal(out, (wide / (1 + np.exp(-wide)) * wide).astype(half.dtype))


def test_contributed(run: Any) -> None:
    bias = np.float32([1, -1, 0, 2])
    options = {"domain": "com.microsoft"}
    close = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(run("Gelu", X, **options)[0], gelu(X), **close)
    np.testing.assert_allclose(run("BiasGelu", X, bias, **options)[0], gelu(X + bias), **close)
    fast = run("FastGelu", X, bias, **options)[0]
    z = X + bias
    np.testing.assert_allclose(fast, 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))), **close)
    np.testing.assert_allclose(run("QuickGelu", X, **options)[0], X / (1 + np.exp(-1.702 * X)), **close)
    out = run("BiasSplitGelu", X, bias, **options)[0]
    np.testing.assert_allclose(out, z[..., :2] * gelu(z[..., 2:]), **close)
    with pytest.raises(ParseError, match="must be even"):
        run("BiasSplitGelu", X[..., :3], bias[:3], **options)
    with pytest.raises(ParseError, match="tanh"):
        run("Gelu", X, approximate="sine")


@pytest.mark.parametrize(("opset", "mask"), [(6, np.float32), (7, np.float32), (10, np.bool_), (13, np.bool_)])
def test_dropout_is_the_identity_at_inference(run: Any, opset: int, mask: Any) -> None:
    out, kept = run("Dropout", X, opset=opset, outputs=2)
    np.testing.assert_array_equal(out, X)
    assert kept.dtype == mask
    assert kept.all()


@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_dropout_while_training(run: Any, constants: Any) -> None:
    given = [X, np.float32(0.5), np.array(True)]
    out, kept = run("Dropout", *given, outputs=2, fixed=constants, seed=7)
    assert 4 < kept.sum() < 20
    np.testing.assert_allclose(out, np.where(kept, 2 * X, 0))
    given[2] = np.array(False)
    np.testing.assert_array_equal(run("Dropout", *given, fixed=constants)[0], X)
