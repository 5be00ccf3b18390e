"""Replicas called directly by processes on the same machine, without a cluster: both ends in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray

from mgx_serve.batching import Batcher
from mgx_serve.errors import BadRequest, Busy, Unavailable
from mgx_serve.metrics import Recorder
from mgx_serve.model import Signature
from mgx_serve.on_ray import exchange as exchange_module
from mgx_serve.on_ray import links as links_module
from mgx_serve.on_ray.exchange import Exchange
from mgx_serve.on_ray.links import Links
from mgx_serve.on_ray.local_endpoint import LocalEndpoint
from mgx_serve.on_ray.replicas import Replicas
from mgx_serve.settings import ModelSettings
from mgx_serve.tensors import Tensor

HERE = "node-1"


class Multiplying:
    """y = factor * x, one row per run; each run takes `seconds_of_a_run`."""

    batches, own_memory, sizes = True, False, ()

    def __init__(self, factor: float, seconds_of_a_run: float = 0.0, **settings: Any) -> None:
        self.settings = ModelSettings(max_batch=1, **settings)
        x, y = (Tensor(name, "FP32", (-1, -1)) for name in "xy")
        self.signature = Signature("m", f"{factor:g}", "ref", 60.0, (x,), (y,), 1)
        self.seconds: dict[Any, float] = {}
        self._factor, self._pause, self.runs = factor, seconds_of_a_run, 0

    def host_memory(self, size: int) -> Any:
        return np.empty(size, np.uint8)

    def padding(self, rows: Mapping[str, Sequence[int]]) -> None: ...

    def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
        time.sleep(self._pause)
        self.runs += 1
        return [self._factor * feeds["x"] for _ in wanted]


class Counts(Recorder):
    """Counts metrics."""

    def __init__(self) -> None:
        self.told = Counter[str]()

    def waiting(self, model: Signature, count: int) -> None: ...

    def refused(self, model: Signature) -> None:
        self.told["refused"] += 1

    def failed(self, model: Signature) -> None:
        self.told["failed"] += 1

    def ran(self, model: Signature, queued: Sequence[float], seconds: float, rows: int) -> None:
        self.told[f"ran {model.version}"] += len(queued)


class Runs(Counts):
    """Queues runs for the endpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def ran(self, model: Signature, queued: Sequence[float], seconds: float, rows: int) -> None:
        self.kept.append((list(queued), seconds, rows))

    def taken(self) -> list[Any]:
        taken, self.kept = self.kept, []
        return taken


class Handle:
    """A Ray handle whose replica answers with zeros."""

    asked = 0

    def options(self, **given: Any) -> Handle:
        return self

    async def remote(self, feeds: Any, *given: Any) -> Any:
        self.asked += 1
        return SimpleNamespace(outputs=[0 * feeds["x"]], signature=None, runs=[], error=None)


class Machine:
    """A calling process, and replicas with local endpoints; `members` is the registry's content."""

    def __init__(self) -> None:
        self.counts, self.handle = Counts(), Handle()
        self.endpoints: list[LocalEndpoint] = []
        self.models: list[Multiplying] = []
        self.links = Links("application", self.counts)
        signature = Multiplying(0).signature
        self.replicas = Replicas(self.handle, signature, self.counts, self.links)

    def replica(self, factor: float, seconds_of_a_run: float = 0.0, **settings: Any) -> LocalEndpoint:
        runs = Runs()
        self.models.append(Multiplying(factor, seconds_of_a_run, **settings))
        self.endpoints.append(LocalEndpoint(Batcher(self.models[-1], runs), runs.taken))  # type: ignore[arg-type]
        return self.endpoints[-1]

    async def see(self, *more: tuple[str, str]) -> None:
        await self.links._update([*((HERE, d.name) for d in self.endpoints), *more])

    async def ask(self, value: float = 1.0, **given: Any) -> float:
        """Returns the factor of the replica that answered, 0 for Ray's."""
        feeds = {"x": np.full((1, 4), value, np.float32)}
        _, (y,) = await self.replicas.infer(feeds, given.get("priority", 0), given.get("timeout", 0.0))
        return float(y[0, 3] / value)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: HERE))
    monkeypatch.setattr(links_module, "exchange", lambda: None)

    async def never(self: Links) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(Links, "_poll", never)  # tests control the registry's content


@contextlib.asynccontextmanager
async def machine() -> AsyncIterator[Machine]:
    made = Machine()
    yield made
    made.links.close()
    for endpoint in made.endpoints:
        await asyncio.wait_for(endpoint.close(), 10)
        await endpoint.queue.close()


def test_requests_go_to_the_replica_with_the_fewest_of_this_process() -> None:
    async def asked() -> None:
        async with machine() as given:
            for factor in (2, 3, 5):
                given.replica(factor, 0.02)
            assert await given.ask() == 0  # none is known yet
            await given.see()
            found = Counter(await asyncio.gather(*(given.ask() for _ in range(12))))
            assert found == {2: 4, 3: 4, 5: 4} and given.handle.asked == 1
            one_by_one = Counter([await given.ask() for _ in range(6)])
            assert one_by_one == {2: 2, 3: 2, 5: 2}
            assert given.counts.told == {f"ran {n}": 6 for n in (2, 3, 5)}

    asyncio.run(asked())


def test_ray_chooses_while_a_replica_is_elsewhere_or_out_of_reach() -> None:
    async def asked() -> None:
        async with machine() as given:
            given.replica(2)
            await given.see(("node-2", "another"))
            assert await given.ask() == 0
            await given.see((HERE, "mgx-serve-nobody"))
            assert await given.ask() == 0
            await given.see()
            assert await given.ask() == 2
            await given.links._update([])  # its announcement is late
            assert await given.ask() == 2

    asyncio.run(asked())


def test_a_request_whose_replica_ends_is_retried_on_another() -> None:
    async def asked() -> None:
        async with machine() as given:
            first, _ = given.replica(2, 0.3), given.replica(3)
            await given.see()
            under_way = [asyncio.create_task(given.ask()) for _ in range(4)]
            await asyncio.sleep(0.1)
            for visitor in first._visitors:
                assert visitor._channel is not None
                visitor._channel._transport.abort()
            assert await asyncio.gather(*under_way) == [3, 3, 3, 3]
            assert given.counts.told["failed"] == given.handle.asked == 0
            await given.see()  # it is still announced
            assert {await given.ask() for _ in range(4)} == {3}

    asyncio.run(asked())


def test_a_replica_that_leaves_answers_its_pending_requests() -> None:
    async def asked() -> None:
        async with machine() as given:
            first = given.replica(2, 0.05)
            await given.see()
            under_way = [asyncio.create_task(given.ask()) for _ in range(3)]
            await asyncio.sleep(0.01)
            given.replica(3)
            await given.see()
            leaving = asyncio.create_task(first.close())
            await asyncio.sleep(0.02)
            assert await given.ask() == 3 and not leaving.done()
            assert await asyncio.gather(*under_way) == [2, 2, 2]
            await asyncio.wait_for(leaving, 10)
            assert given.models[0].runs == 3

    asyncio.run(asked())


def test_refusals_come_back_and_are_counted() -> None:
    async def asked() -> None:
        async with machine() as given:
            given.replica(2, 0.2, queue_size=1)
            await given.see()
            made = await asyncio.gather(*(given.ask() for _ in range(4)), return_exceptions=True)
            assert sum(isinstance(e, Busy) for e in made) == given.counts.told["refused"] > 0
            with pytest.raises(BadRequest, match="FP32"):
                await given.replicas.infer({"x": np.ones((1, 4), np.int64)}, 0, 0.0)
            given.endpoints[0].queue._closing = True
            with pytest.raises(Unavailable, match="is being unloaded"):
                await given.ask()

    asyncio.run(asked())


def test_a_visitor_without_memory_or_of_another_user_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked() -> None:
        async with machine() as given:
            endpoint = given.replica(2)
            for said, own in ((b"x" * 8, True), (b"", False)):
                monkeypatch.setattr("mgx_serve.on_ray.local_endpoint.is_own", lambda _, own=own: own)
                stranger = socket.socket(socket.AF_UNIX)
                stranger.setblocking(False)
                await asyncio.get_running_loop().sock_connect(stranger, f"\0{endpoint.name}")
                with contextlib.suppress(OSError):
                    stranger.send(said)
                assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(stranger, 1), 10) == b""
                stranger.close()
            monkeypatch.undo()
            assert not endpoint._visitors

    asyncio.run(asked())


def test_a_link_is_to_a_process_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked() -> None:
        async with machine() as given:
            given.replica(2)
            with monkeypatch.context() as other:
                other.setattr(os, "getuid", lambda: -1)
                await given.see()
            assert await given.ask() == 0
            await given.see()
            assert await given.ask() == 2

    asyncio.run(asked())


def test_announcements_lapse(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(exchange_module, "time", SimpleNamespace(monotonic=lambda: now))
    place = Exchange()
    place.announce("a", "n", "first")
    place.announce("a", "n", "second")
    place.announce("b", "n", "third")
    place.leave("a", "n", "second")
    place.leave("c", "n", "none")
    assert place.members("a") == [("n", "first")] and place.members("c") == []
    now += exchange_module.ANNOUNCED - 1
    place.announce("a", "n", "first")
    now += 2
    assert place.members("a") == [("n", "first")] and place.members("b") == []
