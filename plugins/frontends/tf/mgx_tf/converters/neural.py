"""Convolutions, pooling, patch extraction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.channels_last import Padding

from ..converter import converts
from ..node import Node
from .movement import mirrored


class Layout:
    """Attributes of an image window operator: rank, whether channels are last, strides, dilations, padding."""

    def __init__(self, n: Node, x: Instruction, spatial: int) -> None:
        layout = n.string("data_format", "NHWC" if spatial == 2 else "NDHWC")
        self.last = layout.endswith("C") or layout == "CHANNELS_LAST"
        rank = spatial + 2
        if x.shape.rank != rank:
            n.fail(f"an image of rank {rank} is required, got {x.shape}")
        self.spatial = slice(1, rank - 1) if self.last else slice(2, rank)
        self.stride = self._numbers(n, "strides", rank)
        self.dilation = self._numbers(n, "dilations", rank)
        self.padding = self._padding(n, rank)

    def _numbers(self, n: Node, name: str, rank: int) -> list[int]:
        given = n.ints(name) or [1] * rank
        if len(given) != rank or min(given) < 1:
            n.fail(f"{name} must have {rank} positive numbers, got {given}")
        across = [v for i, v in enumerate(given) if i not in range(rank)[self.spatial]]
        if any(v != 1 for v in across):
            n.unsupported(f"{name} {given} over batch or channels")
        return given[self.spatial]

    def _padding(self, n: Node, rank: int) -> Padding:
        mode = n.string("padding")
        if mode in ("SAME", "VALID"):
            return "same" if mode == "SAME" else "valid"
        if mode != "EXPLICIT":
            n.fail(f"padding must be SAME, VALID or EXPLICIT, got {mode!r}")
        given = n.ints("explicit_paddings")
        if len(given) != 2 * rank:
            n.fail(f"explicit_paddings must have {2 * rank} numbers, got {given}")
        return list(zip(given[::2], given[1::2], strict=True))[self.spatial]

    def inward(self, n: Node, x: Instruction) -> Instruction:
        """Returns the image with channels last."""
        return x if self.last else n.channels_last(x)

    def outward(self, n: Node, y: Instruction) -> Instruction:
        """Returns a channels-last result in the operator's layout."""
        return y if self.last else n.channels_second(y)


def _kernels(n: Node, w: Instruction) -> Instruction:
    """Transposes kernels [*k, c, m] to [m, c, *k]."""
    rank = w.shape.rank
    return n.transpose(w, (rank - 1, rank - 2, *range(rank - 2)))


@converts("Conv2D", "Conv3D")
def conv(n: Node, x: Instruction, w: Instruction) -> Instruction:
    layout = Layout(n, x, 2 if n.op_type == "Conv2D" else 3)
    x = layout.inward(n, x)
    return layout.outward(n, n.convolution(x, _kernels(n, w), layout.stride, layout.padding, layout.dilation))


@converts("Conv")
def conv_of_rank(n: Node, x: Instruction, w: Instruction) -> Instruction:
    batches = n.int("batch_dims", 1)
    if n.string("data_format", "CHANNELS_LAST") != "CHANNELS_LAST" or batches != 1 or n.int("groups", 1) < 1:
        n.unsupported("channels that are not last, or several batch axes")
    layout = Layout(n, x, x.shape.rank - 2)
    return n.convolution(x, _kernels(n, w), layout.stride, layout.padding, layout.dilation)


@converts("FusedPadConv2D")
def pad_and_conv(n: Node, x: Instruction, pads: Instruction, w: Instruction) -> Instruction:
    widths = n.extents(pads, "the borders")
    return conv_2d(n, mirrored(n, x, list(zip(widths[::2], widths[1::2], strict=True)), n.string("mode")), w)


@converts("FusedResizeAndPadConv2D")
def resize_and_conv(n: Node, x: Instruction, size: Instruction, pads: Instruction, w: Instruction) -> Instruction:
    where = "align_corners" if n.flag("resize_align_corners") else "asymmetric"
    made = n.resized(x, n.extents(size, "the size"), mode="linear", coordinate_transformation_mode=where)
    return pad_and_conv(n, made, pads, w)


def conv_2d(n: Node, x: Instruction, w: Instruction) -> Instruction:
    """Returns a convolution with the node's attributes."""
    layout = Layout(n, x, 2)
    x = layout.inward(n, x)
    return layout.outward(n, n.convolution(x, _kernels(n, w), layout.stride, layout.padding, layout.dilation))


@converts("_FusedConv2D")
def fused_conv(n: Node, x: Instruction, w: Instruction, *args: Instruction) -> Instruction:
    y = conv(n, x, w)
    for name in n.strings("fused_ops"):
        match name:
            case "BiasAdd":
                y = n.pointwise("add", y, args[0])
            case "Relu":
                y = n.pointwise("relu", y)
            case "Relu6":
                y = n.pointwise("clip", y, n.literal(0, y.shape.dtype), n.literal(6, y.shape.dtype))
            case "Elu":
                y = n.pointwise("elu", y)
            case "LeakyRelu":
                y = n.pointwise("leaky_relu", y, alpha=n.float("leakyrelu_alpha", 0.2))
            case _:
                n.unsupported(f"a fused {name}")
    return y


@converts("DepthwiseConv2dNative")
def depthwise(n: Node, x: Instruction, w: Instruction) -> Instruction:
    layout = Layout(n, x, 2)
    h, wide, channels, multiplier = w.shape.dims
    if not isinstance(channels, int) or not isinstance(multiplier, int):
        n.unsupported("kernels of unknown extents")
    w = n.reshape(w, (h, wide, 1, channels * multiplier))
    x = layout.inward(n, x)
    y = n.convolution(x, _kernels(n, w), layout.stride, layout.padding, layout.dilation, channels)
    return layout.outward(n, y)


@converts("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def conv_transposed(n: Node, sizes: Instruction, w: Instruction, y: Instruction) -> Instruction:
    layout = Layout(n, y, 2 if n.op_type == "Conv2DBackpropInput" else 3)
    extents = n.extents(sizes, "the extents of the result")
    if len(extents) == y.shape.rank:
        extents = extents[layout.spatial]
    kernels = n.transpose(w, (w.shape.rank - 1, w.shape.rank - 2, *range(w.shape.rank - 2)))
    y = layout.inward(n, y)
    made = n.transposed_convolution(y, kernels, extents, layout.stride, layout.padding, layout.dilation)
    return layout.outward(n, made)


@converts("DepthwiseConv2dNativeBackpropInput")
def depthwise_transposed(n: Node, sizes: Instruction, w: Instruction, y: Instruction) -> Instruction:
    layout = Layout(n, y, 2)
    extents = n.extents(sizes, "the extents of the result")[layout.spatial]
    h, wide, channels, multiplier = w.shape.dims
    if not isinstance(channels, int) or not isinstance(multiplier, int):
        n.unsupported("kernels of unknown extents")
    kernels = n.reshape(n.transpose(w, (2, 3, 0, 1)), (channels * multiplier, 1, h, wide))
    y = layout.inward(n, y)
    made = n.transposed_convolution(y, kernels, extents, layout.stride, layout.padding, layout.dilation, channels)
    return layout.outward(n, made)


@converts("Dilation2D")
def dilation2d(n: Node, x: Instruction, w: Instruction) -> Instruction:
    rates, strides = n.ints("rates")[1:3], n.ints("strides")[1:3]
    if n.string("padding") not in ("SAME", "VALID"):
        n.fail("padding must be SAME or VALID")
    return n.add("tf_dilation2d", x, w, stride=tuple(strides), rate=tuple(rates), same=n.string("padding") == "SAME")


class Windows:
    """Attributes of a pooling operator."""

    def __init__(self, n: Node, x: Instruction, spatial: int, lengths: Sequence[int] = (), stride: Sequence[int] = ()):
        self.last = n.string("data_format", "NHWC" if spatial == 2 else "NDHWC").endswith("C")
        rank = spatial + 2
        if x.shape.rank != rank:
            n.fail(f"an image of rank {rank} is required, got {x.shape}")
        where = slice(1, rank - 1) if self.last else slice(2, rank)
        self.lengths, self.stride = list(lengths or n.ints("ksize")), list(stride or n.ints("strides"))
        for name, given in (("ksize", self.lengths), ("strides", self.stride)):
            if len(given) != rank or min(given) < 1:
                n.fail(f"{name} must have {rank} positive numbers, got {given}")
            if any(v != 1 for i, v in enumerate(given) if i not in range(rank)[where]):
                n.unsupported(f"{name} {given} over batch or channels")
        self.lengths, self.stride = self.lengths[where], self.stride[where]
        mode = n.string("padding")
        self.padding: Padding = "same" if mode == "SAME" else "valid"
        if mode == "EXPLICIT":
            given = n.ints("explicit_paddings")
            if len(given) != 2 * rank:
                n.fail(f"explicit_paddings must have {2 * rank} numbers, got {given}")
            self.padding = list(zip(given[::2], given[1::2], strict=True))[where]
        elif mode not in ("SAME", "VALID"):
            n.fail(f"padding must be SAME, VALID or EXPLICIT, got {mode!r}")

    def apply(self, n: Node, mode: Any, x: Instruction) -> Instruction:
        x = x if self.last else n.channels_last(x)
        y = n.pooled(mode, x, self.lengths, self.stride, self.padding)
        return y if self.last else n.channels_second(y)


@converts("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def pool(n: Node, x: Instruction) -> Instruction:
    windows = Windows(n, x, 3 if n.op_type.endswith("3D") else 2)
    return windows.apply(n, "max" if n.op_type.startswith("Max") else "average", x)


@converts("MaxPoolV2")
def max_pool_v2(n: Node, x: Instruction, ksize: Instruction, strides: Instruction) -> Instruction:
    lengths, steps = n.whole(ksize, "the windows"), n.whole(strides, "the strides")
    return Windows(n, x, 2, lengths, steps).apply(n, "max", x)


@converts("MaxPoolWithArgmax")
def max_pool_with_argmax(n: Node, x: Instruction) -> Any:
    w = Windows(n, x, 2)
    if w.padding not in ("same", "valid"):
        n.unsupported("explicit paddings")
    made = n.add(
        "tf_max_pool_with_argmax",
        x,
        lengths=tuple(w.lengths),
        stride=tuple(w.stride),
        same=w.padding == "same",
        include_batch=n.flag("include_batch_in_index"),
    )
    values, indices = n.items(made)
    return values, n.convert(indices, n.dtype("Targmax", dt.int64))


@converts("ExtractImagePatches", "ExtractVolumePatches")
def extract_patches(n: Node, x: Instruction) -> Instruction:
    spatial = 2 if n.op_type == "ExtractImagePatches" else 3
    sizes, strides = (n.ints(w)[1 : spatial + 1] for w in ("ksizes", "strides"))
    rates = n.ints("rates")[1:3] if spatial == 2 else [1] * 3
    channels = x.shape.dims[-1]
    if not isinstance(channels, int) or n.string("padding") not in ("SAME", "VALID"):
        n.unsupported("patches of images with an unknown number of channels")
    taps = int(np.prod(sizes))
    kernels = np.zeros((taps * channels, channels, *sizes), np.float32)
    for place, tap in enumerate(np.ndindex(*sizes)):
        for c in range(channels):
            kernels[(place * channels + c, c, *tap)] = 1
    w = n.literal(kernels, x.shape.dtype if x.shape.dtype.is_float else dt.float32)
    padding: Padding = "same" if n.string("padding") == "SAME" else "valid"
    made = n.convolution(n.convert(x, w.shape.dtype), w, strides, padding, rates, 1)
    return n.convert(made, x.shape.dtype)
