"""The shared-memory extension: named regions through which clients pass tensors without sending them."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import BadRequest, NotFound, Unsupported
from .tensors import Array, DeferredInput, Layout

__all__ = ["AT_ONCE", "Memory", "Place", "Region", "Regions"]

MOST = 4096  # regions
AT_ONCE = 1 << 18  # bytes: a larger copy would block the event loop for longer than a thread takes to start
T = TypeVar("T")


@dataclass(frozen=True)
class Region(ABC):
    """A named memory region of size bytes."""

    name: str
    size: int

    @abstractmethod
    def opened(self) -> Memory:
        """Opens the region's memory; blocks.  Errors: BadRequest if it does not exist; Unsupported."""


class Memory(ABC):
    """The mapped memory of a region.  Thread-safe."""

    @abstractmethod
    def read(self, at: int, size: int) -> memoryview:
        """Returns a copy of bytes.  Errors: BadRequest if the memory was truncated."""

    def read_into(self, at: int, place: memoryview) -> None:
        """Copies bytes to a buffer.  Errors: BadRequest if the memory was truncated.  Default: uses `read`."""
        place[:] = self.read(at, len(place))

    @abstractmethod
    def write(self, at: int, data: bytes | memoryview) -> None:
        """Errors: BadRequest if the memory was truncated."""

    @abstractmethod
    def close(self) -> None:
        """Closes the memory."""


@dataclass(frozen=True)
class Place:
    """A location: size bytes at `offset` of a region, of an input or for an output."""

    region: str
    size: int
    offset: int = 0


R = TypeVar("R", bound=Region)


class _Open:
    """A region with its open memory, closed when the last reference is dropped, in any thread."""

    def __init__(self, region: Region, memory: Memory) -> None:
        self.region, self.memory = region, memory

    def read(self, at: int, size: int) -> memoryview:
        return self.memory.read(at, size)

    def write(self, at: int, data: bytes | memoryview) -> None:
        self.memory.write(at, data)

    def __del__(self) -> None:
        self.memory.close()


async def _copied(size: int, copy: Callable[[], T]) -> T:
    """Copies `size` bytes; in a thread if it takes long, which completes even if the request is cancelled."""
    if size <= AT_ONCE:
        return copy()
    running = asyncio.get_running_loop().run_in_executor(None, copy)
    del copy  # the thread owns the memory: an exception's traceback would keep a coroutine's references alive
    running.add_done_callback(_seen)
    return await asyncio.shield(running)


def _seen(running: asyncio.Future[Any]) -> None:
    """Retrieves the exception of a copy, so that asyncio does not log it if the request was cancelled."""
    running.exception()


class _Input(DeferredInput):
    """An input in a region; keeps the region's memory open."""

    def __init__(self, layout: Layout, found: _Open, at: int) -> None:
        super().__init__(layout)
        self._found, self._at = found, at

    def read_into(self, place: Array) -> None:
        self._found.memory.read_into(self._at, memoryview(place.reshape(-1).view("u1")))


class Regions:
    """The regions that clients have registered, of all kinds; bound to one event loop.

    offered: False rejects all regions, because registering a region lets a client make this process read and write it.
    """

    def __init__(self, offered: bool) -> None:
        self.offered = offered
        self._open: dict[str, _Open] = {}
        self._opening: set[str] = set()  # names whose memory a thread is opening, including those of cancelled requests

    async def register(self, region: Region) -> None:
        """Errors: BadRequest if the memory does not exist or is too small, or the name is in use; Unsupported."""
        if not self.offered:
            raise Unsupported("shared memory is not offered; start the server with --shared-memory")
        if region.size < 1:
            raise BadRequest(f"region {region.name!r}: a size from 1 on is required, got {region.size}")
        self._require_free(region.name)
        self._opening.add(region.name)
        opening = asyncio.get_running_loop().run_in_executor(None, region.opened)
        try:
            memory = await asyncio.shield(opening)
        except asyncio.CancelledError:  # the thread continues, and nothing else would close what it opens
            opening.add_done_callback(functools.partial(self._given_up, region.name))
            raise
        except BaseException:
            self._opening.remove(region.name)
            raise
        self._opening.remove(region.name)
        self._open[region.name] = _Open(region, memory)

    def _given_up(self, name: str, opening: asyncio.Future[Memory]) -> None:
        self._opening.remove(name)
        if not opening.cancelled() and opening.exception() is None:
            opening.result().close()

    def _require_free(self, name: str) -> None:
        used = len(self._open) + len(self._opening)
        if not name or name in self._open or name in self._opening or used >= MOST:
            raise BadRequest(f"region {name!r}: a name is required that no other of at most {MOST} regions has")

    def unregister(self, kind: type[Region], name: str = "") -> None:
        """Unregisters a region, or all of a kind; unknown names are ignored."""
        for known in self.status(kind) if not name or name in self._open else []:
            if name in ("", known.name):
                del self._open[known.name]

    def close(self) -> None:
        """Unregisters all regions."""
        self._open.clear()

    def status(self, kind: type[R], name: str = "") -> list[R]:
        """Returns one region, or all of a kind.  Errors: NotFound if it is not registered."""
        found = [o.region for o in self._open.values() if isinstance(o.region, kind) and name in ("", o.region.name)]
        if name and not found:
            raise NotFound(f"there is no region {name!r}")
        return found

    async def read(self, place: Place) -> memoryview:
        """Returns the bytes at a location.  Errors: BadRequest."""
        return await _copied(place.size, functools.partial(self._at(place).read, place.offset, place.size))

    def input(self, layout: Layout, place: Place) -> DeferredInput:
        """Returns an input that is read when its batch is assembled.  Errors: BadRequest."""
        found = self._at(place)
        layout.require(place.size)
        return _Input(layout, found, place.offset)

    async def write(self, place: Place, data: bytes | memoryview) -> None:
        """Errors: BadRequest if the location is too small."""
        await _copied(len(data), self._writing(place, data))

    def write_now(self, place: Place, data: bytes | memoryview) -> None:
        """Like `write`, but in the calling thread: for at most `AT_ONCE` bytes."""
        self._writing(place, data)()

    def _writing(self, place: Place, data: bytes | memoryview) -> Callable[[], None]:
        """Returns a callable that writes an output.  Errors: BadRequest if the location is too small."""
        put = self._at(place).write
        if len(data) > place.size:
            raise BadRequest(f"region {place.region!r}: {len(data)} bytes are required for an output, got {place.size}")
        return functools.partial(put, place.offset, data)

    def _at(self, place: Place) -> _Open:
        found = self._open.get(place.region)
        if found is None:
            raise BadRequest(f"there is no region {place.region!r}")
        size = found.region.size
        if place.offset < 0 or place.size < 0 or place.offset + place.size > size:
            raise BadRequest(
                f"region {place.region!r} has {size} bytes; {place.size} at {place.offset} are not within it"
            )
        return found
