"""Conditions on values that are known only when a program runs."""

from __future__ import annotations

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dtype import bool_
from ..types.shape import Shape
from .declaration import op
from .operation import Operation

__all__ = ["Require"]


@op("require", exact=True)
class Require(Operation):
    """Returns x if every element of a condition is true.  A result that nothing uses is not checked.

    x: any [..]; condition: bool of any shape -> x.
    Errors: ShapeError for another type of condition; ParameterError with the text `message` at run time if an element is false.
    """

    message: str

    def infer(self, x: Shape, condition: Shape) -> Shape:
        if condition.dtype is not bool_:
            raise ShapeError(f"condition must be bool, got {condition}")
        return x.as_standard()

    def compute(self, x: Array, condition: Array) -> Array:
        if not condition.all():
            raise ParameterError(self.message)
        return x
