"""What the C library does with memory that was freed."""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["keep_freed_memory"]

MMAP_THRESHOLD: Final = -3  # parameters of mallopt(3), from <malloc.h>
TRIM_THRESHOLD: Final = -1
LARGEST: Final = 8 << 20  # bytes of a message whose memory is used again
KEPT: Final = 64 << 20  # bytes at the end of each heap


def keep_freed_memory() -> bool:
    """Has malloc use the memory of earlier messages again; returns whether it could be told to.

    By default glibc gives freed memory back to the system once it is twice the largest buffer that was freed, and pages of the
    next message are mapped and zeroed anew: 415 page faults for each image of 602,112 bytes that came over gRPC.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # a C library without it
        return False
    return all(mallopt(what, size) for what, size in ((MMAP_THRESHOLD, LARGEST), (TRIM_THRESHOLD, KEPT)))
