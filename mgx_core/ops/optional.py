"""Optional values: present or absent."""

from __future__ import annotations

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types import dtype as dt
from ..types.argument import Array, Value
from ..types.shape import AnyShape, OptionalShape, Shape
from .declaration import op
from .operation import Operation

__all__ = ["Optional", "OptionalGetElement", "OptionalHasElement"]


@op("optional", exact=True)
class Optional(Operation):
    """An optional value: present if there is an input, else absent.

    x: any, or absent -> optional of it; `type` is the type of an absent value.
    Errors: ShapeError if there is neither an input nor `type`.  Source: ONNX Optional-28.
    """

    type: AnyShape | None = None

    def infer(self, x: AnyShape | None = None) -> OptionalShape:
        inside = self.type if x is None else x
        if inside is None:
            raise ShapeError("an optional without a value needs attribute 'type'")
        return OptionalShape(inside)

    def compute(self, x: Value = None) -> Value:
        return x


@op("optional_has_element", exact=True)
class OptionalHasElement(Operation):
    """True if an optional holds a value; any other value always does.

    x: optional, or any, or absent -> bool scalar.  Source: ONNX OptionalHasElement-28.
    """

    def infer(self, x: AnyShape | None = None) -> Shape:
        return Shape.of(dt.bool_, ())

    def compute(self, x: Value = None) -> Array:
        return np.asarray(x is not None)


@op("optional_get_element", exact=True)
class OptionalGetElement(Operation):
    """The value that an optional holds; any other value is returned unchanged.

    x: optional -> its element.  Errors: ParameterError if it is absent.  Source: ONNX OptionalGetElement-28.
    """

    def infer(self, x: AnyShape) -> AnyShape:
        return x.element if isinstance(x, OptionalShape) else x

    def compute(self, x: Value) -> Value:
        if x is None:
            raise ParameterError("the optional holds no value")
        return x
