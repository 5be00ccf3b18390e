"""Pauses the cyclic garbage collector while large graphs are built: nothing made there is garbage yet."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collection_paused"]

_lock = threading.Lock()
_inside = [0]  # how many are building
_was_on = [False]


@contextmanager
def collection_paused() -> Iterator[None]:
    """Inside, no automatic collection starts; several threads may be inside at once."""
    with _lock:
        if not _inside[0]:
            _was_on[0] = gc.isenabled()
            gc.disable()
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0] and _was_on[0]:
                gc.enable()
