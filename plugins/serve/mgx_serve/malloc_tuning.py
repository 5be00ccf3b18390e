"""Tunes malloc to reuse the memory of large messages."""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["keep_freed_memory"]

MMAP_THRESHOLD: Final = -3  # parameters of mallopt(3), from <malloc.h>
TRIM_THRESHOLD: Final = -1
LARGEST: Final = 8 << 20  # largest message, in bytes, whose memory is reused
KEPT: Final = 64 << 20  # bytes kept at the top of each heap


def keep_freed_memory() -> bool:
    """Makes malloc keep freed memory for reuse; returns False if the C library does not support it.

    By default glibc returns freed memory to the system beyond twice the largest freed buffer, and the pages of the next message
    are mapped and zeroed again: 415 page faults per image of 602,112 bytes received over gRPC.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # a C library without mallopt
        return False
    return all(mallopt(what, size) for what, size in ((MMAP_THRESHOLD, LARGEST), (TRIM_THRESHOLD, KEPT)))
