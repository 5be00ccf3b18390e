"""Rotary position embeddings as one compiled loop that computes both elements of each pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction, Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import or_refused
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.compare import Less
from mgx_core.ops.convert import Convert
from mgx_core.ops.pointwise import Add, Max, Min, Mul, Sub, Where
from mgx_core.ops.rotary import GqaRotaryEmbedding, RotaryEmbedding
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from .extents import number
from .indexing import NOT_NEGATIVE, Places, gather
from .native_loops import broadcast, emit_op
from .offer import offer

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
FLOATS = (dt.float32, dt.float16, dt.bfloat16, dt.float64)


def floats(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    given: list[AnyShape | None] = [*inputs, *[None] * (4 - len(inputs))]
    x, _, _, positions = given
    if not isinstance(x, Shape) or x.dtype not in FLOATS:
        return No(f"a floating-point tensor is required, got {x}")
    if isinstance(positions, Shape) and positions.dtype not in (dt.int32, dt.int64):
        return No(f"int32 or int64 positions are required, got {positions}")
    return None


@offer(PLANS, RotaryEmbedding, when=floats, name="rotary-loop")
def emit_rotary(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    given: list[Value | None] = [*args, *[None] * (4 - len(args))]
    x, cos, sin, positions = given
    assert x is not None and cos is not None and sin is not None
    return _rotated(e, x, cos, sin, positions, op.interleaved)


def _rotated(e: CpuEmitter, x: Value, cos: Value, sin: Value, positions: Value | None, interleaved: bool) -> Value:
    """Rotates pairs of elements of x [b, h, s, d] by angles [b or 1, s, n], or by those of tables [m, n] at positions."""
    from ..jit.pointwise import compile_pointwise

    if positions is not None:
        if len(positions.lens) == 1:
            positions = _consecutive(e, positions, x.lens[2])
        cos, sin = (_gather_angles(e, table, positions) for table in (cos, sin))
    lens = x.lens
    half = cos.lens[-1]
    out = e.allocate(x.shape.dtype, lens)
    pairs = [_pair(v, half, interleaved) for v in (x, out)]
    dims = [*lens[:3], half]
    angles = [c.view_at(0, Shape(c.shape.dtype, dims, _broadcast_strides(c, lens[0]))) for c in (cos, sin)]
    inputs, outputs = [*pairs[0], *angles], pairs[1]
    if half:
        body = _body(x.shape.dtype, dims)
        kernel = or_refused(compile_pointwise(body, [v.shape for v in inputs], [v.shape for v in outputs], e.engine))
        e.loop(kernel, inputs, outputs, "rotary")
    rest = lens[3] - 2 * half
    if rest:
        ends = (
            v.view_at(2 * half * v.strides[3], Shape(v.shape.dtype, [*lens[:3], rest], v.strides)) for v in (x, out)
        )
        e.copy_into(*ends)
    return out


def floats_by_length(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x, numbers, cos, sin = inputs
    return floats(op, [x, cos, sin, numbers], modules)


@offer(PLANS, GqaRotaryEmbedding, when=floats_by_length, name="rotary-loop")
def emit_gqa_rotary(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, numbers, cos, sin = args
    positions = _last_positions(e, numbers, x.lens[2], cos.lens[0])
    return _rotated(e, x, cos, sin, positions, op.interleaved)


def _last_positions(e: CpuEmitter, numbers: Value, count: int, rows: int) -> Value:
    """Returns the positions [b, count] of each sample's last tokens, of which there are `numbers` [b] plus one.

    Padding has the last position; too many tokens, or a negative number, have positions outside the table.
    """
    from ..jit.pointwise import compile_pointwise

    batch, step = numbers.lens[0], numbers.strides[0]
    dims = [batch, count]
    body = Module("positions")
    kinds = {"last": numbers.shape.dtype, "place": dt.int64, "added": dt.int64}
    last, place, added = (body.add_parameter(name, Shape(dtype, dims)) for name, dtype in kinds.items())

    def constant(value: int) -> Instruction:
        return body.add(Multibroadcast(out_lens=tuple(dims)), body.add_literal(np.array(value)))

    total = body.add(Add(), body.add(Convert(target_type=dt.int64), last), constant(1))
    at = body.add(Add(), body.add(Max(), body.add(Sub(), total, added), constant(0)), place)
    at = body.add(Min(), at, body.add(Sub(), body.add(Max(), total, constant(rows)), constant(1)))
    body.add_return([body.add(Where(), body.add(Less(), total, constant(0)), constant(rows), at)])
    places = e.counting(count)
    inputs = [
        numbers.view_at(0, Shape(numbers.shape.dtype, dims, [step, 0])),
        places.view_at(0, Shape(dt.int64, dims, [0, 1])),
        broadcast(number(e, count), dims),
    ]
    out = e.allocate(dt.int64, dims)
    if out.shape.elements():
        kernel = or_refused(compile_pointwise(body, [v.shape for v in inputs], [out.shape], e.engine))
        e.loop(kernel, inputs, [out], "positions")
    return out


def _body(dtype: Any, dims: Sequence[int]) -> Module:
    """Returns a module (one, other, cos, sin) -> (cos one - sin other, sin one + cos other); narrow floats are rounded once."""
    body = Module("rotary")
    given = [body.add_parameter(name, Shape(dtype, dims)) for name in ("one", "other", "cos", "sin")]
    narrow = dtype.bits < 32
    if narrow:
        given = [body.add(Convert(target_type=dt.float32), p) for p in given]
    one, other, c, s = given
    results = [
        body.add(Sub(), body.add(Mul(), c, one), body.add(Mul(), s, other)),
        body.add(Add(), body.add(Mul(), s, one), body.add(Mul(), c, other)),
    ]
    body.add_return([body.add(Convert(target_type=dtype), y) if narrow else y for y in results])
    return body


def _consecutive(e: CpuEmitter, first: Value, count: int) -> Value:
    """Returns consecutive positions [1, count] from the first one."""
    steps = e.counting(count, first.shape.dtype)
    lens = [1, count]
    return emit_op(e, Add(), broadcast(first, lens), steps.view_at(0, Shape(first.shape.dtype, lens)))


def _gather_angles(e: CpuEmitter, table: Value, positions: Value) -> Value:
    """Gathers rows of a table [m, n] at positions [b, s], which must not be negative; returns [b, s, n]."""
    out = e.allocate(table.shape.dtype, [*positions.lens, table.lens[1]])
    if out.shape.elements():
        places = Places(
            positions,
            positions.lens,
            ([0, 0], positions.strides),
            [(table.lens[0], table.strides[0])],
            outside=NOT_NEGATIVE,
        )
        row = (table.lens[1:], table.strides[1:], out.strides[2:])
        gather(e, f"positions in a cache of {table.lens[0]}", table, places, out, out.strides[:2], row)
    return out


def _broadcast_strides(c: Value, batch: int) -> list[int]:
    """Returns strides that broadcast angles [b or 1, s, n] to [b, heads, s, n]."""
    return [0 if c.lens[0] == 1 and batch > 1 else c.strides[0], 0, c.strides[1], c.strides[2]]


def _pair(v: Value, half: int, interleaved: bool) -> list[Value]:
    """Returns views of the first and second elements of pairs."""
    step = v.strides[3]
    apart, stride = (step, 2 * step) if interleaved else (half * step, step)
    shape = Shape(v.shape.dtype, [*v.lens[:3], half], [*v.strides[:3], stride])
    return [v.view_at(0, shape), v.view_at(apart, shape)]
