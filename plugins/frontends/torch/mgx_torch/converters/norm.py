"""Normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..element_types import dtype_of
from ..node import Node
from .reduce import variance

__all__: list[str] = []

Optional = Instruction | None


def wide(n: Node, x: Instruction) -> Instruction:
    return n.convert(x, dt.float32) if x.shape.dtype.bits < 32 else x


def per_channel(n: Node, v: Instruction, rank: int) -> Instruction:
    return n.unsqueeze(v, range(1, rank - 1)) if rank > 2 else v


def scaled(
    n: Node, x: Instruction, mean: Instruction, var: Instruction, weight: Optional, bias: Optional, eps: float
) -> Instruction:
    """Returns (x - mean) / sqrt(var + eps) * weight + bias as a per-channel scale and shift."""
    kind = wide(n, x).shape.dtype
    mean, var = n.convert(mean, kind), n.convert(var, kind)
    factor = n.add("rsqrt", n.add("add", var, n.full_like(var, eps)))
    if weight is not None:
        factor = n.add("mul", factor, n.convert(weight, kind))
    shift = n.add("neg", n.add("mul", mean, factor))
    if bias is not None:
        shift = n.add("add", shift, n.convert(bias, kind))
    rank = x.shape.rank
    if kind is not x.shape.dtype:
        y = n.pointwise("mul", n.convert(x, kind), per_channel(n, factor, rank))
        return n.convert(n.pointwise("add", y, per_channel(n, shift, rank)), x.shape.dtype)
    y = n.pointwise("mul", x, per_channel(n, factor, rank))
    return n.pointwise("add", y, per_channel(n, shift, rank))


def _unused(n: Node, x: Instruction) -> list[Instruction]:
    """Returns placeholder saved statistics for inference; their extents depend on the device."""
    return [n.filled(n.result_dims(i), 0, wide(n, x).shape.dtype) for i in (1, 2)]


def batch_statistics(n: Node, x: Instruction) -> tuple[Instruction, Instruction]:
    axes = tuple(a for a in range(x.shape.rank) if a != 1)
    var, mean = variance(n, wide(n, x), axes, 0, False)
    return mean, var


def _saved(n: Node, mean: Instruction, var: Instruction, eps: float) -> tuple[Instruction, Instruction]:
    """Returns the saved mean and inverse standard deviation, in torch's types."""
    inverse = n.add("rsqrt", n.add("add", var, n.full_like(var, eps)))
    return n.convert(mean, dtype_of(n.result(1).dtype)), n.convert(inverse, dtype_of(n.result(2).dtype))


@converts("_native_batch_norm_legit_no_training")
def batch_norm_fixed(
    n: Node,
    x: Instruction,
    weight: Optional,
    bias: Optional,
    mean: Instruction,
    var: Instruction,
    momentum: float,
    eps: float,
) -> Any:
    return scaled(n, x, mean, var, weight, bias, eps), *_unused(n, x)


@converts("batch_norm")
def batch_norm(
    n: Node,
    x: Instruction,
    weight: Optional,
    bias: Optional,
    mean: Optional,
    var: Optional,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Instruction:
    if training or mean is None or var is None:
        if mean is not None:
            n.unsupported("batch norm in training mode that does not return its statistics")
        mean, var = batch_statistics(n, x)
    return scaled(n, x, mean, var, weight, bias, eps)


@converts("_native_batch_norm_legit.no_stats")
def batch_norm_own(
    n: Node, x: Instruction, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> Any:
    mean, var = batch_statistics(n, x)
    return scaled(n, x, mean, var, weight, bias, eps), *_saved(n, mean, var, eps)


def _promised(n: Node, place: int, running: Instruction) -> dt.DType:
    """Returns the type of new running statistics: float32 even for narrow types, if the op returns them."""
    return dtype_of(n.result(place).dtype) if len(n.value) > place else running.shape.dtype


@converts("_native_batch_norm_legit_functional", "_native_batch_norm_legit", "native_batch_norm")
def batch_norm_functional(
    n: Node,
    x: Instruction,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Returns result, saved mean and inverse standard deviation, and new running statistics if the op has them."""
    if not training and running_mean is not None and running_var is not None:
        out = scaled(n, x, running_mean, running_var, weight, bias, eps)
        kept = (n.convert(r, _promised(n, i, r)) for i, r in ((3, running_mean), (4, running_var)))
        return out, *_unused(n, x), *kept
    mean, var = batch_statistics(n, x)
    saved = _saved(n, mean, var, eps)
    out = scaled(n, x, mean, var, weight, bias, eps)
    if running_mean is None or running_var is None:
        return out, *saved
    count = n.convert(n.graph.scalar(n, n.size(x, [a for a in range(x.shape.rank) if a != 1])), var.shape.dtype)
    unbiased = n.pointwise("mul", var, n.add("div", count, n.add("sub", count, n.full_like(count, 1))))

    def moved(place: int, old: Instruction, new: Instruction) -> Instruction:
        kind = _promised(n, place, old)
        old, new = n.convert(old, kind), n.convert(new, kind)
        return n.add(
            "add", n.add("mul", old, n.full_like(old, 1 - momentum)), n.add("mul", new, n.full_like(new, momentum))
        )

    return out, *saved, moved(3, running_mean, mean), moved(4, running_var, unbiased)


def layer(n: Node, x: Instruction, shape: Sequence[Any], weight: Optional, bias: Optional, eps: float) -> Instruction:
    axis = x.shape.rank - len(shape)
    dtype = x.shape.dtype
    scale = n.filled(shape, 1, dtype) if weight is None and bias is not None else weight
    given = [None if v is None else n.convert(v, dtype) for v in (scale, bias)]
    return n.add("layernorm", x, *given, axis=axis, epsilon=n.fixed_number(eps, "epsilon"))


@converts("layer_norm")
def layer_norm(
    n: Node,
    x: Instruction,
    shape: Sequence[Any],
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    *_: Any,
) -> Instruction:
    return layer(n, x, shape, weight, bias, eps)


@converts("native_layer_norm")
def native_layer_norm(
    n: Node, x: Instruction, shape: Sequence[Any], weight: Optional, bias: Optional, eps: float
) -> Any:
    out = layer(n, x, shape, weight, bias, eps)
    if not (n.output_used(1) or n.output_used(2)):
        return out, None, None
    var, mean = variance(n, wide(n, x), tuple(range(x.shape.rank - len(shape), x.shape.rank)), 0, True)
    scale = n.add("rsqrt", n.add("add", var, n.full_like(var, eps)))
    return out, *(n.convert(v, dtype_of(n.result(i).dtype)) for i, v in enumerate((mean, scale), 1))


@converts("rms_norm")
def rms_norm(
    n: Node, x: Instruction, shape: Sequence[Any], weight: Optional = None, eps: float | None = None
) -> Instruction:
    if eps is None:
        eps = {16: 0.0009765625, 32: 1.1920928955078125e-07}.get(x.shape.dtype.bits, 2.220446049250313e-16)
        if x.shape.dtype is dt.bfloat16:
            eps = 0.0078125
    scale = None if weight is None else n.convert(weight, x.shape.dtype)
    return n.convert(
        n.add("rmsnorm", x, scale, axis=x.shape.rank - len(shape), epsilon=n.fixed_number(eps, "epsilon")), n.dtype
    )


def grouped(n: Node, x: Instruction, groups: int, weight: Optional, bias: Optional, eps: float) -> Instruction:
    dtype = x.shape.dtype
    channels = x.shape.dims[1]
    if weight is None and bias is not None:
        weight = n.filled((channels,), 1, dtype)
    given = [None if v is None else n.convert(v, dtype) for v in (weight, bias)]
    return n.add("groupnorm", x, *given, num_groups=groups, epsilon=n.fixed_number(eps, "epsilon"))


@converts("group_norm")
def group_norm(
    n: Node, x: Instruction, groups: int, weight: Optional = None, bias: Optional = None, eps: float = 1e-5, *_: Any
) -> Instruction:
    return grouped(n, x, groups, weight, bias, eps)


@converts("native_group_norm")
def native_group_norm(
    n: Node, x: Instruction, weight: Optional, bias: Optional, b: Any, c: Any, hw: Any, groups: int, eps: float
) -> Any:
    out = grouped(n, x, groups, weight, bias, eps)
    if not (n.output_used(1) or n.output_used(2)):
        return out, None, None
    rows = n.reshape(x, (x.shape.dims[0], groups, n.size(x, range(1, x.shape.rank)) // groups))
    var, mean = variance(n, wide(n, rows), (2,), 0, False)
    found = [n.convert(v, x.shape.dtype) for v in (mean, n.add("rsqrt", n.add("add", var, n.full_like(var, eps))))]
    return out, *found


@converts("instance_norm")
def instance_norm(
    n: Node,
    x: Instruction,
    weight: Optional,
    bias: Optional,
    mean: Optional,
    var: Optional,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Instruction:
    if not use_input_stats and mean is not None and var is not None:
        return scaled(n, x, mean, var, weight, bias, eps)
    if mean is not None or var is not None:
        n.unsupported("instance norm in training mode, which writes its statistics")
    dtype, channels = x.shape.dtype, x.shape.dims[1]
    scale = n.filled((channels,), 1, dtype) if weight is None else n.convert(weight, dtype)
    shift = n.filled((channels,), 0, dtype) if bias is None else n.convert(bias, dtype)
    return n.add("instancenorm", x, scale, shift, epsilon=n.fixed_number(eps, "epsilon"))
