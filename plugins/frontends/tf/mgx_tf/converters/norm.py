"""Normalization, softmax, losses, layout conversion."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.ops.reduce import ReduceMean

from ..converter import converts
from ..node import Node


@converts("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(
    n: Node, x: Instruction, scale: Instruction, offset: Instruction, mean: Instruction, variance: Instruction
) -> Any:
    layout = n.string("data_format", "NHWC")
    rank = x.shape.rank
    channels = rank - 1 if layout.endswith("C") else 1
    epsilon = n.float("epsilon", 1e-4)
    given = x
    wide = n.convert(x, scale.shape.dtype)
    training = n.flag("is_training", True)
    others = [a for a in range(rank) if a != channels]
    if training:
        kept_mean = n.along_axes(ReduceMean, wide, others)
        apart = n.pointwise("sub", wide, kept_mean)
        kept_variance = n.along_axes(ReduceMean, n.pointwise("mul", apart, apart), others)
        mean, variance = (n.reshape(v, (v.shape.dims[channels],)) for v in (kept_mean, kept_variance))
    small = n.literal(np.float32(epsilon), variance.shape.dtype)
    factor = n.pointwise("mul", scale, n.pointwise("rsqrt", n.pointwise("add", variance, small)))
    shift = n.pointwise("sub", offset, n.pointwise("mul", mean, factor))
    if channels == 1 and rank > 2:
        column = (factor.shape.dims[0], *(1,) * (rank - 2))
        factor, shift = n.reshape(factor, column), n.reshape(shift, column)
    y = n.pointwise("add", n.pointwise("mul", wide, factor), shift)
    running = variance
    if training:  # the returned batch variance is Bessel-corrected
        extents = n.add("gather", n.add("dimensions_of", wide), n.literal(others, dt.int64), axis=0)
        count = n.convert(n.add("reduce_prod", extents, axes=(0,)), variance.shape.dtype)
        one = n.literal(1, variance.shape.dtype)
        less = n.pointwise("max", n.pointwise("sub", count, one), one)
        running = n.pointwise("mul", variance, n.pointwise("div", count, less))
    return n.convert(y, given.shape.dtype), mean, running, mean, variance, mean


@converts("BatchNormWithGlobalNormalization")
def global_norm(
    n: Node, x: Instruction, mean: Instruction, variance: Instruction, offset: Instruction, scale: Instruction
) -> Instruction:
    small = n.literal(n.float("variance_epsilon"), x.shape.dtype)
    factor = n.pointwise("rsqrt", n.pointwise("add", variance, small))
    if n.flag("scale_after_normalization"):
        factor = n.pointwise("mul", factor, scale)
    shift = n.pointwise("sub", offset, n.pointwise("mul", mean, factor))
    return n.pointwise("add", n.pointwise("mul", x, factor), shift)


@converts("DataFormatDimMap")
def map_axes(n: Node, x: Instruction) -> Instruction:
    """Converts axis numbers from one layout to another."""
    source, target = n.string("src_format", "NHWC"), n.string("dst_format", "NCHW")
    if sorted(source) != sorted(target):
        n.fail(f"layouts of the same axes are required, got {source} and {target}")
    return n.add("gather", n.literal([target.index(c) for c in source], x.shape.dtype), x, axis=0)


@converts("DataFormatVecPermute")
def permute_layout(n: Node, x: Instruction) -> Instruction:
    """Permutes per-axis values, of all axes or of the spatial ones, from one layout's order to another's."""
    source, target = n.string("src_format", "NHWC"), n.string("dst_format", "NCHW")
    if x.shape.dims[0] == len(source) - 2:
        source, target = (w.replace("N", "").replace("C", "") for w in (source, target))
    if sorted(source) != sorted(target) or x.shape.dims[0] != len(source):
        n.fail(f"layouts of the same axes are required, got {source} and {target} for {x.shape}")
    return n.add("gather", x, n.literal([source.index(c) for c in target], dt.int64), axis=0)


@converts("Softmax")
def softmax(n: Node, x: Instruction) -> Instruction:
    return n.add("softmax", x, axis=x.shape.rank - 1)


@converts("LogSoftmax")
def log_softmax(n: Node, x: Instruction) -> Instruction:
    return n.add("logsoftmax", x, axis=x.shape.rank - 1)


@converts("LRN")
def lrn(n: Node, x: Instruction) -> Instruction:
    radius = n.int("depth_radius", 5)
    size = 2 * radius + 1
    made = n.add(
        "lrn",
        n.channels_second(x),
        size=size,
        alpha=n.float("alpha", 1.0) * size,
        beta=n.float("beta", 0.5),
        bias=n.float("bias", 1.0),
    )
    return n.channels_last(made)


@converts("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(n: Node, logits: Instruction, labels: Instruction) -> Any:
    log = n.add("logsoftmax", logits, axis=logits.shape.rank - 1)
    if n.op_type.startswith("Sparse"):
        own = n.add("gather_elements", log, n.unsqueeze(n.convert(labels, dt.int64), [1]), axis=1)
        loss = n.pointwise("neg", n.squeeze(own, [1]))
        return loss, n.pointwise("exp", log)
    total = n.add("reduce_sum", n.pointwise("mul", log, labels), axes=(1,))
    loss = n.pointwise("neg", n.squeeze(total, [1]))
    return loss, n.pointwise("sub", n.pointwise("exp", log), labels)
