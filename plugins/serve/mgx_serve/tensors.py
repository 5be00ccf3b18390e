"""Tensors in the protocol's encodings: element types by name, little-endian bytes, JSON lists."""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from mgx_core.types.strings import decoded, encoded

from .errors import BadRequest

__all__ = [
    "DATATYPES",
    "OPEN",
    "DeferredInput",
    "Layout",
    "Tensor",
    "arrays_of",
    "datatype_of",
    "elements",
    "from_bytes",
    "from_list",
    "of_items",
    "reshaped",
    "to_bytes",
    "to_list",
]

Array = np.ndarray[Any, Any]
MOST_AXES: Final = 32

DATATYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BYTES": np.dtype(object),
}
_NAMES: Final = {dtype: name for name, dtype in DATATYPES.items()}

OPEN: Final = -1  # a variable extent in the protocol


@dataclass(frozen=True)
class Tensor:
    """Metadata of an input or output: name, the protocol's element type, extents (-1 for variable ones).

    inner: the model's extents if requests use different ones, else None.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    inner: tuple[int, ...] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return DATATYPES[self.datatype]

    def __str__(self) -> str:
        return f"{self.datatype}{list(self.shape)}"


def reshaped(array: Array, old: Sequence[int], new: Sequence[int]) -> Array:
    """Reshapes an array from extents `old`; variable extents keep their order.  Errors: ValueError if it does not match `old`."""
    if any(extent not in (OPEN, n) for n, extent in zip(array.shape, old, strict=True)):
        raise ValueError(f"extents {list(old)} are required, got {list(array.shape)}")
    varying = iter([n for n, extent in zip(array.shape, old, strict=True) if extent == OPEN])
    return array.reshape([next(varying) if extent == OPEN else extent for extent in new])


def datatype_of(dtype: np.dtype[Any]) -> str:
    """Returns the protocol's name of an element type.  Errors: BadRequest if the protocol has no such type."""
    if dtype.kind in "OSUT":
        return "BYTES"
    if dtype not in _NAMES:
        raise BadRequest(f"the protocol has no name for element type {dtype}")
    return _NAMES[dtype]


def _dtype(name: str, datatype: str) -> np.dtype[Any]:
    if datatype not in DATATYPES:
        raise BadRequest(f"input {name!r}: a datatype out of {', '.join(DATATYPES)} is required, got {datatype!r}")
    return DATATYPES[datatype]


def elements(name: str, shape: Sequence[int]) -> int:
    """Returns the number of elements of an input.  Errors: BadRequest for invalid extents."""
    if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in shape):
        raise BadRequest(f"input {name!r}: extents from 0 on are required, got {list(shape)}")
    if len(shape) > MOST_AXES:
        raise BadRequest(f"input {name!r}: at most {MOST_AXES} extents are required, got {len(shape)}")
    if math.prod(n for n in shape if n) > 1 << 40:  # numpy limits the extents of empty arrays, too
        raise BadRequest(f"input {name!r}: shape {list(shape)} has more elements than a request can hold")
    return math.prod(shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The binary layout of an input: little-endian elements; elements of BYTES are prefixed by a 4-byte length.

    size: in bytes, for types of fixed size.
    """

    name: str
    datatype: str
    shape: Sequence[int]
    dtype: np.dtype[Any]
    size: int

    @classmethod
    def of(cls, name: str, datatype: str, shape: Sequence[int]) -> Layout:
        """Errors: BadRequest for an unknown element type or invalid extents."""
        dtype = _dtype(name, datatype)
        return cls(name, datatype, shape, dtype, elements(name, shape) * dtype.itemsize)

    def read(self, raw: bytes | memoryview) -> Array:
        """Decodes a tensor.  Errors: BadRequest, with the required number of bytes."""
        if self.dtype.hasobject:
            return of_items(self.name, self.shape, list(_strings(self.name, bytes(raw))))
        self.require(len(raw))
        return np.frombuffer(raw, self.dtype).reshape(self.shape)

    def require(self, given: int) -> None:
        """Errors: BadRequest if the number of bytes does not match a fixed-size type."""
        if given != self.size:
            raise BadRequest(
                f"input {self.name!r}: {self.size} bytes are required for {self.datatype}{list(self.shape)}, got {given}"
            )


class DeferredInput(ABC):
    """An input of a fixed-size type in shared memory, read directly into the batch buffer."""

    def __init__(self, layout: Layout) -> None:
        self.shape, self.dtype, self.nbytes = tuple(layout.shape), layout.dtype, layout.size

    @abstractmethod
    def read_into(self, place: Array) -> None:
        """Copies the elements to an array of their shape, from any thread.  Errors: BadRequest if the memory was released."""

    def array(self) -> Array:
        made = np.empty(self.shape, self.dtype)
        self.read_into(made)
        return made


def arrays_of(feeds: Mapping[str, Array | DeferredInput]) -> dict[str, Array]:
    """Reads the elements of inputs.  Errors: BadRequest if their memory was released."""
    return {name: v.array() if isinstance(v, DeferredInput) else v for name, v in feeds.items()}


def from_bytes(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> Array:
    """Decodes a tensor in binary layout (`Layout`).  Errors: BadRequest."""
    return Layout.of(name, datatype, shape).read(raw)


def of_items(name: str, shape: Sequence[int], items: Sequence[bytes]) -> Array:
    """Decodes a BYTES tensor.  Errors: BadRequest for the wrong number of elements."""
    count = elements(name, shape)
    if len(items) != count:
        raise BadRequest(f"input {name!r}: {count} elements are required for shape {list(shape)}, got {len(items)}")
    made = np.empty(count, object)
    made[:] = list(map(decoded, items))
    return made.reshape(shape)


def _strings(name: str, raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise BadRequest(f"input {name!r}: the length of an element is cut off at byte {at}")
        (length,) = struct.unpack_from("<I", raw, at)
        at += 4
        if at + length > len(raw):
            raise BadRequest(f"input {name!r}: an element of {length} bytes at byte {at} extends beyond the data")
        yield raw[at : at + length]
        at += length


def from_list(name: str, datatype: str, shape: Sequence[int], data: Any) -> Array:
    """Decodes a flat or nested JSON list.  Errors: BadRequest for the wrong number or type of elements."""
    dtype, count = _dtype(name, datatype), elements(name, shape)
    flat = list(_flat(name, data))
    if len(flat) != count:
        raise BadRequest(f"input {name!r}: {count} elements are required for shape {list(shape)}, got {len(flat)}")
    if dtype.hasobject:
        if any(not isinstance(v, str) for v in flat):
            raise BadRequest(f"input {name!r}: BYTES in JSON are strings")
        try:
            return of_items(name, shape, [v.encode() for v in flat])
        except UnicodeEncodeError as error:
            raise BadRequest(f"input {name!r}: {error}") from None
    wanted: Any = bool if dtype.kind == "b" else int if dtype.kind in "iu" else (int, float)
    for value in flat:
        if not isinstance(value, wanted) or (isinstance(value, bool) and dtype.kind != "b"):
            raise BadRequest(f"input {name!r}: elements of type {datatype} are required, got {value!r}")
    try:
        return np.array(flat, dtype).reshape(shape)
    except (OverflowError, ValueError) as error:
        raise BadRequest(f"input {name!r}: {error}") from None


def _flat(name: str, data: Any) -> Iterator[Any]:
    """Flattens nested lists iteratively, because requests may nest arbitrarily deep."""
    if not isinstance(data, list):
        raise BadRequest(f"input {name!r}: data must be a list, got {type(data).__name__}")
    open_lists = [iter(data)]
    while open_lists:
        for item in open_lists[-1]:
            if isinstance(item, list):
                open_lists.append(iter(item))
                break
            yield item
        else:
            open_lists.pop()


def to_bytes(array: Array) -> bytes | memoryview:
    """Encodes elements in binary layout; without a copy if they are in that layout already."""
    if datatype_of(array.dtype) == "BYTES":
        items = list(map(encoded, array.ravel().tolist()))
        return b"".join(struct.pack("<I", len(v)) + v for v in items)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _is_text(item: str) -> bool:
    """Returns True for a string without surrogate escapes."""
    try:
        item.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_list(array: Array) -> list[Any]:
    """Encodes elements as JSON values.  Errors: BadRequest for numbers that JSON cannot represent."""
    if datatype_of(array.dtype) == "BYTES":
        items: list[str] = array.ravel().tolist()
        if any(not v.isascii() and not _is_text(v) for v in items):
            raise BadRequest("the result holds bytes that are not text: ask for binary data")
        return items
    wide = array.astype(np.float32) if array.dtype == DATATYPES["BF16"] else array
    if wide.dtype.kind == "f" and not np.isfinite(wide).all():
        raise BadRequest("the result holds numbers that JSON cannot write (infinity or NaN): ask for binary data")
    made: list[Any] = wide.ravel().tolist()
    return made
