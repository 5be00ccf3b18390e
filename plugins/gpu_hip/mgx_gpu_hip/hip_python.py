"""Conversions to objects of hip-python, AMD's Python bindings of HIP (extra ``mgx-gpu-hip[hip]``).

Both packages use the same libamdhip64 (see `rocm_files`).  Objects of hip-python need no conversion to be used here: streams
and events are handles, device arrays have ``__cuda_array_interface__``.  The functions here convert our objects to hip-python's.
"""

from __future__ import annotations

import importlib
from typing import Any

from mgx_core import Argument, Context, ParameterError, UnsupportedError

from .runtime import CallError

__all__ = ["array", "error", "stream"]


def stream(context: Context) -> Any:
    """Returns a context's stream (`Context.queue`) as hip-python's ``ihipStream_t``."""
    return _hip().ihipStream_t.fromObj(context.queue)


def array(argument: Argument) -> Any:
    """Returns a tensor in device memory as hip-python's ``DeviceArray``, with its shape and type and without a copy.

    The array does not own the memory: the argument must outlive it.
    Errors: ParameterError for values in host memory.
    """
    if not argument.on_device:
        raise ParameterError(f"an argument in device memory is required, got {argument.shape} on the host; see to_gpu")
    types = importlib.import_module("rocm.bindings.util.types")
    return types.DeviceArray.fromObj(argument.value)  # an Argument itself also has the buffer protocol, of a host copy


def error(failure: CallError) -> Any:
    """Returns a failed call's status as hip-python's ``hipError_t``."""
    return _hip().hipError_t(failure.code)


def _hip() -> Any:
    try:
        return importlib.import_module("hip").hip
    except ImportError as problem:
        raise UnsupportedError(f"hip-python is required: pip install mgx-gpu-hip[hip] ({problem})") from None
