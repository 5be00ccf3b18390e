"""Arguments in device memory, for callers that manage it themselves (compile option ``offload_copy=False``).

The device is the one that ``get_target("gpu")`` uses; there is one context a process for it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mgx_core import Argument, Shape
from mgx_core.errors import ParameterError
from mgx_core.plugins.manager import manager

from .context import GpuContext
from .runtime import Device, DeviceArray

__all__ = ["allocate_gpu", "from_gpu", "get_gpu_context", "gpu_sync", "to_gpu"]


@cache
def get_gpu_context() -> GpuContext:
    """The context to compile with, ``program.compile(get_gpu_context())``, made once."""
    context: GpuContext = manager().target("gpu").get_context()
    return context


def _device() -> Device:
    return get_gpu_context().device


def allocate_gpu(shape: Shape) -> Argument:
    """Device memory for a tensor, its contents unset.  Errors: OutOfMemoryError."""
    size = shape.elements() * shape.dtype.size
    return Argument.from_value(DeviceArray(_device().allocate(max(size, 16)), shape.dtype, shape.lens()))


def to_gpu(argument: Any) -> Argument:
    """A copy in device memory of an Argument, an array or anything else that holds a tensor on the host.

    Errors: ParameterError for a value that is not a tensor; OutOfMemoryError.
    """
    given = argument if isinstance(argument, Argument) else Argument(argument)
    if not isinstance(given.shape, Shape):
        raise ParameterError(f"a tensor is required, got {given.shape}")
    array = np.ascontiguousarray(given.to_numpy())
    made = allocate_gpu(Shape(given.shape.dtype, given.shape.lens()))
    if array.size:
        device = _device()
        device.activate()
        device.default_stream.copy_in(made.data_ptr(), array)
        device.default_stream.wait()
    return made


def from_gpu(argument: Argument) -> Argument:
    """A copy in host memory.  Errors: ParameterError for values in host memory."""
    if not hasattr(argument.value, "to_host"):
        raise ParameterError(f"an argument in device memory is required, got {argument.shape} on the host")
    return Argument(argument.to_numpy())


def gpu_sync() -> None:
    """Wait until the device has done everything that was queued.  Errors: DeviceError for what went wrong in it."""
    _device().wait()
