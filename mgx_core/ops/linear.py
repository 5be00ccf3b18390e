"""Matrix products and small linear algebra."""

from __future__ import annotations

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import may_equal, minimum
from ..types.dtype import of
from ..types.shape import Shape
from .axes import normalize
from .declaration import op
from .operation import Operation
from .scalar import convert, widen

__all__ = ["Det", "Diagonal", "Dot", "Inverse"]


@op("dot", product="matrix", linear=(0, 1))
class Dot(Operation):
    """Matrix product over the last two axes; the others are batches of equal extents.

    a [.., m, k], b [.., k, n] of one number type -> [.., m, n].  Narrow floats sum in float32.
    Errors: ShapeError for other ranks, types or extents.  Source: MIGraphX dot.
    """

    def infer(self, a: Shape, b: Shape) -> Shape:
        if a.rank != b.rank or a.rank < 2:
            raise ShapeError(f"a and b must have the same rank of at least 2, got {a} and {b}")
        if a.dtype is not b.dtype or not a.dtype.is_number:
            raise ShapeError(f"a and b must have the same number type, got {a.dtype} and {b.dtype}")
        if not may_equal(a.dims[-1], b.dims[-2]):
            raise ShapeError(f"the last extent of a must equal the last but one of b, got {a} and {b}")
        for i, (p, q) in enumerate(zip(a.dims[:-2], b.dims[:-2], strict=True)):
            if not may_equal(p, q):
                raise ShapeError(f"batch axis {i} must have equal extents, got {p} and {q}")
        batch = [q if isinstance(q, int) else p for p, q in zip(a.dims[:-2], b.dims[:-2], strict=True)]
        return a.with_dims((*batch, a.dims[-2], b.dims[-1]))

    def compute(self, a: Array, b: Array) -> Array:
        return convert(np.asarray(np.matmul(widen(a), widen(b))), of(a.dtype))


def square(x: Shape) -> None:
    """Errors: ShapeError unless x is float [.., n, n]."""
    if x.rank < 2 or not may_equal(x.dims[-1], x.dims[-2]):
        raise ShapeError(f"x must be square in its last two axes, got {x}")
    if not x.dtype.is_float:
        raise ShapeError(f"x must be of a float type, got {x.dtype}")


@op("det")
class Det(Operation):
    """Determinant of each matrix.

    x: float [.., n, n] -> [..].  Errors: ShapeError unless square.  Source: ONNX Det-22.
    """

    def infer(self, x: Shape) -> Shape:
        square(x)
        return x.with_dims(x.dims[:-2])

    def compute(self, x: Array) -> Array:
        return convert(np.asarray(np.linalg.det(widen(x).astype(np.float64))), of(x.dtype))


@op("inverse")
class Inverse(Operation):
    """Inverse of each matrix.

    x: float [.., n, n] -> the same shape.  Errors: ShapeError unless square; ParameterError at run time if singular.
    Source: com.microsoft Inverse-1.
    """

    def infer(self, x: Shape) -> Shape:
        square(x)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        try:
            return convert(np.asarray(np.linalg.inv(widen(x).astype(np.float64))), of(x.dtype))
        except np.linalg.LinAlgError:
            raise ParameterError("a matrix to be inverted is singular") from None


@op("diagonal", exact=True)
class Diagonal(Operation):
    """The elements whose indices along two axes are equal; `axis1` is kept, `axis2` removed.

    x [.., n, .., n, ..] -> [.., n, ..].  Errors: ShapeError if the axes are one, outside the rank, or differ in extent.
    """

    axis1: int = 0
    axis2: int = 1

    def infer(self, x: Shape) -> Shape:
        first, second = self.axes(x.rank)
        if not may_equal(x.dims[first], x.dims[second]):
            raise ShapeError(f"axes {first} and {second} must have one extent, got {x}")
        dims = list(x.dims)
        dims[first] = minimum(dims[first], dims[second])
        del dims[second]
        return x.with_dims(dims)

    def axes(self, rank: int) -> tuple[int, int]:
        first, second = normalize(self.axis1, rank), normalize(self.axis2, rank)
        if first == second:
            raise ShapeError(f"a diagonal needs two different axes, got {first} twice")
        return first, second

    def view(self, x: Shape) -> tuple[int, Shape]:
        """Returns the result as a view of x."""
        first, second = self.axes(x.rank)
        lens, steps = x.lens(), x.strides()
        steps[first] += steps[second]
        del lens[second], steps[second]
        return 0, Shape(x.dtype, lens, steps)

    def compute(self, x: Array) -> Array:
        first, second = self.axes(x.ndim)
        if x.shape[first] != x.shape[second]:
            raise ShapeError(f"axes {first} and {second} must have one extent, got {list(x.shape)}")
        at = first - (second < first)
        out: Array = np.moveaxis(np.diagonal(x, axis1=first, axis2=second), -1, at)
        return out
