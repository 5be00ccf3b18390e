"""Optimizer steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.types.shape import Shape, TupleShape
from mgx_onnx.ops.training import Adagrad, Adam, Momentum

R = np.float32(0.1) * np.ones((), np.float32)
X, G, V, H = (np.array(v, np.float32) for v in ([1.2, 2.8], [-0.9, -2.5], [0.2, 0.4], [0.1, 0.3]))


def test_adagrad() -> None:
    x, h = Adagrad(norm_coefficient=0.001, epsilon=1e-5, decay_factor=0.1).evaluate([R, np.asarray(3), X, G, H])
    g = 0.001 * X + G
    np.testing.assert_allclose(h, H + g * g, rtol=1e-6)
    np.testing.assert_allclose(x, X - 0.1 / 1.3 * g / (np.sqrt(H + g * g) + 1e-5), rtol=1e-6)
    assert x.dtype == h.dtype == np.float32


@pytest.mark.parametrize("t", [0, 2])
def test_adam(t: int) -> None:
    op = Adam(alpha=0.95, beta=0.85, norm_coefficient=0.01, norm_coefficient_post=0.02, epsilon=1e-4)
    x, v, h = op.evaluate([R, np.asarray(t), X, G, V, H])
    g = 0.01 * X + G
    wanted_v, wanted_h = 0.95 * V + 0.05 * g, 0.85 * H + 0.15 * g * g
    rate = 0.1 * np.sqrt(1 - 0.85**t) / (1 - 0.95**t) if t else 0.1
    np.testing.assert_allclose(v, wanted_v, rtol=1e-5)
    np.testing.assert_allclose(h, wanted_h, rtol=1e-5)
    np.testing.assert_allclose(x, 0.98 * (X - rate * wanted_v / (np.sqrt(wanted_h) + 1e-4)), rtol=1e-5)


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("t", [0, 1])
def test_momentum(mode: Any, t: int) -> None:
    x, v = Momentum(alpha=0.9, beta=0.5, mode=mode, norm_coefficient=0.1).evaluate([R, np.asarray(t), X, G, V])
    g = 0.1 * X + G
    wanted = 0.9 * V + (0.5 if t else 1) * g
    np.testing.assert_allclose(v, wanted, rtol=1e-6)
    np.testing.assert_allclose(x, X - 0.1 * (g + 0.9 * wanted if mode == "nesterov" else wanted), rtol=1e-5)


def test_several_tensors_are_optimized_separately() -> None:
    op = Momentum(alpha=0.9, beta=0.5, mode="standard", norm_coefficient=0.0)
    t = np.asarray(1)
    x2, g2, v2 = (np.stack([a, a]).astype(np.float64) for a in (V, H, X))
    both = op.evaluate([R, t, X, x2, G, g2, V, v2])
    first, second = op.evaluate([R, t, X, G, V]), op.evaluate([R, t, x2, g2, v2])
    for got, wanted in zip(both, (first[0], second[0], first[1], second[1]), strict=True):
        np.testing.assert_array_equal(got, wanted)
        assert got.dtype == wanted.dtype


def test_shapes() -> None:
    r, t, x, y = (
        Shape.of(dt.float32, ()),
        Shape.of(dt.int64, ()),
        Shape.of(dt.float32, (2,)),
        Shape.of(dt.float64, (3, 1)),
    )
    assert Adam().result([r, t, x, y, x, y, x, y, x, y]) == TupleShape([x, y] * 3)
    with pytest.raises(ShapeError, match="groups of 4"):
        Adam().result([r, t, x, x, x])
    with pytest.raises(ShapeError, match="their tensor's type"):
        Adagrad().result([r, t, x, y, x])
    with pytest.raises(ShapeError, match="learning rate"):
        Adagrad().result([t, t, x, x, x])
    with pytest.raises(ParameterError, match="mode"):
        Momentum(alpha=0.9, beta=0.5, mode="other", norm_coefficient=0.0)  # type: ignore[arg-type]
