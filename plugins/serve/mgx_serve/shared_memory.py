"""Regions of memory that clients name, to hand tensors over without sending them."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import BadRequest, NotFound, Unsupported
from .tensors import Array, Layout, Lying

__all__ = ["AT_ONCE", "Memory", "Place", "Region", "Regions"]

MOST = 4096  # regions
AT_ONCE = 1 << 18  # bytes: a copy of more would keep the event loop from others for longer than a thread takes to start
T = TypeVar("T")


@dataclass(frozen=True)
class Region(ABC):
    """size bytes of memory under a name."""

    name: str
    size: int

    @abstractmethod
    def opened(self) -> Memory:
        """Returns the region's memory; it takes a while.  Errors: BadRequest if there is none such; Unsupported."""


class Memory(ABC):
    """The memory of a region: several threads may copy to and from it."""

    @abstractmethod
    def read(self, at: int, size: int) -> memoryview:
        """Returns a copy of bytes.  Errors: BadRequest if they are gone."""

    def read_into(self, at: int, place: memoryview) -> None:
        """Copies bytes to a place.  Errors: BadRequest if they are gone.  Default: by way of `read`."""
        place[:] = self.read(at, len(place))

    @abstractmethod
    def write(self, at: int, data: bytes | memoryview) -> None:
        """Errors: BadRequest if the memory is gone."""

    @abstractmethod
    def close(self) -> None:
        """Gives the memory back."""


@dataclass(frozen=True)
class Place:
    """size bytes at `offset` of a region: of an input's elements, or for an output's."""

    region: str
    size: int
    offset: int = 0


R = TypeVar("R", bound=Region)


class _Open:
    """A region with its memory, which is given back once nothing refers to this any more, in whatever thread that is."""

    def __init__(self, region: Region, memory: Memory) -> None:
        self.region, self.memory = region, memory

    def read(self, at: int, size: int) -> memoryview:
        return self.memory.read(at, size)

    def write(self, at: int, data: bytes | memoryview) -> None:
        self.memory.write(at, data)

    def __del__(self) -> None:
        self.memory.close()


async def _copied(size: int, copy: Callable[[], T]) -> T:
    """Returns what a copy of `size` bytes gives.  A long one has a thread, which goes on even if its request is given up."""
    if size <= AT_ONCE:
        return copy()
    running = asyncio.get_running_loop().run_in_executor(None, copy)
    del copy  # its memory is the thread's: an error's traceback keeps what a coroutine refers to
    running.add_done_callback(_seen)
    return await asyncio.shield(running)


def _seen(running: asyncio.Future[Any]) -> None:
    """Notes that the failure of a copy was seen, also where its request was given up."""
    running.exception()


class _Input(Lying):
    """An input in a region, whose memory stays for as long as the input is there."""

    def __init__(self, layout: Layout, found: _Open, at: int) -> None:
        super().__init__(layout)
        self._found, self._at = found, at

    def read_into(self, place: Array) -> None:
        self._found.memory.read_into(self._at, memoryview(place.reshape(-1).view("u1")))


class Regions:
    """The regions that clients have registered, of all kinds; lives in one event loop.

    offered: False to refuse every region, since whoever registers one has this process read and write it.
    """

    def __init__(self, offered: bool) -> None:
        self.offered = offered
        self._open: dict[str, _Open] = {}
        self._opening: set[str] = set()  # names whose memory a thread is opening, also for requests that were given up

    async def register(self, region: Region) -> None:
        """Errors: BadRequest if there is no such memory, or it is too short, or the name is taken; Unsupported."""
        if not self.offered:
            raise Unsupported("shared memory is not offered; start the server with --shared-memory")
        if region.size < 1:
            raise BadRequest(f"region {region.name!r}: a size from 1 on is required, got {region.size}")
        self._require_free(region.name)
        self._opening.add(region.name)
        opening = asyncio.get_running_loop().run_in_executor(None, region.opened)
        try:
            memory = await asyncio.shield(opening)
        except asyncio.CancelledError:  # the thread goes on, and nobody else would close what it opens
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
        """Forgets a region, or all of a kind; one that is not known is none."""
        for known in self.status(kind) if not name or name in self._open else []:
            if name in ("", known.name):
                del self._open[known.name]

    def close(self) -> None:
        """Forgets all regions."""
        self._open.clear()

    def status(self, kind: type[R], name: str = "") -> list[R]:
        """Returns one region, or all of a kind.  Errors: NotFound for a region that is not registered."""
        found = [o.region for o in self._open.values() if isinstance(o.region, kind) and name in ("", o.region.name)]
        if name and not found:
            raise NotFound(f"there is no region {name!r}")
        return found

    async def read(self, place: Place) -> memoryview:
        """Returns the bytes of a place.  Errors: BadRequest."""
        return await _copied(place.size, functools.partial(self._at(place).read, place.offset, place.size))

    def input(self, layout: Layout, place: Place) -> Lying:
        """Returns an input that is read when its batch is put together.  Errors: BadRequest."""
        found = self._at(place)
        layout.require(place.size)
        return _Input(layout, found, place.offset)

    async def write(self, place: Place, data: bytes | memoryview) -> None:
        """Errors: BadRequest if the place is too small."""
        await _copied(len(data), self._writing(place, data))

    def write_now(self, place: Place, data: bytes | memoryview) -> None:
        """As `write`, in this thread: for at most `AT_ONCE` bytes."""
        self._writing(place, data)()

    def _writing(self, place: Place, data: bytes | memoryview) -> Callable[[], None]:
        """Returns what writes an output.  Errors: BadRequest if the place is too small."""
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
                f"region {place.region!r} has {size} bytes; {place.size} at {place.offset} do not lie in it"
            )
        return found
