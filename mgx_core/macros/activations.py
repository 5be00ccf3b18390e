"""Macros of activations, normalization and quantization."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import ParameterError, ShapeError
from ..ir.instruction import Instruction
from ..types import dtype as dt
from .builder import MacroBuilder

__all__ = [
    "batchnorm", "bias_uint8", "celu", "clip", "dequantizelinear", "gelu_erf", "gelu_quick", "gelu_split", "gelu_tanh",
    "mean_variance_normalization", "quantizelinear",
]  # fmt: skip


def batchnorm(
    b: MacroBuilder,
    x: Instruction,
    scale: Instruction,
    bias: Instruction,
    mean: Instruction,
    variance: Instruction,
    *,
    epsilon: float = 1e-5,
) -> Instruction:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with per-channel parameters (axis 1)."""
    kind = x.shape.dtype
    parts = [
        b.unsqueeze(p, range(1, x.shape.rank - 1)) if x.shape.rank > 2 else p for p in (scale, bias, mean, variance)
    ]
    scale, bias, mean, variance = parts
    deviation = b.add("sqrt", b.common("add", variance, b.literal(epsilon, kind)))
    return b.common("add", b.common("mul", b.common("div", b.common("sub", x, mean), deviation), scale), bias)


def celu(b: MacroBuilder, x: Instruction, *, alpha: float = 1.0) -> Instruction:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    if alpha == 0:
        raise ParameterError("celu: alpha must not be 0")
    if x.shape.dtype is not dt.float32:
        raise ShapeError(f"celu takes float32, got {x.shape}")
    return b.add("celu", x, alpha=alpha)


def clip(
    b: MacroBuilder, x: Instruction, low: Instruction | None = None, high: Instruction | None = None
) -> Instruction:
    """x clamped between two optional bounds."""
    low, high = (None if i is None or i.is_absent else i for i in (low, high))
    if low is not None and high is not None:
        return b.common("clip", x, low, high)
    if high is not None:
        return b.common("min", x, high)
    return b.add("identity", x) if low is None else b.common("max", x, low)


def gelu_quick(b: MacroBuilder, x: Instruction, *, alpha: float = 1.0) -> Instruction:
    """x * sigmoid(alpha * x)."""
    return b.add("mul", x, b.add("sigmoid", b.pointwise("mul", x, b.literal(alpha, x.shape.dtype))))


def gelu_erf(b: MacroBuilder, x: Instruction) -> Instruction:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    half, one, root = (b.literal(v, x.shape.dtype) for v in (0.5, 1.0, math.sqrt(2)))
    spread = b.pointwise("add", b.add("erf", b.pointwise("div", x, root)), one)
    return b.add("mul", b.pointwise("mul", x, half), spread)


def gelu_tanh(b: MacroBuilder, x: Instruction, *, fast: bool = False) -> Instruction:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))); fast: with the two factors rounded."""
    inner, outer = (0.035677, 0.797885) if fast else (0.044715, math.sqrt(2 / math.pi))
    three, one, half, a, c = (b.literal(v, x.shape.dtype) for v in (3.0, 1.0, 0.5, inner, outer))
    cubed = b.pointwise("mul", b.pointwise("pow", x, three), a)
    if fast:
        angle = b.add("add", cubed, b.pointwise("mul", x, c))
    else:
        angle = b.pointwise("mul", b.add("add", cubed, x), c)
    return b.add("mul", b.pointwise("add", b.add("tanh", angle), one), b.pointwise("mul", x, half))


def gelu_split(b: MacroBuilder, x: Instruction) -> Instruction:
    """Returns the first half of the last axis times the gelu of the second."""
    last = x.shape.dims[-1] if x.shape.rank else 0
    if not isinstance(last, int) or last < 2 or last % 2:
        raise ShapeError(f"gelu_split takes an even last extent of at least 2, got {x.shape}")
    left, right = (b.slice(x, [-1], [start], [start + last // 2]) for start in (0, last // 2))
    return b.add("mul", left, gelu_erf(b, right))


def mean_variance_normalization(b: MacroBuilder, x: Instruction, *, axes: Sequence[int] = (0, 2, 3)) -> Instruction:
    """(x - mean) / (deviation + 1e-9) over all axes but one (1e-7 for float16)."""
    if len(axes) != x.shape.rank - 1:
        raise ParameterError(f"axes must be one fewer than the rank of {x.shape}, got {list(axes)}")
    mean = b.add("reduce_mean", x, axes=tuple(axes))
    squares = b.add("reduce_mean", b.add("mul", x, x), axes=tuple(axes))
    deviation = b.add("sqrt", b.add("sub", squares, b.add("mul", mean, mean)))
    least = b.literal(1e-7 if x.shape.dtype is dt.float16 else 1e-9, x.shape.dtype)
    return b.pointwise("div", b.pointwise("sub", x, mean), b.pointwise("add", deviation, least))


def quantizelinear(
    b: MacroBuilder,
    x: Instruction,
    scale: Instruction,
    zero_point: Instruction | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_type: object = None,
) -> Instruction:
    """x / scale + zero_point, rounded; scales are per tensor, per axis, or per block along it."""
    out = None if output_type is None else dt.of(output_type)
    return b.add(
        "quantizelinear", x, _flat(b, scale), _flat(b, zero_point), axis=axis, block_size=block_size, out_type=out
    )


def dequantizelinear(
    b: MacroBuilder,
    x: Instruction,
    scale: Instruction,
    zero_point: Instruction | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
) -> Instruction:
    """(x - zero_point) * scale; scales as for `quantizelinear`."""
    return b.add("dequantizelinear", x, _flat(b, scale), _flat(b, zero_point), axis=axis, block_size=block_size)


def _flat(b: MacroBuilder, x: Instruction | None) -> Instruction | None:
    """Returns a per-tensor scale or zero point as a scalar."""
    return x if x is None or x.shape.dynamic() or x.shape.elements() != 1 else b.reshape(x, ())


def bias_uint8(
    b: MacroBuilder, x: Instruction, bias: Instruction, *, has_bias: bool = False
) -> tuple[Instruction, Instruction]:
    """x and its bias shifted from uint8 to int8; with has_bias the second result is x minus the bias."""
    if x.shape.dtype is dt.uint8:
        x = _moved(b, x)
        bias = _moved(b, bias) if has_bias else x
    return x, b.common("sub", x, bias) if has_bias else bias


def _moved(b: MacroBuilder, x: Instruction) -> Instruction:
    wide = b.pointwise("add", b.convert(x, dt.float16), b.literal(-128, dt.float16))
    return b.convert(wide, dt.int8)
