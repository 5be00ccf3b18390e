"""Reductions of slices of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.ops.ragged import ReduceSlices
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from .native_loops import grain_of, native_loop
from .offer import offer

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
FLOATS: Final = (dt.float32, dt.float64, dt.float16, dt.bfloat16)
INTEGERS: Final = (dt.int32, dt.int64)  # except for means, which fail for empty slices


def supported(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    x, *places = inputs
    integers = () if op.reduction == "mean" else INTEGERS
    if not isinstance(x, Shape) or x.dtype not in (*FLOATS, *integers):
        return No(f"{op.reduction} of slices supports {', '.join(d.name for d in (*FLOATS, *integers))}, got {x}")
    if any(not isinstance(p, Shape) or p.dtype is not dt.int64 for p in places):
        return No("starts and ends must be of type int64")
    return None


@offer(PLANS, ReduceSlices, when=supported, name="native")
def emit_reduce_slices(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, starts, ends = map(e.row_major, args)
    count, width = starts.shape.elements(), prod(x.lens[1:])
    out = e.allocate(x.shape.dtype, [count, *x.lens[1:]])
    if out.shape.elements():
        numbers, grain = [x.lens[0], width], grain_of(count, [x, out])
        loop = f"reduce_slices_{op.reduction}_{x.shape.dtype}"
        native_loop(e, op.name, loop, [x, starts, ends, out], [out], numbers, count, grain, flops=x.shape.elements())
    return out
