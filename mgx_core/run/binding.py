"""Binds callers' values to a program's parameters, and returns results as arrays that own their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import MgxError, ParameterError, ShapeError
from ..types.argument import Value, as_value, shape_of
from ..types.dim import bounds, symbols_of
from ..types.polynomial import UNBOUNDED
from ..types.shape import AnyShape, OptionalShape, SequenceShape, Shape, TupleShape, matches

if TYPE_CHECKING:
    from ..ir.module import Module

__all__ = ["as_parameter", "base", "described", "owned", "tensor_type"]


def as_parameter(name: str, given: Any, shape: AnyShape) -> Value:
    """Returns a caller's value as a parameter of this shape.  Errors: ParameterError."""
    if isinstance(shape, Shape) and isinstance(given, (bool, int, float, list)) and shape.dtype.kind != "s":
        given = _numbers(name, given, shape)
    try:
        if isinstance(given, (list, tuple)) and not isinstance(shape, Shape):
            items = [as_value(v) for v in given]
            value: Value = tuple(items) if isinstance(shape, TupleShape) else items
        else:
            value = as_value(given)
    except MgxError as error:
        raise ParameterError(f"parameter {name!r} must be {described(shape)}: {error.message}") from None
    try:
        fits = _fits(shape, value)
    except ShapeError:
        fits = False
    if not fits:
        got = "None" if value is None else described(shape_of(value))
        raise ParameterError(f"parameter {name!r} must be {described(shape)}, got {got}")
    return value


def _numbers(name: str, given: Any, shape: Shape) -> Any:
    """Converts Python numbers to the parameter's type if only rounding is lost.  Errors: ParameterError."""
    try:
        found = np.asarray(given)
    except ValueError:
        raise ParameterError(
            f"parameter {name!r} must be {described(shape)}, got a nested list of unequal lengths"
        ) from None
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    if found.size and ranks.get(found.dtype.kind, 4) > ranks[shape.dtype.kind]:
        raise ParameterError(f"parameter {name!r} must be {described(shape)}, got {found.dtype} values")
    if (
        found.size
        and shape.dtype.is_integer
        and not shape.dtype.lowest <= found.min() <= found.max() <= shape.dtype.highest
    ):
        raise ParameterError(
            f"parameter {name!r} must be {described(shape)}, got values from {found.min()} to {found.max()}"
        )
    return found.astype(shape.dtype.numpy)


def _fits(shape: AnyShape, value: Value) -> bool:
    if isinstance(shape, Shape) and isinstance(value, np.ndarray):
        return matches(shape, Shape.of(shape_of(value).dtype, value.shape))  # type: ignore[union-attr]
    if isinstance(shape, OptionalShape):
        return value is None or _fits(shape.element, value)
    if value is None:
        return False
    if isinstance(value, list) and isinstance(shape, SequenceShape):
        return all(_fits(shape.element, v) for v in value)
    return matches(shape, shape_of(value))


def described(shape: AnyShape) -> str:
    """Returns a shape for error messages, with the bounds of its symbols."""
    if not isinstance(shape, Shape) or not shape.ranked:
        return str(shape)
    ranges = []
    for d in shape.dims:
        lo, hi = bounds(d)
        if all(s.hi < UNBOUNDED for s in symbols_of(d)):
            ranges += [] if isinstance(d, int) else [f"{d} in {lo}..{hi}"]
        elif lo > 0:
            ranges.append(f"{d} >= {lo}")
    return str(shape) + (f" with {', '.join(ranges)}" if ranges else "")


def tensor_type(value: Value) -> AnyShape:
    """Returns the type of a value, regardless of its memory layout."""
    shape = shape_of(value)
    return shape.as_standard() if isinstance(shape, Shape) else shape


def owned(results: Sequence[Value], inputs: Sequence[Value], module: Module | None) -> list[Value]:
    """Returns results that own their memory; copies those that alias an input, a literal or another result."""
    taken = {id(base(v)) for v in inputs if isinstance(v, np.ndarray)}
    if module is not None:  # literals from a file are read-only, so `_own` copies them anyway
        taken |= module.derive("literal memory", _literal_memory)
    return [_own(v, taken) for v in results]


def _own(value: Value, taken: set[int]) -> Value:
    if isinstance(value, np.ndarray):
        memory = base(value)
        if id(memory) in taken or not value.flags.c_contiguous or not isinstance(memory, np.ndarray):
            return value.copy(order="C")
        if not value.flags.writeable or memory.nbytes > value.nbytes:
            return value.copy(order="C")
        taken.add(id(memory))
        return value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return list(value)  # maps hold numbers and strings
    if isinstance(value, (tuple, list)):
        return type(value)(_own(v, taken) for v in value)
    return value


def base(array: Any) -> Any:
    """Returns the object that owns an array's memory."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def _literal_memory(module: Module) -> set[int]:
    found = set()
    for ins in module:
        if ins.literal is not None and isinstance(ins.literal.value, np.ndarray):
            found.add(id(base(ins.literal.value)))
        for inner in ins.modules:
            found |= _literal_memory(inner)
    return found
