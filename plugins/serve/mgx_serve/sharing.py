"""Connections shared out evenly among processes that listen on one port.

The kernel chooses a process for each connection by chance: of 32 connections, one of five processes has ten on average, and
what it answers takes as much longer.  Here, a process that has more connections than another hands a new one on to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import mmap
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Part", "Sharer", "Sharing"]

log = logging.getLogger("mgx_serve")
ABSENT: Final = 1 << 40  # the count of a process that takes none
ITEM: Final = 8  # bytes of a count


@dataclass(frozen=True)
class Part:
    """Descriptors by which one process takes part.

    counts: of memory with the number of connections of each process, behind a lock; own: the number of this one; takes: of a
    socket from which it takes connections; gives: of those by which it hands them on, to each process.
    """

    counts: int
    own: int
    takes: int
    gives: Sequence[int]


class Counts:
    """Numbers of connections, of all processes."""

    def __init__(self, number: int, many: int) -> None:
        self._number = number
        self._values = memoryview(mmap.mmap(number, many * ITEM)).cast("q")

    @contextlib.contextmanager
    def locked(self) -> Iterator[memoryview]:
        """Yields the counts; the lock is let go when a process ends, too."""
        fcntl.lockf(self._number, fcntl.LOCK_EX)
        try:
            yield self._values
        finally:
            fcntl.lockf(self._number, fcntl.LOCK_UN)


class Sharing:
    """What all processes have in common, in the one that starts them.

    memory: makes memory of a name and size, and returns a descriptor.
    """

    def __init__(self, many: int, memory: Callable[[str, int], int]) -> None:
        self._memory = memory("mgx-serve-connections", many * ITEM)
        self._counts = Counts(self._memory, many)
        self._ways = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(many)]
        for number, (takes, gives) in enumerate(self._ways):
            takes.setblocking(False)
            gives.setblocking(False)
            self.absent(number)

    def part(self, number: int) -> Part:
        """Returns the descriptors of one process; they stay this one's."""
        return Part(self._memory, number, self._ways[number][0].fileno(), [g.fileno() for _, g in self._ways])

    def absent(self, number: int) -> None:
        """Has nobody hand connections to a process that has ended, and closes those that it did not take."""
        with self._counts.locked() as counts:
            counts[number] = ABSENT
        while (found := taken(self._ways[number][0])) is not None:
            for connected in found:
                connected.close()

    def close(self) -> None:
        for number, way in enumerate(self._ways):
            self.absent(number)
            for end in way:
                end.close()
        os.close(self._memory)


class Sharer:
    """The part of one process."""

    def __init__(self, part: Part) -> None:
        self._counts, self._own = Counts(part.counts, len(part.gives)), part.own
        self._takes = socket.socket(fileno=part.takes)
        self._gives = [socket.socket(fileno=number) for number in part.gives]
        with self._counts.locked() as counts:
            counts[self._own] = 0

    def listening(self, made: socket.socket) -> socket.socket:
        """Returns a socket that listens in the place of one, and whose connections are shared out."""
        return _Listening(self, made)

    def keeps(self, connected: socket.socket) -> bool:
        """Counts a new connection; returns False if it was handed on to a process that has fewer."""
        with self._counts.locked() as counts:
            least = min(range(len(counts)), key=counts.__getitem__)
            if counts[least] < counts[self._own]:
                try:
                    socket.send_fds(self._gives[least], [b"c"], [connected.fileno()])
                except OSError:  # it has yet to take as many as a socket holds
                    pass
                else:
                    counts[least] += 1
                    return False
            counts[self._own] += 1
        return True

    def closed(self) -> None:
        """Counts a connection of this process that has ended."""
        with self._counts.locked() as counts:
            counts[self._own] -= 1

    def take(self, serve: Callable[[socket.socket], Any]) -> None:
        """Has connections served that others hand on."""

        def come() -> None:
            while (found := taken(self._takes)) is not None:
                for connected in found:
                    serve(_Connected(self, connected))
                if not found:
                    self.closed()
                    log.error("a connection was lost: this process has as many files open as it may (ulimit -n)")

        asyncio.get_running_loop().add_reader(self._takes, come)

    def close(self) -> None:
        """Takes no more."""
        with self._counts.locked() as counts:
            counts[self._own] = ABSENT
        asyncio.get_running_loop().remove_reader(self._takes)
        for end in (self._takes, *self._gives):
            end.close()


class _Listening(socket.socket):
    def __init__(self, sharer: Sharer, made: socket.socket) -> None:
        super().__init__(made.family, made.type, made.proto, made.detach())
        self._sharer = sharer

    def accept(self) -> tuple[socket.socket, Any]:
        while True:
            connected, address = super().accept()
            if self._sharer.keeps(connected):
                return _Connected(self._sharer, connected), address
            connected.close()


class _Connected(socket.socket):
    """A connection that is counted until it is closed."""

    def __init__(self, sharer: Sharer, connected: socket.socket) -> None:
        super().__init__(connected.family, connected.type, connected.proto, connected.detach())
        self._sharer: Sharer | None = sharer

    def close(self) -> None:
        sharer, self._sharer = self._sharer, None
        super().close()
        if sharer is not None:
            sharer.closed()


def taken(takes: socket.socket) -> list[socket.socket] | None:
    """Returns a connection that was handed on; none of it where this process may open no more; None if there is none."""
    try:
        _, numbers, *_ = socket.recv_fds(takes, 1, 1)
    except BlockingIOError:
        return None
    return [socket.socket(fileno=number) for number in numbers]
