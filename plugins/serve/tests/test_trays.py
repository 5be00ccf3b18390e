"""Batches in shared memory that front ends fill."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import tritonclient.http
from geventhttpclient.response import HTTPParseError

from mgx_serve.batching import Batcher
from mgx_serve.budget import Budget
from mgx_serve.channels.arena import shared_memory
from mgx_serve.channels.sent import Sent
from mgx_serve.channels.taken import Taken
from mgx_serve.errors import Internal
from mgx_serve.inference import Call
from mgx_serve.metrics import Metrics
from mgx_serve.model import Signature, batch_sizes
from mgx_serve.settings import ModelSettings
from mgx_serve.tensors import Tensor
from mgx_serve.tracing import NoTraces
from mgx_serve.tray_claims import PAGE, TRAYS, Claims, Filling
from mgx_serve.trays import TrayMemory, Trays

WIDTH = 1 << 13  # numbers of a row: 32 KiB
MOST = 8
SIZE = 64 << 20
LAID = [("x", np.dtype(np.float32), (WIDTH,))]


def rows(count: int, value: float) -> Any:
    return np.full((count, WIDTH), value, np.float32)


@pytest.fixture
def memory() -> TrayMemory:
    return TrayMemory(shared_memory("trays", SIZE), SIZE)


@pytest.fixture
def trays(memory: TrayMemory) -> Trays:
    made = memory.offer(MOST, LAID, "key")
    assert made is not None
    return made


def filling(memory: TrayMemory, own: int = 1) -> Filling:
    return Filling(memory.number, memory.size, own)


def put(front: Filling, trays: Trays, value: float, count: int = 2) -> tuple[int, int]:
    """Puts rows in a tray; returns the tray's number and the first row."""
    where = front.put(trays.plan, 1, count, [rows(count, value).reshape(-1).view(np.uint8).data])
    assert where is not None and (where[0], where[3]) == (trays.plan.number, count)
    return where[1], where[2]


def test_rows_of_several_processes_follow_each_other(memory: TrayMemory, trays: Trays) -> None:
    one, other = filling(memory, 1), filling(memory, 2)
    places = [put(one, trays, 1), put(other, trays, 2, 3), put(one, trays, 3), put(other, trays, 4)]
    assert places == [(0, 0), (0, 2), (0, 5), (1, 0)]  # the fourth finds one row left
    tray, _ = trays.came(0, 1, 0, 2)
    assert [float(v) for v in tray.arrays["x"][:7, -1]] == [1, 1, 2, 2, 2, 3, 3]
    assert trays.came(1, 2, 0, 2)[0].arrays["x"][1, 0] == 4


def test_without_room_nothing_is_put(memory: TrayMemory, trays: Trays) -> None:
    front = filling(memory)
    for number in range(TRAYS):
        assert put(front, trays, number, MOST) == (number, 0)
    assert front.put(trays.plan, 1, 1, [b""]) is None
    assert trays.claim(1) is None


def test_a_tray_is_used_again_when_all_of_it_came_and_nothing_refers_to_it(memory: TrayMemory, trays: Trays) -> None:
    front = filling(memory)
    for number in range(TRAYS):
        put(front, trays, number, MOST)
    tray, _ = trays.came(0, 1, 0, MOST - 1)
    array = tray.arrays["x"][:1]
    assert trays.close(tray) == (MOST, [])
    trays.came(0, 1, 7, 1)
    del tray
    assert front.put(trays.plan, 1, 1, [b""]) is None  # the array is there
    del array
    assert not trays.settle()  # the other trays are in use
    assert put(front, trays, 9) == (0, 0)
    assert not trays.came(0, 1, 0, 2)[0].closed


def test_rows_of_a_process_that_has_ended_are_given_up(memory: TrayMemory, trays: Trays) -> None:
    left, stays = filling(memory, 1), filling(memory, 2)
    put(left, trays, 1)
    put(stays, trays, 2)
    tray, _ = trays.came(0, 2, 2, 2)
    assert trays.close(tray) == (4, [])
    del tray
    assert not trays.settle()  # two rows were claimed and have not come
    memory.left(1)
    assert trays.settle()


def test_trays_that_have_ended_are_not_filled_and_their_memory_is_used_again(memory: TrayMemory, trays: Trays) -> None:
    front = filling(memory)
    place = put(front, trays, 5)
    tray, _ = trays.came(place[0], 1, 0, 2)
    trays.end()
    with pytest.raises(LookupError):
        front.put(trays.plan, 1, 1, [b""])
    assert trays.claim(1) is None
    other = memory.offer(MOST, LAID, "key")
    assert other is not None and other.plan.start > trays.plan.start and tray.arrays["x"][1, 3] == 5
    del tray
    third = memory.offer(MOST, LAID, "key")
    assert third is not None and third.plan.start == trays.plan.start and third.plan.mark > other.plan.mark
    with pytest.raises(LookupError):
        front.put(trays.plan, 1, 1, [b""])


def test_a_model_that_would_take_most_of_the_memory_has_no_trays(memory: TrayMemory) -> None:
    assert memory.offer(1 << 10, LAID, "key") is None


@contextlib.contextmanager
def held(memory: TrayMemory, trays: Trays) -> Iterator[int]:
    """Yields the number of a process that has the lock of a set and does nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        Claims(memory.number, memory._mapped, trays.plan.number)._lock()
        os.write(write, b"x")
        signal.pause()
    try:
        os.read(read, 1)
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


def test_a_process_that_is_stopped_with_the_lock_holds_nobody_up(memory: TrayMemory, trays: Trays) -> None:
    front = filling(memory, 2)
    place = put(front, trays, 1)
    tray, _ = trays.came(place[0], 2, place[1], 2)
    with held(memory, trays):
        with pytest.raises(LookupError):
            put(front, trays, 2)
        assert trays.claim(1) is None and trays.close(tray) == (None, [])
        memory.left(1)
        del tray
        assert not trays.settle() and memory.offer(MOST, LAID, "other") is not None
    assert trays.settle()
    assert put(front, trays, 3) == (0, 0)


def test_a_process_is_not_followed_before_its_rows_are_given_up(memory: TrayMemory, trays: Trays) -> None:
    """Rows of one that has its number would count as its."""
    with held(memory, trays):
        memory.left(1)
        assert not memory.settled(1) and memory.settled(2)
    assert memory.settled(1)


def test_a_process_that_is_killed_while_it_claims_rows_leaves_its_tray_to_others(
    memory: TrayMemory, trays: Trays, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    class Words:
        """Memory whose second word of a claim is never written."""

        def __init__(self, words: memoryview) -> None:
            self.words, self.written = words, 0

        def __getitem__(self, at: Any) -> Any:
            return self.words[at]

        def __setitem__(self, at: Any, value: Any) -> None:
            self.written += 1
            if self.written == 2:
                raise Killed
            self.words[at] = value

    put(filling(memory, 2), trays, 5)
    claims = Claims(memory.number, memory._mapped, trays.plan.number)
    monkeypatch.setattr(claims, "_words", Words(claims._words))
    with pytest.raises(Killed):
        claims.claim(trays.plan.mark, 2, MOST, 1)
    memory.left(1)
    memory.left(2)
    assert trays.settle()


class Doubling:
    """y = 2 * x in batches of up to 8 rows; fails for rows with -1; a run waits for `go`.

    pins: None for a target without memory of its own, else whether it can pin memory of others.
    """

    batches = True

    def __init__(self, pins: bool | None = None) -> None:
        self.own_memory, self._pins = pins is not None, pins
        self.pinned: list[int] = []  # bytes of what was pinned
        self.settings, self.sizes = ModelSettings(max_batch=MOST), batch_sizes(MOST)
        x, y = (Tensor(name, "FP32", (-1, WIDTH)) for name in "xy")
        self.signature = Signature("m", "1", "ref", 60.0, (x,), (y,), MOST)
        self.seconds: dict[Any, float] = {}
        self.go = threading.Event()
        self.go.set()
        self.stops: dict[int, threading.Event] = {}  # what runs wait for, by their numbers
        self.ran: list[int] = []  # where the inputs of each run lay

    def host_memory(self, size: int) -> Any:
        return np.empty(size, np.uint8)

    def pin(self, memory: Any) -> object | None:
        self.pinned.append(memory.nbytes)
        return self if self._pins else None

    def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
        self.ran.append(feeds["x"].__array_interface__["data"][0])
        self.go.wait(20)
        if len(self.ran) in self.stops:
            self.stops[len(self.ran)].wait(20)
        if (feeds["x"] == -1).any():
            raise Internal("a row holds -1")
        return [2 * feeds["x"] for _ in wanted]


class Front:
    """A front end and what the engine's process does for it, in one event loop."""

    def __init__(self, memory: TrayMemory, find: Callable[[str, str], Batcher], own: int) -> None:
        self.sent = Sent(lambda: self, filling(memory, own))  # type: ignore[arg-type,return-value]
        self.taken = Taken(find, Budget(1 << 30), self._answer, None, memory, own)
        self.records: list[Any] = []
        self.held: list[Any] | None = None  # messages that are on their way

    def send(self, message: Any, parts: Sequence[Any] = ()) -> None:
        kind, _, content = msgpack.unpackb(msgpack.packb(message))
        self.records += content[2::3] if kind == "requests" else []
        given = (self.taken.take, content, list(parts)) if kind == "requests" else (self.taken.cancel, content)
        if self.held is not None:
            self.held.append(given)
        else:
            given[0](*given[1:])

    def flush(self) -> None: ...

    def arrive(self) -> None:
        held, self.held = self.held or [], None
        for what, *given in held:
            what(*given)

    def _answer(self, content: Any, parts: Sequence[Any]) -> None:
        self.sent.answered(msgpack.unpackb(msgpack.packb(content)), [bytes(p) for p in parts])

    async def infer(self, value: float, count: int = 1) -> None:
        answer = await self.sent.infer(Call("m", "", {"x": rows(count, value)}))
        ((_, y),) = answer.outputs
        np.testing.assert_array_equal(y, rows(count, 2 * value))


class Parts:
    def __init__(self, memory: TrayMemory, model: Doubling) -> None:
        self.model, self.batcher = model, Batcher(model, Metrics(NoTraces()))  # type: ignore[arg-type]
        self.fronts = [Front(memory, lambda *_: self.batcher, own) for own in (1, 2)]
        self.start = memory._whole.__array_interface__["data"][0]
        self.size = memory.size

    def in_place(self) -> list[bool]:
        """Returns for each run whether its inputs lay in trays."""
        return [self.start <= at < self.start + self.size for at in self.model.ran]

    async def idle(self) -> None:
        """Waits until all trays can be used again."""
        assert self.batcher.trays is not None
        async with asyncio.timeout(20):
            while not self.batcher.trays.settle():
                await asyncio.sleep(0.001)

    async def blocked(self) -> asyncio.Task[None]:
        """Returns a request whose run has begun and waits for `go`; the front ends know by then where to put others."""
        for front in self.fronts:
            await asyncio.gather(front.infer(1), front.infer(1, 2), front.infer(1, 3))
        self.model.go.clear()
        self.model.ran.clear()
        task = asyncio.create_task(self.fronts[0].infer(5))
        while not self.model.ran:
            await asyncio.sleep(0.001)
        return task


@contextlib.asynccontextmanager
async def connected(memory: TrayMemory, pins: bool | None = None) -> AsyncIterator[Parts]:
    parts = Parts(memory, Doubling(pins))
    yield parts
    parts.model.go.set()
    await parts.batcher.close()


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_requests_of_two_front_ends_are_run_where_they_put_them(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            others = [asyncio.create_task(f.infer(10 + n, 1 + n % 2)) for n, f in enumerate((one, other, one, other))]
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *others)
            assert parts.in_place() == [True, True]
            assert [r for r in one.records if not isinstance(r, int)] and one.records[0] == 1  # the first was sent

    asyncio.run(ask())


@pytest.mark.parametrize("pins", [True, False])
def test_a_target_with_memory_of_its_own_pins_trays_or_has_none(pins: bool, memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory, pins) as parts:
            first = await parts.blocked()
            others = [asyncio.create_task(front.infer(10)) for front in parts.fronts]
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *others)
            assert parts.in_place() == [pins, pins] and (parts.batcher.trays is not None) == pins
            assert parts.model.pinned == [TRAYS * (MOST * WIDTH * 4 + PAGE)]  # tried once, all of it

    asyncio.run(ask())


@pytest.mark.parametrize(("count", "placed"), [(5, True), (4, False)])  # with the row, runs of 6 rows: 4 are copied
def test_a_row_that_was_claimed_and_never_filled_holds_nobody_up(count: int, placed: bool, memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            assert parts.batcher.trays is not None
            assert parts.batcher.trays._claims.claim(parts.batcher.trays.plan.mark, 1, MOST, 2) is not None
            others = [asyncio.create_task(one.infer(value)) for value in range(count)]
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *others)
            assert parts.in_place() == [True, placed]
            assert not parts.batcher.trays.settle()
            other.taken.close()  # its process has ended
            await parts.idle()

    asyncio.run(ask())


def test_a_request_whose_message_is_on_its_way_is_run_with_others(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            other.held = []
            tasks = [asyncio.create_task(front.infer(10 + n)) for n, front in enumerate((other, one, other, other))]
            await turns()
            tasks[2].cancel()
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *tasks[:2], tasks[3])
            assert len(parts.model.ran) == 2 and parts.in_place()[1]
            other.arrive()
            assert not other.taken._waiting
            await parts.idle()

    asyncio.run(ask())


def test_a_request_that_is_run_before_its_message_comes_can_be_cancelled(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            other.held = []
            early, known = asyncio.create_task(other.infer(10)), asyncio.create_task(one.infer(11))
            await turns()
            parts.model.stops[2] = threading.Event()
            parts.model.go.set()
            await first
            while len(parts.model.ran) < 2:
                await asyncio.sleep(0.001)
            other.arrive()
            assert len(other.taken._waiting) == 1
            early.cancel()
            await turns()
            assert not other.taken._waiting
            parts.model.stops[2].set()
            await known
            await other.infer(12)

    asyncio.run(ask())


def test_a_kind_of_requests_that_was_forgotten_waits_for_its_messages(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            other.held = []
            late, known = asyncio.create_task(other.infer(10)), asyncio.create_task(one.infer(11))
            await turns()
            other.taken.changed()
            parts.model.go.set()
            await asyncio.gather(first, known)
            assert not late.done()
            other.arrive()
            await late

    asyncio.run(ask())


def test_a_request_that_comes_when_its_batch_is_run_is_in_the_next_one(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            plans = other.sent._plans
            plans.update({head: dataclasses.replace(plan, kind=0) for head, plan in plans.items()})  # it marks nothing
            other.held = []
            late = asyncio.create_task(other.infer(20))
            early = asyncio.create_task(one.infer(10))
            await turns()
            parts.model.go.set()
            await first
            await early
            parts.model.go.clear()
            second = asyncio.create_task(one.infer(11))
            while len(parts.model.ran) < 3:
                await asyncio.sleep(0.001)
            other.arrive()
            third = asyncio.create_task(one.infer(12))
            await turns()
            parts.model.go.set()
            await asyncio.gather(late, second, third)
            assert len(parts.model.ran) == 4 and parts.in_place()[3]

    asyncio.run(ask())


def test_requests_are_answered_while_a_process_that_was_stopped_has_the_lock(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            lies = [asyncio.create_task(front.infer(10)) for front in parts.fronts]
            await turns()
            assert parts.batcher.trays is not None
            with held(memory, parts.batcher.trays):
                sent = [asyncio.create_task(front.infer(20)) for front in parts.fronts]
                parts.model.go.set()
                await asyncio.gather(first, *lies, *sent)
            await asyncio.gather(one.infer(1), other.infer(1))
            await parts.idle()

    asyncio.run(ask())


def test_a_row_that_fails_fails_alone(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            good = [asyncio.create_task(f.infer(n)) for n, f in enumerate((one, other, other))]
            bad = asyncio.create_task(one.infer(-1))
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *good)
            with pytest.raises(Internal, match="a row holds -1"):
                await bad

    asyncio.run(ask())


def test_a_client_that_leaves_takes_nothing_from_others(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            tasks = [asyncio.create_task(f.infer(n)) for n, f in enumerate((one, other, one, other))]
            await turns()
            tasks[0].cancel()
            tasks[2].cancel()
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, tasks[1], tasks[3])
            await asyncio.gather(one.infer(7), other.infer(8))

    asyncio.run(ask())


def test_a_model_that_is_loaded_anew_is_asked_with_what_lies_in_the_old_trays(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            other.held = []
            between = asyncio.create_task(other.infer(20))
            await turns()
            former, parts.batcher = parts.batcher, Batcher(parts.model, Metrics(NoTraces()))  # type: ignore[arg-type]
            for front in parts.fronts:
                front.taken.changed()
            parts.model.go.set()
            await asyncio.gather(former.close(), first)
            other.arrive()
            await asyncio.gather(between, one.infer(3), other.infer(4))
            await asyncio.gather(one.infer(5), other.infer(6))
            assert parts.batcher.trays is not None and parts.batcher.trays is not former.trays

    asyncio.run(ask())


@pytest.fixture(scope="module")
def wide(serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("wide")
    small_model(root / "wide" / "1" / "model.onnx", width=WIDTH)
    (root / "wide" / "config.toml").write_text(f"max_batch = {MOST}\n")
    return serve(root, "--frontends", 2)


def asked(server: Any, seed: int) -> Iterator[float]:
    """Returns the largest difference of answers from what they must be."""
    random = np.random.default_rng(seed)
    with tritonclient.http.InferenceServerClient(server.http) as client:
        for _ in range(20):
            x = random.random((int(random.integers(1, 4)), WIDTH), np.float32)
            given = tritonclient.http.InferInput("x", list(x.shape), "FP32")
            given.set_data_from_numpy(x)
            yield float(abs(client.infer("wide", [given]).as_numpy("y") - 2 * x).max())


def test_every_client_gets_its_own_rows_also_after_a_front_end_was_killed(wide: Any) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(lambda seed: max(asked(wide, seed)), range(8))) == 0

    def killed(seed: int) -> int:
        """Returns how many answers came before the connection was lost."""
        count = 0
        with contextlib.suppress(OSError, HTTPParseError):
            for difference in asked(wide, seed):
                assert difference == 0
                count += 1
                if seed == 0 and count == 5:
                    children = Path(f"/proc/{wide.process.pid}/task/{wide.process.pid}/children").read_text().split()
                    os.kill(int(children[-1]), signal.SIGKILL)
        return count

    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(killed, range(8))) == 20  # the connections of the other one stay
    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(lambda seed: max(asked(wide, seed)), range(4))) == 0
