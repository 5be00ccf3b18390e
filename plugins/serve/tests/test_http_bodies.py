"""Large bodies of HTTP requests, which bypass the parser."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mgx_serve import ModelSettings, Settings
from mgx_serve.http_protocol import TimedProtocol
from mgx_serve.server import Server

X = np.arange(80_000, dtype=np.float32).reshape(-1, 4)  # 320,000 bytes
Talk = Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def request(x: np.ndarray[Any, Any], *lines: str) -> bytes:
    """Returns a complete request for y = 2 * x."""
    given = {"name": "x", "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
    wanted = [{"name": "y", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [given], "outputs": wanted}).encode()
    size = f"Content-Length: {len(head) + x.nbytes}"
    first = ["POST /v2/models/double/infer HTTP/1.1", "Host: x", f"Inference-Header-Content-Length: {len(head)}"]
    return "\r\n".join([*first, size, *lines, "", ""]).encode() + head + x.tobytes()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Returns the status and the body."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    body = await asyncio.wait_for(reader.readexactly(int(length[1])), 30) if length else b""
    return int(head.split()[1]), body


def doubled(body: bytes, x: np.ndarray[Any, Any]) -> bool:
    return bool((np.frombuffer(body[-x.nbytes :], np.float32).reshape(x.shape) == 2 * x).all())


@pytest.fixture
def talk(small_model: Any, tmp_path: Path) -> Callable[..., None]:
    """Connects to a server in this process; checks that memory reserved by requests is released in the end."""
    path = small_model(tmp_path / "double" / "1" / "model.onnx").parents[2]

    def talked(said: Talk, **settings: Any) -> None:
        async def both() -> None:
            server = Server(path, Settings(http_port=0, grpc_port=-1, model=ModelSettings(target="ref"), **settings))
            await server.start()
            trusted = None
            if "certificate" in settings:
                trusted = ssl.create_default_context(cafile=settings["certificate"])
                trusted.check_hostname = False
            reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port, limit=1 << 24, ssl=trusted)
            await said(server, reader, writer)
            writer.close()
            await given_back(server)
            await server.stop()

        asyncio.run(both())

    return talked


async def given_back(server: Server) -> None:
    assert server._service is not None
    async with asyncio.timeout(30):
        while server._service.budget.taken:
            await asyncio.sleep(0.01)


@pytest.fixture
def signed(tmp_path: Path) -> dict[str, Path]:
    """A certificate and its key."""
    made = {"certificate": tmp_path / "own.pem", "key": tmp_path / "own.key"}
    given = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    places = ["-out", str(made["certificate"]), "-keyout", str(made["key"])]
    subprocess.run(["openssl", "req", *given, *places], check=True, capture_output=True)
    return made


@pytest.mark.parametrize(("step", "tls"), [(1 << 30, False), (100_000, False), (65_536, True), (7_777, False)])
def test_requests_follow_each_other_in_any_pieces(
    talk: Callable[..., None], signed: dict[str, Path], step: int, tls: bool
) -> None:
    small = X[:3]
    sent = request(X) + request(small) + request(X + 1) + request(X + 2)

    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send() -> None:
            for at in range(0, len(sent), step):
                writer.write(sent[at : at + step])
                await writer.drain()
                await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        for x in (X, small, X + 1, X + 2):
            status, body = await answer(reader)
            assert (status, doubled(body, x)) == (200, True)
        await sending

    talk(said, **(signed if tls else {}))


def test_a_client_receives_100_continue(talk: Callable[..., None]) -> None:
    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _, body = request(X, "Expect: 100-continue").partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        assert await answer(reader) == (100, b"")
        writer.write(body)
        status, made = await answer(reader)
        assert (status, doubled(made, X)) == (200, True)

    talk(said)


@pytest.mark.parametrize("came", [0, 1000, 200_000])
def test_a_client_that_disconnects_leaks_no_memory(talk: Callable[..., None], came: int) -> None:
    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        whole = request(X)
        writer.write(whole[: len(whole) - X.nbytes + came])
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.transport.abort()
        await given_back(server)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port, limit=1 << 24)
        writer.write(whole)
        assert (await answer(reader))[0] == 200
        writer.close()

    talk(said)


@pytest.mark.parametrize(
    ("settings", "status"), [({"max_bytes": 300_000}, 413), ({"memory": 600_000}, 413), ({"memory": 100_000}, 413)]
)
def test_rejected_requests_keep_the_connection(
    talk: Callable[..., None], settings: dict[str, int], status: int
) -> None:
    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(request(X) + request(X[:3]))
            assert (await answer(reader))[0] == status
            again, body = await answer(reader)
            assert (again, doubled(body, X[:3])) == (200, True)

    talk(said, **settings)


def test_memory_is_reserved_only_for_received_data(talk: Callable[..., None]) -> None:
    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert server._service is not None
        head = request(X).partition(b"\r\n\r\n")[0].replace(b"Content-Length: 3", b"Content-Length: 999")
        writer.write(head + b"\r\n\r\n" + bytes(100_000))
        async with asyncio.timeout(30):
            while server._service.budget.taken < 200_000:
                await asyncio.sleep(0.01)
        assert server._service.budget.taken == 200_000

    talk(said)


def test_a_body_that_does_not_come_is_refused(talk: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgx_serve.http_infer.BODY_SECONDS", 0.2)

    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        whole = request(X)
        writer.write(whole[:-100_000])
        assert (await answer(reader))[0] == 408
        writer.write(whole[-100_000:] + whole)  # data that arrives too late is not a request
        status, body = await answer(reader)
        assert (status, doubled(body, X)) == (200, True)

    talk(said)


def test_a_small_answer_leaves_in_one_piece(talk: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    connected = TimedProtocol.connection_made

    def noted(self: TimedProtocol, transport: Any) -> None:
        write = transport.write

        def written(data: Any) -> None:
            pieces.append(len(data))
            write(data)

        transport.write = written
        connected(self, transport)

    monkeypatch.setattr(TimedProtocol, "connection_made", noted)

    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for x, count in ((X[:3], 1), (X, 3)):  # a large one: head, JSON and elements, which are not copied
            pieces.clear()
            writer.write(request(x))
            status, body = await answer(reader)
            assert (status, doubled(body, x), len(pieces)) == (200, True, count)

    talk(said)


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_a_connection_is_closed_after_the_answer_on_request(talk: Callable[..., None], version: bytes) -> None:
    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request(X[:3], "Connection: close").replace(b"HTTP/1.1", version))
        whole = await asyncio.wait_for(reader.read(), 30)
        assert b"\r\nconnection: close\r\n" in whole and doubled(whole, X[:3])

    talk(said)


def test_a_small_body_in_one_part_is_bounded(talk: Callable[..., None]) -> None:
    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for x, status in ((X[:3], 200), (X[:40], 413), (X[:3], 200)):
            writer.write(request(x))
            assert (await answer(reader))[0] == status

    talk(said, max_bytes=400)


def test_the_time_for_a_head_begins_with_each_request(
    talk: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgx_serve.http_protocol.HEAD_SECONDS", 0.3)

    async def said(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            writer.write(request(X[:3]))
            assert (await answer(reader))[0] == 200
            await asyncio.sleep(0.2)
        start = loop.time()
        writer.write(request(X[:3])[:20])
        assert await asyncio.wait_for(reader.read(), 30) == b"" and loop.time() - start > 0.25

    talk(said)
