"""Score computations of classical models as instructions, in float64 as the standard defines them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgx_core import dtype as dt
from mgx_core.ops.activation import Sigmoid
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.builder import Builder, Operand
from mgx_core.ops.compare import Equal, Greater
from mgx_core.ops.concat import Concat
from mgx_core.ops.convert import Convert
from mgx_core.ops.index import Gather
from mgx_core.ops.linear import Dot
from mgx_core.ops.operation import Operation
from mgx_core.ops.pointwise import Abs, Add, Div, Exp, Neg, Sub, Where
from mgx_core.ops.reduce import Argmax, ReduceMax, ReduceSum
from mgx_core.ops.reshape import Reshape
from mgx_core.ops.scores import NEARLY_ZERO
from mgx_core.ops.softmax import Softmax
from mgx_core.types.argument import Array

__all__ = ["labeled", "linear", "rounded", "spread", "transformed_parts", "two_score_parts", "wide_rows", "winners"]


def wide_rows(b: Builder, x: Operand) -> Operand:
    """Returns numeric data [n, f], or [f] as one row, in float64."""
    wide = b.add(Convert(target_type=dt.float64), x)
    return wide if x.shape.rank == 2 else b.add(Reshape(dims=(1, *x.shape.dims)), wide)


def spread(b: Builder, values: Array | float, like: Operand) -> Operand:
    """Returns numbers broadcast to the extents and converted to the type of a value."""
    number = b.literal(np.asarray(values, like.shape.dtype.numpy))
    return b.add(Multibroadcast(out_lens=like.shape.dims), number)


def linear(b: Builder, rows: Operand, weights: Array, shifts: Sequence[float] = ()) -> Operand:
    """Returns rows [n, f] @ weights [f, m] + shifts [m]."""
    out = b.add(Dot(), rows, b.literal(np.ascontiguousarray(weights, np.float64)))
    return b.add(Add(), out, spread(b, np.array(shifts), out)) if shifts else out


def transformed_parts(b: Builder, scores: Operand, post_transform: str) -> Operand | None:
    """Returns `transformed` as instructions; None if the transform has no such form."""
    known: dict[str, Operation] = {"LOGISTIC": Sigmoid(), "SOFTMAX": Softmax(axis=-1)}
    if post_transform == "NONE":
        return scores
    if post_transform == "SOFTMAX_ZERO":
        return _softmax_without_zeros(b, scores)
    return b.add(known[post_transform], scores) if post_transform in known else None


def _softmax_without_zeros(b: Builder, scores: Operand) -> Operand:
    """Returns softmax over the last axis of the scores that are not 0; others stay 0."""

    def per_row(x: Operand) -> Operand:
        return b.add(Multibroadcast(out_lens=scores.shape.dims), x)

    nothing = spread(b, 0.0, scores)
    weights = b.add(Exp(), b.add(Sub(), scores, per_row(b.add(ReduceMax(axes=(-1,)), scores))))
    weights = b.add(Where(), b.add(Greater(), b.add(Abs(), scores), spread(b, NEARLY_ZERO, scores)), weights, nothing)
    total = per_row(b.add(ReduceSum(axes=(-1,)), weights))
    return b.add(Div(), weights, b.add(Where(), b.add(Equal(), total, nothing), spread(b, 1.0, scores), total))


def two_score_parts(b: Builder, score: Operand, post_transform: str, probabilities: bool) -> Operand | None:
    """Returns `two_scores` as instructions: [n, 1] -> [n, 2]; None if the transform has no such form."""
    if post_transform == "PROBIT":
        return None
    if post_transform == "LOGISTIC":
        first, score = b.add(Sigmoid(), b.add(Neg(), score)), b.add(Sigmoid(), score)
    elif probabilities:
        first = b.add(Sub(), spread(b, 1.0, score), score)
    else:
        first = b.add(Neg(), score)
    return b.add(Concat(axis=1), first, score)


def winners(b: Builder, scores: Operand) -> Operand:
    """Returns the index of the highest score of each row [n]."""
    return b.add(Reshape(dims=scores.shape.dims[:1]), b.add(Argmax(axis=1), scores))


def labeled(b: Builder, classes: Operand, ints: Sequence[int]) -> Operand:
    """Returns the labels of classes given by index."""
    if list(ints) == list(range(len(ints))):
        return classes
    return b.add(Gather(axis=0), b.literal(np.array(ints, np.int64)), classes)


def rounded(b: Builder, scores: Operand) -> Operand:
    return b.add(Convert(target_type=dt.float32), scores)
