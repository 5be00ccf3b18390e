"""The buffer protocol for Python classes on Python 3.11, which lacks `__buffer__` (PEP 688)."""

from __future__ import annotations

import ctypes
import sys
from _pickle import PickleBuffer

__all__ = ["forward_buffer"]

_AS_BUFFER = 20  # pointers before `tp_as_buffer` in a PyTypeObject


def forward_buffer(cls: type) -> None:
    """Makes instances of a class export the buffer of the object in their second slot (alphabetically, of two).

    Copies the C functions of CPython's PickleBuffer, which forward a request to the object at the offset of our second slot.
    That object handles flags, errors and lifetime: a view keeps it alive, and a value without a buffer raises TypeError.
    If the object layout differs, nothing is changed, and `np.asarray` still works.
    """
    word = ctypes.sizeof(ctypes.c_void_p)
    known = sys.implementation.name == "cpython" and not hasattr(sys, "getobjects")
    if known and (cls.__basicsize__, cls.__dictoffset__, cls.__weakrefoffset__) == (4 * word, 0, 0):
        _functions(cls)[0] = _functions(PickleBuffer)[0]


def _functions(cls: type) -> ctypes.Array[ctypes.c_void_p]:
    """Returns a class's `bf_getbuffer` and `bf_releasebuffer` slots as a writable ctypes array."""
    word = ctypes.sizeof(ctypes.c_void_p)
    place = ctypes.c_void_p.from_address(id(cls) + _AS_BUFFER * word).value
    assert place is not None
    return (ctypes.c_void_p * 2).from_address(place)
