"""Functions on ranges, shapes, arguments and lists of them, named as in the header without ``migraphx_``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import migraphx
from mgx_core import UnsupportedError
from migraphx import argument, shape

from .calls import UnknownTarget
from .handles import HandleError, element

# the first two values of the C enumeration have no equivalent in the Python module
FIRST_TYPE: Final = 2

Range = shape.dynamic_dimension


def optimals_create(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(values)


def dynamic_dimension_create_min_max(low: int, high: int) -> Any:
    return Range(low, high)


def dynamic_dimension_create_min_max_optimals(low: int, high: int, optimals: Sequence[int]) -> Any:
    return Range(low, high, set(optimals))


def dynamic_dimension_create_symbolic(expression: str | None, names: Sequence[str], ranges: Sequence[Any]) -> Any:
    if expression is None or len(names) != len(ranges):
        raise HandleError("one range is required for each name of the expression")
    return Range(expression, dict(zip(names, ranges, strict=True)))


def dynamic_dimension_is_symbolic(dimension: Any) -> bool:
    return bool(dimension.is_symbolic())


def dynamic_dimension_is_fixed(dimension: Any) -> bool:
    return bool(dimension.is_fixed())


def dynamic_dimension_equal(one: Any, other: Any) -> bool:
    return bool(one == other)


def dynamic_dimensions_create(dimensions: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(dimensions)


def dynamic_dimensions_size(dimensions: Sequence[Any]) -> int:
    return len(dimensions)


def dynamic_dimensions_get(dimensions: Sequence[Any], index: int) -> Any:
    return element(dimensions, index)


def _type(number: int) -> Any:
    if number < FIRST_TYPE:
        raise ValueError("tuple_type and fp4x2_type are not supported as element types of tensors")
    return shape.type_t(number - FIRST_TYPE)


def shape_create(number: int, lens: Sequence[int]) -> shape:
    return shape(type=_type(number), lens=list(lens)) if lens else shape_create_scalar(number)


def shape_create_with_strides(number: int, lens: Sequence[int], strides: Sequence[int]) -> shape:
    return shape(type=_type(number), lens=list(lens), strides=list(strides))


def shape_create_scalar(number: int) -> shape:
    return shape(type=_type(number), lens=[1], strides=[0])


def shape_create_dynamic(number: int, dimensions: Sequence[Any]) -> shape:
    return shape(type=_type(number), dyn_dims=list(dimensions))


def shape_create_symbolic(number: int, dims: Sequence[str], strides: Sequence[str]) -> shape:
    return shape(type=_type(number), dyn_dims=list(dims), dyn_strides=list(strides) or None)


def shape_lengths(given: shape) -> list[int]:
    return given.lens()


def shape_strides(given: shape) -> list[int]:
    return given.strides()


def shape_dyn_dims(given: shape) -> tuple[Any, ...]:
    return tuple(given.dyn_dims())


def shape_type(given: shape) -> int:
    return int(given.type()) + FIRST_TYPE


def shape_elements(given: shape) -> int:
    return given.elements()


def shape_bytes(given: shape) -> int:
    return given.bytes()


def shape_ndim(given: shape) -> int:
    return given.ndim()


def shape_equal(one: shape, other: shape) -> bool:
    return one == other


def shape_standard(given: shape) -> bool:
    return given.standard()


def shape_dynamic(given: shape) -> bool:
    return given.dynamic()


def shape_index(given: shape, index: int) -> int:
    """Returns the offset of an element given by its row-major index.  Errors: IndexError beyond the last element."""
    if index >= given.elements():
        raise IndexError(f"an index below {given.elements()} is required, got {index}")
    place = np.unravel_index(index, given.lens())
    return int(np.dot(place, given.strides()))


def shapes_size(shapes: Sequence[shape]) -> int:
    return len(shapes)


def shapes_get(shapes: Sequence[shape], index: int) -> shape:
    return element(shapes, index)


def argument_create(given: shape, buffer: int) -> argument:
    return migraphx.argument_from_pointer(given, buffer)


def argument_create_empty(given: shape) -> argument:
    return migraphx.fill_argument(given, 0)


def argument_shape(given: argument) -> shape:
    made: shape = given.get_shape()
    return made


def argument_buffer(given: argument) -> int:
    return given.data_ptr()


def argument_equal(one: argument, other: argument) -> bool:
    return bool(one == other)


def argument_save(given: argument, filename: str) -> None:
    argument.save(given, filename)


def argument_load(filename: str) -> argument:
    return argument.load(filename)


def argument_generate(given: shape, seed: int) -> argument:
    return migraphx.generate_argument(given, seed)


def arguments_size(arguments: Sequence[argument]) -> int:
    return len(arguments)


def arguments_get(arguments: Sequence[argument], index: int) -> argument:
    return element(arguments, index)


def program_parameter_shapes_size(shapes: dict[str, shape]) -> int:
    return len(shapes)


def program_parameter_shapes_get(shapes: dict[str, shape], name: str) -> shape:
    if name not in shapes:
        raise LookupError(f"no parameter {name!r}; known are {', '.join(shapes) or 'none'}")
    return shapes[name]


def program_parameter_shapes_names(shapes: dict[str, shape]) -> list[str]:
    return list(shapes)


def program_parameters_create() -> dict[str, argument]:
    return {}


def program_parameters_add(parameters: dict[str, argument], name: str, value: argument) -> None:
    parameters[name] = value


def target_create(name: str) -> Any:
    try:
        return migraphx.get_target(name)
    except UnsupportedError as error:
        raise UnknownTarget(str(error)) from error
