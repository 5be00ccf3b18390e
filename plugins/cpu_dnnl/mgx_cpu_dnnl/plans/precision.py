"""Narrow floats on processors that cannot multiply them: computed in float32, rounded once."""

from __future__ import annotations

import numpy as np

from mgx_core import DType, Shape
from mgx_core import dtype as dt
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from ..layout import same_order

__all__ = ["narrowed", "widened"]


def widened(e: CpuEmitter, value: Value) -> Value:
    """Returns a value converted to float32; constants stay constant and broadcast axes stay broadcast."""
    strides = value.strides
    dense = [1 if s == 0 else n for n, s in zip(value.lens, strides, strict=True)]
    part = value.view_at(0, Shape(value.shape.dtype, dense, strides))
    array = e.constant(part)
    if array is not None:
        made = e.literal(array.astype(np.float32))
    else:
        made = e.allocate(dt.float32, dense, same_order(part))
        if made.shape.elements():
            e.copy_into(part, made)
    steps = [0 if s == 0 else t for s, t in zip(strides, made.strides, strict=True)]
    return made.view_at(0, Shape(dt.float32, value.lens, steps))


def narrowed(e: CpuEmitter, wide: Value, dtype: DType) -> Value:
    """Returns a float32 value rounded to a narrower type, in the same layout."""
    out = e.allocate(dtype, wide.lens, wide.strides)
    e.copy_into(wide, out)
    return out
