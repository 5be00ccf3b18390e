"""Descriptors of cuDNN's backend."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol

from mgx_core.errors import DeviceError

from .cudnn_constants import Attr, Kind, Type
from .loading import Api, out

__all__ = ["Backend", "Descriptor"]

CTYPES: Final[Mapping[int, Any]] = {
    Type.BOOLEAN: ctypes.c_bool,
    Type.INT64: ctypes.c_int64,
    Type.FLOAT: ctypes.c_float,
    Type.DOUBLE: ctypes.c_double,
    Type.INT32: ctypes.c_int32,
    Type.CHAR: ctypes.c_char,
    Type.HANDLE: ctypes.c_void_p,
    Type.VOID_PTR: ctypes.c_void_p,
    Type.DESCRIPTOR: ctypes.c_void_p,
}


class Backend(Protocol):
    """The parts of the library that descriptors and plans use: its functions, its handle, and the stream set on it."""

    api: Api
    handle: Any
    lock: threading.Lock
    stream: int | None
    version: int

    def error(self, call: str, status: int) -> DeviceError:
        """Returns an error for a status, with the library's description."""
        ...


class Descriptor:
    """A backend descriptor, destroyed with this object; `children` are kept alive."""

    def __init__(self, cudnn: Backend, kind: Kind) -> None:
        self.cudnn = cudnn
        self.kind = kind
        self.children: list[Any] = []
        self.handle, pointer = out()
        cudnn.api.call("cudnnBackendCreateDescriptor", int(kind), pointer)

    def set(self, attribute: Attr, kind: Type, *values: Any) -> Descriptor:
        """Errors: DeviceError that names the attribute."""
        status = self.try_set(attribute, kind, *values)
        if status:
            raise self.cudnn.error(f"cudnnBackendSetAttribute({self.kind.name}, {attribute.name})", status)
        return self

    def try_set(self, attribute: Attr, kind: Type, *values: Any) -> int:
        if kind is Type.DESCRIPTOR:
            self.children += values
            values = tuple(v.handle.value for v in values)
        array = (CTYPES.get(kind, ctypes.c_int) * len(values))(*values)
        return self.cudnn.api.status(
            "cudnnBackendSetAttribute", self.handle, int(attribute), int(kind), len(values), array
        )

    def set_bytes(self, attribute: Attr, text: bytes) -> Descriptor:
        status = self.cudnn.api.status(
            "cudnnBackendSetAttribute", self.handle, int(attribute), int(Type.CHAR), len(text), text
        )
        if status:
            raise self.cudnn.error(f"cudnnBackendSetAttribute({self.kind.name}, {attribute.name})", status)
        return self

    def finalize(self) -> Descriptor:
        status = self.try_finalize()
        if status:
            raise self.cudnn.error(f"cudnnBackendFinalize({self.kind.name})", status)
        return self

    def try_finalize(self) -> int:
        return self.cudnn.api.status("cudnnBackendFinalize", self.handle)

    def get(self, attribute: Attr, kind: Type, count: int = 1) -> list[Any]:
        """At most `count` values.  Errors: DeviceError."""
        array = (CTYPES.get(kind, ctypes.c_int) * max(count, 1))()
        return list(array[: self._get(attribute, kind, count, array)])

    def get_bytes(self, attribute: Attr) -> bytes:
        size = self._get(attribute, Type.CHAR, 0, None)
        text = ctypes.create_string_buffer(max(size, 1))
        found = self._get(attribute, Type.CHAR, size, text)
        return text.raw[:found].rstrip(b"\0")

    def get_descriptors(self, attribute: Attr, kind: Kind, count: int) -> list[Descriptor]:
        """Returns descriptors of a kind, filled from the attribute."""
        made = [Descriptor(self.cudnn, kind) for _ in range(count)]
        array = (ctypes.c_void_p * count)(*[d.handle.value for d in made])
        found = self._get(attribute, Type.DESCRIPTOR, count, array)
        for d in made[:found]:
            d.children.append(self)
        return made[:found]

    def count(self, attribute: Attr, kind: Type) -> int:
        return self._get(attribute, kind, 0, None)

    def _get(self, attribute: Attr, kind: Type, count: int, array: Any) -> int:
        found, pointer = out(ctypes.c_int64)
        status = self.cudnn.api.status(
            "cudnnBackendGetAttribute", self.handle, int(attribute), int(kind), count, pointer, array
        )
        if status:
            raise self.cudnn.error(f"cudnnBackendGetAttribute({self.kind.name}, {attribute.name})", status)
        return int(found.value)

    def __del__(self) -> None:
        try:
            if self.handle:
                self.cudnn.api.status("cudnnBackendDestroyDescriptor", self.handle)
                self.handle.value = None
        except (DeviceError, TypeError, AttributeError):  # at exit the library may have been unloaded first
            pass
