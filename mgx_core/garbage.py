"""Controls Python's garbage collector: fewer collections during compilation; none at exit or where finalizers must not run."""

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

RARER: Final = 100_000  # new objects between collections, about 10 MB
MANY: Final = 20  # imported modules, from which on moving objects to the oldest generation pays off
_lock = threading.Lock()
_inside = 0
_before: tuple[int, int, int] | None = None  # thresholds to restore
_without = 0  # active `no_collections` blocks
_enabled = False  # whether the collector was enabled before the first of them
_registered = False  # whether the exit handler is registered
_without_end: set[type] = set()  # types whose finalizers may be skipped at exit


@contextmanager
def rarer_collections() -> Iterator[None]:
    """Context manager: raises the collector's threshold, in all threads of the process.

    Parsing and compiling create many objects but little garbage, so with Python's default threshold the collector repeatedly
    traverses all objects of the process.  The previous thresholds are restored when the last thread leaves such a block; a
    higher threshold or a disabled collector is left unchanged.  If many modules were imported, all objects then move to the
    oldest generation, so that the next young collection skips them; at exit they are not collected unless a finalizer must run.
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
                atexit.register(_freeze_all)
            _inside -= 1
            if not _inside and _before is not None:
                if gc.get_threshold()[0] == RARER:  # unless someone else changed it
                    gc.set_threshold(*_before)
                    if many and not gc.get_freeze_count():
                        gc.freeze()  # freeze and unfreeze move all objects to the oldest generation, without a traversal
                        gc.unfreeze()
                _before = None


@contextmanager
def no_collections() -> Iterator[None]:
    """Context manager: disables the collector, in all threads of the process.

    Finalizers may call a driver, and some driver calls are not allowed during the block (e.g. graph capture).
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
    """Declares that a type's finalizers only free memory, so that they may be skipped at exit."""
    _without_end.add(kind)


def _freeze_all() -> None:
    """Exempts all objects from the collections at exit, which traverse them three times to free memory that the system
    reclaims anyway.

    Objects that are not in cycles are still freed.  If an object has a finalizer that may do more than free memory, nothing is
    exempted.
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
    """Yields a standard stream and its underlying streams, which Python flushes itself."""
    while stream is not None:
        yield stream
        stream = getattr(stream, "buffer", None) or getattr(stream, "raw", None)
