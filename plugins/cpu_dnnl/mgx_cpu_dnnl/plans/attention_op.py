"""The op `attention`: a fused loop that never materializes all scores and applies masks and limits on the fly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction, Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import or_refused
from mgx_core.ops.attention import Attention
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.compare import GreaterOrEqual, Less, LessOrEqual, NotEqual
from mgx_core.ops.convert import Convert
from mgx_core.ops.pointwise import Add, Div, Mul, Where
from mgx_core.ops.trigonometry import Tanh
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from .offer import offer

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
FLOATS = (dt.float32, dt.float16, dt.bfloat16)


def supported(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    given: list[AnyShape | None] = [*inputs, *[None] * (7 - len(inputs))]
    q, k, v, mask, *_ = given
    if not isinstance(q, Shape) or not isinstance(k, Shape) or not isinstance(v, Shape):
        return No("queries, keys and values must be tensors")
    if any(x.dtype not in FLOATS for x in (q, k, v)):
        return No("queries, keys and values must be float32, float16 or bfloat16")
    if op.result_of != "output":
        return No("results before the output are not supported")
    if op.precision not in (None, dt.float32):
        return No(f"softmax precision {op.precision} is not supported")
    if not isinstance(op.offset, int):
        return No("the position of the first query is not a constant")
    if isinstance(mask, Shape) and mask.dims[-1] != k.dims[2]:
        return No(f"the mask {mask} is shorter than the {k.dims[2]} keys")
    if 0 in (*k.dims, q.dims[3]):
        return No("an extent is 0")
    return None


@offer(PLANS, Attention, when=supported, name="attention-op")
def emit_attention_op(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits attention of q [b, h, s, d] and k, v [b, g, t, ..] over axes [b, g, r, s, t], where h = g r."""
    from ..jit.attention import compile_attention

    given: list[Value | None] = [*args, *[None] * (7 - len(args))]
    q, k, v, mask, lengths, offsets, sink = given
    assert q is not None and k is not None and v is not None
    (b, h, s, d), (g, t), size = q.lens, k.lens[1:3], v.lens[3]
    if v.strides[3] != 1 and size != 1:
        v = e.row_major(v)
    r = h // g
    out = e.allocate(q.shape.dtype, [b, h, s, size])
    heads = [_split_heads(x, r) for x in (q, out)]
    shared = [_share_heads(x, r) for x in (k, v)]
    scores = _Scores([b, g, r, s, t])
    scale = 1 / math.sqrt(max(d, 1)) if op.scale is None else op.scale
    scores.scale(op, scale)
    simple = offsets is None and op.offset >= 0 and op.left_window_size < 0 and op.right_window_size < 0
    _apply_masks(e, op, scores, mask, lengths, offsets, simple)
    if sink is not None:
        scores.add_sink(sink if sink.shape.dtype is dt.float32 else _widened(e, sink))
    kernel = or_refused(compile_attention(
        heads[0].shape, shared[0].shape, shared[1].shape, heads[1].shape, e.engine,
        score=scores.finish(), extra=[x.shape for x in scores.extra], causal=op.causal and simple,
        offset=op.offset, closes=True, lengths=scores.lengths, sink=scores.sink,
    ))  # fmt: skip
    e.loop(kernel, [heads[0], *shared, *scores.extra], [heads[1]], "attention")
    return out


class _Scores:
    """The module applied to the scores [b, g, r, s, t], and its other operands, broadcast to the same extents."""

    def __init__(self, lens: list[int]) -> None:
        self.lens = lens
        self.module = Module("scores")
        self.value = self.module.add_parameter("scores", Shape(dt.float32, lens))
        self.extra: list[Value] = []
        self.lengths = 0  # 1-based index in `extra` of the number of keys per sample; 0: none
        self.sink = 0  # .. of the score that has no key

    def constant(self, value: float, dtype: Any = dt.float32) -> Instruction:
        one = self.module.add_literal(np.array(value).astype(dtype.numpy))
        return self.module.add(Multibroadcast(out_lens=tuple(self.lens)), one)

    def operand(self, value: Value, strides: Sequence[int]) -> Instruction:
        """Adds an operand with these strides over the axes of the scores; returns its parameter."""
        seen = value.view_at(0, Shape(value.shape.dtype, self.lens, list(strides)))
        self.extra.append(seen)
        return self.module.add_parameter(f"x{len(self.extra)}", Shape(value.shape.dtype, self.lens))

    def add_sink(self, value: Value) -> None:
        """Adds a score per head [h] that has no key, which the loop itself reads."""
        step = value.strides[0]
        self.operand(value, [0, step * self.lens[2], step, 0, 0])
        self.sink = len(self.extra)

    def scale(self, op: Any, scale: float) -> None:
        self.value = self.module.add(Mul(), self.value, self.constant(scale))
        if op.softcap:
            cap = self.constant(op.softcap)
            self.value = self.module.add(Mul(), cap, self.module.add(Tanh(), self.module.add(Div(), self.value, cap)))

    def mask_unless(self, test: Instruction) -> None:
        """Sets scores to -inf where `test` is false."""
        self.value = self.module.add(Where(), test, self.value, self.constant(-math.inf))

    def finish(self) -> Module:
        self.module.add_return([self.value])
        return self.module


def _apply_masks(
    e: CpuEmitter,
    op: Any,
    scores: _Scores,
    mask: Value | None,
    lengths: Value | None,
    offsets: Value | None,
    simple: bool,
) -> None:
    """Applies mask, key lengths, sliding windows and causality.

    simple: the loop itself limits the keys of each query, so that no causal mask is needed.
    """
    add = scores.module.add
    b, _, r, s, t = scores.lens
    if mask is not None:
        lens = [1] * (4 - len(mask.lens)) + mask.lens
        steps = [0] * (4 - len(mask.lens)) + mask.strides
        steps = [0 if n == 1 else step for n, step in zip(lens, steps, strict=True)]
        given = scores.operand(mask, [steps[0], steps[1] * r, *steps[1:]])
        if mask.shape.dtype is dt.bool_:
            scores.mask_unless(given)
        else:
            wide = given if mask.shape.dtype is dt.float32 else add(Convert(target_type=dt.float32), given)
            scores.value = add(Add(), scores.value, wide)
            # the sum alone does not mask: NaN or inf plus -inf is NaN; a mask that is NaN makes its row NaN
            scores.mask_unless(add(NotEqual(), wide, scores.constant(-math.inf)))
    placed = not simple and (op.causal or max(op.left_window_size, op.right_window_size) >= 0)
    if lengths is None and not placed:
        return
    keys = scores.operand(e.counting(t), [0, 0, 0, 0, 1])

    def per_sample(x: Value) -> Instruction:
        given = scores.operand(x, [0 if b == 1 else x.strides[0], 0, 0, 0, 0])
        return given if x.shape.dtype is dt.int64 else add(Convert(target_type=dt.int64), given)

    if lengths is not None:
        scores.mask_unless(add(Less(), keys, per_sample(lengths)))
        scores.lengths = len(scores.extra)
    if not placed:
        return
    rows = scores.operand(e.counting(s), [0, 0, 0, 1, 0])
    at = add(Add(), rows, per_sample(offsets) if offsets is not None else scores.constant(op.offset, dt.int64))
    if op.causal:
        scores.mask_unless(add(LessOrEqual(), keys, at))
    if op.left_window_size >= 0:
        scores.mask_unless(add(GreaterOrEqual(), keys, add(Add(), at, scores.constant(-op.left_window_size, dt.int64))))
    if op.right_window_size >= 0:
        scores.mask_unless(add(LessOrEqual(), keys, add(Add(), at, scores.constant(op.right_window_size, dt.int64))))


def _widened(e: CpuEmitter, x: Value) -> Value:
    wide = e.allocate(dt.float32, x.lens)
    e.copy_into(x, wide)
    return wide


def _split_heads(x: Value, r: int) -> Value:
    """Returns a view of [b, g * r, s, d] as [b, g, r, s, d]."""
    (b, h, s, d), (sb, sh, ss, sd) = x.lens, x.strides
    return x.view_at(0, Shape(x.shape.dtype, [b, h // r, r, s, d], [sb, sh * r, sh, ss, sd]))


def _share_heads(x: Value, r: int) -> Value:
    """Returns a view of [b, g, t, d] broadcast to [b, g, r, t, d]: r query heads share each key head."""
    (b, g, t, d), (sb, sg, st, sd) = x.lens, x.strides
    return x.view_at(0, Shape(x.shape.dtype, [b, g, r, t, d], [sb, sg, 0, st, sd]))
