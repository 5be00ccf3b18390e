"""Scales and zero points of ranges, and rounding of arrays with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ops.scalar import widen
from ..types.argument import Array
from ..types.dtype import DType

__all__ = ["after_rounding", "dequantized", "rounded", "rounded_with_error", "scale_of", "signal_to_noise"]

LEAST = 1e-30  # smaller ranges are treated as 0
PART = 1 << 15  # elements per part
EXPONENT = np.uint32(0x7F800000)  # bits of a float32
# Columns whose largest magnitudes differ by less than this share a scale in a floating-point type: exponents keep the relative
# precision of all weights but those 2^-10 times smaller than the largest of their column, whose errors are 2^-14 of it.
SIMILAR = 16.0


def scale_of(low: float, high: float, to: DType) -> tuple[float, int | None]:
    """Returns scale and zero point of a range that includes 0; the scale of an empty range is 1."""
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
    """Quantizes values over a range and dequantizes them."""
    scale, zero = scale_of(low, high, to)
    shift = zero or 0
    codes = values / scale
    codes = np.clip((np.rint(codes) if to.is_integer else codes) + shift, float(to.lowest), float(to.highest))
    if to.is_float:
        codes = widen(codes.astype(to.numpy))
    return np.asarray((codes - shift) * scale)


def rounded(value: Array, axis: int | None, to: DType) -> tuple[Array, Array]:
    """Quantizes an array with one scale, or one per index of an axis if one does not suffice."""
    scale, axis = _scales(value, axis, to)
    quotient = _quotient(value, scale, to, None)
    return quotient.astype(to.numpy), _as_operand(scale, axis)


def dequantized(value: Array, axis: int | None, to: DType) -> Array:
    """Returns a float32 array quantized as by `rounded` and dequantized."""
    scale, _ = _scales(value, axis, to)
    codes = _quotient(value, scale, to, None)
    if to.is_float:
        codes = _nearest(codes, to)
    codes *= scale
    return codes


def _nearest(codes: Array, to: DType) -> Array:
    """Returns float32 numbers in the range of an 8-bit float type, rounded to it; conversions take four times as long."""
    # the power of two not above a number, at least the smallest normal one
    powers = np.maximum((codes.view(np.uint32) & EXPONENT).view(np.float32), np.float32(to.smallest_normal))
    powers *= np.float32(1.5 * 2**23 * to.epsilon)  # a sum with it has no bits below the type's
    codes = codes + powers
    codes -= powers
    return codes


def rounded_with_error(value: Array, axis: int | None, to: DType) -> tuple[Array, Array, Array, float]:
    """Like `rounded`; also returns the error of each element and the SQNR in dB.

    Processes the array in cache-sized parts.
    """
    scale, axis = _scales(value, axis, to)
    narrow, error = np.empty(value.shape, to.numpy), np.empty(value.shape, np.float32)
    signal = noise = 0.0
    rows = max(1, PART * value.shape[0] // max(value.size, 1))
    for first in range(0, value.shape[0], rows):
        here = slice(first, first + rows)
        wide, off = value[here], error[here]
        factor = scale[here] if axis == 0 else scale
        narrow[here] = _quotient(wide, factor, to, off)
        if to.is_float:
            off[...] = _nearest(off, to)
        off *= factor
        off -= wide
        signal, noise = signal + _energy(wide), noise + _energy(off)
    return narrow, _as_operand(scale, axis), error, _decibel(signal, noise)


def _scales(value: Array, axis: int | None, to: DType) -> tuple[Array, int | None]:
    """Returns the scales and their axis, None for a single one."""
    scale = _largest(value, axis, to)
    if axis is not None and to.is_float and value.size and scale.max() <= SIMILAR * scale.min():
        return np.asarray(scale.max()), None
    return scale, axis


def _largest(value: Array, axis: int | None, to: DType) -> Array:
    """Returns the scale that maps the largest magnitude to the type's maximum, one or one per index of an axis."""
    others: Any = None if axis is None else tuple(a for a in range(value.ndim) if a != axis)
    if not value.size:
        return np.ones((), np.float32)
    kept = axis is not None
    most = np.maximum(value.max(axis=others, keepdims=kept), -value.min(axis=others, keepdims=kept))
    return np.where(most > LEAST, most / float(to.highest), 1.0).astype(np.float32)


def _as_operand(scale: Array, axis: int | None) -> Array:
    return np.ascontiguousarray(scale.reshape(-1) if axis is not None else scale.reshape(()))


def _quotient(value: Array, scale: Array, to: DType, out: Array | None) -> Array:
    quotient = np.asarray(np.divide(value, scale, out=out))
    if to.is_integer:
        np.rint(quotient, out=quotient)
        np.clip(quotient, -float(to.highest), float(to.highest), out=quotient)
    return quotient


def signal_to_noise(wide: Array, error: Array) -> float:
    """Returns the ratio of an array's energy to its error's in dB; 200 if either is zero."""
    return _decibel(_energy(wide), _energy(error))


def _energy(values: Array) -> float:
    flat = values.reshape(-1)
    parts = (flat[first : first + PART] for first in range(0, flat.size, PART))
    # squares may overflow or underflow in float32
    return sum(float(np.einsum("i,i->", part, part, dtype=np.float64)) for part in parts)


def _decibel(signal: float, noise: float) -> float:
    return 10 * math.log10(signal / noise) if noise and signal else 200.0
