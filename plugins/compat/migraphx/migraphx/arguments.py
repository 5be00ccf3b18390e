"""`migraphx.argument` and functions that create one."""

from __future__ import annotations

from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core import Argument, Shape
from mgx_core.errors import ParameterError
from mgx_core.types.memory_limit import require_bytes

from .random_values import random_values
from .shapes import core_shape, of_shape, shape

__all__ = [
    "allocate_gpu",
    "argument",
    "argument_from_pointer",
    "create_argument",
    "fill_argument",
    "from_gpu",
    "generate_argument",
    "gpu_sync",
    "of_argument",
    "to_gpu",
]


class argument(Argument):
    """A tensor: data with a shape, in host or device memory.

    buffer: a numpy array or anything else with the buffer protocol, an array interface or DLPack.
    """

    __slots__ = ()

    def __init__(self, buffer: Any) -> None:
        if buffer is None or isinstance(buffer, str):
            raise ParameterError(f"an array or a buffer is required, got {buffer!r}")
        super().__init__(*_as_vector(Argument(buffer)))

    def get_shape(self) -> Any:
        return of_shape(self.shape)

    def __repr__(self) -> str:
        return ", ".join(map(_number, self.tolist()))

    @classmethod
    def load(cls, filename: Any) -> argument:
        return of_argument(Argument.load(filename))


def _as_vector(given: Argument) -> tuple[Any, Shape | None]:
    """Returns the value and its shape; a tensor of rank 0 has one axis of stride 0 in MIGraphX."""
    value = given.value
    if isinstance(value, np.ndarray) and not value.ndim:
        return value.reshape(1), Shape(value.dtype, [1], [0])
    return value, None


def of_argument(given: Argument) -> argument:
    """Wraps a core argument, without a copy."""
    return argument.from_value(*_as_vector(given))


def argument_from_pointer(shape: shape, address: int) -> argument:
    """Wraps memory of the host or of a GPU that the caller owns and keeps alive."""
    return of_argument(mgx.argument_from_pointer(core_shape(shape), address))


def create_argument(shape: shape, values: Any) -> argument:
    return of_argument(mgx.create_argument(core_shape(shape), values))


def fill_argument(s: shape, value: Any) -> argument:
    return of_argument(mgx.fill_argument(core_shape(s), value))


def generate_argument(s: shape, seed: int = 0) -> argument:
    """Returns a tensor with the values of MIGraphX's generator for a shape and seed.

    Errors: ParameterError for negative strides, which MIGraphX does not have; DeviceError if the strides span more than the
    machine's memory.
    """
    core = core_shape(s)
    if min(core.strides(), default=0) < 0:
        raise ParameterError(f"strides of generated values must not be negative, got {s}")
    space = core.element_space()
    require_bytes(space * np.dtype(np.uint64).itemsize, f"the generated argument of {s}")
    flat = random_values(space, seed, core.dtype)
    steps = [n * core.dtype.size for n in core.strides()]
    return argument(np.lib.stride_tricks.as_strided(flat, core.lens(), steps))


def to_gpu(arg: Any, host: bool = False) -> argument:
    return of_argument(mgx.to_gpu(arg, host))


def from_gpu(arg: Argument) -> argument:
    return of_argument(mgx.from_gpu(arg) if arg.on_device else arg.copy())


def allocate_gpu(s: shape, host: bool = False) -> argument:
    return of_argument(mgx.allocate_gpu(core_shape(s), host))


def gpu_sync() -> None:
    mgx.gpu_sync()


def _number(value: Any) -> str:
    if isinstance(value, int):
        return str(int(value))  # also for bool
    if isinstance(value, float):
        return f"{value:g}"
    raise ParameterError(f"a number is required, got {value!r}")
