"""Tensors in shared memory, registered by a third-party client; and invalid regions."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from mgx_serve.errors import BadRequest
from mgx_serve.host_memory import HostRegion
from mgx_serve.shared_memory import Memory, Place, Region, Regions

X = np.arange(8, dtype=np.float32).reshape(2, 4)
MODULES = [tritonclient.http, tritonclient.grpc]


@pytest.fixture(scope="module", params=[0, 2])
def sharing(request: pytest.FixtureRequest, serve: Callable[..., Any], models: Path) -> Any:
    return serve(models, "--shared-memory", "--frontends", request.param)


@pytest.fixture
def region() -> Iterator[Any]:
    """256 bytes of shared memory that contain `X`."""
    made = shm.create_shared_memory_region("mine", f"/mgx_test_{os.getpid()}", 256)
    shm.set_shared_memory_region(made, [X])
    yield made
    shm.destroy_shared_memory_region(made)


def client(module: Any, server: Any) -> Any:
    return module.InferenceServerClient(server.http if module is tritonclient.http else server.grpc)


def ask(c: Any, module: Any, size: int = 32, offset: int = 0, room: int = 32, **options: Any) -> Any:
    given = module.InferInput("x", [2, 4], "FP32")
    given.set_shared_memory("mine", size, offset)
    wanted = module.InferRequestedOutput("y")
    wanted.set_shared_memory("mine", room, 64)
    return c.infer("double", [given], outputs=[wanted, module.InferRequestedOutput("z")], **options)


@pytest.mark.parametrize("module", MODULES)
def test_inputs_and_outputs(module: Any, sharing: Any, region: Any) -> None:
    with client(module, sharing) as c:
        c.register_system_shared_memory("mine", f"mgx_test_{os.getpid()}", 256)
        status = c.get_system_shared_memory_status(**({} if module is tritonclient.http else {"as_json": True}))
        assert "mine" in str(status) and "256" in str(status)
        result = ask(c, module)
        np.testing.assert_array_equal(result.as_numpy("z"), X.sum(1, keepdims=True))
        np.testing.assert_array_equal(shm.get_contents_as_numpy(region, np.float32, [2, 4], 64), 2 * X)
        for options, said in (
            ({"size": 31}, "32 bytes are required"),
            ({"offset": 230}, "are not within it"),
            ({"room": 31}, "32 bytes are required for an output"),
        ):
            with pytest.raises(InferenceServerException, match=said):
                ask(c, module, **options)
        os.truncate(f"/dev/shm/mgx_test_{os.getpid()}", 40)
        with pytest.raises(InferenceServerException, match="cut off"):
            ask(c, module)
        with pytest.raises(InferenceServerException, match="cut off"):
            ask(c, module, offset=16)
        c.unregister_system_shared_memory()
        with pytest.raises(InferenceServerException, match="no region 'mine'"):
            ask(c, module)
        assert c.is_server_live()
        os.truncate(f"/dev/shm/mgx_test_{os.getpid()}", 256)


@pytest.mark.parametrize("module", MODULES)
def test_regions_are_objects_of_shared_memory(module: Any, sharing: Any, region: Any, tmp_path: Path) -> None:
    link = Path(f"/dev/shm/mgx_link_{os.getpid()}")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(256))
    link.symlink_to(secret)
    try:
        with client(module, sharing) as c:
            for key in ("../../etc/passwd", "/../etc/passwd", str(secret), link.name, ".", "", "mgx_nosuch"):
                with pytest.raises(InferenceServerException, match=r"must name an object|cannot be opened"):
                    c.register_system_shared_memory("other", key, 16)
            for size, offset in ((257, 0), (256, 1)):
                with pytest.raises(InferenceServerException, match="has 256"):
                    c.register_system_shared_memory("other", f"mgx_test_{os.getpid()}", size, offset)
    finally:
        link.unlink()


def test_a_server_without_support_reports_it(server: Any, region: Any) -> None:
    for module in MODULES:
        with client(module, server) as c, pytest.raises(InferenceServerException, match="--shared-memory"):
            c.register_system_shared_memory("mine", f"mgx_test_{os.getpid()}", 256)


def test_calls_that_move_a_part_are_repeated(region: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, put = os.preadv, os.pwrite
    monkeypatch.setattr(
        os, "pread", lambda number, size, at: whole(number, [part := bytearray(min(size, 7))], at) and part
    )
    monkeypatch.setattr(os, "preadv", lambda number, parts, at: whole(number, [parts[0][:7]], at))
    monkeypatch.setattr(os, "pwrite", lambda number, data, at: put(number, data[:7], at))

    async def copies() -> None:
        regions = Regions(True)
        await regions.register(HostRegion("mine", 256, f"mgx_test_{os.getpid()}"))
        assert await regions.read(Place("mine", 32)) == X.tobytes()
        await regions.write(Place("mine", 40, 64), (X + 1).tobytes())
        regions.unregister(HostRegion)

    asyncio.run(copies())
    np.testing.assert_array_equal(shm.get_contents_as_numpy(region, np.float32, [2, 4], 64), X + 1)


class Slow(Memory):
    """Zeros that can be read only once `ready` is set."""

    def __init__(self, ready: threading.Event) -> None:
        self.ready, self.closed = ready, threading.Event()

    def read(self, at: int, size: int) -> memoryview:
        assert self.ready.wait(60) and not self.closed.is_set()
        return memoryview(bytes(size))

    def write(self, at: int, data: bytes | memoryview) -> None: ...

    def close(self) -> None:
        self.closed.set()


@dataclass(frozen=True)
class SlowRegion(Region):
    memory: Slow

    def opened(self) -> Memory:
        return self.memory


@dataclass(frozen=True)
class SlowToOpen(SlowRegion):
    """Can be opened only once the memory is ready."""

    started: threading.Event

    def opened(self) -> Memory:
        self.started.set()
        assert self.memory.ready.wait(60)
        return self.memory


def test_memory_of_abandoned_requests_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgx_serve.shared_memory.MOST", 1)

    async def give_up() -> None:
        regions, memory, started = Regions(True), Slow(threading.Event()), threading.Event()
        asked = asyncio.create_task(regions.register(SlowToOpen("mine", 16, memory, started)))
        assert await asyncio.to_thread(started.wait, 60)
        for name in ("mine", "other"):  # regions that are being opened count
            with pytest.raises(BadRequest, match="at most 1 regions"):
                await regions.register(SlowRegion(name, 16, Slow(threading.Event())))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not memory.closed.is_set()
        memory.ready.set()
        assert await asyncio.to_thread(memory.closed.wait, 60)
        assert not regions.status(Region)
        await regions.register(SlowRegion("mine", 16, Slow(threading.Event())))  # the budget has room again
        regions.close()

    asyncio.run(give_up())


def test_long_copies_leave_the_event_loop_alone() -> None:
    """Two copies end only after the loop has done other work: meanwhile it unregisters the regions and one client disconnects."""
    size, ready = 1 << 20, threading.Event()
    memories = [Slow(ready), Slow(ready)]

    async def copies() -> None:
        regions = Regions(True)
        for name, memory in zip(("mine", "left"), memories, strict=True):
            await regions.register(SlowRegion(name, size, memory))
        reading, left = (asyncio.create_task(regions.read(Place(name, size))) for name in ("mine", "left"))
        await asyncio.sleep(0.01)
        regions.unregister(SlowRegion)
        left.cancel()
        await asyncio.sleep(0.01)
        assert not any(m.closed.is_set() for m in memories)
        ready.set()
        assert len(await reading) == size
        while not all(m.closed.is_set() for m in memories):
            await asyncio.sleep(0.01)

    asyncio.run(copies())


@pytest.mark.parametrize("count", [0, 1])
def test_unauthorized_clients_learn_nothing(
    serve: Callable[..., Any], models: Path, tmp_path: Path, count: int
) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('all = ["*"]\none = ["double"]\n')
    server = serve(models, "--shared-memory", "--tokens", tokens, "--frontends", count)
    for module in MODULES:  # there is no such region, which only authorized clients are told
        for token, said in (("one", "does not allow"), ("all", "no region")):
            headers = {("Authorization" if module is tritonclient.http else "authorization"): f"Bearer {token}"}
            with client(module, server) as c, pytest.raises(InferenceServerException, match=said):
                ask(c, module, headers=headers)


@pytest.mark.parametrize("module", MODULES)
def test_copies_are_bounded_by_the_memory_for_requests(
    module: Any, serve: Callable[..., Any], models: Path, region: Any
) -> None:
    server = serve(models, "--shared-memory", "--memory", 1_000_000)
    os.truncate(f"/dev/shm/mgx_test_{os.getpid()}", 65536)
    with client(module, server) as c:
        c.register_system_shared_memory("mine", f"mgx_test_{os.getpid()}", 65536)
        given = [module.InferInput(f"x{n}", [4096, 4], "FP32") for n in range(40)]
        for tensor in given:
            tensor.set_shared_memory("mine", 65536)
        with pytest.raises(InferenceServerException, match="bytes of memory, the server has 1000000"):
            c.infer("double", given)
        np.testing.assert_array_equal(ask(c, module).as_numpy("z"), X.sum(1, keepdims=True))
