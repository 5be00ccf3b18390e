"""Softmax and its relatives along one axis."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.shape import Shape
from .axes import normalize
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .convert import Convert
from .declaration import op
from .operation import Operation
from .pointwise import Div, Exp, Log, Sub
from .reduce import ReduceMax, ReduceSum
from .scalar import convert, widen

__all__ = ["Hardmax", "Logsoftmax", "Softmax"]


@op("")
class AlongAxis(Operation):
    """Base of the ops that map each line of floats along `axis` to one of the same length."""

    __slots__ = ()

    axis: int = -1

    def infer(self, x: Shape) -> Shape:
        if not x.dtype.is_float:
            raise ShapeError(f"x must be of a float type, got {x.dtype}")
        normalize(self.axis, x.rank)
        return x.as_standard()

    def reduced_axes(self, rank: int) -> tuple[int, ...]:
        return (normalize(self.axis, rank),)

    def shifted(self, x: Array) -> tuple[Array, int]:
        """Returns the operand minus the maximum of its line, in a wide type, and the axis."""
        axis = normalize(self.axis, x.ndim)
        wide = widen(x)
        if not wide.size:
            return wide, axis
        return np.asarray(wide - np.max(wide, axis=axis, keepdims=True)), axis

    def shifted_ops(self, b: Builder, x: Operand) -> Operand:
        """Returns the same as instructions."""
        if x.shape.dtype.bits < 32:
            x = b.add(Convert(target_type=dt.float32), x)
        top = b.add(ReduceMax(axes=(self.axis,)), x)
        return b.add(Sub(), x, b.add(Multibroadcast(out_lens=x.shape.dims), top))

    def total_ops(self, b: Builder, x: Operand) -> Operand:
        """Returns the sum of each line, broadcast along it."""
        return b.add(Multibroadcast(out_lens=x.shape.dims), b.add(ReduceSum(axes=(self.axis,)), x))


def narrowed(b: Builder, x: Operand, like: Operand) -> Operand:
    """Converts an instruction to the element type of another."""
    return x if x.shape.dtype is like.shape.dtype else b.add(Convert(target_type=like.shape.dtype), x)


@op("softmax")
class Softmax(AlongAxis):
    """Normalized exponential along one axis.

    x: float [.., n, ..] -> same shape; sums to 1 along `axis`.
    Errors: ShapeError if `axis` is outside the rank of x.  Source: ONNX Softmax-13.
    """

    def compute(self, x: Array) -> Array:
        shifted, axis = self.shifted(x)
        powers = np.exp(shifted)
        return convert(np.asarray(powers / np.sum(powers, axis=axis, keepdims=True)), dt.of(x.dtype))

    def decompose(self, b: Builder, x: Operand) -> Operand:
        powers = b.add(Exp(), self.shifted_ops(b, x))
        return narrowed(b, b.add(Div(), powers, self.total_ops(b, powers)), x)


@op("logsoftmax")
class Logsoftmax(AlongAxis):
    """Logarithm of softmax along one axis.

    x: float [.., n, ..] -> same shape.
    Errors: ShapeError if `axis` is outside the rank of x.  Source: ONNX LogSoftmax-13.
    """

    def compute(self, x: Array) -> Array:
        shifted, axis = self.shifted(x)
        scale = np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
        return convert(np.asarray(shifted - scale), dt.of(x.dtype))

    def decompose(self, b: Builder, x: Operand) -> Operand:
        shifted = self.shifted_ops(b, x)
        scale = b.add(Log(), self.total_ops(b, b.add(Exp(), shifted)))
        return narrowed(b, b.add(Sub(), shifted, scale), x)


@op("hardmax", exact=True)
class Hardmax(AlongAxis):
    """1 at the first maximum along one axis, else 0.

    x: float [.., n, ..] -> same shape.
    Errors: ShapeError if `axis` is outside the rank of x.  Source: ONNX Hardmax-13.
    """

    def compute(self, x: Array) -> Array:
        axis = normalize(self.axis, x.ndim)
        out = np.zeros(x.shape, np.float32)
        if out.size:
            np.put_along_axis(out, np.argmax(widen(x), axis=axis, keepdims=True), 1, axis)
        return convert(out, dt.of(x.dtype))
