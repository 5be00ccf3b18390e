"""ctypes declarations of DLPack's structures, and type codes that numpy does not support."""

from __future__ import annotations

import ctypes
from typing import Final

from . import dtype as dt
from .dtype import DType

__all__ = ["NARROW_FLOATS", "Managed", "Tensor"]

# as (type code, bits)
NARROW_FLOATS: Final[dict[DType, tuple[int, int]]] = {
    dt.bfloat16: (4, 16),
    dt.float8_e4m3fn: (10, 8),
    dt.float8_e4m3fnuz: (11, 8),
    dt.float8_e5m2: (12, 8),
    dt.float8_e5m2fnuz: (13, 8),
    dt.float8_e8m0fnu: (14, 8),
}


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))
