"""The driver's primary context of one device: activation, free memory, deferred release of handles."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mgx_core.errors import DeviceError

from .driver import Driver
from .failures import CallError

__all__ = ["DriverContext"]

RELAXED: Final = 2  # capture mode


class DriverContext:
    """One device of a driver, retained; each thread must call ``activate`` before driver calls.

    Errors: DeviceError if there is no such device.
    """

    def __init__(self, driver: Driver, index: int = 0) -> None:
        self.driver = driver
        self.index = index
        count = driver.devices()
        if not 0 <= index < count:
            raise DeviceError(f"{driver.kind} device {index} is required, but only {count} are visible")
        self._device: int = driver.out("device_get", index, type=ctypes.c_int)
        self._context: int = driver.out("context_retain", self._device)
        self._holding = 0
        self._disposals: deque[tuple[str, int]] = deque()
        self._lock = threading.RLock()

    def activate(self) -> None:
        """Makes this device current in the calling thread."""
        self.driver.context_set(self._context if self.driver.kind == "cuda" else self.index)

    @property
    def context(self) -> int:
        """Handle of the driver's context."""
        return self._context

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes reported by the driver."""
        self.activate()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.driver.memory_info(ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    @contextmanager
    def outside_captures(self) -> Iterator[None]:
        """Allows calls that a graph does not contain, such as allocations, while this thread captures one."""
        mode = ctypes.c_int(RELAXED)
        self.driver.capture_mode(ctypes.byref(mode))  # exchanges the mode
        try:
            yield
        finally:
            self.driver.capture_mode(ctypes.byref(mode))

    # release

    def dispose(self, call: str, handle: int, loud: bool = False) -> None:
        """Releases a handle; deferred during a capture, when drivers forbid it."""
        with self._lock:
            if self._holding:
                self._disposals.append((call, handle))
                return
        try:
            self.activate()
            getattr(self.driver, call)(handle)
        except CallError:
            if loud:
                raise

    def hold_disposals(self, on: bool) -> None:
        with self._lock:
            self._holding += 1 if on else -1
            ready = [] if self._holding else list(self._disposals)
            if ready:
                self._disposals.clear()
        for call, handle in ready:
            self.dispose(call, handle)
