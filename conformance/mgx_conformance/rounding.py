"""Rounding units, and distances between results."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import dtype, scalar

__all__ = ["deviation", "finite_magnitude", "rounding", "smallest", "unit", "widened"]


def unit(kind: dtype.DType) -> float:
    """Returns the rounding unit (largest relative error of one rounding, times two) of the type in which a dtype is computed."""
    if kind.kind == "c":
        return 2.0**-23 if kind.bits <= 64 else 2.0**-52
    return float(np.finfo(kind.accumulate).eps) if kind.kind == "f" else 0.0


def rounding(kind: dtype.DType) -> float:
    """Returns the relative distance of adjacent numbers in the result's own type."""
    return unit(kind) if kind.kind == "c" else kind.epsilon


def smallest(kind: dtype.DType) -> float:
    """Returns the largest value that may be flushed to zero: subnormals of the computing type, one step of a narrower result."""
    if kind.kind == "c":
        return float(np.finfo(np.float32).tiny)
    if kind.kind != "f":
        return 0.0
    tiny = float(np.finfo(kind.accumulate).tiny)
    if kind.bits >= 32:
        return tiny
    import ml_dtypes

    finfo: Any = ml_dtypes.finfo
    info = finfo(kind.numpy)
    return max(tiny, float(info.smallest_subnormal))


def widened(x: Any) -> Any:
    """Returns a float array as float64, a complex one as complex128; others unchanged."""
    if not isinstance(x, np.ndarray) or x.dtype == object:
        return x
    kind = dtype.of(x.dtype).kind
    return x.astype(np.float64) if kind == "f" else x.astype(np.complex128) if kind == "c" else x


def finite_magnitude(y: Any) -> Any:
    wide = np.abs(widened(y))
    return np.where(np.isfinite(wide), wide, 0.0)


def deviation(a: Any, b: Any) -> Any:
    """Returns |a - b|, infinite where one is finite and the other is not."""
    if not isinstance(a, np.ndarray) or a.dtype == object or not isinstance(b, np.ndarray):
        return np.zeros(np.shape(a))
    x, y = widened(scalar.widen(a)), widened(scalar.widen(b))
    if x.dtype.kind in "biu":
        x, y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.abs(x - y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))
