"""Handles: what C code holds in place of Python objects."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

__all__ = ["Handle", "HandleError", "Handles", "element"]

Element = TypeVar("Element")


def element(listed: Sequence[Element], index: int) -> Element:
    """Returns what a caller asks a list for.  Errors: IndexError beyond the last element."""
    if index >= len(listed):
        raise IndexError(f"an index below {len(listed)} is required, got {index}")
    return listed[index]


class HandleError(Exception):
    """A handle that is null, was destroyed or is of another kind."""


class Handle:
    """One handle: its kind, the object it stands for, and what lives as long as it does."""

    __slots__ = ("_memory", "address", "children", "kind", "value")

    def __init__(self, kind: str, value: Any, address: int = 0) -> None:
        self.kind = kind
        self.value = value
        self.address = address
        self.children: dict[Any, Handle] | None = None  # that were lent, by what they were asked for
        self._memory: dict[Any, Any] | None = None

    @property
    def memory(self) -> dict[Any, Any]:
        """C arrays that were lent."""
        if self._memory is None:
            self._memory = {}
        return self._memory


class Handles:
    """All handles of the process by their addresses.

    An address is a number that is never used twice and points to nothing, so that a handle used after its end is found out;
    that of a record, whose fields C++ code may read, is where it lies, and where no later one does.  Several threads may call.
    """

    def __init__(self) -> None:
        self._handles: dict[int, Handle] = {}
        self._numbers = itertools.count(16, 16)
        self._ended: list[ctypes.Structure] = []  # records, kept so that their memory is not used again
        self._lending = threading.Lock()

    def __len__(self) -> int:
        return len(self._handles)

    def new(self, kind: str, value: Any) -> Handle:
        """Returns a handle that lasts until `destroy`."""
        record = isinstance(value, ctypes.Structure)
        handle = Handle(kind, value, ctypes.addressof(value) if record else next(self._numbers))
        self._handles[handle.address] = handle
        return handle

    def lend(self, owner: Handle, key: Any, kind: str, value: Any) -> Handle:
        """Returns a handle that lasts as long as `owner`; the same one for the same key, which then stands for `value`."""
        with self._lending:
            if owner.children is None:
                owner.children = {}
            handle = owner.children.get(key)
            if handle is None:
                handle = owner.children[key] = self.new(kind, value)
        handle.value = value
        return handle

    def assign(self, handle: Handle, value: Any) -> None:
        """Lets a handle stand for another object; what it lent ends."""
        if isinstance(handle.value, ctypes.Structure):
            ctypes.pointer(handle.value)[0] = value
        else:
            handle.value = value
        lent, handle.children = handle.children, None
        for child in (lent or {}).values():
            self._drop(child)

    def get(self, address: int, kind: str) -> Handle:
        """Errors: HandleError."""
        handle = self._handles.get(address)
        if handle is None:
            raise HandleError(
                f"{_a(kind)} is required, got {'null' if not address else 'one that was destroyed or never made'}"
            )
        if handle.kind != kind:
            raise HandleError(f"{_a(kind)} is required, got {_a(handle.kind)}")
        return handle

    def destroy(self, address: int, kind: str) -> None:
        """Ends a handle and what it lent.  Errors: HandleError."""
        self._drop(self.get(address, kind))

    def _drop(self, handle: Handle) -> None:
        del self._handles[handle.address]
        if isinstance(handle.value, ctypes.Structure):
            self._ended.append(handle.value)
        if handle.children:
            for child in handle.children.values():
                self._drop(child)


def _a(kind: str) -> str:
    """Returns a kind of handle with its article."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
