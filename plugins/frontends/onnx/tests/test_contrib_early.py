"""Operators that ONNX Runtime kept from before the standard had them, or that it withdrew, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import mgx_core as mgx
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


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [[4, 5], [1, 3]])
def test_crops_of_images(agree: Any, mode: str, size: list[int]) -> None:
    boxes = np.float32([[0, 0, 0.5, 0.7], [0.2, 0.1, 0.9, 1.2], [0.8, 0.7, 0.1, -0.2], [0, 0, 1, 1]])
    images, crop = np.int32([0, 1, 1, 0]), np.int32(size)
    agree(
        "CropAndResize",
        rand(2, 3, 9, 11),
        boxes,
        images,
        crop,
        fixed=(3,),
        mode=mode,
        extrapolation_value=0.25,
        atol=1e-5,
        **MS,
    )


def test_crops_of_other_operands_are_refused(run: Any) -> None:
    operands = rand(1, 3, 9, 11), rand(2, 4), np.int32([0, 0])
    with pytest.raises(MgxError, match="crop_size two positive numbers"):
        run("CropAndResize", *operands, np.int32([0, 3]), fixed=(3,), **MS)
    with pytest.raises(MgxError, match="mode must be bilinear or nearest, got 'cubic'"):
        run("CropAndResize", *operands, np.int32([2, 3]), fixed=(3,), mode="cubic", **MS)


@pytest.mark.parametrize("bias", [True, False])
def test_transposed_convolutions_with_padding_as_an_operand(agree: Any, bias: bool) -> None:
    operands = rand(1, 3, 6, 6), rand(3, 4, 3, 3), np.array([1, 0, 1, 2]), *([rand(4)] if bias else [])
    agree("ConvTransposeWithDynamicPads", *operands, fixed=(2,), strides=[2, 2], output_padding=[1, 0], atol=1e-5, **MS)


def test_padding_of_another_rank_is_refused(run: Any) -> None:
    with pytest.raises(MgxError, match="Pads must have 4 numbers"):
        run("ConvTransposeWithDynamicPads", rand(1, 3, 6, 6), rand(3, 4, 3, 3), np.array([1, 0]), fixed=(2,), **MS)


@pytest.mark.parametrize("size", [1, 2, 3, 12])
def test_sequences_of_words_are_not_repeated(agree: Any, size: int) -> None:
    scores = rand(3, 6)
    scores[0] = np.nan
    agree("NGramRepeatBlock", RNG.integers(0, 4, (3, 11)), scores, ngram_size=size, **MS)


def test_texts_shorter_than_a_sequence_of_words() -> None:
    """The length is known at run time only: words are repeated once the text has become longer than a sequence."""
    node = onnx.helper.make_node("NGramRepeatBlock", ["ids", "scores"], ["y"], ngram_size=5, **MS)
    given = {"ids": (onnx.TensorProto.INT64, ["b", "s"]), "scores": (onnx.TensorProto.FLOAT, ["b", 5])}
    inputs = [onnx.helper.make_tensor_value_info(name, *of) for name, of in given.items()]
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["b", 5])
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", inputs, [y]), opset_imports=imports)
    program = mgx.parse_onnx_buffer(model.SerializeToString())
    program.compile(mgx.get_target("ref"))
    scores = rand(2, 5)
    for length in range(8):
        (y,) = program.run({"ids": np.ones((2, length), np.int64), "scores": scores})
        wanted = scores.copy()
        wanted[:, 1] = -np.inf if length >= 5 else scores[:, 1]
        np.testing.assert_array_equal(y, wanted)


def test_rows_of_a_table(run: Any) -> None:
    table, rows = rand(5, 3), np.array([[0, 4], [2, 2]])
    np.testing.assert_array_equal(run("TorchEmbedding", table, rows, np.int64(1), fixed=(2,), **MS)[0], table[rows])


def test_products_of_16_bit_integers(agree: Any) -> None:
    a, b = (RNG.integers(-3000, 3000, d).astype(np.int16) for d in ((2, 3, 5), (5, 4)))
    agree("MatMulInteger16", a, b, **MS)


def test_operators_that_the_standard_withdrew(agree: Any) -> None:
    agree("Affine", rand(2, 3), alpha=2.0, beta=-1.0, opset=8)
    agree("Scale", rand(2, 3), scale=1.5, opset=8)
    agree("DynamicSlice", rand(4, 5, 6), np.array([1, -3]), np.array([3, 100]), np.array([0, 2]), opset=8)
    agree("DynamicSlice", rand(4, 5, 6), np.array([1, -3]), np.array([3, 100]), fixed=(1, 2), opset=8)
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
