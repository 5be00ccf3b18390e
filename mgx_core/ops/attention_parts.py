"""Shared parts of attention ops: shape checks, reference implementation and decomposition of the products and the softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, may_equal
from ..types.dtype import DType, float32, float64
from ..types.shape import Shape
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .convert import Convert
from .linear import Dot
from .movement import Transpose
from .pointwise import Mul
from .reshape import Reshape

__all__ = ["full", "grouped_dims", "inlined", "probabilities", "scores_of", "scores_parts", "values_of", "values_parts"]


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
    """Returns softmax over the last axis; zeros where a whole row is -inf.  sink: one more logit in each row's denominator."""
    if not scores.shape[-1]:
        return scores
    top = scores.max(axis=-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink)
    top = np.where(np.isneginf(top), scores.dtype.type(0), top)
    out: Array = np.exp(scores - top)
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
    scores: Array = np.matmul(grouped * q.dtype.type(scale), np.swapaxes(k, -1, -2))
    return np.asarray(scores.reshape(b, h, s, t))


def values_of(weights: Array, v: Array) -> Array:
    """weights [b, h, s, t] v [b, g, t, e] -> [b, h, s, e]."""
    b, h, s, t = weights.shape
    g = v.shape[1]
    out: Array = np.matmul(weights.reshape(b, g, (h // g) * s, t), v)
    return out.reshape(b, h, s, v.shape[-1])


def full(b: Builder, value: float, like: Operand) -> Operand:
    """Returns a number in the dtype and extents of `like`."""
    one = b.literal(np.array(value).astype(like.shape.dtype.numpy))
    return b.add(Multibroadcast(out_lens=like.shape.dims), one)


def scores_parts(b: Builder, q: Operand, k: Operand, scale: float | None) -> Operand:
    """scale * q k^T [b, h, s, t], in float32 where q is narrower."""
    n, h, s, d = q.shape.dims
    g, t = k.shape.dims[1], k.shape.dims[2]
    factor = 1 / math.sqrt(max(int(d), 1)) if scale is None else scale
    grouped = b.add(Reshape(dims=(n, g, h // g * s, d)), q)
    product = b.add(Dot(), grouped, b.add(Transpose(permutation=(0, 1, 3, 2)), k))
    wide = b.add(Convert(target_type=float64 if q.shape.dtype is float64 else float32), product)
    scaled = b.add(Mul(), wide, full(b, factor, wide))
    return b.add(Reshape(dims=(n, h, s, t)), scaled)


def values_parts(b: Builder, weights: Operand, v: Operand, to: DType) -> Operand:
    """weights [b, h, s, t] v [b, g, t, e] -> [b, h, s, e] in a dtype, multiplied in it, or in a wide one if v has another."""
    n, h, s, t = weights.shape.dims
    g, e = v.shape.dims[1], v.shape.dims[3]
    of = to if v.shape.dtype is to else float64 if float64 in (v.shape.dtype, to) else float32
    weights, v = (b.add(Convert(target_type=of), x) if x.shape.dtype is not of else x for x in (weights, v))
    product = b.add(Dot(), b.add(Reshape(dims=(n, g, h // g * s, t)), weights), v)
    made = b.add(Reshape(dims=(n, h, s, e)), product)
    return made if of is to else b.add(Convert(target_type=to), made)


def inlined(b: Builder, module: Any, x: Operand) -> Operand:
    """Copies the instructions of a module of one parameter to the builder and returns its result for x."""
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
