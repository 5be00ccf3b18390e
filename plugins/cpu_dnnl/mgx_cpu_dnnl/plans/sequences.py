"""Reversal of axes, and moves of time steps by per-sequence lengths or positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.axes import normalize, normalize_all
from mgx_core.ops.kv_cache import ConcatPastPresent
from mgx_core.ops.movement import Reverse, ReverseSequence
from mgx_core.ops.recurrent_states import (
    RnnLastHsOutput,
    RnnVarSlLastOutput,
    RnnVarSlShiftOutput,
    RnnVarSlShiftSequence,
)
from mgx_core.ops.scatter import TensorScatter
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from .native_loops import as_indices, encode_box, grain_of, native_loop
from .offer import NUMBERS, offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
REVERSE, KEEP, TO_START, TO_END, LAST = range(5)  # numbering of `Move` in sequence_loops.cpp
INDEX: Final = np.int64


@offer(PLANS, Reverse, when=only(NUMBERS, 1), name="copy")
def emit_reverse(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = args[0]
    out = e.allocate(x.shape.dtype, x.lens)
    if not x.shape.elements():
        return out
    axes = normalize_all(op.axes, len(x.lens))
    strides = [-s if a in axes else s for a, s in enumerate(x.strides)]
    start = sum(s * (n - 1) for a, (n, s) in enumerate(zip(x.lens, x.strides, strict=True)) if a in axes)
    work = x.shape.elements()
    source, numbers = x.view_at(start, x.shape), encode_box(x.lens, strides, out.strides)
    native_loop(e, "reverse", f"copy_{x.shape.dtype.size}", [source, out], [out], numbers, work, grain_of(work, [x]))
    return out


def integer_lengths(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    given = inputs[-1] if len(inputs) > 1 else None
    if not isinstance(given, Shape) or given.dtype not in NUMBERS or not given.dtype.is_integer:
        return No(f"integer lengths are required, got {given}")
    return only(NUMBERS, 1)(op, inputs, modules)


def _move_steps(
    e: CpuEmitter, name: str, move: int, x: Value, counts: Value, out: Value, time: int, batch: int
) -> None:
    """Moves the time steps of each sequence of x into `out` by its length."""
    if not out.shape.elements():
        return
    if not x.shape.elements():
        raise Refused("there are no steps")
    counts = as_indices(e, counts)
    rest = [a for a in range(len(x.lens)) if a not in (time, batch)]
    dims = [out.lens[time], out.lens[batch]]
    places = encode_box(
        dims, [0, x.strides[batch]], [0, counts.strides[0]], [out.strides[time], out.strides[batch]], [1, 0]
    )
    step = encode_box([x.lens[a] for a in rest], [x.strides[a] for a in rest], [out.strides[a] for a in rest])
    numbers = [move, x.lens[time], x.strides[time], int(counts.shape.dtype.size == 8), *places, *step]
    loop, work = f"by_length_{x.shape.dtype.size}", prod(dims)
    native_loop(e, name, loop, [x, counts, out], [out], numbers, work, grain_of(work, [out]))


@offer(PLANS, ReverseSequence, when=integer_lengths, name="native")
def emit_reverse_sequence(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, counts = args
    rank = len(x.lens)
    out = e.allocate(x.shape.dtype, x.lens)
    _move_steps(e, op.name, REVERSE, x, counts, out, normalize(op.time_axis, rank), normalize(op.batch_axis, rank))
    return out


@offer(PLANS, RnnVarSlShiftSequence, when=integer_lengths, name="native")
def emit_shift_sequence(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, counts = args
    out = e.allocate(x.shape.dtype, x.lens)
    _move_steps(e, op.name, TO_END, x, counts, out, 0, 1)
    return out


@offer(PLANS, RnnVarSlShiftOutput, when=integer_lengths, name="native")
def emit_shift_output(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, counts = args
    out = e.allocate(x.shape.dtype, x.lens)
    for way in range(x.lens[1]):
        backward = op.direction == "reverse" or way == 1
        _move_steps(e, op.name, TO_START if backward else KEEP, _direction(x, way), counts, _direction(out, way), 0, 2)
    return out


@offer(PLANS, RnnVarSlLastOutput, RnnLastHsOutput, when=integer_lengths, name="native")
def emit_last_output(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, counts = args
    out = e.allocate(x.shape.dtype, [1, *x.lens[1:]])
    for way in range(x.lens[1]):
        source, target = _direction(x, way), _direction(out, way)
        if op.direction == "reverse" or way == 1:
            first = source.view_at(0, Shape(x.shape.dtype, target.lens, x.strides))
            if not x.shape.elements():
                raise Refused("there are no steps")
            e.copy_into(first, target)
        else:
            _move_steps(e, op.name, LAST, source, counts, target, 0, 2)
    return out.view_at(0, Shape(x.shape.dtype, x.lens[1:]))


def _direction(value: Value, index: int) -> Value:
    """Returns a view of one direction, with its axis of extent 1."""
    lens = [1 if a == 1 else n for a, n in enumerate(value.lens)]
    return value.view_at(index * value.strides[1], Shape(value.shape.dtype, lens, value.strides))


def supported_caches(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    start = inputs[2] if len(inputs) > 2 else None
    if start is not None and start.dtype not in NUMBERS:
        return No(f"write_indices {start} are not supported")
    return only(NUMBERS, 2)(op, inputs, modules)


@offer(PLANS, TensorScatter, when=supported_caches, name="native")
def emit_tensor_scatter(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits an update of a cache, in place if nothing else reads it, else in a copy."""
    cache, update, start = [*args, None][:3]
    assert cache is not None and update is not None
    axis = normalize(op.axis, len(cache.lens))
    starts = e.literal(np.zeros(cache.lens[0], INDEX)) if start is None else as_indices(e, start)
    alone = e.alone(op)
    own = alone and e.may_overwrite(cache, cache.shape.dtype)
    out = cache if own and cache.buffer not in (update.buffer, starts.buffer) else e.copy(cache)
    if not update.shape.elements():
        return out
    rest = [a for a in range(len(cache.lens)) if a not in (0, axis)]
    dims = [update.lens[0], update.lens[axis]]
    places = encode_box(
        dims, [out.strides[0], 0], [starts.strides[0], 0], [update.strides[0], update.strides[axis]], [0, 1]
    )
    slices = encode_box(
        [update.lens[a] for a in rest], [update.strides[a] for a in rest], [out.strides[a] for a in rest]
    )
    circular, wide = int(op.mode == "circular"), int(starts.shape.dtype.size == 8)
    numbers = [out.lens[axis], out.strides[axis], circular, wide, *places, *slices]
    loop, work = f"put_steps_{out.shape.dtype.size}", prod(dims)
    native_loop(e, op.name, loop, [out, starts, update], [out], numbers, work, grain_of(work, [update]), updated=True)
    return out


@offer(PLANS, ConcatPastPresent, when=only(NUMBERS), name="native")
def emit_concat_past_present(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    new, numbers, past = args
    numbers = as_indices(e, numbers)
    lens = op.result([new.shape, numbers.shape, past.shape]).lens()
    if not (prod(lens) and new.lens[2]):  # the definition still checks the numbers
        raise Refused("the cache is empty or there are no new rows")
    out = e.allocate(new.shape.dtype, lens)
    caches = new.lens[0] * new.lens[1]
    places = encode_box(new.lens[:2], new.strides[:2], [numbers.strides[0], 0], past.strides[:2], out.strides[:2])
    rows = [n for x in (new, past) for n in encode_box(new.lens[3:], x.strides[3:], out.strides[3:])]
    extents = [x.lens[2] for x in (new, past, out)]
    arguments = [
        *extents,
        *(x.strides[2] for x in (new, past, out)),
        int(numbers.shape.dtype.size == 8),
        *places,
        *rows,
    ]
    loop = f"append_rows_{out.shape.dtype.size}"
    native_loop(e, op.name, loop, [new, numbers, past, out], [out], arguments, caches, grain_of(caches, [out]))
    return out
