"""Convolution, pooling and resampling converters, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(11)


def rand(*dims: int, dtype: Any = np.float32) -> Any:
    return RNG.uniform(-1, 1, dims).astype(dtype)


CONV = [
    (dict(), (2, 3, 9), (4, 3, 3)),
    (dict(strides=[2, 1], pads=[1, 0, 2, 1]), (2, 3, 9, 7), (4, 3, 3, 2)),
    (dict(group=2, dilations=[2, 1]), (1, 4, 9, 7), (6, 2, 3, 2)),
    (dict(group=4, pads=[1, 1, 1, 1]), (2, 4, 6, 5), (8, 1, 3, 3)),
    (dict(auto_pad="SAME_UPPER", strides=[2, 2]), (1, 2, 7, 8), (3, 2, 3, 4)),
    (dict(auto_pad="SAME_LOWER", strides=[2, 3]), (1, 2, 7, 8), (3, 2, 3, 4)),
    (dict(auto_pad="VALID"), (1, 2, 4, 5, 6), (3, 2, 2, 3, 1)),
    (dict(strides=[2, 2]), (1, 5, 6, 6), (3, 5, 1, 1)),
]


@pytest.mark.parametrize(("attributes", "x", "w"), CONV)
@pytest.mark.parametrize("bias", [False, True])
def test_conv(agree: Any, attributes: dict[str, Any], x: Any, w: Any, bias: bool) -> None:
    extra = (rand(w[0]),) if bias else ()
    agree("Conv", rand(*x), rand(*w), *extra, kernel_shape=list(w[2:]), **attributes)


TRANSPOSED = [
    (dict(), (2, 3, 5), (3, 4, 3)),
    (dict(strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 2]), (1, 4, 3, 4), (4, 2, 3, 2)),
    (dict(group=2, dilations=[2, 1], strides=[2, 2]), (2, 4, 3, 4), (4, 3, 3, 2)),
    (dict(auto_pad="SAME_UPPER", strides=[2, 2]), (1, 2, 3, 4), (2, 3, 3, 5)),
    (dict(auto_pad="SAME_LOWER", strides=[2, 2]), (1, 2, 3, 4), (2, 3, 3, 5)),
    (dict(output_shape=[7, 9], strides=[2, 2]), (1, 2, 3, 4), (2, 3, 3, 4)),
    (dict(auto_pad="VALID"), (1, 2, 2, 3, 2), (2, 2, 2, 1, 3)),
]


@pytest.mark.parametrize(("attributes", "x", "w"), TRANSPOSED)
def test_conv_transpose(agree: Any, attributes: dict[str, Any], x: Any, w: Any) -> None:
    out = w[1] * attributes.get("group", 1)
    agree("ConvTranspose", rand(*x), rand(*w), rand(out), **attributes)


POOLS = [
    dict(kernel_shape=[3], x=(2, 3, 9)),
    dict(kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], x=(2, 3, 9, 7)),
    dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, x=(1, 2, 8, 6)),
    dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, x=(1, 2, 8, 7)),
    dict(kernel_shape=[2, 3], auto_pad="SAME_UPPER", strides=[2, 2], x=(1, 2, 7, 7)),
    dict(kernel_shape=[2, 3], auto_pad="SAME_LOWER", strides=[1, 2], x=(1, 2, 7, 8)),
    dict(kernel_shape=[2, 2, 2], auto_pad="VALID", x=(1, 2, 4, 5, 3)),
]


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_pool(agree: Any, op_type: str, case: dict[str, Any]) -> None:
    attributes = {k: v for k, v in case.items() if k != "x"}
    agree(op_type, rand(*case["x"]), opset=18, **attributes)
    if op_type == "AveragePool":
        agree(op_type, rand(*case["x"]), opset=11, count_include_pad=1, **attributes)
    if op_type == "LpPool":
        agree(op_type, rand(*case["x"]), opset=18, p=3, **attributes)


@pytest.mark.parametrize("storage_order", [0, 1])
def test_max_pool_indices(agree: Any, storage_order: int) -> None:
    case = dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], storage_order=storage_order, dilations=[1, 2])
    agree("MaxPool", rand(2, 3, 8, 7), opset=12, outputs=2, **case)


def test_max_pool_of_bytes(agree: Any) -> None:
    agree(
        "MaxPool",
        RNG.integers(-128, 127, (1, 2, 6, 6), dtype=np.int8),
        opset=12,
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
    )


@pytest.mark.parametrize("op_type", ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
def test_global_pool(agree: Any, op_type: str) -> None:
    agree(op_type, rand(2, 3, 4, 5))


def test_max_unpool_inverts_max_pool(agree: Any, run: Any) -> None:
    x = rand(1, 2, 4, 6)
    y, where = run("MaxPool", x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    (back,) = agree("MaxUnpool", y, where, kernel_shape=[2, 2], strides=[2, 2])
    assert sorted(back[back != 0]) == sorted(y[y != 0])


def test_max_unpool_refuses_indices_outside(run: Any) -> None:
    with pytest.raises(MgxError, match=r"indices must lie in \[0, 15\]"):
        run("MaxUnpool", rand(1, 1, 2, 2), np.array([[[[0, 1], [2, 16]]]]), kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.5, 2), (1, 1, 1.3, 1.7)])
@pytest.mark.parametrize("known", [True, False])
def test_old_resize(agree: Any, mode: str, scales: tuple[float, ...], known: bool) -> None:
    x, s = rand(1, 2, 4, 6), np.array(scales, np.float32)
    agree("Resize", x, s, opset=10, mode=mode, fixed=[1] if known else [])
    if min(scales) >= 1:
        agree("Upsample", x, s, opset=9, mode=mode, fixed=[1] if known else [])
        agree("Upsample", x, opset=7, mode=mode, scales=[float(v) for v in scales])


TRANSFORMATIONS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(1, 2, 8, 9), (1, 2, 3, 2), (1, 2, 1, 7)])
def test_resize_to_sizes(agree: Any, transformation: str, mode: str, sizes: tuple[int, ...]) -> None:
    x, none, s = rand(1, 2, 5, 4), np.zeros(0, np.float32), np.array(sizes)
    agree(
        "Resize",
        x,
        none,
        none,
        s,
        opset=19,
        mode=mode,
        coordinate_transformation_mode=transformation,
        fixed=[1, 2, 3],
    )


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.6, 0.6), (1, 1, 1.5, 0.8)])
def test_resize_nearest_modes(agree: Any, nearest: str, scales: tuple[float, ...]) -> None:
    s = np.array(scales, np.float32)
    agree("Resize", rand(1, 1, 7, 10), None, s, opset=13, mode="nearest", nearest_mode=nearest, fixed=[2])


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize_keeps_aspect(agree: Any, policy: str) -> None:
    s = np.array([7, 8])
    agree(
        "Resize",
        rand(1, 2, 4, 6),
        None,
        None,
        s,
        opset=18,
        axes=[2, 3],
        keep_aspect_ratio_policy=policy,
        fixed=[3],
    )


def test_crop_and_resize(agree: Any) -> None:
    x, roi, s = rand(1, 1, 4, 5), np.array([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], np.float32), np.array([1, 1, 3, 4])
    mode = dict(coordinate_transformation_mode="tf_crop_and_resize", mode="linear", extrapolation_value=10.0)
    agree("Resize", x, roi, None, s, opset=13, fixed=[1, 3], **mode)
    agree("Resize", x, roi, None, s, opset=13, **mode)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(agree: Any, padding: str, mode: str, align: int) -> None:
    grid = RNG.uniform(-1.8, 1.8, (2, 4, 5, 2)).astype(np.float32)
    attributes = dict(padding_mode=padding, align_corners=align)
    agree("GridSample", rand(2, 3, 5, 4), grid, opset=20, mode=mode, **attributes, atol=1e-4)
    old = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    agree("GridSample", rand(2, 3, 5, 4), grid, opset=16, mode=old, **attributes, atol=1e-4)
    if mode != "cubic":
        deep = RNG.uniform(-1.4, 1.4, (1, 3, 4, 2, 3)).astype(np.float32)
        agree("GridSample", rand(1, 2, 3, 5, 4), deep, opset=20, mode=mode, **attributes, atol=1e-4)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize(("opset", "ratio"), [(10, 0), (10, 2), (16, 0), (16, 3)])
def test_roi_align(agree: Any, mode: str, opset: int, ratio: int) -> None:
    rois = np.array([[0, 0, 9, 6], [2, 3, 11, 12], [-4, -3, 30, 2], [5, 5, 5, 5]], np.float32)
    where = np.array([0, 1, 1, 0])
    shape = dict(output_height=3, output_width=2, sampling_ratio=ratio, spatial_scale=0.5)
    agree("RoiAlign", rand(2, 3, 8, 7), rois, where, opset=opset, mode=mode, **shape)


def test_roi_align_refuses_an_image_that_is_not_there(run: Any) -> None:
    with pytest.raises(MgxError, match="regions name images 0 to 2, x has 2"):
        run("RoiAlign", rand(2, 1, 4, 4), rand(2, 4), np.array([0, 2]), opset=16)


def test_max_roi_pool(agree: Any) -> None:
    rois = np.array([[0, 0, 0, 9, 6], [1, 2, 3, 11, 12], [1, 4, 3, 5, 2]], np.float32)
    agree("MaxRoiPool", rand(2, 3, 8, 7), rois, pooled_shape=[3, 2], spatial_scale=0.5)


def test_affine_grid(agree: Any) -> None:
    agree("AffineGrid", rand(2, 2, 3), np.array([2, 1, 3, 4]), opset=20, fixed=[1], align_corners=1)
    agree("AffineGrid", rand(1, 3, 4), np.array([1, 1, 2, 3, 4]), opset=20)


def test_fused_convolution(agree: Any) -> None:
    x, w, b, z = rand(1, 2, 5, 5), rand(3, 2, 3, 3), rand(3), rand(1, 3, 3, 3)
    agree("FusedConv", x, w, b, z, domain="com.microsoft", activation="Relu")
    agree("FusedConv", x, w, b, domain="com.microsoft", activation="LeakyRelu", activation_params=[0.2])
    agree("FusedConv", x, w, b, domain="com.microsoft", activation="HardSigmoid", activation_params=[0.3, 0.4])
    agree("FusedConv", x, w, b, domain="com.microsoft", activation="Clip", activation_params=[-0.1, 0.4])


def test_nhwc_convolution_is_a_convolution(run: Any) -> None:
    x, w, b = rand(1, 5, 6, 2), rand(3, 3, 3, 2), rand(3)
    (ours,) = run("NhwcConv", x, w, b, domain="com.microsoft", pads=[1, 1, 1, 1])
    (plain,) = run("Conv", x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), b, pads=[1, 1, 1, 1])
    np.testing.assert_allclose(ours, plain.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("Conv", [(1, 3, 5, 5), (2, 2, 3, 3)], dict(), "3"),
        ("Conv", [(1, 2, 5, 5), (2, 2, 7, 7)], dict(), "does not fit"),
        ("Conv", [(1, 2, 5, 5), (2, 2, 3, 3)], dict(pads=[1, 1]), "pads must have 4 numbers"),
        ("Conv", [(1, 2, 5, 5), (2, 2, 3, 3)], dict(kernel_shape=[2, 2]), "kernel_shape"),
        ("MaxPool", [(1, 2, 5, 5)], dict(kernel_shape=[3]), "kernel_shape must have 2"),
        ("MaxPool", [(1, 2, 5, 5)], dict(kernel_shape=[3, 3], auto_pad="ODD"), "auto_pad must be"),
        ("ConvTranspose", [(1, 2, 3), (3, 2, 2)], dict(), "channels"),
    ],
)
def test_refusals(run: Any, op_type: str, inputs: Any, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(MgxError, match=message):
        run(op_type, *(rand(*d) for d in inputs), **attributes)
