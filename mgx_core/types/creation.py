"""Creates arguments from lists, a fill value, random numbers or an address."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence, Sized
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from .argument import Argument
from .dtype import Array
from .memory_limit import require_memory
from .shape import Shape

__all__ = ["create_argument", "fill_argument", "generate_argument", "host_argument_from_pointer"]


def create_argument(shape: Shape, values: Sequence[Any]) -> Argument:
    """Returns a tensor of the given shape from a flat list of values in row-major order."""
    _require_tensor("create_argument", shape)
    if not isinstance(values, Sized) or (isinstance(values, np.ndarray) and not values.ndim):
        raise ParameterError(f"create_argument takes a list of values, got {values!r}")
    if len(values) != shape.elements():
        raise ShapeError(f"{shape} has {shape.elements()} elements, got {len(values)} values")
    return Argument(_laid_out(_elements(values, shape).reshape(shape.lens()), shape), shape)


def fill_argument(shape: Shape, value: Any) -> Argument:
    """Returns a tensor of the given shape filled with `value`."""
    _require_tensor("fill_argument", shape)
    require_memory(shape.lens(), shape.dtype.size, "the argument")
    return Argument(_laid_out(np.full(shape.lens(), _elements(value, shape)), shape), shape)


def _require_tensor(function: str, shape: Any) -> None:
    """Errors: ParameterError for anything but a tensor's shape."""
    if not isinstance(shape, Shape):
        raise ParameterError(f"{function} takes the Shape of a tensor, got {shape!r}")


def _elements(values: Any, shape: Shape) -> Array:
    """Returns values converted to the element type of `shape`.  Errors: ParameterError if it cannot represent them."""
    try:
        return np.asarray(values, dtype=object if shape.dtype.kind == "s" else None).astype(shape.dtype.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"{shape} cannot hold the values given: {error}") from None


def generate_argument(shape: Shape, seed: int = 0) -> Argument:
    """Returns a tensor of the given shape with reproducible random values: floats in [-1, 1), small integers, booleans."""
    _require_tensor("generate_argument", shape)
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ParameterError(f"seed must be an int, 0 or more, got {seed!r}")
    rng = np.random.default_rng(seed)
    lens = shape.lens()
    require_memory(lens, shape.dtype.size, "the argument")
    if shape.dtype.kind == "b":
        array: Array = rng.integers(0, 2, lens).astype(np.bool_)
    elif shape.dtype.is_integer:
        low, high = max(shape.dtype.lowest, -8), min(shape.dtype.highest, 7)
        array = rng.integers(low, high + 1, lens).astype(shape.dtype.numpy)
    elif shape.dtype.kind == "s":
        array = np.array([f"s{n}" for n in rng.integers(0, 100, max(shape.elements(), 0))], dtype=object).reshape(lens)
    elif shape.dtype.kind == "c":
        array = (rng.uniform(-1, 1, lens) + 1j * rng.uniform(-1, 1, lens)).astype(shape.dtype.numpy)
    else:
        array = rng.uniform(-1, 1, lens).astype(np.float32)
        array = (np.abs(array) if shape.dtype.lowest > 0 else array).astype(shape.dtype.numpy)
    return Argument(_laid_out(array, shape), shape)


def host_argument_from_pointer(shape: Shape, address: int) -> Argument:
    """Returns a tensor in host memory that the caller owns and keeps alive; `address` is the first element's."""
    if address <= 0 and shape.elements():
        raise ParameterError(f"argument_from_pointer needs the address of the first element, got {address}")
    if shape.dtype.kind == "s":
        raise ParameterError("strings have no memory that an address could share")
    space = shape.element_space() * shape.dtype.size
    if not space:
        return Argument(np.empty(shape.lens(), shape.dtype.numpy), shape)
    flat = np.frombuffer((ctypes.c_char * space).from_address(address), dtype=np.uint8).view(shape.dtype.numpy)
    size = shape.dtype.size
    return Argument(
        np.lib.stride_tricks.as_strided(flat, shape.lens(), [s * size for s in shape.strides()]),
        shape,
    )


def _laid_out(array: Array, shape: Shape) -> Array:
    """Returns the same elements in a buffer with the shape's strides."""
    if shape.standard():
        return np.ascontiguousarray(array).reshape(array.shape)
    size = shape.dtype.size
    store = np.empty(shape.element_space(), shape.dtype.numpy)
    # with a negative stride the first element is stored last
    first = sum((n - 1) * -s for n, s in zip(shape.lens(), shape.strides(), strict=True) if s < 0 < n)
    view = np.lib.stride_tricks.as_strided(store[first:], shape.lens(), [s * size for s in shape.strides()])
    view[...] = array
    return view
