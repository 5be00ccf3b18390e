"""Table lookups of 8-bit values, with the table in registers if possible; may write directly into concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.quantized import ByteMap
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from ..layout import same_order
from .native_loops import GRAIN_BYTES, merge_axes, native_loop
from .offer import offer, only

__all__ = ["PLANS", "map_bytes"]

PLANS = Kernels("cpu")


@offer(PLANS, ByteMap, when=only(frozenset({dt.int8, dt.uint8})), name="table")
def emit_byte_map(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, table = args
    if not x.shape.elements():
        raise Refused("an extent is 0")
    table = indexed_by_bits(e, table, x.shape.dtype)
    to = table.shape.dtype
    if any(s == 0 and n != 1 for n, s in zip(x.lens, x.strides, strict=True)):
        return _map_broadcast(e, x, table)
    out = e.place_in_concat(to, x.lens, same_order(x))
    if out is None and e.may_overwrite(x, x.shape.dtype):
        out = Value(Shape(to, x.lens, x.strides), x.buffer, x.offset)
    return map_bytes(e, x, table, out)


def _map_broadcast(e: CpuEmitter, x: Value, table: Value) -> Value:
    """Maps each element of a broadcast value once; broadcasts the result the same way."""
    once = [1 if s == 0 else n for n, s in zip(x.lens, x.strides, strict=True)]
    made = map_bytes(e, x.view_at(0, Shape(x.shape.dtype, once, x.strides)), table)
    steps = [0 if s == 0 else n for n, s in zip(made.strides, x.strides, strict=True)]
    return made.view_at(0, Shape(made.shape.dtype, x.lens, steps))


def map_bytes(e: CpuEmitter, x: Value, table: Value, out: Value | None = None) -> Value:
    """Emits a table lookup of bytes; table: indexed by the bit pattern; out: memory for the result (default: new, in x's layout).

    Errors: Refused unless the elements form contiguous rows at a constant stride.
    """
    if out is None:
        out = e.allocate(table.shape.dtype, x.lens, same_order(x))
    order = sorted(range(len(x.lens)), key=lambda a: -out.strides[a])
    lens, (read, written) = merge_axes(*([v[a] for a in order] for v in (x.lens, x.strides, out.strides)))
    if read[-1] != 1 or written[-1] != 1 or len(lens) > 2:
        raise Refused("the elements do not form contiguous rows at a constant stride")
    numbers = [lens[-1], read[0], written[0]] if len(lens) == 2 else [0]
    work = lens[0]
    grain = max(1, GRAIN_BYTES // (2 * prod(lens[1:])))
    loop = "map_bytes_vbmi" if "avx512_vbmi" in e.features else "map_bytes"
    native_loop(e, "table", loop, [x, table, out], [out], numbers, work, grain)
    return out


def indexed_by_bits(e: CpuEmitter, table: Value, dtype: Any) -> Value:
    """Returns a table permuted so that it is indexed by the bit pattern of values of `dtype`.

    Errors: Refused for int8 if the table is not constant.
    """
    if dtype is dt.uint8:
        return e.row_major(table)
    array = e.constant(table)
    if array is None:
        raise Refused("a lookup table for int8 must be constant")
    return e.literal(np.roll(array, 128))
