"""Arguments in device memory, for callers that manage it themselves (compile option ``offload_copy=False``).

The device is that of the installed target with device memory that has the highest rank; the process has one context for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsInt

import numpy as np

from .errors import DeviceError, ParameterError, PluginError, UnsupportedError
from .types.argument import Argument, as_argument
from .types.creation import host_argument_from_pointer
from .types.shape import Shape

if TYPE_CHECKING:
    from .targets.target import Context

__all__ = ["allocate_gpu", "argument_from_pointer", "from_gpu", "get_gpu_context", "gpu_sync", "to_gpu"]


def get_gpu_context() -> Context:
    """Returns the process-wide context, e.g. for ``program.compile(get_gpu_context())``; opens the device on first use.

    Errors: UnsupportedError if no target with device memory is installed.
    """
    from .plugins.manager import manager

    plugins = manager()
    context: Context = plugins.context(plugins.memory_target())
    return context


def allocate_gpu(shape: Shape, host: bool = False) -> Argument:
    """Allocates an uninitialized tensor in device memory.

    host: in host memory instead.
    Errors: DeviceError if there is no device or not enough memory.
    """
    if host:
        return Argument.from_value(np.empty(shape.lens(), shape.dtype.numpy), shape.as_standard())
    return Argument.from_value(get_gpu_context().allocate(shape.as_standard()))


def to_gpu(arg: object, host: bool = False) -> Argument:
    """Copies an Argument, an array or another tensor object to device memory.

    A tensor of another library that is already in device memory is not copied: the result shares its memory.
    host: copies to host memory instead.
    Errors: ParameterError for a value that is not a tensor; DeviceError if there is no device or not enough memory.
    """
    context = get_gpu_context()
    borrowed = None if host or isinstance(arg, Argument) else context.target.accept(arg, context)
    if borrowed is not None:
        return Argument.from_value(borrowed)
    given = as_argument(arg)
    if not isinstance(given.shape, Shape):
        raise ParameterError(f"a tensor is required, got {given.shape}")
    array = np.ascontiguousarray(given.to_numpy()).reshape(given.shape.lens())
    return Argument.from_value(array.copy() if host else context.upload(array))


def from_gpu(arg: Argument) -> Argument:
    """Copies an argument to host memory.  Errors: ParameterError if it is already there."""
    if not arg.on_device:
        raise ParameterError(f"an argument in device memory is required, got {arg.shape} on the host")
    return Argument(arg.to_numpy())


def gpu_sync() -> None:
    """Waits for all work enqueued on the device.  Errors: DeviceError if it failed."""
    get_gpu_context().finish()


def argument_from_pointer(shape: Shape, address: SupportsInt) -> Argument:
    """Returns a tensor in host or device memory that the caller owns and keeps alive; address: of the first element.

    Errors: ParameterError for invalid addresses, and for strings.
    """
    from .plugins.manager import manager

    address = int(address)
    plugins = manager()
    for name in plugins.memory_targets() if address > 0 else ():
        try:
            context = plugins.context(name)
            if context.holds(address):
                return Argument.from_value(context.borrow(shape, address))
        except (DeviceError, PluginError, UnsupportedError):  # this target has no device on this machine
            continue
    return host_argument_from_pointer(shape, address)
