"""The four instructions that every program has: parameters, literals, absent inputs and the return."""

from __future__ import annotations

from ..errors import UnsupportedError
from ..types import dtype as dt
from ..types.shape import AnyShape, OptionalShape, Shape, TupleShape
from .declaration import op
from .operation import Operation

__all__ = ["Literal", "Param", "Return", "Undefined"]


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
