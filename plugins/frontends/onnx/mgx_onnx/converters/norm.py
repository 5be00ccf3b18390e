"""Normalizations of ai.onnx: LRN, Batch-, Instance-, Layer-, Group-, RMS-, Lp- and MeanVarianceNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dim as dims_
from mgx_core.types.dtype import DType, float32

from ..converter import converts
from ..node import Node
from ..tensors import dtype_of

__all__ = ["layer_norm", "moments", "rms_norm"]


@converts("LRN")
def lrn(n: Node, x: Instruction) -> Instruction:
    return n.add(
        "lrn", x, alpha=n.attr("alpha", 1e-4), beta=n.attr("beta", 0.75), bias=n.attr("bias", 1.0), size=n.attr("size")
    )


def computed_in(x: Instruction) -> DType:
    """Returns the type in which a composite op on x is computed."""
    return float32 if x.shape.dtype.bits < 32 else x.shape.dtype


def moments(n: Node, x: Instruction, axes: Sequence[int]) -> tuple[Instruction, Instruction]:
    """Returns mean and variance over some axes, kept with extent 1."""
    mean = n.add("reduce_mean", x, axes=tuple(axes))
    apart = n.pointwise("sqdiff", x, mean)
    return mean, n.add("reduce_mean", apart, axes=tuple(axes))


def rsqrt(n: Node, power: Instruction, epsilon: float) -> Instruction:
    return n.add("rsqrt", n.add("add", power, n.full_like(power, epsilon)))


@converts("BatchNormalization")
def batch_norm(
    n: Node, x: Instruction, scale: Instruction, bias: Instruction, mean: Instruction, variance: Instruction
) -> Any:
    rank = x.shape.rank
    if rank < 2:
        n.fail(f"X needs a batch and channels, got {x.shape}")
    per_activation = n.version < 9 and not n.attr("spatial", 1)
    wanted = x.shape.dims[1:] if per_activation else x.shape.dims[1:2]
    for name, v in (("scale", scale), ("B", bias), ("mean", mean), ("var", variance)):
        if v.shape.rank != len(wanted) or not all(map(dims_.may_equal, v.shape.dims, wanted)):
            n.fail(f"{name} must have dims {list(wanted)}, got {v.shape}")
    dtype, wide = x.shape.dtype, computed_in(x)
    stored = mean.shape.dtype
    x, scale, bias, mean, variance = (n.convert(v, wide) for v in (x, scale, bias, mean, variance))
    statistics = [n.output_used(i) for i in range(1, 5)]
    if n.version >= 14:
        training = bool(n.attr("training_mode", 0))
    else:  # from opset 7 on, the number of results states the mode
        training = all(statistics) if n.version >= 7 else any(statistics) and not n.attr("is_test", 0)
    found: tuple[Instruction, Instruction] | None = None
    if training:
        axes = (0,) if per_activation else (0, *range(2, rank))
        found = moments(n, x, axes)
        found = (n.reshape(found[0], wanted), n.reshape(found[1], wanted))
    used, momentum = found or (mean, variance), n.attr("momentum", 0.9)
    factor = n.add("mul", scale, rsqrt(n, used[1], n.attr("epsilon", 1e-5)))
    shift = n.add("sub", bias, n.add("mul", used[0], factor))
    y = n.add("add", n.add("mul", x, column(n, factor, x)), column(n, shift, x))
    y = n.convert(y, dtype)
    if found is None:
        return y if n.outputs <= 1 else (y, *(n.convert(v, stored) for v in (mean, variance, mean, variance)))
    running = []
    for old, new in ((mean, found[0]), (variance, found[1])):
        kept = n.add("mul", old, n.full_like(old, momentum))
        running.append(n.convert(n.add("add", kept, n.add("mul", new, n.full_like(new, 1 - momentum))), stored))
    return y, *running, *(n.convert(v, stored) for v in found)


def column(n: Node, v: Instruction, x: Instruction) -> Instruction:
    """Returns a per-channel vector (or per-element values of an image) broadcast to x [n, c, ..]."""
    if v.shape.rank == 1 and v.shape.dims != x.shape.dims[1:2]:  # vectors of extent 1 are rejected at run time
        v = n.reshape(v, [x.shape.dims[1], *(1,) * (x.shape.rank - 2)])
    elif v.shape.rank == 1 and x.shape.rank > 2:
        v = n.unsqueeze(v, range(1, x.shape.rank - 1))
    return n.broadcast_to(v, x.shape.dims)


@converts("InstanceNormalization")
def instance_norm(n: Node, x: Instruction, scale: Instruction, bias: Instruction) -> Instruction:
    return n.add("instancenorm", x, scale, bias, epsilon=n.attr("epsilon", 1e-5))


def layer_norm(
    n: Node,
    x: Instruction,
    scale: Instruction | None,
    bias: Instruction | None,
    axis: int,
    epsilon: float,
    statistics: bool,
) -> tuple[Instruction, ...]:
    """Returns the layer normalization; with `statistics` also the mean and inverse standard deviation, in float32 or wider."""
    y = n.add("layernorm", x, scale, bias, axis=axis, epsilon=epsilon)
    if not statistics:
        return (y,)
    (first,) = n.axes([axis], x.shape.rank)
    mean, variance = moments(n, n.convert(x, computed_in(x)), range(first, x.shape.rank))
    return y, mean, rsqrt(n, variance, epsilon)


@converts("LayerNormalization")
def layer_normalization(n: Node, x: Instruction, scale: Instruction, bias: Instruction | None = None) -> Any:
    stash = dtype_of(n.attr("stash_type", 1) or 1)
    for name, v in (("Scale", scale), ("B", bias)):
        if v is not None and v.shape.dtype is not x.shape.dtype:
            n.fail(f"{name} must have the type of X, {x.shape.dtype}, got {v.shape.dtype}")
    y, *others = layer_norm(n, x, scale, bias, n.attr("axis", -1), n.attr("epsilon", 1e-5), n.outputs > 1)
    return (y, *(n.convert(v, stash) for v in others)) if others else y


def rms_norm(n: Node, x: Instruction, scale: Instruction, axis: int, epsilon: float) -> Instruction:
    """Returns the RMS normalization in the scale's type."""
    to = scale.shape.dtype
    if x.shape.dtype is not to:
        x, scale = n.convert(x, computed_in(x)), n.convert(scale, computed_in(x))
    return n.convert(n.add("rmsnorm", x, scale, axis=axis, epsilon=epsilon), to)


@converts("RMSNormalization")
def rms_normalization(n: Node, x: Instruction, scale: Instruction) -> Instruction:
    return rms_norm(n, x, scale, n.attr("axis", -1), n.attr("epsilon", 1e-5))


@converts("SimplifiedLayerNormalization")
@converts("SimplifiedLayerNormalization", domain="com.microsoft")
def simplified_layer_norm(n: Node, x: Instruction, scale: Instruction, *rest: Instruction) -> Any:
    if rest:
        n.fail(f"SimplifiedLayerNormalization takes X and scale, got {2 + len(rest)} inputs")
    axis, epsilon, stash = n.attr("axis", -1), n.attr("epsilon", 1e-5), dtype_of(n.attr("stash_type", 1) or 1)
    y = rms_norm(n, x, scale, axis, epsilon)
    if n.outputs < 2:
        return y
    (first,) = n.axes([axis], x.shape.rank)
    wide = n.convert(x, computed_in(x))
    power = n.add("reduce_mean", n.add("mul", wide, wide), axes=tuple(range(first, x.shape.rank)))
    return y, n.convert(rsqrt(n, power, epsilon), stash)


@converts("GroupNormalization", since=18)
def group_norm(n: Node, x: Instruction, scale: Instruction, bias: Instruction) -> Instruction:
    groups = n.attr("num_groups")
    if x.shape.rank < 2:
        n.fail(f"X needs a batch and channels, got {x.shape}")
    channels = x.shape.dims[1]
    if n.version < 21:
        scale, bias = (per_group(n, v, groups, channels) for v in (scale, bias))
    return n.add("groupnorm", x, scale, bias, num_groups=groups, epsilon=n.attr("epsilon", 1e-5))


def per_group(n: Node, v: Instruction, groups: int, channels: dims_.Dim) -> Instruction:
    """Returns per-group values repeated for each channel; a single value (nonstandard) applies to all channels."""
    if v.shape.rank == 1 and v.shape.dims[0] == 1:
        return n.broadcast_to(v, (channels,))
    if v.shape.rank != 1 or not dims_.may_equal(v.shape.dims[0], groups) or groups == channels or groups < 1:
        return v
    return n.reshape(n.broadcast_to(n.unsqueeze(v, [1]), (groups, channels // groups)), (channels,))


@converts("LpNormalization")
def lp_norm(n: Node, x: Instruction) -> Instruction:
    p = n.attr("p", 2)
    if p not in (1, 2):
        n.fail(f"p must be 1 or 2, got {p}")
    axes = n.axes([n.attr("axis", -1)], x.shape.rank)
    wide = n.convert(x, computed_in(x))
    power = n.add("abs", wide) if p == 1 else n.add("mul", wide, wide)
    norm = n.add("reduce_sum", power, axes=axes)
    norm = norm if p == 1 else n.add("sqrt", norm)
    empty = n.add("equal", norm, n.full_like(norm, 0))
    norm = n.add("where", empty, n.full_like(norm, 1), norm)
    return n.convert(n.pointwise("div", wide, norm), x.shape.dtype)


@converts("MeanVarianceNormalization")
def mean_variance_norm_1(n: Node, x: Instruction) -> Instruction:
    """The operator from before the standard had it: attributes instead of axes, as ONNX Runtime reads them."""
    axes = n.axes([0, 1, 2, 3] if n.attr("across_channels", 0) else [0, 2, 3], x.shape.rank)
    if n.attr("normalize_variance", 1):
        return _standardized(n, x, axes)
    wide = n.convert(x, computed_in(x))
    return n.convert(n.pointwise("sub", wide, n.add("reduce_mean", wide, axes=axes)), x.shape.dtype)


@converts("MeanVarianceNormalization", since=9)
def mean_variance_norm(n: Node, x: Instruction) -> Instruction:
    return _standardized(n, x, n.axes(n.attr("axes", [0, 2, 3]), x.shape.rank))


def _standardized(n: Node, x: Instruction, axes: tuple[int, ...]) -> Instruction:
    """Returns x with mean 0 and variance 1 over some axes."""
    wide = n.convert(x, computed_in(x))
    mean, variance = moments(n, wide, axes)
    deviation = n.add("sqrt", variance)
    deviation = n.add("add", deviation, n.full_like(deviation, 1e-9))
    return n.convert(n.pointwise("div", n.pointwise("sub", wide, mean), deviation), x.shape.dtype)
