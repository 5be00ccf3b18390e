"""The operations: their definitions, valid on any target."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Operation, OpSet, Pointwise, Shape, ShapeError, define_op
from mgx_core.ops.scalar import call, x0

__all__ = ["OPS", "BentIdentity", "Decay", "SortRows"]


@define_op("bent_identity", scalar=0.5 * (call("sqrt", x0 * x0 + 1) - 1) + x0, accepts="f")
class BentIdentity(Pointwise):
    """(sqrt(x^2 + 1) - 1) / 2 + x.

    x: float -> same shape.
    """


def rows(x: Shape) -> Shape:
    """Returns the shape of x.  Errors: ShapeError unless x is a float tensor with an axis."""
    if not x.dtype.is_float or x.rank == 0:
        raise ShapeError(f"x must be a float tensor with an axis, got {x}")
    return x.as_standard()


@define_op("decay")
class Decay(Operation):
    """A leaky sum along the last axis: y[t] = rate * y[t - 1] + x[t].

    x: float [.., n] -> same shape.  Errors: ShapeError if x is not a float tensor with an axis.
    """

    rate: float = 0.9

    def infer(self, x: Shape) -> Shape:
        return rows(x)

    def compute(self, x: Any) -> Any:
        out = np.empty(x.shape, np.float64)
        state = np.zeros(x.shape[:-1])
        for t in range(x.shape[-1]):
            state = self.rate * state + x[..., t]
            out[..., t] = state
        return out.astype(x.dtype)


@define_op("sort_rows")
class SortRows(Operation):
    """The elements along the last axis in ascending order, NaN last.

    x: float [.., n] -> same shape.  Errors: ShapeError if x is not a float tensor with an axis.
    """

    def infer(self, x: Shape) -> Shape:
        return rows(x)

    def compute(self, x: Any) -> Any:
        return np.sort(x, axis=-1)


OPS = OpSet.of(BentIdentity, Decay, SortRows)
