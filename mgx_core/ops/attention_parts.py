"""Attention as matrix products, a softmax and masks, for targets without a kernel of their own for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..types.dtype import bool_, float32, float64, int64
from .broadcast import Multibroadcast
from .compare import Equal, GreaterOrEqual, Less, LessOrEqual, LogicalAnd
from .convert import Convert
from .linear import Dot
from .movement import Transpose
from .pad import Pad
from .pointwise import Add, Div, Mul, Tanh, Where
from .reduce import ReduceMax
from .reshape import Reshape
from .softmax import Softmax

if TYPE_CHECKING:
    from ..ir.instruction import Instruction
    from .attention import Attention

__all__ = ["attention_parts", "inlined", "scores_parts", "values_parts"]


def full(b: Any, value: float, like: Instruction) -> Instruction:
    """A number in the dtype and extents of `like`."""
    one = b.literal(np.array(value).astype(like.shape.dtype.numpy))
    return b.add(Multibroadcast(out_lens=like.shape.dims), one)  # type: ignore[no-any-return]


def scores_parts(b: Any, q: Instruction, k: Instruction, scale: float | None) -> Instruction:
    """scale * q k^T [b, h, s, t], in float32 where q is narrower."""
    n, h, s, d = q.shape.dims
    g, t = k.shape.dims[1], k.shape.dims[2]
    factor = 1 / math.sqrt(max(int(d), 1)) if scale is None else scale
    grouped = b.add(Reshape(dims=(n, g, h // g * s, d)), q)
    product = b.add(Dot(), grouped, b.add(Transpose(permutation=(0, 1, 3, 2)), k))
    wide = b.add(Convert(target_type=float64 if q.shape.dtype is float64 else float32), product)
    scaled = b.add(Mul(), wide, full(b, factor, wide))
    return b.add(Reshape(dims=(n, h, s, t)), scaled)  # type: ignore[no-any-return]


def values_parts(b: Any, weights: Instruction, v: Instruction) -> Instruction:
    """weights [b, h, s, t] v [b, g, t, e] -> [b, h, s, e], in v's dtype."""
    n, h, s, t = weights.shape.dims
    g, e = v.shape.dims[1], v.shape.dims[3]
    narrow = b.add(Convert(target_type=v.shape.dtype), weights)
    product = b.add(Dot(), b.add(Reshape(dims=(n, g, h // g * s, t)), narrow), v)
    return b.add(Reshape(dims=(n, h, s, e)), product)  # type: ignore[no-any-return]


def inlined(b: Any, module: Any, x: Instruction) -> Instruction:
    """What a module of one parameter returns for x, its instructions copied to the builder."""
    (parameter,) = module.parameters.values()
    went = {parameter: x}
    for ins in module:
        if ins in went or ins.is_return:
            continue
        if ins.is_literal:
            went[ins] = b.literal(ins.get_literal())
        else:
            went[ins] = b.add(ins.op, *(went.get(i, i) for i in ins.inputs), modules=ins.modules)
    return went[module.outputs[0]]


def _open_keys(
    op: Attention, b: Any, dims: tuple[int, ...], lengths: Instruction | None, offsets: Instruction | None
) -> Instruction | None:
    """Which keys positions and lengths leave to each query, as bool [b, h, s, t]; None if all."""
    if lengths is None and offsets is None:
        known = op.allowed(dims, None, None)
        return None if known is None else b.add(Multibroadcast(out_lens=dims), b.literal(known))
    n, _, s, t = dims

    def spread(x: Any) -> Instruction:
        return b.add(Multibroadcast(out_lens=dims), x)  # type: ignore[no-any-return]

    def per_sample(x: Instruction) -> Instruction:
        return spread(b.add(Reshape(dims=(n, 1, 1, 1)), b.add(Convert(target_type=int64), x)))

    keys = spread(b.literal(np.arange(t)))
    parts: list[Instruction] = []
    if lengths is not None:
        parts.append(b.add(Less(), keys, per_sample(lengths)))
    if op.causal or op.left_window_size >= 0 or op.right_window_size >= 0:
        rows = spread(b.literal(np.arange(s)[:, None]))
        start = per_sample(offsets) if offsets is not None else full(b, int(op.offset), rows)
        at = b.add(Add(), rows, start)
        if op.causal:
            parts.append(b.add(LessOrEqual(), keys, at))
        if op.left_window_size >= 0:
            parts.append(b.add(GreaterOrEqual(), keys, b.add(Add(), at, full(b, -op.left_window_size, at))))
        if op.right_window_size >= 0:
            parts.append(b.add(LessOrEqual(), keys, b.add(Add(), at, full(b, op.right_window_size, at))))
    out: Instruction | None = None
    for part in parts:
        out = part if out is None else b.add(LogicalAnd(), out, part)
    return out


def attention_parts(
    op: Attention,
    b: Any,
    q: Instruction,
    k: Instruction,
    v: Instruction,
    mask: Instruction | None = None,
    kv_lengths: Instruction | None = None,
    offsets: Instruction | None = None,
    sink: Instruction | None = None,
) -> Instruction | None:
    """The op as simpler ones; None for what they cannot say (sinks, unusual softmax precisions, open extents)."""
    if sink is not None or op.precision not in (None, float32, q.shape.dtype):
        return None
    if any(x.shape.dynamic() for x in (q, k, v)) or (mask is not None and mask.shape.dynamic()):
        return None
    scores = scores_parts(b, q, k, op.scale)
    to = q.shape.dtype

    def done(x: Instruction) -> Instruction:
        return b.add(Convert(target_type=to), x)  # type: ignore[no-any-return]

    if op.result_of == "scores":
        return done(scores)
    if op.softcap:
        cap = full(b, op.softcap, scores)
        scores = b.add(Mul(), cap, b.add(Tanh(), b.add(Div(), scores, cap)))
    if op.result_of == "capped":
        return done(scores)
    dims = tuple(scores.shape.lens())
    keep = _open_keys(op, b, dims, kv_lengths, offsets)
    bias: Instruction | None = None
    if mask is not None:
        missing = dims[3] - int(mask.shape.dims[-1])
        if missing:
            pads = (0,) * (2 * mask.shape.rank - 1) + (missing,)
            if mask.shape.dtype is bool_:
                mask = b.add(Convert(target_type=float32), mask)
                mask = b.add(Convert(target_type=bool_), b.add(Pad(pads=pads), mask))
            else:
                mask = b.add(Pad(pads=pads, value=-math.inf), mask)
        mask = b.add(Multibroadcast(out_lens=dims), mask)
        if mask.shape.dtype is bool_:
            keep = mask if keep is None else b.add(LogicalAnd(), keep, mask)
        else:
            bias = b.add(Convert(target_type=scores.shape.dtype), mask)
    if keep is not None:
        bias = b.add(Where(), keep, full(b, 0.0, scores) if bias is None else bias, full(b, -math.inf, scores))
    if bias is not None:
        scores = b.add(Add(), scores, bias)
    if op.result_of == "masked":
        return done(scores)
    weights = b.add(Softmax(axis=3), scores)
    if bias is not None:
        top = b.add(ReduceMax(axes=(3,)), bias)
        closed = b.add(Multibroadcast(out_lens=dims), b.add(Equal(), top, full(b, -math.inf, top)))
        weights = b.add(Where(), closed, full(b, 0.0, weights), weights)
    if op.result_of == "probabilities":
        return done(weights)
    return values_parts(b, weights, v)
