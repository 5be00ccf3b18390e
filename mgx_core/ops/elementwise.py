"""Ops that are computed element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..errors import ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import Dim, may_equal
from ..types.dtype import DType
from ..types.shape import Shape
from .operation import Operation
from .scalar import Expr, convert, evaluate, rounds

__all__ = ["Pointwise", "same_dims"]


class Pointwise(Operation):
    """An op computed element by element from one scalar expression; its inputs share dims and dtype.

    `scalar`, given to `@define_op`, determines the number of inputs.  Subclasses define `result_dtype` if it is not the inputs'
    dtype.
    """

    __slots__ = ()

    scalar: ClassVar[Expr]
    accepts: ClassVar[str] = "biufc"
    """The kinds of element types that it takes; given to `@define_op`."""

    def infer(self, *xs: Shape) -> Shape:
        first = xs[0]
        for i, x in enumerate(xs):
            if not isinstance(x, Shape):
                raise ShapeError(f"input {i} must be a tensor, got {x}")
            if x.dtype.kind not in self.accepts:
                raise ShapeError(f"input {i} must not be of type {x.dtype}")
        self.check_dtypes(xs)
        dims = first.dims
        for i, x in enumerate(xs[1:], 1):
            if x.dims != dims and not same_dims(x.dims, dims):
                raise ShapeError(f"inputs must have equal dims, got {list(dims)} and {list(x.dims)} (input {i})")
        return Shape.of(self.result_dtype(xs), dims)

    def check_dtypes(self, xs: Sequence[Shape]) -> None:
        """Errors: ShapeError unless all inputs share one dtype (ops with mixed operands override)."""
        for x in xs[1:]:
            if x.dtype is not xs[0].dtype:
                raise ShapeError(f"inputs must share one type, got {xs[0].dtype} and {x.dtype}")

    def result_dtype(self, xs: Sequence[Shape]) -> DType:
        return xs[0].dtype

    @property
    def exact(self) -> bool:
        return not rounds(self.scalar)

    def compute(self, *xs: Array) -> Array:
        out = evaluate(type(self).scalar, xs, self)
        dtype = self.result_dtype([Shape.of(dt.of(x.dtype), ()) for x in xs])
        return out if out.dtype == dtype.numpy else convert(out, dtype)


def same_dims(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Returns True if two lists of extents have equal lengths and no pair is known to differ at compile time."""
    return len(a) == len(b) and all(x == y or may_equal(x, y) for x, y in zip(a, b, strict=True))
