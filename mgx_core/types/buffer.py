"""The buffer protocol for classes written in Python, on Python 3.11; from 3.12 on a method `__buffer__` does that."""

from __future__ import annotations

import ctypes
import sys
from _pickle import PickleBuffer

__all__ = ["forward_buffer"]

_AS_BUFFER = 20  # pointers before `tp_as_buffer` in a PyTypeObject


def forward_buffer(cls: type) -> None:
    """Makes objects of a class offer the buffer of the object in their second slot (alphabetically, of two).

    CPython has a class for that, PickleBuffer: its C function hands a request on to the object that lies where the second
    slot of ours lies.  That object answers, so flags, errors and lifetime are its own: a view keeps it alive, and a value
    that has no buffer is a TypeError.  Where objects are laid out otherwise nothing changes: `np.asarray` still works.
    """
    word = ctypes.sizeof(ctypes.c_void_p)
    known = sys.implementation.name == "cpython" and not hasattr(sys, "getobjects")
    if known and (cls.__basicsize__, cls.__dictoffset__, cls.__weakrefoffset__) == (4 * word, 0, 0):
        _functions(cls)[0] = _functions(PickleBuffer)[0]


def _functions(cls: type) -> ctypes.Array[ctypes.c_void_p]:
    """Returns the C functions of a class that give and release buffers, as addresses in memory that can be written."""
    word = ctypes.sizeof(ctypes.c_void_p)
    place = ctypes.c_void_p.from_address(id(cls) + _AS_BUFFER * word).value
    assert place is not None
    return (ctypes.c_void_p * 2).from_address(place)
