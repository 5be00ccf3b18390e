"""Python's collections of garbage: rarer while a program is compiled, none where the process ends or finalizers must not run."""

from __future__ import annotations

import atexit
import gc
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import compress
from types import GeneratorType
from typing import Final

__all__ = ["ends_with_the_process", "no_collections", "rarer_collections"]

RARER: Final = 100_000  # new objects between collections: some ten megabytes
MANY: Final = 20  # imported modules, whose functions, classes and tables stay for as long as the process
_lock = threading.Lock()
_inside = 0
_before: tuple[int, int, int] | None = None  # what is to be set again
_without = 0  # blocks without collections
_enabled = False  # whether there were any before the first of them
_registered = False  # whether the end of the process is prepared for
_without_end: set[type] = set()  # types with finalizers that need not run there


@contextmanager
def rarer_collections() -> Iterator[None]:
    """Lets many more objects be made between two collections until the block ends, in all threads of the process.

    Parsing and compiling make many objects and little garbage, so that Python's default of some hundred has it walk over all
    that the process holds again and again, the modules that are imported meanwhile included.  What the process had set is set
    again once no thread is in such a block; a process that collects more rarely itself, or never, is left as it is.  Where many
    modules were imported, what there is counts as old then: the next collection of young objects need not walk over all of it,
    and the end of the process leaves it where it is, unless something is to be finalized there.
    """
    global _inside, _before, _registered
    modules = len(sys.modules)
    with _lock:
        _inside += 1
        if _inside == 1:
            found = gc.get_threshold()
            if 0 < found[0] < RARER:
                _before = found
                gc.set_threshold(RARER, *found[1:])
    try:
        yield
    finally:
        many = len(sys.modules) - modules >= MANY
        with _lock:
            if many and not _registered:
                _registered = True
                atexit.register(_leave_all)
            _inside -= 1
            if not _inside and _before is not None:
                if gc.get_threshold()[0] == RARER:  # else it was set to something else meanwhile
                    gc.set_threshold(*_before)
                    if many and not gc.get_freeze_count():
                        gc.freeze()  # there and back, all objects become old ones without being looked at
                        gc.unfreeze()
                _before = None


@contextmanager
def no_collections() -> Iterator[None]:
    """Lets no garbage be collected until the block ends, in all threads of the process.

    What collections would finalize may call a driver, some of whose calls break what the block does.
    """
    global _without, _enabled
    with _lock:
        if not _without:
            _enabled = gc.isenabled()
            gc.disable()
        _without += 1
    try:
        yield
    finally:
        with _lock:
            _without -= 1
            if not _without and _enabled:
                gc.enable()


def ends_with_the_process(kind: type) -> None:
    """Has a type's finalizers count for nothing where the process ends, as all that they do is free memory."""
    _without_end.add(kind)


def _leave_all() -> None:
    """Has the end of the process not collect garbage: it would walk three times over all objects, the functions and classes of
    every module among them, to free memory that the system takes back anyway.

    Objects that no cycle holds go as ever.  Where one has a finalizer that could do more, all is collected as ever.
    """
    kinds = _derived(kind for kind in _derived([object]) if "__del__" in vars(kind)) - _without_end
    objects = gc.get_objects()  # looked at once: touching each of them is what takes the time
    finalized = compress(objects, map(kinds.__contains__, map(type, objects)))
    streams = {id(part) for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__) for part in _parts(stream)}
    if all(id(o) in streams or (isinstance(o, GeneratorType) and not o.gi_suspended) for o in finalized):
        gc.freeze()


def _derived(kinds: Iterable[type]) -> set[type]:
    """Returns some types and all that derive from them."""
    found: set[type] = set()
    left = list(kinds)
    while left:
        kind = left.pop()
        if kind not in found:
            found.add(kind)
            left += type.__subclasses__(kind)
    return found


def _parts(stream: object) -> Iterator[object]:
    """Returns one of Python's own streams and those that it writes through, which Python flushes itself."""
    while stream is not None:
        yield stream
        stream = getattr(stream, "buffer", None) or getattr(stream, "raw", None)
