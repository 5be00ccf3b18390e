"""DLPack capsules for device memory: export and import."""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError
from mgx_core.types.dlpack_structures import NARROW_FLOATS, Managed

__all__ = ["CPU", "CUDA", "ROCM", "Lease", "Opened", "make_capsule", "take_capsule"]

CPU, CUDA, ROCM = 1, 2, 10

# element types as (type code, bits)
_CODES: Final[dict[dt.DType, tuple[int, int]]] = {
    **{t: ({"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}[t.kind], t.bits) for t in dt.ALL if t.kind != "s" and t.bits >= 8},
    **NARROW_FLOATS,
}
_TYPES: Final = {code: dtype for dtype, code in _CODES.items()}


_NAME: Final = ctypes.c_char_p(b"dltensor")  # a capsule stores the pointer, not a copy
_USED: Final = ctypes.c_char_p(b"used_dltensor")
_api: Any = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
# a capsule's destructor gets a partly destroyed object, so these take its address
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_raw_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_deleter_type: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# objects that exported tensors keep alive until the consumer releases them, by address of the tensor struct
_exported: dict[int, tuple[Any, ...]] = {}


def _release(address: int) -> None:
    _exported.pop(address, None)


def _drop(capsule: int) -> None:
    if _raw_valid(capsule, _NAME):  # not consumed
        _exported.pop(_raw_pointer(capsule, _NAME), None)


_release_c = _deleter_type(_release)
_drop_c = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_drop)


def make_capsule(
    address: int, device: tuple[int, int], dtype: dt.DType, dims: tuple[int, ...], strides: tuple[int, ...], owner: Any
) -> Any:
    """Returns a capsule that keeps `owner` alive until its consumer releases it.

    Errors: BufferError for a type that DLPack lacks.
    """
    if dtype not in _CODES:
        raise BufferError(f"DLPack has no byte-sized type for {dtype}")
    rank = len(dims)
    shape, steps = (ctypes.c_int64 * max(rank, 1))(*dims), (ctypes.c_int64 * max(rank, 1))(*strides)
    managed = Managed()
    tensor = managed.tensor
    tensor.data = address or None
    tensor.device_type, tensor.device_id = device
    tensor.ndim, tensor.lanes = rank, 1
    tensor.code, tensor.bits = _CODES[dtype]
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_release_c, ctypes.c_void_p).value
    where = ctypes.addressof(managed)
    _exported[where] = (managed, shape, steps, owner)
    return _new(where, _NAME, ctypes.cast(_drop_c, ctypes.c_void_p))


class Lease:
    """Ownership of another library's tensor, released on deletion."""

    __slots__ = ("_address", "_delete")

    def __init__(self, address: int, deleter: int | None) -> None:
        self._address = address
        self._delete = _deleter_type(deleter) if deleter else None

    def __del__(self) -> None:
        if self._delete is not None:
            self._delete(self._address)


class Opened(NamedTuple):
    """Contents of a capsule; `lease` keeps the memory alive."""

    address: int
    dtype: dt.DType
    dims: tuple[int, ...]
    strides: tuple[int, ...] | None
    lease: Lease


def take_capsule(capsule: Any) -> Opened:
    """Consumes a capsule.  Errors: ParameterError for another object or a type that mgx does not support."""
    if not _valid(capsule, _NAME):
        raise ParameterError("__dlpack__ must return an unused DLPack capsule")
    where = _pointer(capsule, _NAME)
    managed = Managed.from_address(where)
    tensor = managed.tensor
    dtype = _TYPES.get((tensor.code, tensor.bits))
    if tensor.lanes != 1 or dtype is None:
        raise ParameterError(
            f"DLPack type code {tensor.code} of {tensor.bits} bits, {tensor.lanes} lanes, is not an element type of mgx"
        )
    dims = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    _rename(capsule, _USED)
    return Opened((tensor.data or 0) + tensor.byte_offset, dtype, dims, strides, Lease(where, managed.deleter))
