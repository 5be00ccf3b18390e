"""Scales and zero points of ranges, and arrays rounded to narrow types with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops.scalar import widen
from ..types.argument import Array
from ..types.dtype import DType

__all__ = ["after_rounding", "rounded", "scale_of", "signal_to_noise"]

LEAST = 1e-30  # ranges below it are nothing but 0


def scale_of(low: float, high: float, to: DType) -> tuple[float, int | None]:
    """Returns scale and zero point for a range that holds 0; a range of nothing but 0 has scale 1."""
    if to.is_float or to.kind == "i":
        most = max(-low, high)
        scale = most / float(to.highest)
        return (scale if scale > LEAST else 1.0), None
    span = (high - low) / float(to.highest - to.lowest)
    if span <= LEAST:
        return 1.0, int(to.lowest)
    zero = round(float(to.lowest) - low / span)
    return span, int(min(max(zero, int(to.lowest)), int(to.highest)))


def after_rounding(values: Array, low: float, high: float, to: DType) -> Array:
    """Returns values as they are read after rounding to a narrow type over a range."""
    scale, zero = scale_of(low, high, to)
    shift = zero or 0
    codes = values / scale
    codes = np.clip((np.rint(codes) if to.is_integer else codes) + shift, float(to.lowest), float(to.highest))
    if to.is_float:
        codes = widen(codes.astype(to.numpy))
    return np.asarray((codes - shift) * scale)


def rounded(value: Array, axis: int | None, to: DType) -> tuple[Array, Array]:
    """Returns an array in a narrow type with one scale, or one an index of an axis."""
    others: Any = None if axis is None else tuple(a for a in range(value.ndim) if a != axis)
    most = np.abs(value).max(axis=others, keepdims=axis is not None) if value.size else np.zeros(())
    scale = np.where(most > LEAST, most / float(to.highest), 1.0).astype(np.float32)
    quotient = np.asarray(value / scale)
    if to.is_integer:
        np.rint(quotient, out=quotient)
        np.clip(quotient, -float(to.highest), float(to.highest), out=quotient)
    return quotient.astype(to.numpy), np.ascontiguousarray(scale.reshape(-1) if axis is not None else scale.reshape(()))


def signal_to_noise(wide: Array, error: Array) -> float:
    """Returns ratio of an array's energy to that of its error in decibel; 200 without any of either."""
    noise, signal = (float(np.einsum("i,i->", v.reshape(-1), v.reshape(-1), dtype=np.float64)) for v in (error, wide))
    return 10 * float(np.log10(signal / noise)) if noise and signal else 200.0
