"""Device memory: buffers, the caching allocator, and pinned host memory."""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import threading
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from mgx_core.cache import Held
from mgx_core.errors import DeviceError

from .driver_context import DriverContext
from .failures import OUT_OF_MEMORY, CallError, OutOfMemoryError
from .stream import Event, Stream

__all__ = ["DeviceBuffer", "PinnedBuffer", "Pool", "RegisteredMemory"]

SMALL, LARGE = 512, 2 << 20  # granularity of sizes: SMALL below LARGE, above up to a sixteenth
MAX_IDLE = 256 << 20  # bytes of free blocks that are kept, unless they exceed a quarter of all memory held
WASTE = 8  # a free block serves requests of at least (WASTE - 1) / WASTE of its size


class DeviceBuffer:
    """A region of device memory.

    Freed with its last reference, or by ``free``.  The memory returns to the pool at once and may be reused immediately, which is
    safe for work on one stream; a buffer that another stream still uses must be marked with ``used_on``.
    owner: object to keep alive; borrowed memory (``pool`` None) is never freed here.
    """

    __slots__ = ("__weakref__", "_block", "_pool", "_streams", "address", "device", "owner", "size")

    def __init__(
        self,
        device: DriverContext,
        address: int,
        size: int,
        owner: Any = None,
        pool: Pool | None = None,
        block: int = 0,
    ) -> None:
        self.device = device
        self.address = address
        self.size = size
        self.owner = owner
        self._pool = pool
        self._block = block
        self._streams: list[Stream] = []

    def used_on(self, stream: Stream) -> None:
        """Defers reuse of the memory until the stream's work so far has finished."""
        if all(s.handle != stream.handle for s in self._streams):
            self._streams.append(stream)

    def part(self, offset: int, size: int) -> DeviceBuffer:
        """Returns a sub-buffer that keeps this buffer alive."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise DeviceError(f"bytes {offset} to {offset + size} exceed a buffer of {self.size} bytes")
        return DeviceBuffer(self.device, self.address + offset, size, self)

    def free(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self._block:
            pool.release(self.address, self._block, self._streams)
        self.address = self.size = 0

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            with contextlib.suppress(DeviceError):  # the device is closed already
                self.free()

    def __repr__(self) -> str:
        return f"{self.size} bytes at {self.address:#x} of {self.device}"


class Pool:
    """Caching allocator of device memory; returns free blocks to the driver when memory runs out or much of it is unused.

    exact: allocate exactly the requested size and cache nothing (so that the emulated device detects overruns).
    """

    def __init__(self, device: DriverContext, exact: bool = False) -> None:
        self.device = device
        self.exact = exact
        self.reserved = 0  # bytes allocated from the driver
        self.cached = 0  # bytes of these in free blocks
        self._free: list[tuple[int, int]] = []  # (size, address), sorted
        self._pending: list[tuple[list[Event], int, int]] = []
        self._returned: deque[tuple[list[Event], int, int]] = deque()
        self._lock = threading.Lock()

    def allocate(self, size: int) -> DeviceBuffer:
        """Errors: OutOfMemoryError, after all free blocks were returned to the driver."""
        if size < 0:
            raise DeviceError(f"a size of at least 0 bytes is required, got {size}")
        if size == 0:
            return DeviceBuffer(self.device, 0, 0, None, self, 0)
        step = 1 if self.exact else SMALL if size < LARGE else 1 << (size.bit_length() - 5)
        block = -(-size // step) * step
        with self._lock:
            self._reclaim()
            index = bisect.bisect_left(self._free, (block, 0))
            if index < len(self._free) and self._free[index][0] * (WASTE - 1) <= block * WASTE:
                block, address = self._free.pop(index)
                self.cached -= block
            else:
                if self.cached > max(MAX_IDLE, self.reserved // 4):  # evicts sizes that are no longer requested
                    self._release_cached()
                address = self._allocate_block(block, size)
            return DeviceBuffer(self.device, address, size, None, self, block)

    def _allocate_block(self, block: int, size: int) -> int:
        self.device.activate()
        for last in (False, True):
            try:
                with self.device.outside_captures():
                    address: int = self.device.driver.out("malloc", block)
            except CallError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
                if last:
                    free, total = self.device.memory()
                    raise OutOfMemoryError(size, free, total, self.reserved, error.error) from None
                self._release_cached()
            else:
                self.reserved += block
                return address
        raise AssertionError

    def release(self, address: int, block: int, streams: list[Stream]) -> None:
        """Frees a buffer's memory; may be called at any time, even by the garbage collector during `allocate`."""
        self._returned.append(([Event(self.device).record(s) for s in streams], block, address))
        if self._lock.acquire(blocking=False):
            try:
                self._reclaim()
            finally:
                self._lock.release()

    def _reclaim(self, wait: bool = False) -> None:
        """Moves freed blocks that are no longer in use to the free list; requires the lock."""
        while self._returned:
            self._pending.append(self._returned.popleft())
        if self._pending:
            waiting, self._pending = self._pending, []
            for events, block, address in waiting:
                if wait:
                    for event in events:
                        event.wait()
                if not wait and not all(event.done() for event in events):
                    self._pending.append((events, block, address))
                elif self.exact:
                    self.reserved -= block
                    self.device.dispose("free", address, loud=True)
                else:
                    bisect.insort(self._free, (block, address))
                    self.cached += block

    def idle(self) -> Held:
        """Returns number and size of the free blocks."""
        with self._lock:
            return Held(len(self._free), self.cached)

    def trim(self) -> int:
        """Returns all free blocks to the driver; returns the number of bytes."""
        with self._lock:
            return self._release_cached()

    def _release_cached(self) -> int:
        self._reclaim(wait=True)
        blocks, self._free = self._free, []
        size = sum(block for block, _ in blocks)
        for _, address in blocks:
            self.device.dispose("free", address)
        self.reserved -= size
        self.cached -= size
        return size


class PinnedBuffer:
    """Pinned host memory, which the device copies to and from directly."""

    __slots__ = ("__weakref__", "_view", "address", "device", "size")

    def __init__(self, device: DriverContext, size: int) -> None:
        device.activate()
        self.address = 0
        self.device = device
        self.size = size
        self.address = device.driver.out("host_malloc", max(size, 1), 0)
        self._view = (ctypes.c_ubyte * size).from_address(self.address)

    def array(self, dtype: Any, lens: tuple[int, ...], offset: int = 0) -> npt.NDArray[Any]:
        """Returns a part of the buffer as an array, which must not outlive the buffer."""
        count = int(np.prod(lens, dtype=np.int64))
        size = count * np.dtype(dtype).itemsize
        array: npt.NDArray[Any] = np.ctypeslib.as_array(self._view)[offset : offset + size].view(dtype).reshape(lens)
        return array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.address, False)}

    def owned_array(self, dtype: Any, lens: tuple[int, ...]) -> npt.NDArray[Any]:
        """Returns the whole buffer as an array that keeps it alive."""
        array: npt.NDArray[Any] = np.asarray(self).view(dtype).reshape(lens)
        return array

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self.device.dispose("host_free", self.address)


class RegisteredMemory:
    """A caller's host memory, pinned while this object lives."""

    __slots__ = ("address", "device")

    def __init__(self, device: DriverContext, address: int, size: int) -> None:
        device.activate()
        self.address = 0
        self.device = device
        device.driver.host_register(address, size, 0)
        self.address = address

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self.device.dispose("host_unregister", self.address)
