"""Inference requests that a front end sends to the engine process, several per message."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest

from mgx_serve.batching import Batcher
from mgx_serve.budget import Budget, Share
from mgx_serve.channels.channel import Channel, Ends
from mgx_serve.channels.wire import call_message, read_call
from mgx_serve.errors import BadRequest, Busy, DeadlinePassed, Internal, NotFound, ServeError, TooLarge, Unavailable
from mgx_serve.frontends.handlers import FrontEndHandlers
from mgx_serve.frontends.remote import Engine
from mgx_serve.inference import Call, Stored
from mgx_serve.metrics import Metrics
from mgx_serve.model import Signature
from mgx_serve.settings import ModelSettings, Settings
from mgx_serve.shared_memory import Memory, Place, Region, Regions
from mgx_serve.tensors import Tensor
from mgx_serve.tracing import NoTraces

SIZE = 1 << 20


class Doubling:
    """y = 2 * x in batches of up to 8 rows; fails for rows with -1; waits for `go` before each run in a thread."""

    batches, own_memory, sizes = True, False, ()

    def __init__(self, version: str = "1", **settings: Any) -> None:
        self.settings = ModelSettings(max_batch=8, **settings)
        x, y = (Tensor(name, "FP32", (-1, -1)) for name in "xy")
        self.signature = Signature("m", version, "ref", 60.0, (x,), (y,), 8)
        self.seconds: dict[Any, float] = {}
        self.rows: list[int] = []

    def host_memory(self, size: int) -> Any:
        return np.empty(size, np.uint8)

    def padding(self, rows: Mapping[str, Sequence[int]]) -> None: ...

    def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
        self.rows.append(len(feeds["x"]))
        if (feeds["x"] == -1).any():
            raise Internal("a row holds -1")
        return [2 * feeds["x"] for _ in wanted]


class Parts:
    """A front end's view of an engine in the same event loop, which serves one model."""

    def __init__(self, model: Any, limit: int) -> None:
        self.metrics, self.batchers = Metrics(NoTraces()), {"m": Batcher(model, Metrics(NoTraces()))}
        repository = SimpleNamespace(find=self._find)
        self.budget, self.regions = Budget(limit), Regions(True)
        service: Any = SimpleNamespace(
            repository=repository, metrics=self.metrics, budget=self.budget, regions=self.regions
        )
        self.asked = FrontEndHandlers(service, None, None)  # type: ignore[arg-type]
        self.engine = Engine(Settings(), lambda *_: None)

    def _find(self, name: str, version: str) -> Batcher:
        if name not in self.batchers:
            raise NotFound(f"there is no model {name!r}")
        return self.batchers[name]

    async def lying(self, at: int, count: int = 2, room: int = 32, **given: Any) -> Any:
        """Returns the location of y for rows stored in a region at `at`; y is stored after them."""
        stored = {"x": Stored("FP32", (count, 4), Place("mine", 16 * count, at))}
        call = Call("m", "", {}, stored, places={"y": Place("mine", room, at + 64)}, **given)
        answer = await self.engine.infer(call, Share(self.engine.budget))
        ((tensor, y),) = answer.outputs
        assert (tensor.name, y.shape) == ("y", (count, 4))
        return answer.places["y"]

    async def infer(self, x: Any, model: str = "m", **given: Any) -> Any:
        answer = await self.engine.infer(Call(model, "", {"x": x}, **given), Share(self.engine.budget))
        ((tensor, y),) = answer.outputs
        assert (answer.model, tensor.name, tensor.datatype, tensor.shape) == ("m", "y", "FP32", y.shape)
        return y if answer.version == "1" else (answer.version, y)


@contextlib.asynccontextmanager
async def connected(model: Any, limit: int = SIZE) -> AsyncIterator[Parts]:
    ours, theirs = socket.socketpair()
    forth, back = (os.memfd_create(name) for name in ("forth", "back"))
    for number in (forth, back):
        os.truncate(number, SIZE)
    made = Parts(model, limit)
    channel = await Channel.opened(Ends(ours.detach(), back, forth, SIZE), made.asked.received, made.asked.ended)
    made.asked.connected(channel).set_result(None)
    await made.engine.connect(Ends(theirs.detach(), forth, back, SIZE))
    for number in (forth, back):
        os.close(number)
    yield made
    channel.close()
    await made.engine.close()
    await made.batchers["m"].close()


def rows(count: int, value: float, width: int = 4) -> Any:
    return np.full((count, width), value, np.float32)


@pytest.mark.parametrize("width", [4, 1 << 13])
def test_requests_of_one_turn_are_run_together(width: int) -> None:
    async def ask() -> None:
        model = Doubling()
        async with connected(model) as parts:
            for _ in range(3):
                given = [rows(1 + n % 2, n, width) for n in range(5)]
                for x, y in zip(given, await asyncio.gather(*map(parts.infer, given)), strict=True):
                    np.testing.assert_array_equal(y, 2 * x)
            assert model.rows == [7, 7, 7]
            assert parts.asked._receiver is not None and not parts.asked._receiver._pending

    asyncio.run(ask())


def test_a_request_that_is_refused_leaves_others_alone() -> None:
    async def ask() -> None:
        async with connected(Doubling()) as parts:
            x = rows(1, 3)
            asked = [parts.infer(x), parts.infer(rows(1, -1)), parts.infer(x, "none"), parts.infer(x.astype(np.int64))]
            asked += [parts.infer(x, outputs=["q"]), parts.infer(x, timeout=1e-9), parts.infer(x)]
            first, *refused, last = await asyncio.gather(*asked, return_exceptions=True)
            for y in (first, last):
                np.testing.assert_array_equal(y, 2 * x)
            assert [type(e) for e in refused] == [Internal, NotFound, BadRequest, BadRequest, DeadlinePassed]
            assert [str(e) for e in refused[:2]] == ["a row holds -1", "there is no model 'none'"]

    asyncio.run(ask())


def test_a_full_queue_refuses_with_the_time_to_wait() -> None:
    async def ask() -> None:
        async with connected(Doubling(queue_size=2)) as parts:
            made = await asyncio.gather(*(parts.infer(rows(1, 1)) for _ in range(4)), return_exceptions=True)
            assert [type(e) for e in made] == [np.ndarray, np.ndarray, Busy, Busy]
            assert made[2].retry_after == 1.0

    asyncio.run(ask())


def test_requests_whose_clients_left_are_not_run() -> None:
    async def ask() -> None:
        model = Doubling(queue_delay=0.2)
        async with connected(model) as parts:
            asked = [asyncio.create_task(parts.infer(rows(1, n))) for n in range(3)]
            await asyncio.sleep(0.05)
            for task in asked[:2]:
                task.cancel()
            np.testing.assert_array_equal(await asked[2], rows(1, 4))
            early = asyncio.create_task(parts.infer(rows(2, 1)))  # and one that leaves before its message does
            await asyncio.sleep(0)
            early.cancel()
            np.testing.assert_array_equal(await parts.infer(rows(3, 1)), rows(3, 2))
            assert model.rows == [1, 3]
            assert not parts.batchers["m"]._completions.deadlines._open

    asyncio.run(ask())


def test_answers_that_are_larger_than_the_memory_for_requests_are_refused() -> None:
    async def ask() -> None:
        async with connected(Doubling(), 100) as parts:
            large, small = await asyncio.gather(
                parts.infer(rows(4, 1)), parts.infer(rows(1, 1)), return_exceptions=True
            )
            assert isinstance(large, TooLarge)
            np.testing.assert_array_equal(small, rows(1, 2))

    asyncio.run(ask())


def test_another_version_answers_once_models_have_changed() -> None:
    async def ask() -> None:
        async with connected(Doubling()) as parts:
            x = rows(1, 1)
            np.testing.assert_array_equal(await parts.infer(x), 2 * x)
            former, parts.batchers["m"] = parts.batchers["m"], Batcher(Doubling("2"), parts.metrics)  # type: ignore[arg-type]
            parts.asked.changed()
            version, y = await parts.infer(x)
            assert version == "2"
            np.testing.assert_array_equal(y, 2 * x)
            await former.close()

    asyncio.run(ask())


def test_pending_requests_are_rejected_when_the_engine_ends() -> None:
    async def ask() -> None:
        async with connected(Doubling(queue_delay=30.0)) as parts:
            asked = asyncio.create_task(parts.infer(rows(1, 1)))
            await asyncio.sleep(0.05)
            assert parts.asked._channel is not None
            parts.asked._channel.close()
            with pytest.raises(Unavailable, match="has ended"):
                await asked
            with pytest.raises(ServeError, match="has ended"):
                await parts.infer(rows(1, 1))

    asyncio.run(ask())


class Bytes(Memory):
    """The memory of a region; writes to `full` and beyond fail like on a full disk."""

    def __init__(self, size: int, full: int) -> None:
        self.bytes, self.full = bytearray(size), full

    def read(self, at: int, size: int) -> memoryview:
        return memoryview(bytes(self.bytes[at : at + size]))

    def write(self, at: int, data: bytes | memoryview) -> None:
        if at >= self.full:
            raise OSError("no space is left")
        self.bytes[at : at + len(data)] = data

    def close(self) -> None: ...


@dataclass(frozen=True)
class Known(Region):
    memory: Bytes

    def opened(self) -> Memory:
        return self.memory


async def filled(parts: Parts, *values: float, full: int = 1 << 20) -> Bytes:
    """Registers a region with two rows of each value, 128 bytes apart."""
    memory = Bytes(128 * len(values), full)
    for n, value in enumerate(values):
        memory.bytes[128 * n : 128 * n + 32] = rows(2, value).tobytes()
    await parts.regions.register(Known("mine", len(memory.bytes), memory))
    return memory


def test_tensors_in_shared_memory_share_a_run_with_others() -> None:
    async def ask() -> None:
        model = Doubling()
        async with connected(model) as parts:
            memory = await filled(parts, 1, 2, 3)
            for _ in range(2):
                *places, y = await asyncio.gather(*(parts.lying(128 * n) for n in range(3)), parts.infer(rows(1, 7)))
                np.testing.assert_array_equal(y, rows(1, 14))
                assert places == [Place("mine", 32, 128 * n + 64) for n in range(3)]
            found = np.frombuffer(memory.bytes, np.float32).reshape(3, 2, 16)[:, 1, :8]
            np.testing.assert_array_equal(found, np.repeat([[2], [4], [6]], 8, axis=1))
            assert model.rows == [7, 7] and parts.budget.taken == 0
            assert parts.asked._receiver is not None and not parts.asked._tasks

    asyncio.run(ask())


def test_refusals_of_tensors_in_shared_memory_leave_others_alone() -> None:
    async def ask() -> None:
        async with connected(Doubling()) as parts:
            await filled(parts, 1, -1, 3, 4, full=3 * 128)
            asked = [parts.lying(0), parts.lying(128), parts.lying(256, room=31), parts.lying(500), parts.lying(384)]
            asked += [parts.lying(0, count=-1), parts.lying(0, count=True), parts.lying(0, outputs=["q"])]
            made = await asyncio.gather(*asked, parts.lying(256), return_exceptions=True)
            assert [type(m) for m in made[1:-1]] == [Internal, BadRequest, BadRequest, ServeError, *[BadRequest] * 3]
            assert made[0] == Place("mine", 32, 64) and made[-1] == Place("mine", 32, 320)
            parts.regions.unregister(Known)
            with pytest.raises(BadRequest, match="no region 'mine'"):
                await parts.lying(0)
            assert parts.budget.taken == 0

    asyncio.run(ask())


def test_tensors_in_shared_memory_count_toward_request_memory_until_answered() -> None:
    async def ask() -> None:
        async with connected(Doubling(queue_delay=30.0), 130) as parts:
            await filled(parts, 1, 2)
            waiting = [asyncio.create_task(parts.lying(128 * n)) for n in range(2)]
            await asyncio.sleep(0.05)
            assert parts.budget.taken == 128
            with pytest.raises(Busy):
                await parts.lying(0)
            with pytest.raises(TooLarge):
                await parts.lying(0, count=5)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            await asyncio.sleep(0.05)
            assert parts.budget.taken == 0

    asyncio.run(ask())


def test_places_in_shared_memory_pass_between_processes() -> None:
    stored = {"x": Stored("FP32", (2, 4), Place("mine", 32, 64))}
    call = Call("m", "1", {}, stored, ("y",), places={"y": Place("other", 8)})
    head, parts = call_message(call, False)
    assert not parts and read_call(msgpack.unpackb(msgpack.packb(head), use_list=False), parts) == call
