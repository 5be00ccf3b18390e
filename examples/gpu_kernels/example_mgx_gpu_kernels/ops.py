"""The operation: its definition, valid on any target."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Operation, OpSet, Shape, ShapeError, define_op

__all__ = ["OPS", "LeakySum"]


@define_op("leaky_sum")
class LeakySum(Operation):
    """A leaky sum along the last axis: y[t] = rate * y[t - 1] + x[t].

    x: float [.., n] -> same shape.  Errors: ShapeError if x is not a float tensor with an axis.
    """

    rate: float = 0.9

    def infer(self, x: Shape) -> Shape:
        if not x.dtype.is_float or x.rank == 0:
            raise ShapeError(f"x must be a float tensor with an axis, got {x}")
        return x.as_standard()

    def compute(self, x: Any) -> Any:
        out = np.empty(x.shape, np.float64)
        state = np.zeros(x.shape[:-1])
        for t in range(x.shape[-1]):
            state = self.rate * state + x[..., t]
            out[..., t] = state
        return out.astype(x.dtype)


OPS = OpSet.of(LeakySum)
