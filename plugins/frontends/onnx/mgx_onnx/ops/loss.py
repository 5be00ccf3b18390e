"""Classification losses."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.builder import Builder, Operand
from mgx_core.ops.compare import Less, NotEqual
from mgx_core.ops.convert import Convert
from mgx_core.ops.declaration import op
from mgx_core.ops.elementwise import same_dims
from mgx_core.ops.index import Gather, GatherElements
from mgx_core.ops.operation import Operation
from mgx_core.ops.pointwise import Div, Mul, Neg, Where
from mgx_core.ops.reduce import ReduceSum
from mgx_core.ops.reshape import Reshape, Squeeze, Unsqueeze
from mgx_core.ops.scalar import convert, widen
from mgx_core.types.argument import Array
from mgx_core.types.dim import may_equal
from mgx_core.types.shape import Shape

from .score_parts import spread

__all__ = ["NegativeLogLikelihoodLoss"]


@op("negative_log_likelihood_loss")
class NegativeLogLikelihoodLoss(Operation):
    """Computes the weighted negative log-likelihood of the true classes.

    x: float [n, c, d1, ..] log-probabilities, target: int32 or int64 [n, d1, ..], weight: optional float [c] ->
    [n, d1, ..] if `reduction` is none, else a scalar; the mean is weighted.  Targets equal to `ignore_index` are ignored.
    Errors: ShapeError if dims do not fit, at run time for targets outside 0..c-1.
    Source: ONNX NegativeLogLikelihoodLoss-22.
    """

    ignore_index: int | None = None
    reduction: Literal["none", "sum", "mean"] = "mean"

    def infer(self, x: Shape, target: Shape, weight: Shape | None = None) -> Shape:
        if not x.dtype.is_float or x.rank < 2:
            raise ShapeError(f"x must be a float tensor of rank 2 or more, got {x}")
        if target.dtype not in (dt.int32, dt.int64):
            raise ShapeError(f"target must be int32 or int64, got {target.dtype}")
        dims = (x.dims[0], *x.dims[2:])
        if not same_dims(target.dims, dims):
            raise ShapeError(f"target must have dims {list(dims)}, got {list(target.dims)}")
        if weight is not None and (
            weight.dtype is not x.dtype or weight.rank != 1 or not may_equal(weight.dims[0], x.dims[1])
        ):
            raise ShapeError(f"weight must be {x.dtype}[{x.dims[1]}], got {weight}")
        return x.with_dims(dims if self.reduction == "none" else ())

    def compute(self, x: Array, target: Array, weight: Array | None = None) -> Array:
        dtype = dt.of(x.dtype)
        classes = x.shape[1]
        kept = np.ones(target.shape, np.bool_) if self.ignore_index is None else target != self.ignore_index
        if (kept & ((target < 0) | (target >= classes))).any():
            raise ShapeError(f"targets must lie in [0, {classes - 1}]")
        index = np.where(kept, target, 0).astype(np.int64)
        if not classes:  # all targets are ignored
            picked = np.zeros(target.shape, widen(x).dtype)
        else:
            picked = np.squeeze(np.take_along_axis(widen(x), index[:, None], axis=1), 1)
        share = kept.astype(picked.dtype)
        if weight is not None and classes:
            share = share * widen(weight)[index]
        loss = np.where(kept, -picked * share, 0).astype(picked.dtype)
        if self.reduction == "none":
            return convert(loss, dtype)
        out = np.sum(loss, dtype=np.float64)
        if self.reduction == "mean":
            with np.errstate(all="ignore"):
                out = out / np.sum(share, dtype=np.float64)
        return np.asarray(out).astype(dtype.accumulate).astype(dtype.numpy)

    def decompose(self, b: Builder, x: Operand, target: Operand, weight: Operand | None = None) -> Operand | None:
        if x.shape.dims[1] == 0:
            return None
        to = x.shape.dtype
        wide = dt.float64 if to is dt.float64 else dt.float32
        index = b.add(Convert(target_type=dt.int64), target)
        # negative targets are out of range
        at = b.add(Where(), b.add(Less(), index, spread(b, 0, index)), spread(b, 2**31 - 1, index), index)
        kept = None
        if self.ignore_index is not None:
            kept = b.add(NotEqual(), index, spread(b, self.ignore_index, index))
            at = b.add(Where(), kept, at, spread(b, 0, at))
        columns = b.add(GatherElements(axis=1), b.add(Convert(target_type=wide), x), b.add(Unsqueeze(axes=(1,)), at))
        loss = b.add(Neg(), b.add(Squeeze(axes=(1,)), columns))
        share = spread(b, 1.0, loss)
        if weight is not None:
            share = b.add(Gather(axis=0), b.add(Convert(target_type=wide), weight), at)
            loss = b.add(Mul(), loss, share)
        if kept is not None:
            share, loss = (b.add(Where(), kept, v, spread(b, 0.0, v)) for v in (share, loss))
        if self.reduction != "none":
            loss = _total(b, loss)
            loss = b.add(Div(), loss, _total(b, share)) if self.reduction == "mean" else loss
        return b.add(Convert(target_type=to), b.add(Convert(target_type=wide), loss))


def _total(b: Builder, x: Operand) -> Operand:
    """Returns the sum of all elements as a scalar in float64."""
    sums = b.add(ReduceSum(axes=tuple(range(x.shape.rank))), b.add(Convert(target_type=dt.float64), x))
    return b.add(Reshape(dims=()), sums)
