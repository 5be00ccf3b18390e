"""Operators of com.amd.quark, compared with their definition in float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(43)
QUARK = {"domain": "com.amd.quark"}


@pytest.mark.parametrize("to", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize(("scale", "zero"), [(1.0, 0.0), ([0.3], [0.5]), ([0.3, 2.0, 1.0], [0.0, 1.0, -1.0])])
def test_quantization_to_16_bit_floats(run: Any, to: Any, scale: Any, zero: Any) -> None:
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    s, z = np.asarray(scale, np.float32), np.asarray(zero, np.float32).astype(to)
    (codes,) = run("ExtendedQuantizeLinear", x, s, z, **QUARK)
    s3, z3 = (v.reshape(-1, 1) for v in (s, z.astype(np.float32)))
    wanted = (x / s3 + z3).astype(to)
    assert np.asarray(codes).dtype == to
    np.testing.assert_array_equal(np.asarray(codes).astype(np.float32), wanted.astype(np.float32))
    (back,) = run("ExtendedDequantizeLinear", wanted, s, z, **QUARK)
    np.testing.assert_allclose(back, (wanted.astype(np.float32) - z3) * s3, rtol=1e-6)


@pytest.mark.parametrize("to", [np.int8, np.uint16, np.int32])
def test_quantization_to_integers(run: Any, to: Any) -> None:
    x = (100 * RNG.normal(size=(2, 5))).astype(np.float32)
    (codes,) = run("ExtendedQuantizeLinear", x, np.float32(0.25), to(3), **QUARK)
    info = np.iinfo(to)
    np.testing.assert_array_equal(codes, np.clip(np.rint(x / np.float32(0.25)) + 3, info.min, info.max).astype(to))
    (back,) = run("ExtendedDequantizeLinear", codes, np.float32(0.25), to(3), **QUARK)
    np.testing.assert_allclose(back, (np.asarray(codes).astype(np.float64) - 3) * 0.25)
