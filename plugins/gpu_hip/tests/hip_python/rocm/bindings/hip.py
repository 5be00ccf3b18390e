"""HIP calls: each returns a tuple that starts with an error code."""

import ctypes
import enum

from rocm.bindings.util.paths import get_library_path
from rocm.bindings.util.types import DeviceArray, Pointer

library = ctypes.CDLL(get_library_path("amdhip64").decode())


class hipError_t(enum.IntEnum):
    hipSuccess = 0
    hipErrorInvalidValue = 1
    hipErrorNotReady = 600


class ihipStream_t(Pointer):
    pass


class ihipEvent_t(Pointer):
    pass


def address(value):
    """Returns the address of a handle or of a host array."""
    return ctypes.c_size_t(int(value) if isinstance(value, Pointer) else value.__array_interface__["data"][0])


def call(name, *arguments):
    return hipError_t(getattr(library, name)(*arguments))


def made(kind, name, *arguments):
    out = ctypes.c_size_t()
    return call(name, ctypes.byref(out), *arguments), kind(out.value)


def hipSetDevice(number):
    return (call("hipSetDevice", number),)


def hipMalloc(size):
    return made(DeviceArray, "hipMalloc", ctypes.c_size_t(size))


def hipStreamCreateWithFlags(flags):
    return made(ihipStream_t, "hipStreamCreateWithFlags", flags)


def hipEventCreateWithFlags(flags):
    return made(ihipEvent_t, "hipEventCreateWithFlags", flags)


def hipMemcpyHtoDAsync(to, source, size, stream):
    return (call("hipMemcpyHtoDAsync", address(to), address(source), ctypes.c_size_t(size), address(stream)),)


def hipMemcpyDtoHAsync(to, source, size, stream):
    return (call("hipMemcpyDtoHAsync", address(to), address(source), ctypes.c_size_t(size), address(stream)),)


def hipEventRecord(event, stream):
    return (call("hipEventRecord", address(event), address(stream)),)


def hipEventElapsedTime(begin, end):
    out = ctypes.c_float()
    return call("hipEventElapsedTime", ctypes.byref(out), address(begin), address(end)), out.value


def of_handle(name):
    return lambda handle: (call(name, address(handle)),)


hipEventQuery, hipEventDestroy = of_handle("hipEventQuery"), of_handle("hipEventDestroy")
hipStreamSynchronize, hipStreamDestroy = of_handle("hipStreamSynchronize"), of_handle("hipStreamDestroy")
hipFree = of_handle("hipFree")
