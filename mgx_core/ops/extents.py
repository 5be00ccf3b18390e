"""Unification of the extents of operands, and checks of operands that hold extents or indices."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, fresh, may_equal
from ..types.shape import Shape
from ..types.tensor_shape import MAX_RANK

__all__ = ["index_operand", "merge", "merge_all", "scalar_operand", "unknown", "vector_length", "whole"]


def merge(a: Dim, b: Dim, what: str = "extents") -> Dim:
    """Returns the more specific of two equal extents.  Errors: ShapeError if they cannot be equal."""
    if a == b:
        return a
    if not may_equal(a, b):
        raise ShapeError(f"{what} must be equal, got {a} and {b}")
    return b if isinstance(b, int) else a


def merge_all(a: Iterable[Dim], b: Iterable[Dim], what: str = "extents") -> tuple[Dim, ...]:
    """Merges lists of extents axis by axis.  Errors: ShapeError for different ranks."""
    left, right = tuple(a), tuple(b)
    if len(left) != len(right):
        raise ShapeError(f"{what} must have one rank, got {list(left)} and {list(right)}")
    return tuple(merge(p, q, what) for p, q in zip(left, right, strict=True))


def index_operand(x: Shape, what: str) -> Shape:
    """Errors: ShapeError unless the operand is a tensor of integers."""
    if not isinstance(x, Shape) or not x.dtype.is_integer:
        raise ShapeError(f"{what} must be integers, got {x}")
    return x


def scalar_operand(x: Shape, what: str) -> Shape:
    """Errors: ShapeError unless the operand may hold exactly one element."""
    if not isinstance(x, Shape) or not all(may_equal(d, 1) for d in x.dims):
        raise ShapeError(f"{what} must have one element, got {x}")
    return x


def vector_length(x: Shape, what: str) -> Dim:
    """Returns the length of a vector of integers (a scalar counts as one).  Errors: ShapeError for more axes or other types."""
    index_operand(x, what)
    if x.rank > 1:
        raise ShapeError(f"{what} must be a vector, got {x}")
    return x.dims[0] if x.rank else 1


def unknown(x: Shape, rank: Dim) -> Shape:
    """Returns the type of a tensor like x with data-dependent extents, and possibly unknown rank."""
    if not isinstance(rank, int):
        return Shape.unranked(x.dtype)
    if not 0 <= rank <= MAX_RANK:
        raise ShapeError(f"a tensor has 0 to {MAX_RANK} axes, got {rank}")
    return x.with_dims(fresh("d") for _ in range(rank))


def whole(x: Array) -> list[int]:
    """Returns the values of an integer vector or scalar."""
    values: list[int] = x.ravel().tolist()
    return values if x.dtype.kind in "iu" else [int(v) for v in values]
