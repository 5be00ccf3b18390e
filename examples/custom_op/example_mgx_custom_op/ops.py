"""The operations: each is a class with attributes, shape inference and a reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction, Operation, OpSet, ParameterError, Pointwise, Shape, ShapeError, define_op, dim
from mgx_core import op as make_op
from mgx_core.ops.scalar import attr, call, x0

__all__ = ["OPS", "MovingAverage", "Squareplus"]


@define_op("squareplus", scalar=0.5 * (x0 + call("sqrt", x0 * x0 + attr("b"))), accepts="f")
class Squareplus(Pointwise):
    """A smooth relu without an exponential: (x + sqrt(x^2 + b)) / 2.

    x: float -> same shape.  b: smoothness, 0 for relu.  Source: Barron, Squareplus, 2021.
    """

    b: float = 4.0

    def check(self) -> None:
        if self.b < 0:
            raise ParameterError(f"squareplus: b must not be negative, got {self.b}")


@define_op("moving_average")
class MovingAverage(Operation):
    """The mean of every `window` adjacent elements along the last axis.

    x: float [.., n] -> [.., n - window + 1].
    Errors: ShapeError if x is not a float, a scalar, or shorter than the window.
    """

    window: int

    def check(self) -> None:
        if self.window < 1:
            raise ParameterError(f"moving_average: window must be at least 1, got {self.window}")

    def infer(self, x: Shape) -> Shape:
        if not x.dtype.is_float or x.rank == 0:
            raise ShapeError(f"x must be a float tensor with an axis, got {x}")
        n = x.dims[-1]
        if dim.compare(n, "<", self.window):  # None for a symbolic extent that may be long enough
            raise ShapeError(f"the last axis must have at least {self.window} elements, got {n}")
        return x.with_dims((*x.dims[:-1], n - self.window + 1))

    def compute(self, x: Any) -> Any:
        if x.shape[-1] < self.window:
            raise ShapeError(f"the last axis must have at least {self.window} elements, got {x.shape[-1]}")
        runs = np.lib.stride_tricks.sliding_window_view(x, self.window, axis=-1)
        return runs.mean(axis=-1, dtype=np.float64).astype(x.dtype)

    def decompose(self, b: Any, x: Instruction) -> Instruction:
        """Returns the sum of `window` slices, each shifted by one, times 1 / window."""
        dims = self.infer(x.shape).dims
        axis = x.shape.rank - 1
        parts = [
            b.add(make_op("slice", axes=(axis,), starts=(i,), ends=(i + dims[-1],)), x) for i in range(self.window)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = b.add(make_op("add"), total, part)
        factor = b.literal(np.asarray(1 / self.window, x.shape.dtype.numpy))
        return b.add(make_op("mul"), total, b.add(make_op("multibroadcast", out_lens=dims), factor))


OPS = OpSet.of(Squareplus, MovingAverage)
