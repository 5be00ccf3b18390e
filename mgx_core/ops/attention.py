"""Scaled dot-product attention, and its forms with modules in between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array, Value
from ..types.dim import Dim, may_equal
from ..types.dtype import DType, bool_, float32, float64, of
from ..types.shape import Shape
from .attention_parts import attention_parts, inlined, scores_parts, values_parts
from .convert import Convert
from .operation import Operation, Run, op
from .scalar import convert, widen
from .softmax import Softmax

__all__ = ["Attention", "FlexAttention", "grouped_dims", "probabilities"]


def grouped_dims(q: Shape, k: Shape, v: Shape) -> tuple[Dim, ...]:
    """[b, h, s, t] of the scores of q [b, h, s, d], k [b, g, t, d] and v [b, g, t, e], after checking that they fit."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.rank != 4:
            raise ShapeError(f"{name} must be [batch, heads, length, size], got {x}")
        if not x.dtype.is_float:
            raise ShapeError(f"{name} must be a float tensor, got {x}")
    if q.dtype is not k.dtype:
        raise ShapeError(f"q and k must have one dtype, got {q.dtype} and {k.dtype}")
    (b, h, s, d), (kb, g, t, kd), (vb, vg, vt, _) = q.dims, k.dims, v.dims
    for what, one, other in (
        ("batch of q and k", b, kb),
        ("batch of q and v", b, vb),
        ("head size of q and k", d, kd),
        ("heads of k and v", g, vg),
        ("length of k and v", t, vt),
    ):
        if not may_equal(one, other):
            raise ShapeError(f"{what} must be equal, got {one} and {other}")
    if isinstance(h, int) and isinstance(g, int) and (g == 0 or h % g):
        raise ShapeError(f"the {h} heads of q must be a multiple of the {g} heads of k and v")
    return b, h, s, t


def probabilities(scores: Array, sink: Array | None = None) -> Array:
    """Softmax over the last axis; zeros where a whole row is -inf.  sink: one more logit in each row's denominator."""
    if not scores.shape[-1]:
        return scores
    top = scores.max(axis=-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink)
    with np.errstate(all="ignore"):
        out: Array = np.exp(scores - np.where(np.isneginf(top), scores.dtype.type(0), top))
        total = out.sum(axis=-1, keepdims=True)
        if sink is not None:
            total = total + np.exp(sink - top)
        out /= np.where(total == 0, scores.dtype.type(1), total)
    return out


def scores_of(q: Array, k: Array, scale: float) -> Array:
    """scale * q k^T of q [b, h, s, d], k [b, g, t, d] -> [b, h, s, t]; every g heads of k serve h / g heads of q."""
    b, h, s, d = q.shape
    g, t = k.shape[1], k.shape[2]
    grouped = q.reshape(b, g, (h // g) * s, d) if g else q
    with np.errstate(all="ignore"):
        scores: Array = np.matmul(grouped * q.dtype.type(scale), np.swapaxes(k, -1, -2))
    return np.asarray(scores.reshape(b, h, s, t))


def values_of(weights: Array, v: Array) -> Array:
    """weights [b, h, s, t] v [b, g, t, e] -> [b, h, s, e]."""
    b, h, s, t = weights.shape
    g = v.shape[1]
    with np.errstate(all="ignore"):
        out: Array = np.matmul(weights.reshape(b, g, (h // g) * s, t), v)
    return out.reshape(b, h, s, v.shape[-1])


@op("attention")
class Attention(Operation):
    """softmax(cap(scale q k^T) + mask) v, for grouped heads.

    q [b, h, s, d], k [b, g, t, d], v [b, g, t, e], h a multiple of g -> [b, h, s, e].
    mask: float (added) or bool (True: attend), broadcastable to [b, h, s, t]; its last extent may be shorter than t,
    what is missing is not attended.  kv_lengths integer [b]: keys from there on are padding.  offsets integer [b]:
    position of each sample's first query (default: the attribute `offset`).  sink [h]: a logit that only adds to the
    denominator. A query at position p attends key j if not (causal and j > p) and p - left_window_size <= j <= p +
    right_window_size (-1: open).  softcap c > 0: c tanh(score / c).  precision: dtype of the softmax.  A query without
    keys gives zeros. result_of: what is returned: the output, or one of the stages [b, h, s, t] on the way.
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
        """Which keys positions and lengths leave to each query, broadcastable to [b, h, s, t]; None if all."""
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
        if bias is not None:  # by the mask, not the scores: an infinite score must not turn a closed row into NaN
            scores = np.where(np.isneginf(bias), minus, scores)
        precision = self.precision or to
        wide = scores if precision is to else widen(convert(scores, precision))
        logit = None if sink is None else widen(sink).astype(wide.dtype).reshape(1, -1, 1, 1)
        weights = probabilities(wide, logit).astype(scores.dtype, copy=False)
        if self.result_of == "probabilities":
            return convert(weights, to)
        wide_v = widen(v)
        if bias is not None and wide_v.size and not np.isfinite(wide_v).all():  # 0 * inf of a closed key is nothing
            wide_v = np.where((weights != 0).any(axis=(1, 2))[:, None, :, None], wide_v, 0)
        return convert(values_of(weights, wide_v.astype(weights.dtype, copy=False)), to)


@op("flex_attention")
class FlexAttention(Operation):
    """prob_mod(softmax(score_mod(scale q k^T))) v, for grouped heads, with sub-modules for the two in between.

    q [b, h, s, d], k [b, g, t, d], v [b, g, t, e] -> [b, h, s, e].  modules: score_mod if `score_mod`, then prob_mod if
    `prob_mod`; each maps one tensor [b, h, s, t] of dtype `precision` (default: float32; float64 for float64) to
    another.
    Errors: ShapeError for operands or modules that do not fit.  Source: ONNX FlexAttention-1 (ai.onnx.preview).
    """

    scale: float | None = None
    score_mod: bool = False
    prob_mod: bool = False
    precision: DType | None = None

    def softmax_dtype(self, q: DType) -> DType:
        """The dtype of the softmax and of what the modules see."""
        return self.precision or (float64 if q is float64 else float32)

    def infer(self, q: Shape, k: Shape, v: Shape, *, modules: Sequence[Any] = ()) -> Shape:
        scores = grouped_dims(q, k, v)
        if len(modules) != self.score_mod + self.prob_mod:
            raise ShapeError(f"{self.score_mod + self.prob_mod} modules are required, got {len(modules)}")
        for module in modules:
            results = module.output_shapes()
            if len(module.parameters) != 1 or len(results) != 1:
                raise ShapeError(f"module {module.name!r} must take one tensor and return one")
            wanted = self.softmax_dtype(q.dtype)
            if not isinstance(results[0], Shape) or results[0].dtype is not wanted:
                raise ShapeError(f"module {module.name!r} must return a {wanted} tensor, got {results[0]}")
        return q.with_dims((*scores[:3], v.dims[3]))

    def compute(self, q: Array, k: Array, v: Array, *, modules: Sequence[Any] = (), run: Run | None = None) -> Value:
        to = of(q.dtype)
        precision = self.softmax_dtype(to)
        scale = 1 / math.sqrt(max(q.shape[-1], 1)) if self.scale is None else self.scale
        scores = convert(scores_of(widen(q), widen(k), scale), precision)
        pending = list(modules)

        def through(x: Array) -> Array:
            if run is None:
                raise ParameterError("flex_attention with modules needs a way to run them")
            (out,) = run(pending.pop(0), [x])
            if out.shape != x.shape or out.dtype != x.dtype:
                raise ShapeError(f"a module changed {x.dtype}{list(x.shape)} to {out.dtype}{list(out.shape)}")
            return np.asarray(out)

        if self.score_mod:
            scores = through(scores)
        weights = convert(probabilities(widen(scores)), precision)
        if self.prob_mod:
            weights = through(weights)
        wide = widen(convert(weights, to))
        return convert(values_of(wide, widen(v).astype(wide.dtype, copy=False)), to)

    def decompose(self, b: Any, q: Any, k: Any, v: Any) -> Any:
        precision = self.softmax_dtype(q.shape.dtype)
        if any(x.shape.dynamic() for x in (q, k, v)):
            return None
        modules = list(b.at.modules)
        weights = b.add(Convert(target_type=precision), scores_parts(b, q, k, self.scale))
        if self.score_mod:
            weights = inlined(b, modules.pop(0), weights)
        weights = b.add(Softmax(axis=3), weights)
        if self.prob_mod:
            weights = inlined(b, modules.pop(0), weights)
        return values_parts(b, weights, v)
