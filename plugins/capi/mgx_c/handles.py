"""Handles, which represent Python objects in C code."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

__all__ = ["Handle", "HandleError", "Handles", "element"]

Element = TypeVar("Element")


def element(listed: Sequence[Element], index: int) -> Element:
    """Returns an element of a list.  Errors: IndexError beyond the last element."""
    if index >= len(listed):
        raise IndexError(f"an index below {len(listed)} is required, got {index}")
    return listed[index]


class HandleError(Exception):
    """A handle that is null, was destroyed or is of another kind."""


class Handle:
    """A handle: its kind, the object that it refers to, and the children that it owns."""

    __slots__ = ("_memory", "address", "children", "kind", "value")

    def __init__(self, kind: str, value: Any, address: int = 0) -> None:
        self.kind = kind
        self.value = value
        self.address = address
        self.children: dict[Any, Handle] | None = None  # handles that it owns, by the call that returned them
        self._memory: dict[Any, Any] | None = None

    @property
    def memory(self) -> dict[Any, Any]:
        """C arrays that it owns."""
        if self._memory is None:
            self._memory = {}
        return self._memory


class Handles:
    """The table of all handles of the process by address.

    An address is a number that is never reused and does not point to memory, so that use of a destroyed handle is detected.
    Records, whose fields C++ code may access, use their real address; their memory is never reused.  Thread-safe.
    """

    def __init__(self) -> None:
        self._handles: dict[int, Handle] = {}
        self._numbers = itertools.count(16, 16)
        self._ended: list[ctypes.Structure] = []  # destroyed records, kept so that their addresses are not reused
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._handles)

    def new(self, kind: str, value: Any) -> Handle:
        """Creates a handle that lives until `destroy`."""
        record = isinstance(value, ctypes.Structure)
        handle = Handle(kind, value, ctypes.addressof(value) if record else next(self._numbers))
        self._handles[handle.address] = handle
        return handle

    def owned(self, owner: Handle, key: Any, kind: str, value: Any) -> Handle:
        """Returns a handle owned by `owner`, one per key; it then refers to `value`."""
        with self._lock:
            if owner.children is None:
                owner.children = {}
            handle = owner.children.get(key)
            if handle is None:
                handle = owner.children[key] = self.new(kind, value)
        handle.value = value
        return handle

    def assign(self, handle: Handle, value: Any) -> None:
        """Makes a handle refer to another object; destroys the handles that it owns."""
        if isinstance(handle.value, ctypes.Structure):
            ctypes.pointer(handle.value)[0] = value
        else:
            handle.value = value
        owned, handle.children = handle.children, None
        for child in (owned or {}).values():
            self._drop(child)

    def get(self, address: int, kind: str) -> Handle:
        """Returns a handle.  Errors: HandleError if the address is invalid or its kind differs."""
        handle = self._handles.get(address)
        if handle is None:
            raise HandleError(
                f"{_a(kind)} is required, got {'null' if not address else 'a handle that was destroyed or never created'}"
            )
        if handle.kind != kind:
            raise HandleError(f"{_a(kind)} is required, got {_a(handle.kind)}")
        return handle

    def destroy(self, address: int, kind: str) -> None:
        """Destroys a handle and those that it owns.  Errors: HandleError."""
        self._drop(self.get(address, kind))

    def _drop(self, handle: Handle) -> None:
        del self._handles[handle.address]
        if isinstance(handle.value, ctypes.Structure):
            self._ended.append(handle.value)
        if handle.children:
            for child in handle.children.values():
                self._drop(child)


def _a(kind: str) -> str:
    """Returns a handle's kind with its article."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
