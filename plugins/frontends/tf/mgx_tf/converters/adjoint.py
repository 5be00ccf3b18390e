"""Gradients of linear operators, for graphs that differentiate with respect to their inputs (forces, saliency maps)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.channels_last import explicit
from mgx_core.ops.reduce import ReduceMean, ReduceSum
from mgx_core.types.dim import product

from ..converter import converts
from ..node import Node
from .neural import Windows


def _numbers(n: Node, x: Any, what: str) -> list[int]:
    found = [int(d) for d in x if isinstance(d, int)]
    if len(found) < len(x):
        n.unsupported(f"{what} that are known only at run time")
    return found


def scattered(n: Node, dy: Instruction, places: np.ndarray, dims: list[int]) -> Instruction:
    """Returns dy scatter-added into zeros of extents `dims`, flattened."""
    base = n.broadcast_to(n.literal(0, dy.shape.dtype), (int(np.prod(dims)),))
    flat = n.reshape(dy, (product(dy.shape.dims),))
    return n.reshape(n.add("scatternd_add", base, n.literal(places.reshape(-1, 1)), flat), dims)


@converts("MirrorPadGrad")
def of_mirror_pad(n: Node, dy: Instruction, paddings: Instruction) -> Instruction:
    pads = np.array(_numbers(n, n.extents(paddings, "the borders"), "borders")).reshape(-1, 2)
    wide = _numbers(n, dy.shape.dims, "extents")
    dims = [d - int(b) - int(e) for d, (b, e) in zip(wide, pads, strict=True)]
    mode = "reflect" if n.string("mode") == "REFLECT" else "symmetric"
    places = np.pad(np.arange(int(np.prod(dims)), dtype=np.int64).reshape(dims), pads, mode=mode)  # type: ignore[call-overload]
    return scattered(n, dy, places, dims)


def _weights(n: Node, size: int, out: int) -> np.ndarray:
    """Returns the weights [out, size] of bilinear or nearest-neighbor resampling."""
    corners, half = n.flag("align_corners"), n.flag("half_pixel_centers")
    scale = (size - 1) / (out - 1) if corners and out > 1 else size / out
    weights = np.zeros((out, size), np.float32)
    for i in range(out):
        if n.op_type == "ResizeNearestNeighborGrad":
            at = np.floor((i + 0.5) * scale) if half else np.floor(i * scale + 0.5) if corners else np.floor(i * scale)
            weights[i, int(np.clip(at, 0, size - 1))] = 1
            continue
        at = max((i + 0.5) * scale - 0.5, 0) if half else i * scale
        low = min(int(at), size - 1)
        weights[i, low] += 1 - (at - low)
        weights[i, min(low + 1, size - 1)] += at - low
    return weights


@converts("ResizeBilinearGrad", "ResizeNearestNeighborGrad")
def of_resize(n: Node, dy: Instruction, like: Instruction) -> Instruction:
    if n.op_type == "ResizeBilinearGrad":
        sizes = _numbers(n, like.shape.dims[1:3], "extents")
    else:
        sizes = _numbers(n, n.extents(like, "the extents"), "extents")
    outs = _numbers(n, dy.shape.dims[1:3], "extents")
    rows, columns = (n.literal(_weights(n, s, o), dy.shape.dtype) for s, o in zip(sizes, outs, strict=True))
    return n.add("einsum", dy, rows, columns, equation="bhwc,hi,wj->bijc")


def _pads(w: Windows, dims: list[int]) -> list[tuple[int, int]]:
    padding: Any = explicit(dims, w.lengths, w.stride, (1, 1), w.padding)["padding"]
    return [(int(padding[k]), int(padding[k + 2])) for k in range(2)]


@converts("AvgPoolGrad")
def of_average(n: Node, shape: Instruction, dy: Instruction) -> Instruction:
    w = Windows(n, dy, 2)
    if not w.last:
        n.unsupported("layout NCHW")
    dims = _numbers(n, n.extents(shape, "the extents")[1:3], "extents")
    outs, channels = _numbers(n, dy.shape.dims[1:3], "extents"), dy.shape.dims[3]
    if not isinstance(channels, int):
        n.unsupported("an image of unknown channels")
    pads = _pads(w, dims)
    counts = np.ones((1, *outs, 1), np.float32)
    for axis, (size, out) in enumerate(zip(dims, outs, strict=True)):
        starts = np.arange(out) * w.stride[axis] - pads[axis][0]
        inside = np.minimum(starts + w.lengths[axis], size) - np.maximum(starts, 0)
        counts = counts * inside.reshape([-1 if a == axis + 1 else 1 for a in range(4)])
    shares = n.pointwise("div", dy, n.literal(counts, dy.shape.dtype))
    ones = n.literal(np.ones((channels, 1, *w.lengths)), dy.shape.dtype)
    return n.transposed_convolution(shares, ones, dims, w.stride, pads, (), channels)


@converts("MaxPoolGrad")
def of_maximum(n: Node, x: Instruction, y: Instruction, dy: Instruction) -> Instruction:
    """Returns the gradient of max pooling, passed to the first maximum of each window."""
    w = Windows(n, x, 2)
    if not w.last or w.padding not in ("same", "valid"):
        n.unsupported("layout NCHW or explicit paddings")
    dims = _numbers(n, x.shape.dims[1:], "extents")
    same = w.padding == "same"
    _, places = n.items(
        n.add("tf_max_pool_with_argmax", x, lengths=tuple(w.lengths), stride=tuple(w.stride), same=same)
    )
    batch, each = x.shape.dims[0], int(np.prod(dims))
    base = n.broadcast_to(n.literal(0, dy.shape.dtype), (batch, each))
    at, given = (n.reshape(v, (batch, product(dy.shape.dims[1:]))) for v in (places, dy))
    made = n.add("scatter_add", base, at, given, axis=1)
    return n.reshape(made, (batch, *dims))


@converts("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def of_batch_norm(
    n: Node,
    dy: Instruction,
    x: Instruction,
    scale: Instruction,
    mean: Instruction,
    variance: Instruction,
    reserved: Instruction | None = None,
) -> Any:
    if not n.string("data_format", "NHWC").endswith("C"):
        n.unsupported("layout NCHW")
    axes = list(range(x.shape.rank - 1))

    def mul(a: Instruction, b: Instruction) -> Instruction:
        return n.pointwise("mul", a, b)

    def over_all(v: Instruction, op: Any) -> Instruction:
        return n.reshape(n.along_axes(op, v, axes), (v.shape.dims[-1],))

    small = n.literal(n.float("epsilon", 1e-4), variance.shape.dtype)
    factor = n.pointwise("rsqrt", n.pointwise("add", variance, small))
    apart = mul(n.pointwise("sub", x, mean), factor)
    by_scale, by_offset = over_all(mul(dy, apart), ReduceSum), over_all(dy, ReduceSum)
    inner = dy
    if n.flag("is_training", True):
        inner = n.pointwise("sub", dy, over_all(dy, ReduceMean))
        inner = n.pointwise("sub", inner, mul(apart, over_all(mul(dy, apart), ReduceMean)))
    none = n.literal(np.zeros(0, np.float32), scale.shape.dtype)
    return mul(mul(inner, factor), scale), by_scale, by_offset, none, none


@converts("InplaceUpdate", "InplaceAdd", "InplaceSub")
def in_place(n: Node, x: Instruction, rows: Instruction, values: Instruction) -> Instruction:
    at = n.unsqueeze(n.convert(rows, dt.int64), [1])
    if n.op_type.endswith("Sub"):
        values = n.pointwise("neg", values)
    return n.add("scatternd_none" if n.op_type.endswith("Update") else "scatternd_add", x, at, values)
