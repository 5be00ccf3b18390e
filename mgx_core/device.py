"""Arguments in a device's memory, for callers that manage it themselves (compile option ``offload_copy=False``).

The device is that of the installed target that has memory of its own, the one of the highest rank where there are several;
there is one context a process for it.
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
    """Returns the context to compile with, ``program.compile(get_gpu_context())``, made once.

    Errors: UnsupportedError if no installed package brings such a target; its device is opened when it is first needed.
    """
    from .plugins.manager import manager

    plugins = manager()
    context: Context = plugins.context(plugins.memory_target())
    return context


def allocate_gpu(shape: Shape, host: bool = False) -> Argument:
    """Returns memory for a tensor, its elements unset.

    host: host memory instead, which the device copies from without a detour where its driver can.
    Errors: DeviceError if there is no device or not enough memory.
    """
    if host:
        return Argument.from_value(np.empty(shape.lens(), shape.dtype.numpy), shape.as_standard())
    return Argument.from_value(get_gpu_context().allocate(shape.as_standard()))


def to_gpu(arg: object, host: bool = False) -> Argument:
    """Returns a tensor in device memory: a copy of an Argument, an array or anything else that holds a tensor on the host.

    A tensor of another library that lies in the device's memory already is not copied: the result shares its memory.
    host: a copy in host memory instead.
    Errors: ParameterError for a value that is not a tensor; DeviceError if there is no device or not enough memory.
    """
    context = get_gpu_context()
    lying = None if host or isinstance(arg, Argument) else context.target.accept(arg, context)
    if lying is not None:
        return Argument.from_value(lying)
    given = as_argument(arg)
    if not isinstance(given.shape, Shape):
        raise ParameterError(f"a tensor is required, got {given.shape}")
    array = np.ascontiguousarray(given.to_numpy()).reshape(given.shape.lens())
    return Argument.from_value(array.copy() if host else context.upload(array))


def from_gpu(arg: Argument) -> Argument:
    """Returns a copy in host memory.  Errors: ParameterError for values in host memory."""
    if not arg.on_device:
        raise ParameterError(f"an argument in device memory is required, got {arg.shape} on the host")
    return Argument(arg.to_numpy())


def gpu_sync() -> None:
    """Waits until the device has done everything that was queued.  Errors: DeviceError for what went wrong in it."""
    get_gpu_context().finish()


def argument_from_pointer(shape: Shape, address: SupportsInt) -> Argument:
    """A tensor in memory that the caller owns and keeps alive, the host's or a device's; `address` is the first element's.

    Errors: ParameterError for addresses that cannot be one, and for strings.
    """
    from .plugins.manager import manager

    address = int(address)
    plugins = manager()
    for name in plugins.memory_targets() if address > 0 else ():
        try:
            context = plugins.context(name)
            if context.holds(address):
                return Argument.from_value(context.borrow(shape, address))
        except (DeviceError, PluginError, UnsupportedError):  # this one has no device here
            continue
    return host_argument_from_pointer(shape, address)
