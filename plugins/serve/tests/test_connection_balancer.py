"""Connections balanced among processes; here, among several parts in one process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import itertools
import os
import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mgx_serve.channels.arena import shared_memory
from mgx_serve.connection_balancer import Balancer, BalancerState, Part

COUNT = 3


def inherited(part: Part) -> Part:
    """Returns a part with its own descriptors, as in another process."""
    sends = [os.dup(number) for number in part.sends]
    return dataclasses.replace(part, counts=os.dup(part.counts), receives=os.dup(part.receives), sends=sends)


class Parts:
    """A listening socket for each part; clients connect to the given one."""

    def __init__(self) -> None:
        self.sharing = BalancerState(COUNT, shared_memory)
        self.sharers = [Balancer(inherited(self.sharing.part(number))) for number in range(COUNT)]
        self.listening = [s.listening(socket.create_server(("127.0.0.1", 0))) for s in self.sharers]
        self.kept: list[list[socket.socket]] = [[] for _ in range(COUNT)]
        self.clients: list[socket.socket] = []
        for number, sharer in enumerate(self.sharers):
            self.listening[number].setblocking(False)
            sharer.take(self.kept[number].append)

    def connect(self, number: int, times: int) -> None:
        """Connects clients to a process and lets it accept them."""
        for _ in range(times):
            self.clients.append(socket.create_connection(self.listening[number].getsockname()))
        with contextlib.suppress(BlockingIOError):
            while True:
                self.kept[number].append(self.listening[number].accept()[0])

    def counts(self) -> list[int]:
        with self.sharing._counts.locked() as counts:
            return list(counts)

    def close(self) -> None:
        for sharer in self.sharers:
            sharer.close()
        for made in (*self.listening, *self.clients, *itertools.chain(*self.kept)):
            made.close()
        self.sharing.close()


@contextlib.contextmanager
def parts() -> Iterator[Parts]:
    made = Parts()
    try:
        yield made
    finally:
        made.close()


def test_a_process_that_accepts_all_keeps_its_part() -> None:
    async def shared() -> None:
        with parts() as given:
            given.connect(0, 9)
            await asyncio.sleep(0.05)
            assert [len(k) for k in given.kept] == given.counts() == [3, 3, 3]
            handed = given.kept[2][0]
            handed.sendall(b"open")
            client = next(c for c in given.clients if c.getsockname() == handed.getpeername())
            assert client.recv(4) == b"open"

    asyncio.run(shared())


def test_connections_that_end_make_room() -> None:
    async def shared() -> None:
        with parts() as given:
            given.connect(1, 6)
            await asyncio.sleep(0.05)
            for connected in given.kept[2]:
                connected.close()
                connected.close()  # it counts once
            assert given.counts() == [2, 2, 0]
            given.connect(0, 2)
            await asyncio.sleep(0.05)
            assert given.counts() == [2, 2, 2]

    asyncio.run(shared())


def test_connections_that_a_process_has_no_files_for_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    async def shared() -> None:
        with parts() as given:
            loop, receives = asyncio.get_running_loop(), given.sharers[2]._receives
            loop.remove_reader(receives)
            given.connect(0, 3)
            assert given.counts() == [1, 1, 1]
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            given.sharers[2].take(given.kept[2].append)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # fewer than there are
            try:
                await asyncio.sleep(0.05)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert [len(k) for k in given.kept[1:]] == [0, 0] and given.counts() == [1, 0, 0]
            given.connect(0, 2)
            await asyncio.sleep(0.05)
            assert [len(k) for k in given.kept] == given.counts() == [1, 1, 1]

    asyncio.run(shared())
    assert "ulimit -n" in caplog.text


def test_nothing_is_sent_to_a_process_that_has_ended() -> None:
    async def shared() -> None:
        with parts() as given:
            # it ends before it accepts the connection passed to it
            asyncio.get_running_loop().remove_reader(given.sharers[2]._receives)
            given.connect(0, 3)
            await asyncio.sleep(0.05)
            assert [len(k) for k in given.kept] == [1, 1, 0]
            given.sharing.exclude(2)
            given.clients[-1].settimeout(10)
            assert sum(_closed(c) for c in given.clients) == 1
            given.connect(1, 3)
            await asyncio.sleep(0.05)
            assert given.counts()[:2] in ([2, 3], [3, 2])
            given.sharers.append(again := Balancer(inherited(given.sharing.part(2))))
            again.take(given.kept[2].append)
            given.connect(0, 2)
            await asyncio.sleep(0.05)
            assert len(given.kept[2]) == 2

    asyncio.run(shared())


def _closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_process_keeps_a_connection_that_another_is_too_busy_to_accept() -> None:
    async def shared() -> None:
        with parts() as given:
            loop = asyncio.get_running_loop()
            for sharer in given.sharers[1:]:
                loop.remove_reader(sharer._receives)
                for _ in range(100_000):
                    try:
                        given.sharers[0]._sends[sharer._own].send(b"c")
                    except BlockingIOError:
                        break
            given.connect(0, 5)
            assert [len(k) for k in given.kept] == [5, 0, 0]
            for sharer in given.sharers[1:]:  # the message carries no connection
                while True:
                    try:
                        sharer._receives.recv(1)
                    except BlockingIOError:
                        break

    asyncio.run(shared())


@pytest.fixture(scope="module")
def server(serve: Callable[..., Any], small_model: Callable[..., Any], tmp_path_factory: Any) -> Any:
    return serve(small_model(tmp_path_factory.mktemp("shared") / "double.onnx"), "--frontends", COUNT, "--verbose")


def test_front_ends_have_as_many_connections_each(server: Any) -> None:
    """The kernel alone gives each of three processes four of twelve connections in one of fifteen attempts."""
    host, _, port = server.http.rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            client = http.client.HTTPConnection(host, int(port))
            stack.callback(client.close)
            client.request("GET", "/v2/health/live")
            answer = client.getresponse()
            assert answer.status == 200 and answer.read()
        assert connections(int(port)) == [4, 4, 4]


def connections(port: int) -> list[int]:
    """Returns the number of connections to a local port for each process that has any."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    those = {f"socket:[{line[9]}]" for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "01"}
    counts = Counter[str]()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            counts[process.name] += sum(os.readlink(opened) in those for opened in (process / "fd").iterdir())
    return sorted(count for count in counts.values() if count)
