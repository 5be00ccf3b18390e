"""Scaled dot-product attention, and its decomposition into matrix products, a softmax and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import Dim, may_equal
from ..types.dtype import DType, bool_, float32, int64, of
from ..types.shape import Shape
from .attention_parts import full, grouped_dims, probabilities, scores_of, scores_parts, values_of, values_parts
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .compare import Equal, GreaterOrEqual, Less, LessOrEqual, LogicalAnd
from .convert import Convert
from .declaration import op
from .operation import Operation
from .pad import Pad
from .pointwise import Add, Div, Mul, Where
from .reduce import ReduceMax
from .reshape import Reshape
from .scalar import convert, widen
from .softmax import Softmax
from .trigonometry import Tanh

__all__ = ["Attention"]


@op("attention")
class Attention(Operation):
    """softmax(cap(scale q k^T) + mask) v, for grouped heads.

    q [b, h, s, d], k [b, g, t, d], v [b, g, t, e], h a multiple of g -> [b, h, s, e].
    mask: float (added) or bool (True: attend), broadcastable to [b, h, s, t]; its last extent may be shorter than t:
    the remaining keys are masked.  kv_lengths integer [b]: later keys are padding.  offsets integer [b]:
    position of each sample's first query (default: the attribute `offset`).  sink [h]: a logit that only adds to the
    denominator. A query at position p attends key j if not (causal and j > p) and p - left_window_size <= j <= p +
    right_window_size (-1: unbounded).  softcap c > 0: c tanh(score / c).  precision: dtype of the softmax.  A query without
    keys, or whose scores are all -inf, returns zeros (a plain softmax returns NaN); masked scores are -inf, even if they were
    NaN. result_of: selects the result: the output, or one of the intermediate stages [b, h, s, t].
    Masked values of v must be finite: a kernel may skip them, or multiply them by 0, and 0 times NaN is NaN.
    Errors: ShapeError for operands that do not fit.  Source: ONNX Attention-25.
    """

    scale: float | None = None
    causal: bool = False
    softcap: float = 0.0
    left_window_size: int = -1
    right_window_size: int = -1
    offset: Dim = 0
    precision: DType | None = None
    result_of: Literal["output", "scores", "capped", "masked", "probabilities"] = "output"

    def check(self) -> None:
        if self.softcap < 0:
            raise ParameterError(f"softcap must not be negative, got {self.softcap}")
        if min(self.left_window_size, self.right_window_size) < -1:
            raise ParameterError(
                f"window sizes must be at least -1, got {self.left_window_size} and {self.right_window_size}"
            )

    def infer(
        self,
        q: Shape,
        k: Shape,
        v: Shape,
        mask: Shape | None = None,
        kv_lengths: Shape | None = None,
        offsets: Shape | None = None,
        sink: Shape | None = None,
    ) -> Shape:
        scores = grouped_dims(q, k, v)
        if mask is not None:
            if not (mask.dtype.is_float or mask.dtype is bool_):
                raise ShapeError(f"mask must be float or bool, got {mask.dtype}")
            if mask.rank > 4 or mask.rank < 1:
                raise ShapeError(f"mask must have 1 to 4 axes, got {mask}")
            for m, n in zip(mask.dims[:-1], scores[4 - mask.rank : 3], strict=True):
                if not may_equal(m, 1) and not may_equal(m, n):
                    raise ShapeError(f"mask {list(mask.dims)} does not broadcast to {list(scores)}")
            if isinstance(mask.dims[-1], int) and isinstance(scores[3], int) and mask.dims[-1] > scores[3]:
                raise ShapeError(f"mask {list(mask.dims)} has more keys than the scores {list(scores)}")
        for name, x in (("kv_lengths", kv_lengths), ("offsets", offsets)):
            if x is None:
                continue
            if not x.dtype.is_integer or x.rank != 1 or not may_equal(x.dims[0], scores[0]):
                raise ShapeError(f"{name} must be an integer vector of {scores[0]}, got {x}")
        if sink is not None and (not sink.dtype.is_float or sink.rank != 1 or not may_equal(sink.dims[0], scores[1])):
            raise ShapeError(f"sink must be a float vector of {scores[1]}, got {sink}")
        if self.result_of != "output":
            return q.with_dims(scores)
        return q.with_dims((*scores[:3], v.dims[3]))

    def decompose(self, b: Any, *operands: Any) -> Any:
        return attention_parts(self, b, *operands)

    def allowed(self, shape: Sequence[int], kv_lengths: Array | None, offsets: Array | None) -> Array | None:
        """Returns the mask of keys that positions and lengths allow each query, broadcastable to [b, h, s, t]; None if all."""
        s, t = shape[-2:]
        keys = np.arange(t)
        out: Array | None = None
        if self.causal or self.left_window_size >= 0 or self.right_window_size >= 0:
            start = np.full(1, int(self.offset)) if offsets is None else offsets.astype(np.int64)
            at = start[:, None, None, None] + np.arange(s)[:, None]
            out = np.ones((1, 1, s, t), bool)
            if self.causal:
                out = out & (keys <= at)
            if self.left_window_size >= 0:
                out = out & (keys >= at - self.left_window_size)
            if self.right_window_size >= 0:
                out = out & (keys <= at + self.right_window_size)
        if kv_lengths is not None:
            inside = keys < kv_lengths.astype(np.int64)[:, None, None, None]
            out = inside if out is None else out & inside
        return out

    def compute(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None = None,
        kv_lengths: Array | None = None,
        offsets: Array | None = None,
        sink: Array | None = None,
    ) -> Array:
        to = of(q.dtype)
        scale = 1 / math.sqrt(max(q.shape[-1], 1)) if self.scale is None else self.scale
        scores = scores_of(widen(q), widen(k), scale)
        if self.result_of == "scores":
            return convert(scores, to)
        if self.softcap:
            scores = scores.dtype.type(self.softcap) * np.tanh(scores / scores.dtype.type(self.softcap))
        if self.result_of == "capped":
            return convert(scores, to)
        minus = scores.dtype.type(-np.inf)
        bias: Array | None = None
        keep = self.allowed(scores.shape, kv_lengths, offsets)
        if mask is not None:
            full = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
            missing = scores.shape[-1] - full.shape[-1]
            if missing < 0:
                raise ShapeError(f"mask {list(mask.shape)} has more keys than the scores {list(scores.shape)}")
            if missing:
                closed = False if full.dtype == np.bool_ else minus
                full = np.pad(full, [(0, 0)] * 3 + [(0, missing)], constant_values=closed)
            if mask.dtype == np.bool_:
                keep = full if keep is None else keep & full
            else:
                bias = widen(full).astype(scores.dtype)
        if keep is not None:
            zero = scores.dtype.type(0)
            bias = np.where(keep, zero if bias is None else bias, minus)
        if bias is not None:
            scores = scores + bias
        if self.result_of == "masked":
            return convert(scores, to)
        if bias is not None:  # by the mask, not the scores: an infinite score must not turn a fully masked row into NaN
            scores = np.where(np.isneginf(bias), minus, scores)
        precision = self.precision or to
        wide = scores if precision is to else widen(convert(scores, precision))
        logit = None if sink is None else widen(sink).astype(wide.dtype).reshape(1, -1, 1, 1)
        weights = probabilities(wide, logit).astype(scores.dtype, copy=False)
        if self.result_of == "probabilities":
            return convert(weights, to)
        wide_v = widen(v)
        if bias is not None and wide_v.size and not np.isfinite(wide_v).all():
            # 0 * inf of a masked key must not contribute NaN
            used = (weights != 0) & ~np.isneginf(bias)  # masked keys do not contribute to rows of NaN weights either
            wide_v = np.where(used.any(axis=(1, 2))[:, None, :, None], wide_v, 0)
        return convert(values_of(weights, wide_v.astype(weights.dtype, copy=False)), to)


def _open_keys(
    op: Attention, b: Builder, dims: tuple[int, ...], lengths: Operand | None, offsets: Operand | None
) -> Operand | None:
    """Returns the mask of the keys that positions and lengths allow each query, as bool [b, h, s, t]; None if all."""
    if lengths is None and offsets is None:
        known = op.allowed(dims, None, None)
        return None if known is None else b.add(Multibroadcast(out_lens=dims), b.literal(known))
    n, _, s, t = dims

    def spread(x: Any) -> Operand:
        return b.add(Multibroadcast(out_lens=dims), x)

    def per_sample(x: Operand) -> Operand:
        return spread(b.add(Reshape(dims=(n, 1, 1, 1)), b.add(Convert(target_type=int64), x)))

    keys = spread(b.literal(np.arange(t)))
    parts: list[Operand] = []
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
    out: Operand | None = None
    for part in parts:
        out = part if out is None else b.add(LogicalAnd(), out, part)
    return out


def attention_parts(
    op: Attention,
    b: Builder,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    kv_lengths: Operand | None = None,
    offsets: Operand | None = None,
    sink: Operand | None = None,
) -> Operand | None:
    """Returns the op as simpler ones; None where they cannot express it (sinks, unusual softmax precisions, symbolic extents)."""
    if sink is not None or op.precision not in (None, float32, q.shape.dtype):
        return None
    if any(x.shape.dynamic() for x in (q, k, v)) or (mask is not None and mask.shape.dynamic()):
        return None
    scores = scores_parts(b, q, k, op.scale)
    to = q.shape.dtype

    def done(x: Operand) -> Operand:
        return b.add(Convert(target_type=to), x)

    if op.result_of == "scores":
        return done(scores)
    if op.softcap:
        cap = full(b, op.softcap, scores)
        scores = b.add(Mul(), cap, b.add(Tanh(), b.add(Div(), scores, cap)))
    if op.result_of == "capped":
        return done(scores)
    dims = tuple(scores.shape.lens())
    keep = _open_keys(op, b, dims, kv_lengths, offsets)
    bias: Operand | None = None
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
    if bias is not None:  # a masked key's score may be NaN or infinite
        lowest = full(b, -math.inf, scores)
        scores = b.add(Where(), b.add(Equal(), bias, lowest), lowest, scores)
    weights = b.add(Softmax(axis=3), scores)
    if dims[3]:
        top = b.add(ReduceMax(axes=(3,)), scores)
        closed = b.add(Multibroadcast(out_lens=dims), b.add(Equal(), top, full(b, -math.inf, top)))
        weights = b.add(Where(), closed, full(b, 0.0, weights), weights)
    if op.result_of == "probabilities":
        return done(weights)
    return values_parts(b, weights, v, to)
