"""Optimizers and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

from mgx_core import MgxError, UnsupportedError
from mgx_onnx.backend import RefBackend

HEADER = '<ir_version: 8, opset_import: ["": 13, "ai.onnx.preview.training": 1]>'


def run_text(text: str, *inputs: Any) -> list[Any]:
    return list(RefBackend.prepare(parser.parse_model(f"{HEADER} {text}")).run(list(inputs)))


def test_momentum() -> None:
    x, g, v = np.float32([1, 2]), np.float32([-1, 3]), np.float32([0.5, 0])
    new, moved = run_text(
        """g (float r, int64 t, float[2] x, float[2] g, float[2] v) => (float[2] x2, float[2] v2) {
            x2, v2 = ai.onnx.preview.training.Momentum
                <alpha = 0.5, beta = 0.25, mode = "standard", norm_coefficient = 0.0>(r, t, x, g, v)
        }""",
        np.float32(0.1),
        np.asarray(1),
        x,
        g,
        v,
    )
    np.testing.assert_allclose(moved, 0.5 * v + 0.25 * g)
    np.testing.assert_allclose(new, x - 0.1 * moved, rtol=1e-6)


def test_gradient_of_a_small_network() -> None:
    """Compares with central differences."""
    rng = np.random.default_rng(0)
    x, w, b = rng.normal(size=(4, 3)), rng.normal(size=(3, 2)), rng.normal(size=2)
    dx, dw, db = run_text(
        """g (double[4, 3] x, double[3, 2] w, double[2] b) => (double[4, 3] dx, double[3, 2] dw, double[2] db) {
            h = MatMul(x, w)
            s = Add(h, b)
            t = Tanh(s)
            e = Exp(t)
            q = Div(e, s)
            r = Relu(q)
            l = Mul(r, t)
            y = Sub(l, s)
            dx, dw, db = ai.onnx.preview.training.Gradient<xs = ["x", "w", "b"], y = "y">(x, w, b)
        }""",
        x,
        w,
        b,
    )

    def y() -> float:
        s = x @ w + b
        t = np.tanh(s)
        return float((np.maximum(np.exp(t) / s, 0) * t - s).sum())

    for value, found in ((x, dx), (w, dw), (b, db)):
        for at in np.ndindex(value.shape):
            kept = value[at]
            value[at] = kept + 1e-6
            up = y()
            value[at] = kept - 1e-6
            down = y()
            value[at] = kept
            assert found[at] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-6)


def test_gradient_elsewhere_and_of_what_does_not_depend() -> None:
    """Gradient may be evaluated at other values than those of the tensors it names."""
    out = run_text(
        """g (float[2] a, float[2] b, float[2] c) => (float[2] da, float[2] dc, float[2] y) {
            h = Mul(a, a)
            y = Mul(h, b)
            da, dc = ai.onnx.preview.training.Gradient<xs = ["a", "c"], zs = ["b"], y = "y">(c, c, b)
        }""",
        np.float32([1, 2]),
        np.float32([3, 4]),
        np.float32([5, 6]),
    )
    assert out[0].tolist() == [2 * 5 * 3, 2 * 6 * 4] and out[1].tolist() == [0, 0] and out[2].tolist() == [3, 16]


def test_second_derivative() -> None:
    out = run_text(
        """g (float a) => (float d1, float d2) {
            h = Mul(a, a)
            y = Mul(h, a)
            d1 = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a)
            d2 = ai.onnx.preview.training.Gradient<xs = ["a"], y = "d1">(a)
        }""",
        np.float32(3),
    )
    assert [float(v) for v in out] == [27, 18]


def test_gradient_refuses() -> None:
    with pytest.raises(UnsupportedError, match="the gradient of floor is not supported"):
        run_text(
            'g (float a) => (float d) { y = Floor(a)  d = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a) }',
            np.float32(1),
        )
    with pytest.raises(MgxError, match="2 tensors, got 1 value"):
        run_text(
            'g (float a) => (float d) { y = Neg(a)  d = ai.onnx.preview.training.Gradient<xs = ["a", "y"], y = "y">(a) }',
            np.float32(1),
        )
