"""Python's collections of garbage: rarer while a program is parsed or compiled, none where finalizers must not run."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["no_collections", "rarer_collections"]

RARER: Final = 100_000  # new objects between collections: some ten megabytes
MANY: Final = 20  # imported modules, whose functions, classes and tables stay for as long as the process
_lock = threading.Lock()
_inside = 0
_before: tuple[int, int, int] | None = None  # what is to be set again
_without = 0  # blocks without collections
_enabled = False  # whether there were any before the first of them


@contextmanager
def rarer_collections() -> Iterator[None]:
    """Lets many more objects be made between two collections until the block ends, in all threads of the process.

    Parsing and compiling make many objects and little garbage, so that Python's default of some hundred has it walk over all
    that the process holds again and again, the modules that are imported meanwhile included.  What the process had set is set
    again once no thread is in such a block; a process that collects more rarely itself, or never, is left as it is.  Where many
    modules were imported, what there is counts as old then: the next collection of young objects need not walk over all of it.
    """
    global _inside, _before
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
        with _lock:
            _inside -= 1
            if not _inside and _before is not None:
                if gc.get_threshold()[0] == RARER:  # else it was set to something else meanwhile
                    gc.set_threshold(*_before)
                    if len(sys.modules) - modules >= MANY and not gc.get_freeze_count():
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
