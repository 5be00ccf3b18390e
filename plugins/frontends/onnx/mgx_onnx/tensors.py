"""Converts tensors and types of ONNX files to arrays and shapes."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from mgx_core import OptionalShape, ParseError, SequenceShape, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType, unpacked
from mgx_core.types.mapped import MappedFile, map_file

from .messages import onnx

TensorProto = onnx.TensorProto

__all__ = ["DTYPES", "DataFolder", "dtype_of", "onnx_type", "tensor_array"]

DTYPES: dict[int, DType] = {
    TensorProto.FLOAT: dt.float32, TensorProto.UINT8: dt.uint8, TensorProto.INT8: dt.int8, TensorProto.UINT16: dt.uint16,
    TensorProto.INT16: dt.int16, TensorProto.INT32: dt.int32, TensorProto.INT64: dt.int64, TensorProto.STRING: dt.string,
    TensorProto.BOOL: dt.bool_, TensorProto.FLOAT16: dt.float16, TensorProto.DOUBLE: dt.float64, TensorProto.UINT32: dt.uint32,
    TensorProto.UINT64: dt.uint64, TensorProto.COMPLEX64: dt.complex64, TensorProto.COMPLEX128: dt.complex128,
    TensorProto.BFLOAT16: dt.bfloat16, 17: dt.float8_e4m3fn, 18: dt.float8_e4m3fnuz, 19: dt.float8_e5m2, 20: dt.float8_e5m2fnuz,
    21: dt.uint4, 22: dt.int4, 23: dt.float4_e2m1fn, 24: dt.float8_e8m0fnu, 25: dt.uint2, 26: dt.int2,
    27: dt.float6_e2m3fn, 28: dt.float6_e3m2fn,
}  # fmt: skip
ONNX_TYPES: dict[DType, int] = {t: code for code, t in DTYPES.items()}


def dtype_of(code: int) -> DType:
    """Returns the element type of an ONNX type number.  Errors: ParseError for unknown numbers."""
    found = DTYPES.get(code)
    if found is None:
        raise ParseError(f"{code} is not an ONNX element type")
    return found


def onnx_type(dtype: DType) -> int:
    """Returns the ONNX type number of an element type."""
    return ONNX_TYPES[dtype]


class DataFolder:
    """The only folder from which external data may be read.

    linked: a folder with links into it, whose names are tried after those of the folder itself: download caches keep files under
    their hashes in one folder, and models as links to them in another.
    """

    def __init__(self, path: str | os.PathLike[str] | None, linked: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path).resolve() if path else None
        self.linked = Path(linked) if linked else None
        self._files: dict[str, tuple[Path, MappedFile]] = {}
        self._by_link = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files with data that was read."""
        return tuple(dict.fromkeys(path for path, _ in self._files.values()))

    @property
    def identities(self) -> dict[str, tuple[int, ...]]:
        """Identities of the files as they were opened, by their locations in the folder; none if one was found by a link.

        A link may lead to another file in the next run.
        """
        return {} if self._by_link else {location: file.identity for location, (_, file) in self._files.items()}

    def read(self, tensor: onnx.TensorProto, size: int) -> Array:
        """Returns the raw bytes of an external tensor, memory-mapped.

        Errors: ParseError for invalid external data.
        """
        entry = {e.key: e.value for e in tensor.external_data}
        location = entry.get("location", "")
        if not location:
            raise ParseError("external data without a location")
        data = self._bytes(location)
        try:
            offset = int(entry.get("offset", "0"))
            length = int(entry.get("length", str(size)))
        except ValueError:
            raise ParseError(f"external data {location!r}: offset and length must be integers") from None
        if not length and size:  # as onnx and ONNX Runtime read it
            length = data.size - offset
        if offset < 0 or length != size:
            raise ParseError(
                f"external data {location!r}: {size} bytes are required, offset {offset} and length {length} given"
            )
        if size == 0:
            return np.zeros(0, np.uint8)
        if offset + size > data.size:
            raise ParseError(f"external data {location!r} ends at byte {data.size}, {offset + size} are required")
        return data[offset : offset + size]

    def _bytes(self, location: str) -> Array:
        """Returns the bytes of a file, opened once.  Errors: ParseError unless it is a file inside the folder."""
        if location in self._files:
            return self._files[location][1].bytes
        if self.path is None:
            raise ParseError(
                f"external data {location!r} requires a folder: parse from a file, or set external_data_path"
            )
        if os.path.isabs(location) or "\x00" in location or ".." in Path(location).parts or "\\" in location:
            raise ParseError(f"external data {location!r} leads outside the model's folder")
        try:
            file = (self.path / location).resolve()
            if self.linked is not None and not file.is_file() and (link := self.linked / location).is_file():
                file, self._by_link = link.resolve(), True
            inside = file.is_relative_to(self.path)
            opened = map_file(file) if inside and file.is_file() else None
        except (OSError, RuntimeError, ValueError) as error:  # symlink loops, invalid file names
            raise ParseError(f"external data {location[:100]!r} cannot be read: {type(error).__name__}") from None
        if not inside:
            raise ParseError(f"external data {location!r} leads outside the model's folder")
        if opened is None:
            raise ParseError(f"external data {location!r} is not a file in the model's folder")
        self._files[location] = file, opened
        return opened.bytes


def tensor_array(tensor: onnx.TensorProto, folder: DataFolder, limit: int, raw: Array | None = None) -> Array:
    """Returns the array of a tensor; raw and external data are borrowed, not copied (and so need not be aligned).

    raw: the tensor's raw data if it is not in the tensor itself.
    Errors: ParseError if extents are negative, data is missing, short or long, or the tensor is larger than `limit` bytes.
    """
    try:
        return _tensor_array(tensor, folder, limit, raw)
    except ParseError as error:
        raise error.located(f"tensor {tensor.name!r}") from None


def _tensor_array(tensor: onnx.TensorProto, folder: DataFolder, limit: int, given: Array | None) -> Array:
    dtype = dtype_of(tensor.data_type)
    dims = list(tensor.dims)
    if any(d < 0 for d in dims):
        raise ParseError(f"extents must not be negative, got {dims}")
    count = math.prod(dims)
    if count * max(dtype.bits, 8) // 8 > limit:
        raise ParseError(f"{dims} of {dtype} takes more than the {limit} bytes that option limit_bytes allows")
    if dtype.kind == "s":
        if len(tensor.string_data) != count:
            raise ParseError(f"{count} strings are required for {dims}, got {len(tensor.string_data)}")
        try:
            words = [s.decode() for s in tensor.string_data]
        except UnicodeDecodeError as error:
            raise ParseError(f"a string is not UTF-8: {error}") from None
        out = np.empty(count, dtype=object)
        out[:] = words
        return out.reshape(dims)
    size = -(-count * dtype.bits // 8)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _from_raw(folder.read(tensor, size), dtype, count).reshape(dims)
    if given is not None or tensor.HasField("raw_data"):
        raw = np.frombuffer(tensor.raw_data, np.uint8) if given is None else given
        if raw.size != size:
            raise ParseError(f"{size} bytes are required for {dims} of {dtype}, got {raw.size}")
        return _from_raw(raw, dtype, count).reshape(dims)
    return _from_fields(tensor, dtype, count).reshape(dims)


def _from_raw(raw: Array, dtype: DType, count: int) -> Array:
    if dtype.bits < 8:
        return _unpack(raw, dtype, count)
    if dtype.kind == "b":
        return raw != 0 if raw.size and raw.max() > 1 else raw.view(np.bool_)
    return raw.view(dtype.numpy)


def _unpack(raw: Array, dtype: DType, count: int) -> Array:
    """Unpacks sub-byte values, the first in the lowest bits."""
    codes = unpacked(raw, dtype.bits, count)
    if dtype.kind == "f":
        return codes.view(dtype.numpy)
    if dtype.kind == "i":
        codes = np.where(codes >> (dtype.bits - 1), codes | (0xFF << dtype.bits & 0xFF), codes).astype(np.uint8)
        return codes.view(np.int8).astype(dtype.numpy)
    return codes.astype(dtype.numpy)


def _from_fields(tensor: onnx.TensorProto, dtype: DType, count: int) -> Array:
    field: Array
    match dtype.name:
        case "float32" | "complex64":
            field = np.asarray(tensor.float_data, np.float32)
        case "float64" | "complex128":
            field = np.asarray(tensor.double_data, np.float64)
        case "int64":
            field = np.asarray(tensor.int64_data, np.int64)
        case "uint64" | "uint32":
            field = np.asarray(tensor.uint64_data, np.uint64)
        case _:
            field = np.asarray(tensor.int32_data, np.int32)
    if dtype.kind == "c":
        wanted, got = 2 * count, field.size
    elif dtype.bits < 8 and 8 % dtype.bits == 0:  # packed; 6-bit types are not
        wanted, got = -(-count * dtype.bits // 8), field.size
    else:
        wanted, got = count, field.size
    if wanted != got:
        raise ParseError(f"{wanted} values are required for {list(tensor.dims)} of {dtype}, got {got}")
    if dtype.kind == "c":
        return field.view(dtype.numpy)
    if dtype.bits < 8 and 8 % dtype.bits == 0:
        return _unpack(field.astype(np.uint8), dtype, count)
    if dtype.kind == "f" and dtype.bits < 32:
        return field.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy)
    return field.astype(dtype.numpy)


def sparse_array(sparse: onnx.SparseTensorProto, folder: DataFolder, limit: int) -> Array:
    """Returns the dense array of a sparse tensor.  Errors: ParseError for indices out of bounds or sizes that do not fit."""
    values = tensor_array(sparse.values, folder, limit)
    indices = tensor_array(sparse.indices, folder, limit)
    dims = list(sparse.dims)
    count = math.prod(dims)
    if any(d < 0 for d in dims) or count * values.dtype.itemsize > limit:
        raise ParseError(f"a sparse tensor of extents {dims} exceeds option limit_bytes, {limit}")
    if indices.ndim == 2:
        if indices.shape != (len(values), len(dims)) or ((indices < 0) | (indices >= np.asarray(dims))).any():
            raise ParseError(f"sparse indices {list(indices.shape)} do not address {dims}")
        indices = np.ravel_multi_index(tuple(indices.T), dims) if indices.size else np.zeros(0, np.int64)
    if indices.shape != (len(values),) or ((indices < 0) | (indices >= count)).any():
        raise ParseError(f"sparse indices {list(indices.shape)} do not address {dims}")
    out = np.zeros(count, values.dtype)
    out[indices] = values
    return out.reshape(dims)


def shape_of_type(proto: onnx.TypeProto, dims: Any) -> Any:
    """Returns the shape of an ONNX type; `dims(tensor type)` returns the extents, or None for an unknown rank.

    Errors: UnsupportedError for sparse types; ParseError for empty types.
    """
    kind = proto.WhichOneof("value")
    match kind:
        case "tensor_type":
            dtype = dtype_of(proto.tensor_type.elem_type)
            extents = dims(proto.tensor_type)
            return Shape.unranked(dtype) if extents is None else Shape(dtype, extents)
        case "sequence_type":
            return SequenceShape(shape_of_type(proto.sequence_type.elem_type, dims))
        case "optional_type":
            return OptionalShape(shape_of_type(proto.optional_type.elem_type, dims))
        case "map_type":
            inside = shape_of_type(proto.map_type.value_type, lambda tensor: ())
            if not isinstance(inside, Shape):
                raise UnsupportedError(f"maps to values of type {inside} are not supported")
            from mgx_onnx.ops.maps import map_shape  # most models have no maps

            return map_shape(dtype_of(proto.map_type.key_type), inside.dtype)
        case None:
            raise ParseError("a type must be a tensor, sequence or optional type")
    raise UnsupportedError(f"values of ONNX type {kind} are not supported")
