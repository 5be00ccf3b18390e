"""Serializes arguments to files, as msgpack maps of shape and data in MIGraphX's format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np

from ..errors import MgxError, ParameterError, StoreError
from ..sources import file_path, unwritable
from .shape import AnyShape, Shape, TupleShape

__all__ = ["read_value", "write_value"]

CHUNK: Final = 1 << 30  # maximum bytes of one msgpack binary item; larger tensors are stored as a list


def write_value(value: Any, shape: AnyShape, filename: str | os.PathLike[str]) -> None:
    """Errors: ParameterError for values that are neither tensors of numbers nor tuples of such; StoreError for the file's."""
    filename = file_path(filename, "save")
    document = _document(value, shape)
    try:
        with Path(filename).open("wb") as file:
            msgpack.pack(document, file)
    except OSError as error:
        raise unwritable(filename, error) from error


def read_value(filename: str | os.PathLike[str]) -> Any:
    """Errors: StoreError for a file that holds no argument."""
    filename = file_path(filename, "load")
    try:
        return _value(msgpack.unpackb(Path(filename).read_bytes()))
    except OSError as error:
        raise StoreError(f"file {os.fspath(filename)!r} cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, MgxError) as error:
        raise StoreError(f"file {os.fspath(filename)!r} holds no argument: {error}") from None


def _document(value: Any, shape: AnyShape) -> dict[str, Any]:
    if isinstance(shape, TupleShape):
        return {
            "shape": {"type": "tuple_type", "lens": [], "strides": []},
            "sub": [_document(v, s) for v, s in zip(value, shape.items, strict=True)],
        }
    if not isinstance(shape, Shape) or shape.dtype.kind == "s":
        raise ParameterError(f"a file holds tensors of numbers and tuples of such, got {shape}")
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8).tobytes()
    plain = Shape.of(shape.dtype, shape.dims)
    return {
        "shape": {"type": plain.type_string(), "lens": plain.lens(), "strides": plain.strides()},
        "data": data if len(data) <= CHUNK else [data[n : n + CHUNK] for n in range(0, len(data), CHUNK)],
    }


def _value(document: Any) -> Any:
    shape = document["shape"]
    if shape["type"] == "tuple_type":
        return tuple(_value(d) for d in document["sub"])
    kind = Shape(shape["type"], shape["lens"], shape["strides"])
    if min(kind.strides(), default=0) < 0:
        raise StoreError(f"strides must not be negative, got {kind}")
    data = document["data"]
    data = b"".join(data) if isinstance(data, list) else data
    if len(data) != kind.element_space() * kind.dtype.size:
        raise StoreError(f"{kind} takes {kind.element_space() * kind.dtype.size} bytes, the file has {len(data)}")
    flat = np.frombuffer(bytearray(data), kind.dtype.numpy)
    steps = [s * kind.dtype.size for s in kind.strides()]
    return np.lib.stride_tricks.as_strided(flat, kind.lens(), steps)
