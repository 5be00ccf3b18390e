"""Operators that ONNX Runtime kept from before the standard had them, or that it withdrew, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(37)
MS = {"domain": "com.microsoft"}


def rand(*dims: int) -> Any:
    return RNG.normal(size=dims).astype(np.float32)


def test_operators_before_the_standard_had_them(agree: Any) -> None:
    agree("ExpandDims", rand(2, 3), np.array(-1, np.int32), fixed=(1,), **MS)
    agree("ExpandDims", rand(2, 3), np.array(1, np.int32), fixed=(1,), **MS)
    agree("Pad", rand(2, 3), np.array([0, 1, 2, 0]), np.float32([7]), fixed=(1,), mode="constant", **MS)
    agree("Pad", rand(2, 3), np.array([[0, 1, 1, 0]]), fixed=(1,), mode="reflect", **MS)
    agree("GatherND", rand(2, 3, 4), np.array([[0, 1], [1, 2]], np.int32), **MS)
    agree("GridSample", rand(1, 2, 4, 5), rand(1, 3, 3, 2), padding_mode="border", atol=1e-5, **MS)
    agree("Range", np.int64(2), np.int64(9), np.int64(3), fixed=(0, 1, 2), **MS)
    agree("Range", np.float32(2), np.float32(6), fixed=(0, 1), **MS)
    agree("Unique", np.float32([2, 1, 1, 3, 4, 3]), outputs=3, **MS)
    agree("UnfoldTensor", rand(2, 7, 3), dim=1, size=3, step=2, **MS)
    agree("UnfoldTensor", rand(2, 7), size=2, **MS)
    agree("SampleOp", rand(2, 3), **MS)


def test_products_of_16_bit_integers(agree: Any) -> None:
    a, b = (RNG.integers(-3000, 3000, d).astype(np.int16) for d in ((2, 3, 5), (5, 4)))
    agree("MatMulInteger16", a, b, **MS)


def test_operators_that_the_standard_withdrew(agree: Any) -> None:
    agree("Affine", rand(2, 3), alpha=2.0, beta=-1.0, opset=8)
    agree("Scale", rand(2, 3), scale=1.5, opset=8)
    agree("ScaledTanh", rand(2, 3), alpha=2.0, beta=0.5, opset=8, atol=1e-6)
    agree("ParametricSoftplus", rand(2, 3), alpha=2.0, beta=0.5, opset=8, atol=1e-6)
    agree("Crop", rand(1, 2, 6, 7), border=[1, 2, 3, 1], opset=8)
    agree("Crop", rand(1, 2, 6, 7), border=[1, 2, 0, 0], scale=[3, 4], opset=8)


def test_crops_outside_the_image_are_refused(run: Any) -> None:
    with pytest.raises(MgxError, match="leave no part"):
        run("Crop", rand(1, 2, 6, 7), border=[4, 0, 4, 0], opset=8)


def test_bias_and_residual_of_a_dropout(run: Any) -> None:
    x, bias, residual = rand(2, 3, 4), rand(4), rand(2, 3, 4)
    y, mask = run("BiasDropout", x, bias, residual, np.float32(0.5), np.bool_(False), outputs=2, fixed=(3, 4), **MS)
    np.testing.assert_allclose(y, x + bias + residual, atol=1e-6)
    assert mask.all() and mask.shape == x.shape
    with pytest.raises(MgxError, match="training_mode"):
        run("BiasDropout", x, bias, residual, np.float32(0.5), np.bool_(True), fixed=(3, 4), **MS)
