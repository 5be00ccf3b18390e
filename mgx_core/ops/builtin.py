"""Ops that any program may have: parameters, literals, absent inputs, the return and results that are never computed."""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import ShapeError, UnsupportedError
from ..types import dtype as dt
from ..types.shape import AnyShape, OptionalShape, Shape, TupleShape
from .declaration import op
from .operation import Operation

__all__ = ["Literal", "Param", "Return", "Undefined", "Unreachable"]


@op("@param")
class Param(Operation):
    """An input of its module.

    shape: the type of accepted values; label: the name under which callers pass it.
    """

    label: str
    shape: AnyShape

    def infer(self) -> AnyShape:
        return self.shape


@op("@literal")
class Literal(Operation):
    """A constant; the instruction holds the value, this op only its shape."""

    shape: AnyShape

    def infer(self) -> AnyShape:
        return self.shape


@op("@return", effect=True)
class Return(Operation):
    """The results of its module, in order."""

    def infer(self, *xs: AnyShape) -> AnyShape:
        return TupleShape(xs)


@op("undefined", exact=True)
class Undefined(Operation):
    """An input that is absent: `infer` and `compute` receive None for it."""

    def infer(self) -> AnyShape:
        return OptionalShape(Shape.unranked(dt.float32))

    def compute(self) -> None:
        raise UnsupportedError("an absent input has no value")


@op("unreachable")
class Unreachable(Operation):
    """A result of a branch that cannot run: for the extents of the program's parameters, values in it do not fit each other.

    cond: the condition of the branch -> `shape`, as the other branch returns it.  Errors: ShapeError with the message `why` when
    it is run.
    """

    shape: AnyShape
    why: str = ""

    def infer(self, cond: Shape) -> AnyShape:
        return self.shape

    def compute(self, cond: Any) -> NoReturn:
        raise ShapeError(self.why)
