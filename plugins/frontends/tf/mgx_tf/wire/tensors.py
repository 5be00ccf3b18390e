"""Converts TensorFlow's tensor, type and shape messages to arrays, dtypes and extents."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from mgx_core import ParseError, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.strings import decoded

from .messages import DATA_TYPES

__all__ = ["LIMIT_BYTES", "dims_of", "dtype_of", "has_dtype", "tensor_array"]

LIMIT_BYTES: Final = 1 << 34  # default limit of a constant's size in bytes

_NAMED: Final = {
    "FLOAT": dt.float32, "DOUBLE": dt.float64, "INT32": dt.int32, "UINT8": dt.uint8, "INT16": dt.int16, "INT8": dt.int8,
    "STRING": dt.string, "COMPLEX64": dt.complex64, "INT64": dt.int64, "BOOL": dt.bool_, "QINT8": dt.int8, "QUINT8": dt.uint8,
    "QINT32": dt.int32, "BFLOAT16": dt.bfloat16, "QINT16": dt.int16, "QUINT16": dt.uint16, "UINT16": dt.uint16,
    "COMPLEX128": dt.complex128, "HALF": dt.float16, "UINT32": dt.uint32, "UINT64": dt.uint64, "FLOAT8_E5M2": dt.float8_e5m2,
    "FLOAT8_E4M3FN": dt.float8_e4m3fn, "INT4": dt.int4, "UINT4": dt.uint4,
}  # fmt: skip
DTYPES: Final = {DATA_TYPES[name]: dtype for name, dtype in _NAMED.items()}
NAMES: Final = {number: name for name, number in DATA_TYPES.items()}

# the field with a dtype's values if `tensor_content` is empty, and its array type; 16-bit floats are bit patterns
FIELDS: Final[dict[str, tuple[str, Any]]] = {
    "float32": ("float_val", np.float32), "float64": ("double_val", np.float64), "int64": ("int64_val", np.int64),
    "bool": ("bool_val", np.bool_), "float16": ("half_val", np.int32), "bfloat16": ("half_val", np.int32),
    "uint32": ("uint32_val", np.uint32), "uint64": ("uint64_val", np.uint64), "complex64": ("scomplex_val", np.float32),
    "complex128": ("dcomplex_val", np.float64),
}  # fmt: skip


def has_dtype(code: int) -> bool:
    """True if a DataType is an element type here: not a resource or variant."""
    return code % 100 in DTYPES


def dtype_of(code: int) -> DType:
    """Returns the element type of a DataType number; reference types count as their base type.

    Errors: UnsupportedError for resources and variants, ParseError for unknown numbers.
    """
    found = DTYPES.get(code % 100)
    if found is None:
        name = NAMES.get(code % 100)
        if name is None:
            raise ParseError(f"{code} is not a TensorFlow data type")
        raise UnsupportedError(f"a tensor of type {name} has no elements")
    return found


def dims_of(shape: Any) -> list[int] | None:
    """Returns the extents of a TensorShapeProto, -1 for unknown ones; None for an unknown rank."""
    if shape.unknown_rank:
        return None
    dims = [int(d.size) for d in shape.dim]
    if any(d < -1 for d in dims):
        raise ParseError(f"extents must be at least -1, got {dims}")
    return dims


def tensor_array(tensor: Any, limit: int = LIMIT_BYTES) -> Array:
    """Returns the array of a TensorProto; strings are an object array of `str`.

    Bytes that are not UTF-8 are stored as surrogate escapes.
    Errors: ParseError for unknown or negative extents, data of a wrong length, or more than `limit` bytes.
    """
    dims = dims_of(tensor.tensor_shape)
    if dims is None or -1 in dims:
        raise ParseError(f"a constant must have known extents, got {dims}")
    dtype = dtype_of(tensor.dtype)
    count = math.prod(dims)
    if count * max(dtype.bits, 8) // 8 > limit:
        raise ParseError(f"a constant of extents {dims} and type {dtype} exceeds the limit of {limit} bytes")
    if dtype.kind == "s":
        return _strings(tensor, count).reshape(dims)
    if tensor.tensor_content:
        return _from_content(tensor.tensor_content, dtype, dims)
    return _filled(_listed(tensor, dtype), count, dims, dtype).reshape(dims)


def _from_content(data: bytes, dtype: DType, dims: list[int]) -> Array:
    count = math.prod(dims)
    wanted = count * np.dtype(dtype.numpy).itemsize
    if len(data) != wanted:
        raise ParseError(f"{wanted} bytes are required for {dims} of {dtype}, got {len(data)}")
    return np.frombuffer(data, dtype.numpy).reshape(dims)


def _listed(tensor: Any, dtype: DType) -> Array:
    if dtype.kind == "f" and dtype.bits == 8:
        return np.frombuffer(tensor.float8_val, dtype.numpy)
    field, kind = FIELDS.get(dtype.name, ("int_val", np.int32))
    values = np.asarray(getattr(tensor, field), kind)
    if dtype.kind == "c":
        if values.size % 2:
            raise ParseError(f"complex values require an even number of values, got {values.size}")
        return values.view(dtype.numpy)
    if field == "half_val":
        return values.astype(np.uint16).view(dtype.numpy)
    return values.astype(dtype.numpy)


def _filled(values: Array, count: int, dims: list[int], dtype: DType) -> Array:
    """Returns `count` values: the last one is repeated; zeros if there is none."""
    if values.size > count:
        raise ParseError(f"{count} values are required for {dims} of {dtype}, got {values.size}")
    if values.size == count:
        return values
    if count * values.itemsize > 1 << 31 and values.size < 2:
        raise ParseError(f"a constant of extents {dims} has only {values.size} values; it is rejected as too large")
    last = values[-1] if values.size else np.zeros((), values.dtype)
    out = np.full(count, last, values.dtype)
    out[: values.size] = values
    return out


def _strings(tensor: Any, count: int) -> Array:
    words = list(tensor.string_val)
    if len(words) > count or (not words and count > 1 << 24):
        raise ParseError(f"{count} strings are required, got {len(words)}")
    out = np.empty(count, dtype=object)
    filler = decoded(words[-1]) if words else ""
    for n in range(count):
        out[n] = decoded(words[n]) if n < len(words) else filler
    return out
