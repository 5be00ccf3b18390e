"""Memory limits of values, checked before large allocations."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from ..errors import DeviceError
from .shape import AnyShape, Shape, TupleShape

__all__ = [
    "ALIGNMENT",
    "Growth",
    "static_bytes",
    "limited",
    "machine_memory",
    "require_bytes",
    "require_memory",
    "value_limit",
]

ALIGNMENT: Final = 64  # bytes; a cache line, and the widest vector

GROWN: Final = 1 << 26  # bytes; smaller values may grow freely
STEADY: Final = 4  # consecutive growths by at least half that count as steady growth

LOOKED_AT: Final = 1 << 10  # maximum number of strings whose lengths are counted
LAST: Final = 64  # maximum number of list items that are counted

LARGE: Final = 1 << 28  # bytes; smaller requests are not checked against free memory

_limit: ContextVar[int] = ContextVar("limit_bytes", default=0)


class limited:  # noqa: N801  (every run enters one: a class costs a fifth of a generator)
    """Context manager that limits the bytes of a value (0: half of the machine's memory)."""

    __slots__ = ("_bytes", "_token")

    def __init__(self, limit_bytes: int) -> None:
        self._bytes = limit_bytes

    def __enter__(self) -> None:
        self._token = _limit.set(self._bytes)

    def __exit__(self, *exception: object) -> None:
        _limit.reset(self._token)


@cache
def machine_memory() -> int:
    """Returns the bytes available to this process: the machine's memory, or a lower limit (rlimit, cgroup)."""
    found = []
    with contextlib.suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        import resource

        found += [n for n in resource.getrlimit(resource.RLIMIT_AS) if n != resource.RLIM_INFINITY]
    except ImportError:
        pass
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found.append(int(Path(file).read_text()))
        except (OSError, ValueError):
            continue
    return min((n for n in found if n > 0), default=1 << 62)


def value_limit() -> int:
    """Returns the maximum bytes of one value: the configured limit, or half of the machine's memory."""
    return _limit.get() or machine_memory() // 2


def _free() -> int:
    """Returns the bytes of free memory, or the machine's memory if that is unknown."""
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return machine_memory()


def require_bytes(count: int, what: str = "a value") -> None:
    """Errors: DeviceError if `count` bytes exceed the limit (option ``limit_bytes``) or free memory."""
    if count <= LARGE and count <= (_limit.get() or LARGE):
        return
    allowed = value_limit()
    if count > allowed:
        raise DeviceError(f"{what} would take {count} bytes; {allowed} are allowed (compile option limit_bytes)")
    free = _free()
    if count > free:
        raise DeviceError(f"{what} would take {count} bytes; {free} are free on this machine")


def require_memory(dims: Iterable[int], itemsize: int, what: str = "the result") -> None:
    """`require_bytes` for a tensor of extents `dims`."""
    lens = [int(d) for d in dims]
    require_bytes(math.prod(lens) * max(itemsize, 1), f"{what} of extents {lens}")


class Growth:
    """Stops loops whose values grow in every iteration before they exhaust memory.

    what: the values, for messages.
    """

    __slots__ = ("_last", "_steps", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self._last = self._steps = 0

    def require(self, values: Iterable[object], steps_left: int) -> None:
        """Errors: DeviceError if the values would exceed the limit within `steps_left` steps at the present rate of growth.

        Small values, and growth by less than half per step, are always accepted.
        """
        size = sum(map(_held_bytes, values))
        last, self._last = self._last, size
        self._steps = self._steps + 1 if size >= last + last // 2 > 0 else 0
        if size < GROWN or self._steps < STEADY or steps_left <= 0:
            return
        allowed, ratio = value_limit(), size / last
        if math.log(size) + steps_left * math.log(ratio) > math.log(allowed):
            raise DeviceError(
                f"{self.what} take at least {size} bytes, {ratio:.3g} times as many with every trip, and {steps_left} trips are "
                f"to come; {allowed} bytes are allowed (compile option limit_bytes)"
            )


def _held_bytes(value: object) -> int:
    """Returns the bytes that a value occupies, including string contents; long lists are estimated from their last items.

    A loop appends few items per iteration, so a list that grows by half is one whose last items do.
    """
    if isinstance(value, np.ndarray):
        letters = sum(map(len, value.flat)) if value.dtype.hasobject and value.size <= LOOKED_AT else 0
        return value.nbytes + letters
    return sum(map(_held_bytes, value[-LAST:])) if isinstance(value, list | tuple) else 0


def static_bytes(shape: AnyShape) -> int | None:
    """Returns the bytes of a value with every tensor aligned; None if extents are not static."""
    if isinstance(shape, Shape) and not shape.dynamic():
        return -(-shape.elements() * shape.dtype.size // ALIGNMENT) * ALIGNMENT
    if isinstance(shape, TupleShape):
        sizes = [static_bytes(s) for s in shape.items]
        return None if None in sizes else sum(s for s in sizes if s is not None)
    return None
