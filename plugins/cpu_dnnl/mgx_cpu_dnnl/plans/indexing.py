"""Ops that pick, place, search and order elements, as ready-made native loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.dtype import DType
from mgx_core.ops.axes import normalize
from mgx_core.ops.index import GatherElements, Gathernd
from mgx_core.ops.movement import Reverse
from mgx_core.ops.reduce import Argmax, Argmin
from mgx_core.ops.scan import PrefixScanProd, PrefixScanSum
from mgx_core.ops.scatter import (
    ScatterAdd,
    ScatterMax,
    ScatterMin,
    ScatterMul,
    ScatterndAdd,
    ScatterndMax,
    ScatterndMin,
    ScatterndMul,
    ScatterndNone,
    ScatterNone,
)
from mgx_core.ops.topk import Topk

from ..emitter import Emitter
from ..kernel import Declined, Results
from ..values import Buffer, Value
from .offer import NUMBERS, offer, only

__all__ = ["PLANS", "native_loop"]

PLANS = Kernels("cpu")
MOVED = NUMBERS
COMBINED = NUMBERS - {dt.bool_, dt.float16, dt.bfloat16}  # narrow floats are summed wide
INDICES = (dt.int32, dt.int64)


def native_loop(
    e: Emitter,
    loop: str,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    args: Sequence[int],
    work: int = 1,
    grain: int = 1,
    scratch: int = 0,
    updates: Sequence[Value] = (),
) -> None:
    """A step that calls a loop of the native module; `updates` are outputs that hold something before."""
    from ..native_library import native

    address, name = native().index_loop(loop), e.label(loop)
    values = [*inputs, *updates, *outputs]

    def install(program: Any, ident: Callable[[Buffer], int]) -> None:
        where = [(ident(v.buffer), v.byte_offset) for v in values]
        program.add_loop(name, address, f"native:{loop}", where, list(args), work, grain, scratch)

    read = [v.buffer for v in (*inputs, *updates)]
    moved = sum(v.shape.elements() * v.shape.dtype.size for v in values)
    e.step(name, read, [v.buffer for v in (*updates, *outputs)], install, bytes=moved)


def indexed(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if not isinstance(inputs[1], Shape) or inputs[1].dtype not in INDICES:
        return No(f"indices {inputs[1]}")
    return only(MOVED, 1)(op, inputs, modules)


@offer(PLANS, Gathernd, when=indexed, name="native")
def emit_gathernd(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    data, indices = _given(e, args)
    b, k, size = op.batch_dims, indices.lens[-1], data.shape.dtype.size
    out = e.allocate(data.shape.dtype, [*indices.lens[:-1], *data.lens[b + k :]])
    if not out.shape.elements():
        raise Declined("an extent is 0")
    items = prod(indices.lens[b:-1])
    rest = prod(data.lens[b + k :]) * size
    steps = [s * size for s in data.strides[b : b + k]]
    numbers = [items, k, rest, prod(data.lens[b:]) * size, *data.lens[b : b + k], *steps]
    work = prod(indices.lens[:-1])
    native_loop(e, f"gathernd_{indices.shape.dtype}", [data, indices], [out], numbers, work, max(1, 32768 // rest))
    return out


@offer(PLANS, GatherElements, when=indexed, name="native")
def emit_gather_elements(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    data, indices = _given(e, args)
    axis, rank = normalize(op.axis, len(data.lens)), len(data.lens)
    out = e.allocate(data.shape.dtype, indices.lens)
    work = out.shape.elements()
    if not work:
        raise Declined("an extent is 0")
    steps = [0 if a == axis else s for a, s in enumerate(data.strides)]
    numbers = [rank, axis, data.lens[axis], data.strides[axis], *indices.lens, *steps]
    loop = f"gather_elements_{data.shape.dtype.bits if data.shape.dtype is not dt.bool_ else 8}_{indices.shape.dtype}"
    native_loop(e, loop, [data, indices], [out], numbers, work, 8192)
    return out


def combined(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if op.reduction != "none" and isinstance(inputs[0], Shape) and inputs[0].dtype not in COMBINED:
        return No(f"{inputs[0].dtype} elements are combined in a wider type")
    return indexed(op, inputs, modules)


def _kind(reduction: str, dtype: DType) -> str:
    """Part of a loop's name: elements are only moved, or computed with."""
    return f"none_{8 * dtype.size}" if reduction == "none" else f"{reduction}_{dtype}"


@offer(PLANS, ScatterNone, ScatterAdd, ScatterMul, ScatterMin, ScatterMax, when=combined, name="native")
def emit_scatter(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    data, indices, updates = _given(e, args)
    axis, rank = normalize(op.axis, len(data.lens)), len(data.lens)
    out = e.copy(data)
    if not updates.shape.elements():
        return out
    steps = [0 if a == axis else s for a, s in enumerate(out.strides)]
    skip = int(op.skip_out_of_bounds)
    numbers = [updates.shape.elements(), data.lens[axis], out.strides[axis], skip, rank, *indices.lens, *steps]
    loop = f"scatter_{_kind(op.reduction, data.shape.dtype)}_{indices.shape.dtype}"
    native_loop(e, loop, [indices, updates], [], numbers, updates=[out])
    return out


@offer(PLANS, ScatterndNone, ScatterndAdd, ScatterndMul, ScatterndMin, ScatterndMax, when=combined, name="native")
def emit_scatternd(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    data, indices, updates = _given(e, args)
    k = indices.lens[-1]
    out = e.copy(data)
    if not updates.shape.elements():
        return out
    numbers = [prod(indices.lens[:-1]), k, prod(data.lens[k:]), *data.lens[:k], *out.strides[:k]]
    loop = f"scatternd_{_kind(op.reduction, data.shape.dtype)}_{indices.shape.dtype}"
    native_loop(e, loop, [indices, updates], [], numbers, updates=[out])
    return out


def _given(e: Emitter, args: Sequence[Value | None]) -> list[Value]:
    return [e.row_major(a) for a in args if a is not None]


# searching and ordering


def fixed(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if any(s is not None for s in inputs[1:]):
        return No("its numbers are known only while running")
    return only(NUMBERS, 1)(op, inputs, modules)


def _lines(x: Value, axis: int) -> tuple[int, int, int]:
    """The lines along an axis: how many, of how many elements, how far apart."""
    n = x.lens[axis]
    if not x.shape.elements():
        raise Declined("an extent is 0")
    return x.shape.elements() // n, n, prod(x.lens[axis + 1 :])


@offer(PLANS, Topk, when=fixed, name="native")
def emit_topk(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    (x,) = _given(e, args)
    axis = normalize(op.axis, len(x.lens))
    rows, n, inner = _lines(x, axis)
    lens = [op.k if a == axis else d for a, d in enumerate(x.lens)]
    values, indices = e.allocate(x.shape.dtype, lens), e.allocate(dt.int64, lens)
    if op.k:
        loop = f"topk_{'largest' if op.largest else 'smallest'}_{x.shape.dtype}"
        native_loop(e, loop, [x], [values, indices], [n, op.k, inner], rows, max(1, 4096 // n), 16 * n)
    return values, indices


@offer(PLANS, Argmax, Argmin, when=fixed, name="native")
def emit_position(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    (x,) = _given(e, args)
    axis = normalize(op.axis, len(x.lens))
    rows, n, inner = _lines(x, axis)
    out = e.allocate(dt.int64, [1 if a == axis else d for a, d in enumerate(x.lens)])
    numbers = [n, inner, int(op.select_last_index)]
    native_loop(e, f"{op.name}_{x.shape.dtype}", [x], [out], numbers, rows, max(1, 16384 // n))
    return out


@offer(PLANS, PrefixScanSum, PrefixScanProd, when=fixed, name="native")
def emit_scan(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    (x,) = _given(e, args)
    if x.shape.dtype is dt.bool_:
        raise Declined("running sums of truth values")
    axis = normalize(op.axis, len(x.lens))
    rows, n, inner = _lines(x, axis)
    narrow = x.shape.dtype in (dt.float16, dt.bfloat16)
    given, out = x, e.allocate(x.shape.dtype, x.lens)
    sums = out
    if narrow:
        given, sums = e.allocate(dt.float32, x.lens), e.allocate(dt.float32, x.lens)
        e.copy_into(x, given)
    loop = f"{op.name.removeprefix('prefix_scan_')}_{given.shape.dtype}"
    numbers = [n, inner, int(op.exclusive), int(op.reverse)]
    native_loop(e, loop, [given], [sums], numbers, rows, max(1, 16384 // n))
    if narrow:
        e.copy_into(sums, out)
    return out


@offer(PLANS, Reverse, when=fixed, name="copy")
def emit_reverse(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    (x,) = _given(e, args)
    out = e.allocate(x.shape.dtype, x.lens)
    if not x.shape.elements():
        return out
    axes = {normalize(a, len(x.lens)) for a in op.axes}
    strides = [-s if a in axes else s for a, s in enumerate(x.strides)]
    start = sum(s * (n - 1) for a, (n, s) in enumerate(zip(x.lens, x.strides, strict=True)) if a in axes)
    name, size = e.label("reverse"), x.shape.dtype.size

    def install(program: Any, ident: Callable[[Buffer], int]) -> None:
        source = ident(x.buffer), x.byte_offset + start * size
        program.add_strided_copy(name, source, (ident(out.buffer), 0), size, x.lens, strides, out.strides)

    e.step(name, [x.buffer], [out.buffer], install, bytes=2 * x.shape.elements() * size)
    return out
