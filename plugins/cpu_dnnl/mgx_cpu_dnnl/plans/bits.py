"""Ops on the bits of elements: reading them as another type, packing pairs of 4-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.ops.axes import normalize
from mgx_core.ops.bitwise import BitCast
from mgx_core.ops.compare import NotEqual
from mgx_core.ops.packing import PackInt4, UnpackInt4
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from .native_loops import broadcast, emit_op, encode_box, grain_of, native_loop
from .offer import NUMBERS, offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
BYTES: Final = frozenset({dt.int8, dt.uint8, dt.int4, dt.uint4})


def same_width(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if op.target_type not in NUMBERS:
        return No(f"results of type {op.target_type} are not supported")
    return only(NUMBERS)(op, inputs, modules)


@offer(PLANS, BitCast, when=same_width, name="view")
def emit_bit_cast(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = args[0]
    if op.target_type is dt.bool_ and x.shape.dtype is not dt.bool_:
        number = x.view_at(0, Shape(dt.uint8, x.lens, x.strides))
        return emit_op(e, NotEqual(), number, broadcast(e.literal(np.zeros((), np.uint8)), x.lens))
    return x.view_at(0, Shape(op.target_type, x.lens, x.strides))


@offer(PLANS, UnpackInt4, when=only(BYTES), name="native")
def emit_unpack_int4(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = args[0]
    axis = normalize(op.axis, len(x.lens))
    out = e.allocate(x.shape.dtype, [2 * n if a == axis else n for a, n in enumerate(x.lens)])
    work = x.shape.elements()
    if work:
        pairs = [2 * s if a == axis else s for a, s in enumerate(out.strides)]
        numbers = [out.strides[axis], int(x.shape.dtype is dt.int8), *encode_box(x.lens, x.strides, pairs)]
        native_loop(e, op.name, "unpack_int4", [x, out], [out], numbers, work, grain_of(work, [x]))
    return out


@offer(PLANS, PackInt4, when=only(BYTES), name="native")
def emit_pack_int4(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = args[0]
    axis = normalize(op.axis, len(x.lens))
    dtype = dt.int8 if x.shape.dtype.is_signed else dt.uint8
    out = e.allocate(dtype, [n // 2 if a == axis else n for a, n in enumerate(x.lens)])
    work = out.shape.elements()
    if work:
        pairs = [2 * s if a == axis else s for a, s in enumerate(x.strides)]
        numbers = [x.strides[axis], *encode_box(out.lens, pairs, out.strides)]
        native_loop(e, op.name, "pack_int4", [x, out], [out], numbers, work, grain_of(work, [x]))
    return out
