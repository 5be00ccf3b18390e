"""DLPack import and export for host memory.

numpy implements the protocol, including lifetimes, flags and versions, for its own element types but not for those of ml_dtypes.
These are passed through numpy as integers of the same width; only the type code in the capsule is replaced.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, Protocol

import numpy as np

from ..errors import DeviceError, ParameterError
from . import dtype as dt
from .dlpack_structures import NARROW_FLOATS, Managed, Tensor
from .dtype import Array, DType, unpacked

__all__ = ["export", "import_array"]

HOST_DEVICES: Final = {1: "kDLCPU", 3: "kDLCUDAHost", 11: "kDLROCMHost"}
DEVICES: Final = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA managed", 14: "oneAPI"}
COPIED, PADDED = 1 << 1, 1 << 2  # flags of a versioned tensor; PADDED: a sub-byte element takes a whole byte
PADDED_SINCE: Final = (1, 1)
INT, UINT = 0, 1  # type codes

# types that numpy does not support, as (type code, bits)
_CODES: Final[dict[DType, tuple[int, int]]] = {
    **NARROW_FLOATS,
    dt.float6_e2m3fn: (15, 6),
    dt.float6_e3m2fn: (16, 6),
    dt.float4_e2m1fn: (17, 4),
    dt.int4: (INT, 4),
    dt.uint4: (UINT, 4),
    dt.int2: (INT, 2),
    dt.uint2: (UINT, 2),
}
_TYPES: Final = {code: dtype for dtype, code in _CODES.items()}


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


class Exporter(Protocol):
    """An object that implements the DLPack protocol."""

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def _opened(capsule: Any) -> tuple[Tensor, _Versioned | None]:
    """Returns the tensor in an unconsumed capsule, and its versioned structure if it has one."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        return versioned.tensor, versioned
    if _is_valid(capsule, b"dltensor"):
        return Managed.from_address(_pointer(capsule, b"dltensor")).tensor, None
    raise ParameterError("__dlpack__ must return an unused DLPack capsule")


def export(
    array: Array,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Returns a DLPack capsule of a host array, versioned if the consumer's `max_version` is 1.0 or later.

    Types narrower than a byte are exported with one byte per element, flagged as padded (version 1.1), or else as a packed copy.
    Errors: BufferError, as the protocol asks, for strings, for another device, and where `copy` is False but needed.
    """
    options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
    dtype = dt.of(array.dtype)
    store: Any = array
    if dtype.kind == "s":
        raise BufferError("DLPack has no type for strings")
    if dtype not in _CODES:
        return store.__dlpack__(**options)
    code, bits = _CODES[dtype]
    padded = bits < 8 and max_version is not None and tuple(max_version) >= PADDED_SINCE
    store = array.view(np.uint16 if bits == 16 else np.uint8)
    if bits < 8 and not padded:
        if copy is False:
            raise BufferError(f"{dtype} elements take a byte here; a consumer of DLPack before 1.1 needs a packed copy")
        capsule = _packed(store, bits).__dlpack__(**{**options, "copy": None})
    else:
        capsule = store.__dlpack__(**options)
    tensor, versioned = _opened(capsule)
    tensor.code, tensor.bits = code, bits
    if padded and versioned is not None:
        versioned.minor = max(versioned.minor, PADDED_SINCE[1])
        versioned.flags |= PADDED
    elif bits < 8:
        tensor.ndim = array.ndim
        step = 1
        for axis in reversed(range(array.ndim)):  # the capsule has space for this many axes
            tensor.shape[axis] = array.shape[axis]
            if tensor.strides:
                tensor.strides[axis] = step
            step *= array.shape[axis]
        if versioned is not None:
            versioned.flags |= COPIED
    return capsule


def _packed(store: Array, bits: int) -> Array:
    """Returns the elements' low bits packed, first element lowest; with the rank of `store`, at least 1."""
    codes = np.unpackbits(store.reshape(-1, 1), axis=1, count=bits, bitorder="little")
    out = np.packbits(codes.reshape(-1), bitorder="little")
    return out.reshape(-1, *[1] * max(store.ndim - 1, 0))


def import_array(obj: Exporter) -> Array:
    """Returns the array in another library's host memory, borrowed and kept alive (packed sub-byte types are copied).

    obj: anything with ``__dlpack__`` and ``__dlpack_device__``.  The array is read-only unless the exporter states that it
    is writable.
    Errors: DeviceError for memory that the host cannot read; ParameterError for types that mgx does not have, or if the
    exporter declines.
    """
    kind, index = obj.__dlpack_device__()
    if int(kind) not in HOST_DEVICES:
        where = DEVICES.get(int(kind), f"DLPack type {int(kind)}")
        raise DeviceError(
            f"a tensor in host memory is required, got one on device {where}:{index}; copy it to the host first"
        )
    try:
        try:
            capsule = obj.__dlpack__(max_version=PADDED_SINCE)
        except TypeError:  # an exporter from before version 1.0
            capsule = obj.__dlpack__()
    except BufferError as error:
        raise ParameterError(f"the {type(obj).__name__} cannot be shared through DLPack: {error}") from error
    tensor, versioned = _opened(capsule)
    if versioned is not None and versioned.major != 1:
        raise ParameterError(f"DLPack 1.x is required, got {versioned.major}.{versioned.minor}")
    if tensor.lanes != 1:
        raise ParameterError(f"scalar elements are required, got vectors of {tensor.lanes}")
    device = (int(kind), int(index))
    dtype = _TYPES.get((tensor.code, tensor.bits))
    if dtype is None:
        if (tensor.code, tensor.bits) not in _NATIVE:
            raise ParameterError(f"DLPack type code {tensor.code} of {tensor.bits} bits is not an element type of mgx")
        return np.from_dlpack(_Capsule(capsule, device))
    if dtype.bits < 8 and not (versioned is not None and versioned.flags & PADDED):
        return _unpacked(tensor, dtype)
    tensor.code, tensor.bits = UINT, dtype.size * 8
    return np.from_dlpack(_Capsule(capsule, device)).view(dtype.numpy)


_NATIVE: Final = {
    *((code, bits) for code in (INT, UINT) for bits in (8, 16, 32, 64)),
    *((2, bits) for bits in (16, 32, 64)),
    *((5, bits) for bits in (64, 128)),
    (6, 8),
}


class _Capsule:
    """Wraps an existing capsule in the protocol object that numpy imports from."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self.capsule = capsule
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def _unpacked(tensor: Tensor, dtype: DType) -> Array:
    """Returns an unpacked copy, one byte per element, of a packed row-major tensor."""
    lens = [tensor.shape[axis] for axis in range(tensor.ndim)]
    count = int(np.prod(lens, dtype=np.int64))
    if count and tensor.strides:
        step = 1
        for axis in reversed(range(tensor.ndim)):
            if lens[axis] != 1 and tensor.strides[axis] != step:
                raise ParameterError(f"packed {dtype} elements must be row-major without gaps")
            step *= lens[axis]
    size = -(-count * dtype.bits // 8)
    raw = ctypes.string_at((tensor.data or 0) + tensor.byte_offset, size) if count else b""
    return unpacked(np.frombuffer(raw, np.uint8), dtype.bits, count).view(dtype.numpy).reshape(lens)
