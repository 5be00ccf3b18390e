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

__all__ = ["Balancer", "BalancerState", "Part"]

log = logging.getLogger("mgx_serve")
EXCLUDED: Final = 1 << 40  # the count of a process that accepts no connections
ITEM: Final = 8  # bytes per count


@dataclass(frozen=True)
class Part:
    """The descriptors that one process needs to take part.

    counts: lock-protected memory with each process's number of connections; own: this process's index; receives: socket on which
    it receives connections; sends: sockets through which it hands connections over, one per process.
    """

    counts: int
    own: int
    receives: int
    sends: Sequence[int]


class Counts:
    """The number of connections of each process."""

    def __init__(self, number: int, count: int) -> None:
        self._number = number
        self._values = memoryview(mmap.mmap(number, count * ITEM)).cast("q")

    @contextlib.contextmanager
    def locked(self) -> Iterator[memoryview]:
        """Yields the counts under the lock, which the kernel releases if the process exits."""
        fcntl.lockf(self._number, fcntl.LOCK_EX)
        try:
            yield self._values
        finally:
            fcntl.lockf(self._number, fcntl.LOCK_UN)


class BalancerState:
    """The state shared by all processes, created by the one that starts them.

    memory: creates memory of a name and size; returns a descriptor.
    """

    def __init__(self, count: int, memory: Callable[[str, int], int]) -> None:
        self._memory = memory("mgx-serve-connections", count * ITEM)
        self._counts = Counts(self._memory, count)
        self._pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        for number, (receives, sends) in enumerate(self._pairs):
            receives.setblocking(False)
            sends.setblocking(False)
            self.exclude(number)

    def part(self, number: int) -> Part:
        """Returns the descriptors of one process, which this object still owns."""
        return Part(self._memory, number, self._pairs[number][0].fileno(), [g.fileno() for _, g in self._pairs])

    def exclude(self, number: int) -> None:
        """Excludes an exited process, and closes the connections that it had not received."""
        with self._counts.locked() as counts:
            counts[number] = EXCLUDED
        while (found := received_connections(self._pairs[number][0])) is not None:
            for connected in found:
                connected.close()

    def close(self) -> None:
        for number, pair in enumerate(self._pairs):
            self.exclude(number)
            for end in pair:
                end.close()
        os.close(self._memory)


class Balancer:
    """One process's side."""

    def __init__(self, part: Part) -> None:
        self._counts, self._own = Counts(part.counts, len(part.sends)), part.own
        self._receives = socket.socket(fileno=part.receives)
        self._sends = [socket.socket(fileno=number) for number in part.sends]
        with self._counts.locked() as counts:
            counts[self._own] = 0

    def listening(self, made: socket.socket) -> socket.socket:
        """Wraps a listening socket so that its connections are balanced."""
        return _BalancedListener(self, made)

    def accepts_here(self, connected: socket.socket) -> bool:
        """Counts a new connection; returns False if it was handed over to a process with fewer."""
        with self._counts.locked() as counts:
            least = min(range(len(counts)), key=counts.__getitem__)
            if counts[least] < counts[self._own]:
                try:
                    socket.send_fds(self._sends[least], [b"c"], [connected.fileno()])
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

        def receive() -> None:
            while (found := received_connections(self._receives)) is not None:
                for connected in found:
                    serve(_CountedConnection(self, connected))
                if not found:
                    self.closed()
                    log.error("a connection was lost: this process has as many files open as it may (ulimit -n)")

        asyncio.get_running_loop().add_reader(self._receives, receive)

    def close(self) -> None:
        """Stops receiving connections."""
        with self._counts.locked() as counts:
            counts[self._own] = EXCLUDED
        asyncio.get_running_loop().remove_reader(self._receives)
        for end in (self._receives, *self._sends):
            end.close()


class _BalancedListener(socket.socket):
    def __init__(self, balancer: Balancer, made: socket.socket) -> None:
        super().__init__(made.family, made.type, made.proto, made.detach())
        self._balancer = balancer

    def accept(self) -> tuple[socket.socket, Any]:
        while True:
            connected, address = super().accept()
            if self._balancer.accepts_here(connected):
                return _CountedConnection(self._balancer, connected), address
            connected.close()


class _CountedConnection(socket.socket):
    """A connection, counted until it is closed."""

    def __init__(self, balancer: Balancer, connected: socket.socket) -> None:
        super().__init__(connected.family, connected.type, connected.proto, connected.detach())
        self._balancer: Balancer | None = balancer

    def close(self) -> None:
        balancer, self._balancer = self._balancer, None
        super().close()
        if balancer is not None:
            balancer.closed()


def received_connections(receives: socket.socket) -> list[socket.socket] | None:
    """Receives a connection that was handed over; None if there is none; drops it if this process is out of descriptors."""
    try:
        _, numbers, *_ = socket.recv_fds(receives, 1, 1)
    except BlockingIOError:
        return None
    return [socket.socket(fileno=number) for number in numbers]
