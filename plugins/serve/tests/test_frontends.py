"""Several front-end processes with one engine process: clients see one server."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import queue
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from mgx_core import ParameterError
from mgx_serve.channels.arena import Arena, Borrowed, shared_memory
from mgx_serve.channels.channel import Channel, Ends
from mgx_serve.channels.wire import error_message, read_error
from mgx_serve.errors import BadRequest, Busy
from mgx_serve.frontends import pool
from mgx_serve.frontends.handlers import FrontEndHandlers
from mgx_serve.listening import reserved
from mgx_serve.server import Server
from mgx_serve.settings import Settings

COUNT = 3
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def memory() -> Iterator[tuple[Arena, Borrowed, list[int]]]:
    """4096 bytes, their two views, and the offsets of released blocks."""
    number, back = os.memfd_create("test"), list[int]()
    os.truncate(number, 4096)
    yield Arena(number, 4096), Borrowed(number, 4096, back.append), back
    os.close(number)


def test_blocks_own_their_memory_until_the_last_array_is_deleted(memory: tuple[Arena, Borrowed, list[int]]) -> None:
    arena, borrowed, back = memory
    start = arena.store([b"abc", b"", np.arange(5.0).view(np.uint8).data])
    assert start is not None
    first, empty, last = borrowed.parts(start, [3, 0, 40])
    assert (bytes(first), bytes(empty)) == (b"abc", b"")
    array = np.frombuffer(last, np.float64)[1:].reshape(2, 2)
    del first, empty, last
    np.testing.assert_array_equal(array, [[1, 2], [3, 4]])
    assert not array.flags.writeable and not back
    del array
    assert back == [start]


def test_freed_memory_is_coalesced(memory: tuple[Arena, Borrowed, list[int]]) -> None:
    arena, borrowed, _ = memory
    starts = [arena.store([bytes(1000)]) for _ in range(4)]
    assert starts == [0, 1024, 2048, 3072] and arena.store([b"x"]) is None
    for start in (1024, 3072, 2048):
        arena.free(start)
    assert arena.store([bytes(3072)]) == 1024
    with pytest.raises(KeyError):
        arena.free(2048)
    with pytest.raises(ValueError, match="no block of 128 bytes at 4032"):
        borrowed.parts(4032, [128])


def test_neither_process_can_cut_off_what_the_other_one_reads() -> None:
    number = shared_memory("test", 4096)
    for size in (0, 8192):
        with pytest.raises(PermissionError):
            os.truncate(number, size)
    assert os.fstat(number).st_size == 4096
    os.close(number)


def test_messages_pass_with_few_bytes_and_with_more_than_there_is_memory_for() -> None:
    async def exchanged() -> None:
        size = 1 << 17
        ours, theirs = socket.socketpair()
        forth, back = (os.memfd_create(name) for name in ("forth", "back"))
        for number in (forth, back):
            os.truncate(number, size)
        came: asyncio.Queue[tuple[Any, list[Any]]] = asyncio.Queue()
        one = await Channel.opened(Ends(ours.detach(), forth, back, size), lambda *_: None)
        other = await Channel.opened(Ends(theirs.detach(), back, forth, size), lambda *m: came.put_nowait(m))
        sizes = [0, 10, 100_000, 90_000, 1 << 20, 100_000]
        for turn in range(3):  # memory is available again
            for size in sizes:
                one.send([turn, "\ud800", {"a": [1.5, None]}], [bytes([turn]) * size, b"end"])
            for size in sizes:
                message, parts = await came.get()
                assert message == [turn, "\ud800", {"a": [1.5, None]}]
                assert [bytes(p) for p in parts] == [bytes([turn]) * size, b"end"]
                del parts
        one.close()
        other.close()

    asyncio.run(exchanged())


def test_a_message_that_cannot_be_written_holds_no_memory() -> None:
    async def sent() -> None:
        size = 1 << 17
        ours, theirs = socket.socketpair()
        forth, back = shared_memory("forth", size), shared_memory("back", size)
        one = await Channel.opened(Ends(ours.detach(), forth, back, size), lambda *_: None)
        other = await Channel.opened(Ends(theirs.detach(), back, forth, size), lambda *_: None)
        with pytest.raises(TypeError):
            one.send(object(), [bytes(100_000)])
        assert one._memory is not None and one._memory[0].store([bytes(100_000)]) is not None
        one.close()
        other.close()

    asyncio.run(sent())


def test_a_new_front_end_has_its_own_requests() -> None:
    class Kept:
        def __init__(self) -> None:
            self.sent: list[Any] = []

        def send(self, message: Any, parts: Any = ()) -> None:
            self.sent.append(message)

    async def replaced() -> None:
        waiting: list[asyncio.Future[Any]] = []

        async def find(content: Any, parts: Any) -> Any:
            waiting.append(asyncio.get_running_loop().create_future())
            return await waiting[-1]

        service: Any = SimpleNamespace(metrics=SimpleNamespace(records={}), budget=None, regions=None)
        asked: Any = FrontEndHandlers(service, None, None)  # type: ignore[arg-type]
        asked._kinds["find"] = find
        channels = [Kept(), Kept()]
        for channel in channels:
            asked.connected(channel)
            asked.received(["find", 1, None], [])
            await asyncio.sleep(0)
            if channel is channels[0]:
                waiting[0].set_result(("of the first", ()))
                asked.ended()
        await asyncio.sleep(0)
        asked.received(["cancel", 1, None], [])
        await asyncio.sleep(0)
        assert waiting[1].cancelled() and channels[1].sent == []

    asyncio.run(replaced())


def test_refusals_are_the_same_over_a_channel() -> None:
    for error in (BadRequest("no"), Busy("later", 2.5)):
        made = read_error(error_message(error))
        assert (type(made), str(made), made.retry_after) == (type(error), str(error), error.retry_after)


@pytest.fixture(scope="module")
def fronted(serve: Callable[..., Any], models: Path) -> Any:
    return serve(models, "--frontends", COUNT, "--shared-memory")


def frontends(server: Any) -> set[int]:
    return frontends_of(server.process.pid)


def frontends_of(process: int) -> set[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {int(p) for p in children if b"mgx_serve.frontends" in Path(f"/proc/{p}/cmdline").read_bytes()}


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def ask(module: Any, server: Any, model: str = "double", x: Any = X) -> Any:
    with module.InferenceServerClient(server.http if module is tritonclient.http else server.grpc) as c:
        given = module.InferInput("x", list(x.shape), "FP32")
        given.set_data_from_numpy(x)
        return c.infer(model, [given])


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_every_front_end_answers_and_the_figures_are_of_all(module: Any, fronted: Any) -> None:
    assert len(frontends(fronted)) == COUNT

    def answered() -> int:
        with urllib.request.urlopen(f"http://{fronted.http}/v2/models/double/stats") as found:
            return int(json.load(found)["model_stats"][0]["inference_stats"]["success"]["count"])

    before = answered()
    large = np.random.default_rng(0).random((20_000, 4), np.float32)
    with ThreadPoolExecutor(8) as threads:
        small = list(threads.map(lambda _: ask(module, fronted), range(40)))  # one connection each
        made = ask(module, fronted, "softmax", large)
    for result in small:
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * X)
    power = np.exp(large - large.max(0))
    np.testing.assert_allclose(made.as_numpy("y"), power / power.sum(0), 1e-5)
    assert answered() == before + 40
    with urllib.request.urlopen(f"http://{fronted.http}/metrics") as found:
        assert f'mgx_requests_total{{model="double",version="2"}} {before + 40}.0' in found.read().decode()
    with urllib.request.urlopen(f"http://{fronted.http}/") as found:
        assert b"double" in found.read()


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_refusals_name_their_reason(module: Any, fronted: Any) -> None:
    with pytest.raises(InferenceServerException, match=r"FP32\[-1, 4\] is required, got FP32\[2, 3\]"):
        ask(module, fronted, x=X[:, :3].copy())
    with pytest.raises(InferenceServerException, match="there is no model 'none'"):
        ask(module, fronted, "none")
    with pytest.raises(InferenceServerException, match="'broken' is not ready"):
        ask(module, fronted, "broken")


def test_a_compressed_body_is_unpacked_once(fronted: Any) -> None:
    given = gzip.compress(b'{"ready": true}')
    request = urllib.request.Request(
        f"http://{fronted.http}/v2/repository/index", given, {"Content-Encoding": "gzip"}, method="POST"
    )
    with urllib.request.urlopen(request) as found:
        names = {row["name"] for row in json.load(found)}
    assert "double" in names and "broken" not in names


def test_a_front_end_that_is_killed_is_replaced(fronted: Any) -> None:
    before = frontends(fronted)
    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    until(lambda: killed not in frontends(fronted) and len(frontends(fronted)) == COUNT)

    def all_answer() -> bool:
        try:
            return all(ask(tritonclient.http, fronted).as_numpy("y")[1, 3] == 14 for _ in range(20))
        except OSError:  # the new one is not listening yet, or the killed one's connections still exist
            return False

    until(all_answer)
    until(lambda: memories(fronted.process.pid) == 2 * COUNT + 4)  # those of the killed one are released


def memories(process: int) -> int:
    """Returns the number of shared-memory objects that a process has open."""
    return sum("memfd:mgx-serve" in os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir())


@pytest.mark.parametrize("count", [0, 1])
def test_an_invalid_certificate_is_rejected(count: int, models: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("bad")
    server = Server(models, Settings(http_port=0, grpc_port=0, frontends=count, certificate=bad, key=bad))

    async def started() -> None:
        async with asyncio.timeout(30):
            await server.start(load=False)

    with pytest.raises(ParameterError, match=r"a certificate and its key, both in PEM .* got .*bad\.pem"):
        asyncio.run(started())


def test_modules_in_the_working_folder_are_not_imported(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uvicorn.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)

    async def started() -> None:
        server = Server(models, Settings(http_port=0, grpc_port=-1, frontends=1))
        await server.start(load=False)
        await server.stop()

    asyncio.run(started())


def test_a_start_that_fails_leaves_no_front_end(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, tries = pool._Member.start, iter(range(2))

    async def second_fails(member: pool._Member) -> None:
        await start(member)
        if next(tries):
            raise ParameterError("the second one fails")

    monkeypatch.setattr(pool._Member, "start", second_fails)

    async def started() -> None:
        with pytest.raises(ParameterError, match="the second one fails"):
            await Server(models, Settings(http_port=0, grpc_port=-1, frontends=2)).start(load=False)
        assert not frontends_of(os.getpid())

    asyncio.run(started())


def test_a_front_end_is_replaced_whatever_its_start_fails_with(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, tries = asyncio.create_subprocess_exec, iter((True, False, False, True))

    async def fails(*given: Any, **options: Any) -> Any:
        if not next(tries):
            raise RuntimeError("can't start new thread")
        return await made(*given, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fails)

    async def replaced() -> None:
        server = Server(models, Settings(http_port=0, grpc_port=-1, frontends=1))
        await server.start(load=False)
        (first,) = frontends_of(os.getpid())
        files = len(os.listdir("/proc/self/fd"))
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(60):
            while frontends_of(os.getpid()) in (set(), {first}):
                await asyncio.sleep(0.02)
            while len(os.listdir("/proc/self/fd")) != files:  # failed starts leave none open
                await asyncio.sleep(0.02)
        await server.stop()

    asyncio.run(replaced())


def test_a_port_is_free_though_connections_of_an_ended_server_linger() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listening.accept()[0].close()
            assert client.recv(1) == b""
    with reserved("127.0.0.1", port) as held:
        assert held.getsockname()[1] == port


def test_an_address_in_brackets_is_rejected_with_a_correction() -> None:
    with pytest.raises(ParameterError, match=r"--host must be .* without brackets \(::1\), got '\[::1\]'"):
        reserved("[::1]", 0)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="IPv6 is not available")
@pytest.mark.parametrize("count", [0, 1])
def test_both_versions_of_ip(count: int, serve: Callable[..., Any], models: Path) -> None:
    server = serve(models, "--host", "::", "--frontends", count)
    for client in ("[::1]", "127.0.0.1"):
        port = server.http.rpartition(":")[2]
        with urllib.request.urlopen(f"http://{client}:{port}/v2/health/live") as answer:
            assert answer.status == 200
        with tritonclient.grpc.InferenceServerClient(f"{client}:{server.grpc.rpartition(':')[2]}") as asking:
            assert asking.is_server_live()
    server.process.terminate()
    assert server.process.wait(60) == 0


@pytest.mark.parametrize(("option", "count"), [("http_port", 2), ("grpc_port", 2), ("grpc_port", 0)])
def test_a_port_in_use_is_rejected(option: str, count: int, models: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        ports = {"http_port": -1, "grpc_port": -1, option: taken.getsockname()[1]}
        server = Server(models, Settings(frontends=count, **ports))
        with pytest.raises(OSError, match=r"in use|cannot listen"):
            asyncio.run(server.start(load=False))


def test_front_ends_end_with_the_server(fronted: Any, serve: Callable[..., Any], models: Path) -> None:
    for server, number in ((fronted, signal.SIGTERM), (serve(models, "--frontends", 1), signal.SIGKILL)):
        processes = frontends(server)
        assert processes
        server.process.send_signal(number)
        server.process.wait(60)
        until(lambda there=processes: not any(Path(f"/proc/{p}").exists() for p in there))


@pytest.mark.parametrize("count", [0, 2])
def test_a_stream_that_a_client_holds_open_ends_with_the_server(
    count: int, serve: Callable[..., Any], models: Path
) -> None:
    server = serve(models, "--frontends", count)
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(server.grpc) as c:
        c.start_stream(lambda result, error: answers.put((result, error)))
        given = tritonclient.grpc.InferInput("x", list(X.shape), "FP32")
        given.set_data_from_numpy(X)
        c.async_stream_infer("double", [given])
        result, error = answers.get(timeout=60)
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * X)
        server.process.terminate()
        result, error = answers.get(timeout=60)
        assert result is None and "the server is ending" in str(error)
        assert error.status() == "StatusCode.UNAVAILABLE"
    assert server.process.wait(60) == 0
