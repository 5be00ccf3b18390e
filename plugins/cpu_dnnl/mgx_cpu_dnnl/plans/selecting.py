"""Top-k, argmax and argmin, hardmax, boolean reductions, and prefix sums and products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.axes import normalize
from mgx_core.ops.compare import NotEqual
from mgx_core.ops.convert import Convert
from mgx_core.ops.reduce import Argmax, Argmin, ReduceAll, ReduceAny, ReduceMax, ReduceMin
from mgx_core.ops.scan import PrefixScanProd, PrefixScanSum
from mgx_core.ops.softmax import Hardmax
from mgx_core.ops.topk import Topk
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.traced_int import int_or_traced

from ..emitter import CpuEmitter
from .indexing import Places, scatter
from .native_loops import allocate_zeros, broadcast, emit_op, encode_box, grain_of, native_loop
from .offer import NUMBERS, constant_parameters, offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


def _without(numbers: Sequence[int], axis: int) -> list[int]:
    return [n for a, n in enumerate(numbers) if a != axis]


@offer(PLANS, Topk, when=constant_parameters, name="native")
def emit_topk(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    return _topk(e, op, args[0], int_or_traced(op.k))


@offer(PLANS, Topk, when=only(NUMBERS), name="native", open_axis=lambda op: op.axis)
def emit_sorted(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits top-k for an operand k: sorts all elements (k of them if it is constant), and returns k as the actual extent."""
    x, k = args
    count = e.allocate(dt.int64, k.lens)
    e.copy_into(k, count)
    n, known = x.lens[normalize(op.axis, len(x.lens))], e.constant(k)
    wanted = n if known is None else int(known.reshape(-1)[0])
    found = _topk(e, op, x, wanted if 0 <= wanted <= n else n)
    return *found, count.view_at(0, Shape(dt.int64, [1]))


def _topk(e: CpuEmitter, op: Any, x: Value, k: int) -> tuple[Value, Value]:
    axis = normalize(op.axis, len(x.lens))
    n = x.lens[axis]
    if n >= 1 << 31:
        raise Refused(f"an axis of fewer than 2**31 elements is required, got {n}")
    lens = [k if a == axis else d for a, d in enumerate(x.lens)]
    values, places = e.allocate(x.shape.dtype, lens), e.allocate(dt.int64, lens)
    if not values.shape.elements():
        return values, places
    room = min(n + 1, max(2 * k, k + 1024))  # candidates buffered between selections of the best k
    all_three = x, values, places
    numbers = [n, k, int(op.largest), room, *(v.strides[axis] for v in all_three)]
    numbers += encode_box(_without(lens, axis), *(_without(v.strides, axis) for v in all_three))
    work = prod(_without(lens, axis))
    loop = f"topk_{x.shape.dtype}"
    native_loop(e, op.name, loop, all_three, [values, places], numbers, work, grain_of(work, [x]), 16 * room)
    return values, places


@offer(PLANS, Argmax, Argmin, when=constant_parameters, name="native")
def emit_arg(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    last = "_last" if op.select_last_index else ""
    return _emit_arg(e, op.name, f"{op.name}{last}", args[0], op.axis)


def _emit_arg(e: CpuEmitter, name: str, loop: str, x: Value, along: int) -> Value:
    axis = normalize(along, len(x.lens))
    out = e.allocate(dt.int64, [1 if a == axis else d for a, d in enumerate(x.lens)])
    work = out.shape.elements()
    if not work:
        return out
    if not 0 < x.lens[axis] < 1 << 31:
        raise Refused(f"an axis of 1 to 2**31 - 1 elements is required, got {x.lens[axis]}")
    others = encode_box(_without(x.lens, axis), _without(x.strides, axis), _without(out.strides, axis))
    numbers = [x.lens[axis], x.strides[axis], *others]
    native_loop(e, name, f"{loop}_{x.shape.dtype}", [x, out], [out], numbers, work, grain_of(work, [x]))
    return out


@offer(PLANS, Hardmax, when=only(NUMBERS), name="native")
def emit_hardmax(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits argmax, and a scatter of ones into zeros."""
    x = args[0]
    out = allocate_zeros(e, x.shape.dtype, x.lens)
    if not out.shape.elements():
        return out
    axis = normalize(op.axis, len(x.lens))
    at = _emit_arg(e, op.name, "argmax", x, axis)
    one = broadcast(e.literal(np.ones((), np.float32).astype(x.shape.dtype.numpy)), at.lens)
    steps = [0 if a == axis else s for a, s in enumerate(out.strides)], at.strides
    places = Places(at, at.lens, steps, [(x.lens[axis], out.strides[axis])])
    scatter(e, op.name, out, places, one, one.strides, ((), (), ()), "none")
    return out


@offer(PLANS, PrefixScanSum, PrefixScanProd, when=only(NUMBERS - {dt.bool_}, 1), name="native")
def emit_scan(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    x, given = [*args, None][:2]
    along = op.axis
    if given is not None:
        known = e.constant(given)
        if known is None:
            raise Refused("the axis is not constant")
        along = int(known.reshape(-1)[0])
    axis = normalize(along, len(x.lens))
    out = e.allocate(x.shape.dtype, x.lens)
    if not out.shape.elements():
        return out
    n, (a, b) = x.lens[axis], (x.strides[axis], out.strides[axis])
    start, end = x, out
    if op.reverse:
        start, end = x.view_at((n - 1) * a, x.shape), out.view_at((n - 1) * b, out.shape)
        a, b = -a, -b
    others = encode_box(_without(x.lens, axis), _without(x.strides, axis), _without(out.strides, axis))
    work = x.shape.elements() // n
    loop = f"{op.name.removeprefix('prefix_')}_{x.shape.dtype}"
    numbers = [n, a, b, int(op.exclusive), *others]
    native_loop(e, op.name, loop, [start, end], [end], numbers, work, grain_of(work, [x]))
    return out


@offer(PLANS, ReduceAny, ReduceAll, when=constant_parameters, name="loops")
def emit_any(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits the maximum or minimum of booleans."""
    x = args[0]
    tests = x
    if x.shape.dtype is not dt.bool_:
        zero = broadcast(e.literal(np.zeros((), x.shape.dtype.numpy)), x.lens)
        tests = emit_op(e, NotEqual(), x, zero)
    reduce = ReduceMax if isinstance(op, ReduceAny) else ReduceMin
    found = emit_op(e, reduce(axes=op.axes), tests)
    return found if x.shape.dtype is dt.bool_ else emit_op(e, Convert(target_type=x.shape.dtype), found)
