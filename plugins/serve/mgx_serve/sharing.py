"""Balances connections among processes that listen on the same port.

The kernel assigns each connection to a random process: of 32 connections and five processes, the most loaded one gets ten on
average, and its clients see the longest latencies.  Here, a process with more connections than another hands new ones over.
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
ABSENT: Final = 1 << 40  # the count of a process that accepts no connections
ITEM: Final = 8  # bytes per count


@dataclass(frozen=True)
class Part:
    """The descriptors that one process needs to take part.

    counts: lock-protected memory with each process's number of connections; own: this process's index; takes: socket on which it
    receives connections; gives: sockets through which it hands connections over, one per process.
    """

    counts: int
    own: int
    takes: int
    gives: Sequence[int]


class Counts:
    """The number of connections of each process."""

    def __init__(self, number: int, many: int) -> None:
        self._number = number
        self._values = memoryview(mmap.mmap(number, many * ITEM)).cast("q")

    @contextlib.contextmanager
    def locked(self) -> Iterator[memoryview]:
        """Yields the counts under the lock, which the kernel releases if the process exits."""
        fcntl.lockf(self._number, fcntl.LOCK_EX)
        try:
            yield self._values
        finally:
            fcntl.lockf(self._number, fcntl.LOCK_UN)


class Sharing:
    """The state shared by all processes, created by the one that starts them.

    memory: creates memory of a name and size; returns a descriptor.
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
        """Returns the descriptors of one process, which this object still owns."""
        return Part(self._memory, number, self._ways[number][0].fileno(), [g.fileno() for _, g in self._ways])

    def absent(self, number: int) -> None:
        """Excludes an exited process, and closes the connections that it had not received."""
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
    """One process's side."""

    def __init__(self, part: Part) -> None:
        self._counts, self._own = Counts(part.counts, len(part.gives)), part.own
        self._takes = socket.socket(fileno=part.takes)
        self._gives = [socket.socket(fileno=number) for number in part.gives]
        with self._counts.locked() as counts:
            counts[self._own] = 0

    def listening(self, made: socket.socket) -> socket.socket:
        """Wraps a listening socket so that its connections are balanced."""
        return _Listening(self, made)

    def keeps(self, connected: socket.socket) -> bool:
        """Counts a new connection; returns False if it was handed over to a process with fewer."""
        with self._counts.locked() as counts:
            least = min(range(len(counts)), key=counts.__getitem__)
            if counts[least] < counts[self._own]:
                try:
                    socket.send_fds(self._gives[least], [b"c"], [connected.fileno()])
                except OSError:  # its socket buffer is full of connections not yet received
                    pass
                else:
                    counts[least] += 1
                    return False
            counts[self._own] += 1
        return True

    def closed(self) -> None:
        """Counts a closed connection of this process."""
        with self._counts.locked() as counts:
            counts[self._own] -= 1

    def take(self, serve: Callable[[socket.socket], Any]) -> None:
        """Serves the connections that others hand over."""

        def come() -> None:
            while (found := taken(self._takes)) is not None:
                for connected in found:
                    serve(_Connected(self, connected))
                if not found:
                    self.closed()
                    log.error("a connection was lost: this process has as many files open as it may (ulimit -n)")

        asyncio.get_running_loop().add_reader(self._takes, come)

    def close(self) -> None:
        """Stops receiving connections."""
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
    """A connection, counted until it is closed."""

    def __init__(self, sharer: Sharer, connected: socket.socket) -> None:
        super().__init__(connected.family, connected.type, connected.proto, connected.detach())
        self._sharer: Sharer | None = sharer

    def close(self) -> None:
        sharer, self._sharer = self._sharer, None
        super().close()
        if sharer is not None:
            sharer.closed()


def taken(takes: socket.socket) -> list[socket.socket] | None:
    """Receives a connection that was handed over; None if there is none; drops it if this process is out of descriptors."""
    try:
        _, numbers, *_ = socket.recv_fds(takes, 1, 1)
    except BlockingIOError:
        return None
    return [socket.socket(fileno=number) for number in numbers]
