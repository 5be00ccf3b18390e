"""Compares a target's results with the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import dtype
from mgx_core.ops.scalar import widen
from mgx_core.types.argument import shape_of

from .rounding import deviation

__all__ = ["differs", "flat", "text_of"]


def flat(value: Any) -> list[Any]:
    """Flattens a result into the items of nested tuples."""
    return list(value) if isinstance(value, tuple) else [value]


def text_of(value: Any) -> str:
    """Returns the type of a value, for messages."""
    return str(shape_of(value)) if isinstance(value, (np.ndarray, tuple)) else type(value).__name__


def differs(got: Any, wanted: Any, tolerance: Any = None) -> str:
    """Returns a description of how a value differs; empty if it does not.

    tolerance: permitted absolute difference per element; None if values must be identical (NaN equals NaN, 0 equals -0).
    """
    if isinstance(wanted, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(wanted):
            return f"{len(wanted)} items required, got {len(got) if isinstance(got, (list, tuple)) else text_of(got)}"
        for n, (a, b) in enumerate(zip(got, wanted, strict=True)):
            why = differs(a, b, tolerance[n] if isinstance(tolerance, list) else None)
            if why:
                return f"item {n}: {why}"
        return ""
    if not isinstance(wanted, np.ndarray):
        same = got == wanted if isinstance(wanted, dict) else got is wanted
        return "" if same else f"{wanted!r} required, got {got!r}"
    if not isinstance(got, np.ndarray) or (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return f"{text_of(wanted)} required, got {text_of(got)}"
    if not wanted.size:
        return ""
    if wanted.dtype == object:
        return _report(got != wanted, got, wanted, None)
    if tolerance is None:
        if dtype.of(wanted.dtype).kind in "fc":
            a, b = widen(got), widen(wanted)
            return _report(~((a == b) | ((a != a) & (b != b))), got, wanted, None)
        return _report(np.asarray(got != wanted), got, wanted, None)
    apart = deviation(wanted, got)
    return _report(~(apart <= tolerance), got, wanted, tolerance)


def _report(wrong: Any, got: Any, wanted: Any, tolerance: Any) -> str:
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), np.shape(wrong)))
    if tolerance is None:
        within = ""
    else:
        with np.errstate(all="ignore"):
            apart = np.where(wrong, deviation(wanted, got), 0)
            excess = np.nan_to_num(apart / np.maximum(np.broadcast_to(tolerance, apart.shape), 1e-300), posinf=1e300)
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), np.shape(wrong)))
        within = f" within {np.broadcast_to(tolerance, np.shape(wrong))[at]:.3g}"
    return (
        f"{count} of {np.size(wrong)} elements differ, worst at {at}: {wanted[at]!r} required{within}, got {got[at]!r}"
    )
