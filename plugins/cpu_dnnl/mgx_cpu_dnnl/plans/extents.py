"""Extents as values, and ranges of a known length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.fill import DimensionsOf, DynamicRange
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import TracedInt

from ..emitter import CpuEmitter
from .native_loops import GRAIN_BYTES, native_loop
from .offer import NUMBERS, offer, only

__all__ = ["PLANS", "number"]

PLANS = Kernels("cpu")


@offer(PLANS, DimensionsOf, when=only(NUMBERS), name="native")
def emit_dimensions(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    return _stored(e, args[0].lens[op.start : op.end])


def _stored(e: CpuEmitter, numbers: Sequence[int]) -> Value:
    """Emits a step that stores numbers, which may be traced."""
    out = e.allocate(dt.int64, [len(numbers)])
    if numbers:
        native_loop(e, "extents", "put_numbers", [out], [out], [len(numbers), *numbers])
    return out


def number(e: CpuEmitter, n: int) -> Value:
    """Returns a number as a value of one element: a constant unless it is traced."""
    return _stored(e, [n]) if type(n) is TracedInt else e.literal(np.array([n]))


def integers(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    start = inputs[0]
    if not isinstance(start, Shape) or start.dtype not in (dt.int32, dt.int64):
        return No(f"ranges of int32 or int64 are supported, got {start}")
    return None if isinstance(op.length, int) else No("the length is not known")


@offer(PLANS, DynamicRange, when=integers, name="native")
def emit_range(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    (start, *_), count = args, op.length
    out = e.allocate(start.shape.dtype, [count])
    if not count:
        raise Refused("the range is empty")  # the definition still checks the operands
    native_loop(e, op.name, f"range_{start.shape.dtype}", [*args, out], [out], [count], count, GRAIN_BYTES)
    return out
