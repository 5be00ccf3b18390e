"""Quantize and dequantize: torch's PT2E ops and torchao's affine ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.argument import Array

from ..converter import converts
from ..node import Node, Scalar

__all__: list[str] = []


def _narrow(
    n: Node, x: Instruction, scale: Instruction, zero: Instruction | None, low: int, high: int, axis: int
) -> Instruction:
    kind = n.dtype
    wide = x if x.shape.dtype is dt.float32 else n.convert(x, dt.float32)
    given = None if zero is None else n.convert(zero, kind)
    out = n.add("quantizelinear", wide, scale, given, axis=axis, out_type=kind)
    if (low, high) == (int(kind.lowest), int(kind.highest)):
        return out
    return n.add("min", n.add("max", out, n.full_like(out, low)), n.full_like(out, high))


def _points(n: Node, zero: Scalar | None, kind: Any) -> Instruction | None:
    """Returns zero points in the quantized type; None if all are zero."""
    if zero is None or (isinstance(zero, int) and zero == 0):
        return None
    found: Array | None = n.constant(zero) if isinstance(zero, Instruction) else None
    if found is not None and not np.any(found):
        return None
    return n.tensor(zero, kind)


@converts("quantize_per_tensor", domain="quantized_decomposed")
def quantize(
    n: Node, x: Instruction, scale: Scalar, zero: Scalar, low: int, high: int, dtype: Any, **given: Any
) -> Instruction:
    return _narrow(n, x, _one(n, scale), _points(n, _scalar(n, zero), n.dtype), low, high, 1)


@converts("dequantize_per_tensor", domain="quantized_decomposed")
def dequantize(
    n: Node, x: Instruction, scale: Scalar, zero: Scalar, low: int, high: int, dtype: Any, **given: Any
) -> Instruction:
    return n.convert(n.add("dequantizelinear", x, _one(n, scale), _points(n, _scalar(n, zero), x.shape.dtype)), n.dtype)


@converts("quantize_per_channel", domain="quantized_decomposed")
def quantize_channels(
    n: Node, x: Instruction, scales: Instruction, zeros: Instruction, axis: int, low: int, high: int, dtype: Any
) -> Instruction:
    return _narrow(
        n, x, n.convert(scales, dt.float32), _points(n, zeros, n.dtype), low, high, n.axis(axis, x.shape.rank)
    )


@converts("dequantize_per_channel", domain="quantized_decomposed")
def dequantize_channels(
    n: Node, x: Instruction, scales: Instruction, zeros: Any, axis: int, low: int, high: int, dtype: Any, **given: Any
) -> Instruction:
    points = _points(n, zeros, x.shape.dtype)
    out = n.add("dequantizelinear", x, n.convert(scales, dt.float32), points, axis=n.axis(axis, x.shape.rank))
    return n.convert(out, n.dtype)


def _one(n: Node, scale: Scalar) -> Instruction:
    found = n.tensor(scale, dt.float32)
    return n.reshape(found, ())


def _scalar(n: Node, zero: Scalar) -> Scalar:
    return n.reshape(zero, ()) if isinstance(zero, Instruction) else zero


@converts("choose_qparams", domain="quantized_decomposed")
def choose_qparams(
    n: Node, x: Instruction, low: int, high: int, eps: float, dtype: Any
) -> tuple[Instruction, Instruction]:
    """Returns scale and zero point of an asymmetric range that includes 0."""
    axes = tuple(range(x.shape.rank))
    wide = n.convert(x, dt.float32)
    zero = n.literal(0, dt.float32)
    least = n.add("min", n.reduce("reduce_min", wide, axes, False), zero)
    most = n.add("max", n.reduce("reduce_max", wide, axes, False), zero)
    scale = n.add("div", n.add("sub", most, least), n.literal(high - low, dt.float32))
    scale = n.add("max", scale, n.literal(eps, dt.float32))
    point = n.add("sub", n.literal(low, dt.float32), n.add("nearbyint", n.add("div", least, scale)))
    point = n.add("clip", point, n.literal(low, dt.float32), n.literal(high, dt.float32))
    dims = n.result_dims(0)
    found = n.reshape(n.convert(scale, n.dtype), dims)
    return found, n.reshape(n.convert(point, dt.int64), n.result_dims(1))


@converts("dequantize_affine", domain="torchao")
def dequantize_affine(
    n: Node,
    x: Instruction,
    block: Sequence[int],
    scale: Instruction,
    zero: Instruction | None,
    kind: Any,
    low: Any = None,
    high: Any = None,
    *_: Any,
) -> Instruction:
    """Dequantizes with one scale per block of extents `block`."""
    dims = [n.static(d, "an extent of a block-quantized tensor") for d in x.shape.dims]
    counts = [d // b for d, b in zip(dims, block, strict=True)]
    x = _few_bits(n, x, low, high)
    scales = n.convert(n.reshape(scale, counts), dt.float32)
    zeros = None if zero is None else _points(n, n.reshape(zero, counts), x.shape.dtype)
    cut = [a for a, b in enumerate(block) if b != 1]
    several = [a for a, c in enumerate(counts) if c != 1]
    if not several:
        zeros = None if zeros is None else n.reshape(zeros, ())
        return n.convert(n.add("dequantizelinear", x, n.reshape(scales, ()), zeros), n.dtype)
    if len(several) == 1 and several[0] not in cut:
        flat = (counts[several[0]],)
        zeros = None if zeros is None else n.reshape(zeros, flat)
        return n.convert(n.add("dequantizelinear", x, n.reshape(scales, flat), zeros, axis=several[0]), n.dtype)
    if len(cut) != 1:
        n.unsupported(f"scales of blocks {list(block)} with several extents above 1")
    out = n.add("dequantizelinear", x, scales, zeros, axis=cut[0], block_size=block[cut[0]])
    return n.convert(out, n.dtype)


def _few_bits(n: Node, x: Instruction, low: Any, high: Any) -> Instruction:
    """Returns constant 4-bit codes, which torchao stores in bytes, in a 4-bit type."""
    kind = {(-8, 7): dt.int4, (0, 15): dt.uint4}.get((low, high))
    codes = None if kind is None else n.constant(x)
    return x if codes is None else n.literal(codes, kind)
