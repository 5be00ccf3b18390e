"""Streams (queues of device work) and events (points in them)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .driver_context import DriverContext
from .failures import NOT_READY, CallError

__all__ = ["Event", "Stream"]


def _reached(query: Callable[[int], Any], handle: int) -> bool:
    try:
        query(handle)
    except CallError as error:
        if error.code == NOT_READY:
            return False
        raise
    return True


class Event:
    """A point in a stream's work; `timing`: record the time at which it is reached."""

    __slots__ = ("__weakref__", "device", "handle")

    def __init__(self, device: DriverContext, timing: bool = False) -> None:
        device.activate()
        self.device = device
        self.handle: int = device.driver.out("event_create", 0 if timing else 2)

    def record(self, stream: Stream) -> Event:
        self.device.driver.event_record(self.handle, stream.handle)
        return self

    def wait(self) -> None:
        """Blocks until the event is reached."""
        self.device.driver.event_sync(self.handle)

    def done(self) -> bool:
        return _reached(self.device.driver.event_query, self.handle)

    def since(self, earlier: Event) -> float:
        """Returns milliseconds since an earlier event; both must have timing and have been reached."""
        return float(self.device.driver.out("event_elapsed", earlier.handle, self.handle, type=ctypes.c_float))

    def __del__(self) -> None:
        handle = getattr(self, "handle", 0)
        if handle:
            self.device.dispose("event_destroy", handle)


class Stream:
    """A queue of device work; foreign streams are wrapped by handle and never destroyed here (0: the default stream).

    joined: a new stream is ordered with the default stream both ways.
    """

    __slots__ = ("__weakref__", "device", "handle", "owned")

    def __init__(self, device: DriverContext, handle: int | None = None, joined: bool = False) -> None:
        self.device = device
        self.owned = handle is None
        if handle is None:
            device.activate()
            handle = device.driver.out("stream_create", 0 if joined else 1)
        self.handle: int = int(handle)

    def microseconds(self, call: Callable[[int], Any]) -> float:
        """Returns the device time of work that `call` enqueues, given the stream's handle."""
        before, after = Event(self.device, timing=True), Event(self.device, timing=True)
        before.record(self)
        call(self.handle)
        after.record(self)
        after.wait()
        return after.since(before) * 1000

    def wait(self) -> None:
        """Blocks until all work is done.  Errors: DeviceError for failures in it."""
        self.device.driver.stream_sync(self.handle)

    def done(self) -> bool:
        return _reached(self.device.driver.stream_query, self.handle)

    def captured(self) -> bool:
        """Returns True while the stream is under capture, in which no graph can be launched."""
        return bool(self.device.driver.out("stream_capturing", self.handle, type=ctypes.c_int, last=True))

    def after(self, event: Event | Stream) -> None:
        """Makes later work wait for an event, or for the work of another stream so far."""
        if isinstance(event, Stream):
            if event.handle == self.handle:
                return
            event = Event(self.device).record(event)
        self.device.driver.stream_wait(self.handle, event.handle, 0)

    def copy_in(self, address: int, array: Any) -> None:
        """Copies a host array to device memory; the array must not change until the copy has run."""
        self.device.driver.h2d(address, array.__array_interface__["data"][0], array.nbytes, self.handle)

    def copy_out(self, array: Any, address: int) -> None:
        self.device.driver.d2h(array.__array_interface__["data"][0], address, array.nbytes, self.handle)

    def copy(self, to: int, source: int, size: int) -> None:
        self.device.driver.d2d(to, source, size, self.handle)

    def repeat(self, address: int, array: Any, size: int) -> None:
        """Fills device memory with a host array, which is repeated."""
        self.copy_in(address, array)
        self.wait()  # the array may change, and the copies below read what was copied
        done = array.nbytes
        while done < size:
            part = min(done, size - done)
            self.copy(address + done, address, part)
            done += part

    def fill(self, address: int, byte: int, size: int) -> None:
        self.device.driver.fill8(address, byte, size, self.handle)

    def __del__(self) -> None:
        if getattr(self, "owned", False) and getattr(self, "handle", 0):
            self.device.dispose("stream_destroy", self.handle)

    def __repr__(self) -> str:
        return f"stream {self.handle:#x} of {self.device}"
