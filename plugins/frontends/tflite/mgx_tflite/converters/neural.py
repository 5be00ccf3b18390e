"""Convolutions, matrix products, pooling, normalization, softmax."""

from __future__ import annotations

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import l2_normalized, last_two_transposed, matrix_product
from mgx_core.types.dim import product

from ..converter import converts
from ..node import Node


def biased(n: Node, y: Instruction, bias: Instruction | None) -> Instruction:
    return y if bias is None else n.pointwise("add", y, bias)


@converts("CONV_2D")
def conv(n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None) -> Instruction:
    stride = [n.option("StrideH", 1), n.option("StrideW", 1)]
    dilation = [n.option("DilationHFactor", 1), n.option("DilationWFactor", 1)]
    y = n.convolution(x, n.transpose(w, (0, 3, 1, 2)), stride, n.padding(), dilation)
    return n.activated(biased(n, y, bias))


@converts("DEPTHWISE_CONV_2D")
def depthwise(n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None) -> Instruction:
    stride = [n.option("StrideH", 1), n.option("StrideW", 1)]
    dilation = [n.option("DilationHFactor", 1), n.option("DilationWFactor", 1)]
    channels = x.shape.dims[3]
    if not isinstance(channels, int):
        n.unsupported("an image with an unknown number of channels")
    y = n.convolution(x, n.transpose(w, (3, 0, 1, 2)), stride, n.padding(), dilation, channels)
    return n.activated(biased(n, y, bias))


@converts("CONV_3D")
def conv_3d(n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None) -> Instruction:
    stride = [n.option(f"Stride{a}", 1) for a in "DHW"]
    dilation = [n.option(f"Dilation{a}Factor", 1) for a in "DHW"]
    y = n.convolution(x, n.transpose(w, (4, 3, 0, 1, 2)), stride, n.padding(), dilation)
    return n.activated(biased(n, y, bias))


@converts("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
def transposed(
    n: Node, shape: Instruction, w: Instruction, x: Instruction, bias: Instruction | None = None
) -> Instruction:
    extents = n.dims(shape)
    if extents is None:
        n.unsupported("extents of the result that are known only at run time")
    if n.op_type == "TRANSPOSE_CONV":  # kernels [m, h, w, c]
        stride, kernels = [n.option("StrideH", 1), n.option("StrideW", 1)], n.transpose(w, (3, 0, 1, 2))
        dilation = [1, 1]
    else:  # kernels [d, h, w, m, c]
        stride, kernels = [n.option(f"Stride{a}", 1) for a in "DHW"], n.transpose(w, (4, 3, 0, 1, 2))
        dilation = [n.option(f"Dilation{a}Factor", 1) for a in "DHW"]
    y = n.transposed_convolution(x, kernels, extents[1:-1], stride, n.padding(), dilation)
    return n.activated(biased(n, y, bias))


@converts("FULLY_CONNECTED")
def fully_connected(n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None) -> Instruction:
    if n.option("WeightsFormat", 0):
        n.unsupported("shuffled weights")
    units, depth = w.shape.dims
    lead = x.shape.dims[:-1]
    given, weights = n.input(0), n.input(1)
    hybrid = (
        given is not None and given.dtype is dt.float32 and weights is not None and weights.quantization is not None
    )
    flat = n.reshape(x, (product(x.shape.dims) // depth if not x.shape.dynamic() else product(lead), depth))
    if hybrid and weights is not None and weights.dtype is dt.int8:
        flat = rows_in_steps(n, flat, n.option("AsymmetricQuantizeInputs", False))
    y = biased(n, n.add("dot", flat, n.transpose(w, (1, 0))), bias)
    if n.option("KeepNumDims", False):
        y = n.reshape(y, (*lead, units))
    return n.activated(y)


def rows_in_steps(n: Node, x: Instruction, asymmetric: bool) -> Instruction:
    """Returns rows quantized to int8 by their own maximum and dequantized, as TFLite's hybrid kernels do."""
    axis = x.shape.rank - 1
    one = n.literal(np.float32(1))
    if asymmetric:
        low = n.pointwise("min", n.add("reduce_min", x, axes=(axis,)), n.literal(np.float32(0)))
        high = n.pointwise("max", n.add("reduce_max", x, axes=(axis,)), n.literal(np.float32(0)))
        scale = n.pointwise("div", n.pointwise("sub", high, low), n.literal(np.float32(255)))
        scale = n.pointwise("where", n.pointwise("equal", scale, n.literal(np.float32(0))), one, scale)
        zero = n.pointwise("nearbyint", n.pointwise("sub", n.literal(np.float32(-128)), n.pointwise("div", low, scale)))
        steps = n.pointwise("nearbyint", n.pointwise("add", n.pointwise("div", x, scale), zero))
        inside = n.pointwise("clip", steps, n.literal(np.float32(-128)), n.literal(np.float32(127)))
        return n.pointwise("mul", n.pointwise("sub", inside, zero), scale)
    largest = n.add("reduce_max", n.pointwise("abs", x), axes=(axis,))
    scale = n.pointwise("div", largest, n.literal(np.float32(127)))
    scale = n.pointwise("where", n.pointwise("equal", scale, n.literal(np.float32(0))), one, scale)
    steps = n.pointwise("nearbyint", n.pointwise("div", x, scale))
    return n.pointwise(
        "mul", n.pointwise("clip", steps, n.literal(np.float32(-127)), n.literal(np.float32(127))), scale
    )


@converts("BATCH_MATMUL")
def batch_matmul(n: Node, x: Instruction, y: Instruction) -> Instruction:
    x, y = last_two_transposed(n, x, n.option("AdjX", False)), last_two_transposed(n, y, n.option("AdjY", False))
    return matrix_product(n, x, y)


@converts("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(n: Node, x: Instruction) -> Instruction:
    lengths = [n.option("FilterHeight", 1), n.option("FilterWidth", 1)]
    stride = [n.option("StrideH", 1), n.option("StrideW", 1)]
    y = n.pooled("max" if n.op_type == "MAX_POOL_2D" else "average", x, lengths, stride, n.padding())
    if x.shape.dtype.is_integer and n.option("FusedActivationFunction", 0):
        given = n.output()
        return n.quantized(n.activated(n.dequantized(y, given)), given)
    return n.activated(y)


@converts("L2_POOL_2D")
def l2_pool(n: Node, x: Instruction) -> Instruction:
    lengths = [n.option("FilterHeight", 1), n.option("FilterWidth", 1)]
    stride = [n.option("StrideH", 1), n.option("StrideW", 1)]
    squares = n.pooled("average", n.pointwise("mul", x, x), lengths, stride, n.padding())
    return n.activated(n.pointwise("sqrt", squares))


@converts("SOFTMAX")
def softmax(n: Node, x: Instruction) -> Instruction:
    beta = float(n.option("Beta", 1.0))
    if beta != 1:
        x = n.pointwise("mul", x, n.literal(np.float32(beta)))
    return n.add("softmax", x, axis=x.shape.rank - 1)


@converts("LOG_SOFTMAX")
def log_softmax(n: Node, x: Instruction) -> Instruction:
    return n.add("logsoftmax", x, axis=x.shape.rank - 1)


@converts("L2_NORMALIZATION")
def l2_normalization(n: Node, x: Instruction) -> Instruction:
    return n.activated(l2_normalized(n, x, x.shape.rank - 1, 1e-12))


@converts("LOCAL_RESPONSE_NORMALIZATION")
def lrn(n: Node, x: Instruction) -> Instruction:
    size = 2 * n.option("Radius", 0) + 1
    alpha = float(n.option("Alpha", 0.0)) * size
    made = n.add(
        "lrn",
        n.channels_second(x),
        size=size,
        alpha=alpha,
        beta=float(n.option("Beta", 0.0)),
        bias=float(n.option("Bias", 0.0)),
    )
    return n.channels_last(made)


@converts("RESIZE_BILINEAR")
def resize_bilinear(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners, half = n.option("AlignCorners", False), n.option("HalfPixelCenters", False)
    where = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    return n.resized_to(x, size, mode="linear", coordinate_transformation_mode=where)


@converts("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners, half = n.option("AlignCorners", False), n.option("HalfPixelCenters", False)
    where = "align_corners" if corners else "tf_half_pixel_for_nn" if half else "asymmetric"
    how = "round_prefer_ceil" if corners else "floor"
    return n.resized_to(x, size, mode="nearest", coordinate_transformation_mode=where, nearest_mode=how)
