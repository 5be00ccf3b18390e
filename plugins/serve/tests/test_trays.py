"""Batches in shared memory that front ends fill."""

from __future__ import annotations

import asyncio
import contextlib
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

from mgx_serve import tray_runs, tray_sets
from mgx_serve.batch import RequestSpec
from mgx_serve.batching import Batcher
from mgx_serve.budget import Budget
from mgx_serve.channels.arena import shared_memory
from mgx_serve.channels.receiver import RequestReceiver
from mgx_serve.channels.sender import RequestSender
from mgx_serve.errors import Busy, DeadlinePassed, Internal, Unavailable
from mgx_serve.inference import Call
from mgx_serve.metrics import Metrics
from mgx_serve.model import Signature, batch_sizes
from mgx_serve.padding import Padding
from mgx_serve.run_times import RunTimes
from mgx_serve.settings import ModelSettings
from mgx_serve.tensors import Tensor
from mgx_serve.tracing import NoTraces
from mgx_serve.tray_claims import ENGINE, PAGE, TRAYS, WORDS, Claims, Offer
from mgx_serve.tray_writer import PendingRequest, TrayWriter
from mgx_serve.trays import TakenTray, TrayMemory, Trays

WIDTH = 1 << 13  # elements of a row: 32 KiB
MOST = 8
SIZE = 64 << 20
LAID = [("x", np.dtype(np.float32), (WIDTH,))]
MADE = [("y", np.dtype(np.float32), (WIDTH,))]
QUEUE = 100  # queue limit


def rows(count: int, value: float) -> Any:
    return np.full((count, WIDTH), value, np.float32)


@pytest.fixture
def memory() -> TrayMemory:
    return TrayMemory(shared_memory("trays", SIZE), SIZE, 2)


def offered(memory: TrayMemory, most: int = QUEUE) -> Trays:
    made = memory.offer(MOST, LAID, MADE, "key", most)
    assert made is not None
    return made


@pytest.fixture
def trays(memory: TrayMemory) -> Trays:
    return offered(memory)


def filling(memory: TrayMemory, own: int = 1) -> TrayWriter:
    return TrayWriter(*memory.writer_arguments(own))


def offer(trays: Trays, owner: object = 1, count: int = 2) -> Offer:
    """Returns the offer of tray space that a process receives for a request of `count` rows."""
    made = trays.add(owner, RequestSpec(count, "key", 1, 0, 60.0, [0]), lambda number: (owner, number))  # type: ignore[arg-type,return-value]
    assert made is not None
    return made


def given(trays: Trays, number: int = 1, count: int = 2, owner: object = 1) -> PendingRequest:
    return PendingRequest(offer(trays, owner, count), number, count, None)  # type: ignore[arg-type]


def put(front: TrayWriter, trays: Trays, value: float, count: int = 2, owner: object = 1) -> PendingRequest:
    """Copies rows to a tray."""
    made = given(trays, int(value), count, owner)
    assert front.write(made, [rows(count, value).reshape(-1).view(np.uint8).data])
    return made


def taken(trays: Trays) -> TakenTray:
    found = trays.take()
    assert found is not None
    return found


def answers(front: TrayWriter) -> dict[int, Any]:
    """Returns the first element of each output that a front end finds, by request number."""
    found: dict[int, Any] = {}
    front.on_bell(lambda p, parts: found.update({p.number: parts and float(np.frombuffer(parts[0], np.float32)[0])}))
    return found


def test_rows_of_several_processes_follow_each_other(memory: TrayMemory, trays: Trays) -> None:
    one, other = filling(memory, 1), filling(memory, 2)
    puts = [put(one, trays, 1), put(other, trays, 2, 3), put(one, trays, 3), put(other, trays, 4)]
    assert [p.location for p in puts] == [(0, 1, 0), (0, 1, 2), (0, 1, 5), (1, 2, 0)]  # the fourth finds one free row
    filled = taken(trays)
    assert (filled.index, filled.firsts, filled.ends, filled.numbers) == (0, [0, 2, 5], [2, 5, 7], [1, 2, 3])
    assert trays.inputs[0]["x"][:7, -1].tolist() == [1, 1, 2, 2, 2, 3, 3]
    assert taken(trays).index == 1 and trays.inputs[1]["x"][1, 0] == 4 and trays.take() is None


def test_each_front_end_finds_the_answers_to_its_requests(memory: TrayMemory, trays: Trays) -> None:
    one, other = filling(memory, 1), filling(memory, 2)
    for front, value in ((one, 1), (other, 2), (one, 3)):
        put(front, trays, value)
    filled = taken(trays)
    trays.outputs[0][0][:6] = 2 * trays.inputs[0]["x"][:6]
    assert answers(one) == {} == answers(other)
    trays.finish(filled, True)
    assert answers(one) == {1: 2, 3: 6} and answers(other) == {2: 4} and answers(one) == {}


def test_without_space_nothing_is_stored(memory: TrayMemory, trays: Trays) -> None:
    front = filling(memory)
    for number in range(TRAYS):
        assert put(front, trays, number, MOST).location == (number, number + 1, 0)
    assert not front.write(given(trays, count=1), [b""])


def test_no_more_requests_are_queued_than_may_wait(memory: TrayMemory) -> None:
    trays, front = offered(memory, 3), filling(memory)
    trays.queue(1)
    kept = [put(front, trays, value) for value in (1, 2)]
    assert not front.write(given(trays), [b""]) and trays.waiting() == 2
    front.cancel(kept[0])
    put(front, trays, 3)
    assert not front.write(given(trays), [b""])
    taken(trays)
    put(front, trays, 4)


def test_a_tray_is_used_again_when_its_answers_were_read(memory: TrayMemory, trays: Trays) -> None:
    front, other = filling(memory), filling(memory, 2)
    for number in range(TRAYS):
        put(front, trays, number, MOST - 1)
        put(other, trays, number, 1, owner=2)
    filled = taken(trays)
    assert not front.write(given(trays), [b""])
    trays.finish(filled, True)
    assert not front.write(given(trays), [b""])
    answers(front)
    assert not front.write(given(trays), [b""])
    answers(other)
    assert put(front, trays, 9).location == (0, TRAYS + 1, 0)


def test_a_request_that_is_marked_too_late_moves_to_the_next_tray(
    memory: TrayMemory, trays: Trays, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, copy = filling(memory), TrayWriter._write_inputs

    def slowly(self: TrayWriter, p: PendingRequest, parts: Sequence[Any]) -> None:
        monkeypatch.setattr(TrayWriter, "_write_inputs", copy)
        assert taken(trays).claimed == 4
        copy(self, p, parts)

    put(front, trays, 1)
    monkeypatch.setattr(TrayWriter, "_write_inputs", slowly)
    assert put(front, trays, 2).location == (1, 2, 0)
    assert taken(trays).numbers == [2]


def test_a_request_that_a_run_missed_is_notified(memory: TrayMemory, trays: Trays) -> None:
    """As if the process that marks it were stopped before its last store."""
    front = filling(memory)
    put(front, trays, 1)
    late = put(front, trays, 2)
    word = trays._words[0][0, late.location[2] :]
    mark, word[0] = int(word[0]), 0
    filled = taken(trays)
    word[0] = mark
    trays.finish(filled, True)
    assert answers(front) == {1: 0, 2: None}


def test_rows_of_a_process_that_has_ended_are_released(memory: TrayMemory, trays: Trays) -> None:
    left, stays = filling(memory, 1), filling(memory, 2)
    put(left, trays, 1, owner=1)
    put(stays, trays, 2, owner=2)
    memory.process_exited(1, 1)
    filled = taken(trays)
    assert filled.numbers == [2]
    trays.finish(filled, True)
    assert not trays.settle()
    assert [*answers(stays)] == [2] and trays.settle()


def test_trays_that_have_ended_are_not_filled_and_their_memory_is_used_again(memory: TrayMemory, trays: Trays) -> None:
    front = filling(memory)
    put(front, trays, 5)
    trays.end()
    with pytest.raises(LookupError):
        front.write(given(trays), [b""])
    other = offered(memory)
    assert other.plan.start > trays.plan.start
    filled = taken(trays)
    assert trays.inputs[0]["x"][1, 3] == 5
    trays.finish(filled, True)
    answers(front)
    third = offered(memory)
    assert third.plan.start == trays.plan.start and third.plan.mark > other.plan.mark
    with pytest.raises(LookupError):
        front.write(given(trays), [b""])


def test_a_model_that_needs_most_of_the_memory_has_no_trays(memory: TrayMemory) -> None:
    assert memory.offer(1 << 10, LAID, MADE, "key", QUEUE) is None


@contextlib.contextmanager
def held(memory: TrayMemory, trays: Trays) -> Iterator[int]:
    """Yields the id of a process that holds the lock of a set and does nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        Claims(memory.number, memory._mapped, trays.plan.number).lock()
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


def test_a_process_stopped_while_holding_the_lock_does_not_block_others(memory: TrayMemory, trays: Trays) -> None:
    front = filling(memory, 2)
    kept, gone = put(front, trays, 1), put(front, trays, 2)
    with held(memory, trays):
        with pytest.raises(LookupError):
            put(front, trays, 3)
        front.cancel(gone)
        filled = taken(trays)
        assert filled.numbers == [1, 2] and trays.take() is None and trays.uncertain
        trays.finish(filled, True)
        assert [*answers(front)] == [kept.number]
        memory.process_exited(1, 1)
        assert not trays.settle() and memory.offer(MOST, LAID, MADE, "other", QUEUE) is not None
    assert trays.take() is None and not trays.uncertain
    put(front, trays, 4, owner=2)
    assert [f.numbers for f in (taken(trays),)] == [[4]]


def test_a_process_is_not_replaced_before_its_rows_are_released(memory: TrayMemory, trays: Trays) -> None:
    """Otherwise rows of a new process with the same id would count as its own."""
    with held(memory, trays):
        memory.process_exited(1, 1)
        assert not memory.settled(1) and memory.settled(2)
    assert memory.settled(1)


def test_a_process_that_is_killed_while_it_claims_rows_leaves_its_tray_to_others(
    memory: TrayMemory, trays: Trays, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    class Words:
        """Shared memory for which the second word of a claim is never stored."""

        def __init__(self, words: memoryview) -> None:
            self.words, self.written = words, 0

        def __getitem__(self, at: Any) -> Any:
            return self.words[at]

        def __setitem__(self, at: Any, value: Any) -> None:
            self.written += 1
            if self.written == 2:
                raise Killed
            self.words[at] = value

    put(filling(memory, 2), trays, 5, owner=2)
    claims = Claims(memory.number, memory._mapped, trays.plan.number)
    monkeypatch.setattr(claims, "words", Words(claims.words))
    with pytest.raises(Killed):
        claims.claim(trays.plan, 2, 1)
    memory.process_exited(1, 1)
    memory.process_exited(2, 2)
    assert trays.settle() and trays.take() is None


def test_the_first_request_after_an_empty_poll_wakes_the_engine(memory: TrayMemory, trays: Trays) -> None:
    on_marked: list[int] = []
    trays.on_marked = lambda: on_marked.append(1)
    front = filling(memory)

    def rung() -> bool:
        with contextlib.suppress(BlockingIOError):
            memory.on_bell()
            return True
        return False

    put(front, trays, 1)
    put(front, trays, 2)
    assert rung() and on_marked == [1] and not rung()
    taken(trays)
    put(front, trays, 3)
    assert not rung()  # the process that claimed the tray checks again
    taken(trays)
    assert trays.take() is None
    put(front, trays, 4)
    assert rung() and on_marked == [1, 1]


class Doubling:
    """y = 2 * x in batches of up to 8 rows; fails for rows with -1; a run waits for `go`.

    pins: None for a target without its own memory, else whether it can pin other memory; width: of rows, -1 for any.
    """

    batches = True

    def __init__(self, pins: bool | None = None, width: int = WIDTH, **settings: Any) -> None:
        self.own_memory, self._pins = pins is not None, pins
        self.pinned: list[int] = []  # bytes of pinned memory
        self.settings, self.sizes = ModelSettings(max_batch=MOST, **settings), batch_sizes(MOST)
        x, y = (Tensor(name, "FP32", (-1, width)) for name in "xy")
        self.signature = Signature("m", "1", "ref", 60.0, (x,), (y,), MOST)
        self.seconds: dict[Any, float] = {}
        self.buckets = False  # widths are padded to multiples of 32
        self.go = threading.Event()
        self.go.set()
        self.stops: dict[int, threading.Event] = {}  # the events that runs wait for, by their numbers
        self.ran: list[int] = []  # addresses of the inputs of each run
        self.rows: list[int] = []
        self.failed = 0  # runs

    def host_memory(self, size: int) -> Any:
        return np.empty(size, np.uint8)

    def pin(self, memory: Any) -> object | None:
        self.pinned.append(memory.nbytes)
        return self if self._pins else None

    def rows_of_outputs(self, given: Mapping[str, Sequence[int]]) -> list[Any]:
        return [given["x"]]

    def padding(self, given: Mapping[str, Sequence[int]]) -> Padding | None:
        (width,) = given["x"]
        if not self.buckets or width % 32 == 0:
            return None
        return Padding((("x", (width,), (-(-width // 32) * 32,), np.float32(9).tobytes()),), ((width,),))

    def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
        self.ran.append(feeds["x"].__array_interface__["data"][0])
        self.rows.append(len(feeds["x"]))
        self.go.wait(20)
        if len(self.ran) in self.stops:
            self.stops[len(self.ran)].wait(20)
        if (feeds["x"] == -1).any():
            self.failed += 1
            raise Internal("a row holds -1")
        return [2 * feeds["x"] for _ in wanted]


class Front:
    """A front end and its counterpart in the engine process, in one event loop."""

    def __init__(self, memory: TrayMemory, find: Callable[[str, str], Batcher], own: int) -> None:
        self.sent = RequestSender(lambda: self)  # type: ignore[arg-type,return-value]
        self.sent.use_trays(filling(memory, own))
        self.taken = RequestReceiver(find, Budget(1 << 30), self._answer, None, memory, own)
        self.messages = 0  # requests that were sent

    def send(self, message: Any, parts: Sequence[Any] = ()) -> None:
        kind, _, content = msgpack.unpackb(msgpack.packb(message))
        if kind == "requests":
            self.messages += len(content) // 3
            self.taken.take(content, list(parts))
        else:
            self.taken.cancel(content)

    def flush(self) -> None: ...

    def _answer(self, content: Any, parts: Sequence[Any]) -> None:
        self.sent.receive_answers(msgpack.unpackb(msgpack.packb(content)), [bytes(p) for p in parts])

    async def infer(self, value: float, count: int = 1, width: int = WIDTH, **given: Any) -> None:
        x = np.full((count, width), value, np.float32)
        answer = await self.sent.infer(Call("m", "", {"x": x}, **given))
        ((tensor, y),) = answer.outputs
        assert (answer.model, answer.version, tensor.name) == ("m", "1", "y")
        np.testing.assert_array_equal(y, 2 * x)


class Parts:
    def __init__(self, memory: TrayMemory, model: Doubling) -> None:
        self.model, self.metrics = model, Metrics(NoTraces())
        self.batcher = Batcher(model, self.metrics)  # type: ignore[arg-type]
        self.fronts = [Front(memory, lambda *_: self.batcher, own) for own in (1, 2)]
        self.start = memory._whole.__array_interface__["data"][0]
        self.size = memory.size

    def in_place(self) -> list[bool]:
        """Returns for each run whether its inputs were in trays."""
        return [self.start <= at < self.start + self.size for at in self.model.ran]

    def offered(self) -> list[Trays]:
        return [s.trays for s in self.batcher.trays._sets if not s.trays.ended]

    async def idle(self) -> None:
        """Waits until all trays can be reused."""
        (trays,) = self.offered()
        async with asyncio.timeout(20):
            while not trays.settle():
                await asyncio.sleep(0.001)

    async def known(self) -> None:
        """Sends requests so that the front ends know the trays."""
        for front in self.fronts:
            await asyncio.gather(front.infer(1), front.infer(1, 2), front.infer(1, 3))
            front.messages = 0
        self.model.ran.clear()
        self.model.rows.clear()

    async def blocked(self) -> asyncio.Task[None]:
        """Returns a request whose run has started and waits for `go`."""
        await self.known()
        self.model.go.clear()
        task = asyncio.create_task(self.fronts[0].infer(5))
        while not self.model.ran:
            await asyncio.sleep(0.001)
        return task


@contextlib.asynccontextmanager
async def connected(
    memory: TrayMemory, pins: bool | None = None, width: int = WIDTH, **settings: Any
) -> AsyncIterator[Parts]:
    parts = Parts(memory, Doubling(pins, width, **settings))
    asyncio.get_running_loop().add_reader(memory.bells[ENGINE], memory.on_bell)
    yield parts
    parts.model.go.set()
    await parts.batcher.close()


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_requests_of_two_front_ends_run_in_place(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            others = [asyncio.create_task(f.infer(10 + n, 1 + n % 2)) for n, f in enumerate((one, other, one, other))]
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *others)
            assert parts.in_place() == [True, True] and parts.model.rows == [1, 6]
            assert (one.messages, other.messages) == (0, 0)
            await parts.idle()

    asyncio.run(ask())


@pytest.mark.parametrize("most", [0, 1 << 30])
def test_large_outputs_are_copied_while_the_next_batch_runs(
    most: int, memory: TrayMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """most: bytes that are copied before the next run starts."""
    copied, go = tray_runs._copy_outputs, threading.Event()

    def waits(*given: Any) -> None:
        go.wait(20)
        copied(*given)

    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            monkeypatch.setattr(tray_runs, "LARGE", most)
            monkeypatch.setattr(tray_runs, "_copy_outputs", waits)
            second = asyncio.create_task(parts.fronts[1].infer(6, 2))
            await turns()
            parts.model.go.set()
            async with asyncio.timeout(20):
                while not most and len(parts.model.ran) < 2:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            assert len(parts.model.ran) == (1 if most else 2) and not first.done()
            go.set()
            await asyncio.gather(first, second)

    asyncio.run(ask())


async def ask_often(front: Front, width: int) -> None:
    """Sends requests of a width until they have trays, and one more."""
    for value in range(tray_sets.MIN_REQUESTS + 1):
        await front.infer(value, width=width)


def test_requests_of_open_extents_that_come_often_have_trays_of_their_own(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory, width=-1) as parts:
            one, other = parts.fronts
            for value in range(tray_sets.MIN_REQUESTS - 1):
                await parts.fronts[value % 2].infer(value, width=32)
            assert not parts.offered()
            for width in (32, 64):
                for front in parts.fronts:
                    await ask_often(front, width)
            assert len(parts.offered()) == 2
            one.messages = other.messages = 0
            parts.model.ran.clear()
            parts.model.rows.clear()
            asked = [parts.fronts[n % 2].infer(n, width=width) for n in range(20) for width in (32, 64, 32, 48)]
            await asyncio.gather(*asked)
            assert one.messages + other.messages == 20  # only those of 48
            assert len(parts.model.rows) < 40 and sum(parts.in_place()) > len(parts.in_place()) // 3

    asyncio.run(ask())


def test_the_oldest_request_goes_first_whatever_its_extents(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory, width=-1) as parts:
            one = parts.fronts[0]
            for width in (32, 64, 96):
                await ask_often(one, width)
            parts.batcher._run_times = RunTimes()  # first runs have threads, which may wait
            parts.model.go.clear()
            parts.model.rows.clear()
            ended: list[int] = []

            async def noted(width: int) -> None:
                await one.infer(width, width=width)
                ended.append(width)

            asked = []
            for width in (96, 64, 32, 64, 96, 32):
                asked.append(asyncio.create_task(noted(width)))
                await turns()
            parts.model.go.set()
            await asyncio.gather(*asked)
            assert ended == [96, 64, 64, 32, 32, 96] and parts.model.rows == [1, 2, 2, 1]

    asyncio.run(ask())


def test_full_batches_of_the_queue_do_not_go_before_older_requests_in_trays(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory, width=-1) as parts:
            one = parts.fronts[0]
            await ask_often(one, 32)
            parts.batcher._run_times = RunTimes()  # runs have threads, which may wait
            parts.model.go.clear()
            parts.model.rows.clear()
            asked = [asyncio.create_task(one.infer(3, MOST, width=64))]
            while not parts.model.rows:
                await asyncio.sleep(0.001)
            for count, width in ((1, 32), (MOST, 64), (MOST, 64), (1, 32), (MOST, 64)):
                asked.append(asyncio.create_task(one.infer(3, count, width=width)))
                await turns()
            parts.model.go.set()
            await asyncio.gather(*asked)
            assert parts.model.rows == [MOST, 2, MOST, MOST, MOST]  # a tray waits from the arrival of its first request

    asyncio.run(ask())


def test_an_unused_set_of_trays_is_replaced_by_another(memory: TrayMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        async with connected(memory, width=-1) as parts:
            one = parts.fronts[0]
            widths = [32 * n for n in range(1, tray_sets.MOST_SETS + 1)]
            for width in widths:
                await ask_often(one, width)
            await ask_often(one, 4096)
            assert [t.key[0][1] for t in parts.offered()] == [(w,) for w in widths]  # all of them were just used
            monkeypatch.setattr(tray_sets, "MIN_IDLE", 0.0)
            for _ in range(2):
                await ask_often(one, 4096)
            assert {t.key[0][1] for t in parts.offered()} == {(w,) for w in (*widths[1:], 4096)}
            one.messages = 0
            await ask_often(one, 4096)
            assert not one.messages
            await one.infer(3, width=32)  # whose trays have ended
            assert one.messages == 1
            for _ in range(2):
                await ask_often(one, 32)
            one.messages = 0
            await one.infer(3, width=32)
            assert not one.messages and len(parts.offered()) == tray_sets.MOST_SETS

    asyncio.run(ask())


def test_figures_count_requests_in_trays(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            record = parts.metrics.records["m", "1"]
            before, runs, sizes = record.requests, record.runs, record.by_size[6][0]
            others = [asyncio.create_task(front.infer(3, 3)) for front in parts.fronts]
            await turns()
            assert record.waiting == 2
            parts.model.go.set()
            await asyncio.gather(first, *others)
            assert (record.requests - before, record.runs - runs, record.waiting) == (3, 2, 0)
            assert sum(record.queue.counts) == record.requests and record.by_size[6][0] == sizes + 1

    asyncio.run(ask())


@pytest.mark.parametrize("pins", [True, False])
def test_a_target_with_its_own_memory_pins_trays_or_has_none(pins: bool, memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory, pins) as parts:
            first = await parts.blocked()
            others = [asyncio.create_task(front.infer(10)) for front in parts.fronts]
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *others)
            assert parts.in_place() == [pins, pins] and bool(parts.batcher.trays) == pins
            words = -(-WORDS * MOST * 8 // PAGE) * PAGE
            assert parts.model.pinned == [TRAYS * (2 * MOST * WIDTH * 4 + words)]  # tried once, in full

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("count", "seconds", "placed"),  # with the row, runs of 6 rows: 4 are copied unless 6 take hardly longer
    [(5, {}, True), (4, {}, False), (4, {4: 1e-3, 6: 2e-3}, False), (4, {4: 1e-3, 6: 1.01e-3}, True)],
)
def test_a_row_claimed_but_never_filled_does_not_block_others(
    count: int, seconds: Mapping[int, float], placed: bool, memory: TrayMemory
) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            (trays,) = parts.offered()
            parts.model.seconds.update({((size, WIDTH),): spent for size, spent in seconds.items()})
            others = [asyncio.create_task(one.infer(20))]
            await turns()
            trays._claims.lock()
            assert trays._claims.claim(trays.plan, 1, 2) is not None
            trays._claims.unlock()
            others += [asyncio.create_task(one.infer(value)) for value in range(count - 1)]
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *others)
            assert parts.in_place() == [True, placed]
            assert not trays.settle()
            other.taken.close()  # its process has ended
            await parts.idle()

    asyncio.run(ask())


def test_padding_rows_were_used_by_an_earlier_run(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            one = parts.fronts[0]
            await parts.known()
            (trays,) = parts.offered()
            for tray in trays.inputs:
                tray["x"][:] = -1  # rows that the model rejects, in all unfilled rows
            for n in range(5 * TRAYS):
                await asyncio.gather(*(one.infer(value) for value in range(5 + n % 3)))
            assert not parts.model.failed
            with pytest.raises(Internal):
                await asyncio.gather(*(one.infer(value) for value in (3, 4, 5, 6, 7, -1)))
            await parts.idle()
            failed = parts.model.failed
            for n in range(2 * TRAYS):
                await asyncio.gather(*(one.infer(n) for n in range(5)))
            assert parts.model.failed == failed > 0

    asyncio.run(ask())


@pytest.mark.parametrize("before", [0, 1])
def test_rows_that_no_run_took_fill_no_run_up(before: int, memory: TrayMemory) -> None:
    """Those of a request that was not marked in time; before: the rows before them that are marked."""
    trays = offered(memory, 2)
    one, other = filling(memory, 1), filling(memory, 2)
    runs = tray_runs.TrayRuns(Doubling(), trays, None, None)

    def turn() -> TakenTray:
        filled = taken(trays)
        runs.run(filled)
        trays.finish(filled, True)
        answers(one)
        return filled

    for number in range(TRAYS):  # each tray was full once
        put(one, trays, number, 8)
        turn()
    for number in range(TRAYS):
        if before:
            put(one, trays, 2, before)
        late = given(trays, 9 + number, 7, 2)
        claims = other._claims_of(trays.plan.number)
        claims.lock()
        late.location = claims.claim(trays.plan, 7, 2)
        claims.unlock()
        other._write_inputs(late, [rows(7, -1).reshape(-1).view(np.uint8).data])
        if not before:
            put(one, trays, 2, 1)
        turn()
        other._release(trays.plan.number, late.location[0], 7)
    for _ in range(TRAYS):
        put(one, trays, 3, 5)
        turn()  # which fails if a row contains -1


def test_two_runs_that_end_sooner_replace_one(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            parts.model.seconds.update({((size, WIDTH),): 1.0 if size == 8 else 0.1 for size in parts.model.sizes})
            others = [asyncio.create_task(parts.fronts[n % 2].infer(n, 1 + n // 3)) for n in range(5)]
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *others)
            assert parts.model.rows == [1, 6, 2]  # 5 rows padded, and 2, in place of 7 of 8
            assert parts.in_place() == [True] * 3

    asyncio.run(ask())


def test_a_request_that_waits_for_others_is_run_when_its_time_has_passed(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory, queue_delay=0.2) as parts:
            await parts.known()
            loop = asyncio.get_running_loop()
            start = loop.time()
            on_marked: list[int] = []
            (trays,) = parts.offered()
            look = trays.on_marked

            def noted() -> None:
                on_marked.append(1)
                look()

            trays.on_marked = noted
            await parts.fronts[0].infer(3, 1)
            on_marked.clear()
            first = asyncio.create_task(parts.fronts[0].infer(3, 1))
            await asyncio.sleep(0.01)
            await asyncio.gather(first, *(front.infer(3, 2) for front in parts.fronts))
            assert parts.model.rows == [1, 6] and loop.time() - start > 0.39
            assert len(on_marked) <= 1  # by the first, unless the engine checked again before it was woken
            parts.model.rows.clear()
            start = loop.time()
            await asyncio.gather(*(parts.fronts[n % 2].infer(3, 2) for n in range(4)))  # a whole batch
            assert parts.model.rows == [8] and loop.time() - start < 0.19

    asyncio.run(ask())


@pytest.mark.parametrize(("priority", "order"), [(1, [1, 3, 2]), (3, [1, 2, 3])])
def test_a_request_of_another_priority_is_sent_and_has_its_turn(
    priority: int, order: list[int], memory: TrayMemory
) -> None:
    async def ask() -> None:
        async with connected(memory, priority=2) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            usual = asyncio.create_task(one.infer(3, 2))
            await turns()
            sent = asyncio.create_task(other.infer(4, 3, priority=priority))
            await turns()
            assert other.messages == 1
            parts.model.go.set()
            await asyncio.gather(first, usual, sent)
            assert parts.model.rows == order and parts.in_place() == [rows != 3 for rows in order]

    asyncio.run(ask())


def test_requests_beyond_the_bound_are_refused(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory, queue_size=3) as parts:
            first = await parts.blocked()
            waits = [asyncio.create_task(parts.fronts[n % 2].infer(n)) for n in range(3)]
            await turns()
            for front in parts.fronts:
                with pytest.raises(Busy):
                    await front.infer(7)
            waits[0].cancel()
            await turns()
            waits.append(asyncio.create_task(parts.fronts[0].infer(8)))
            await turns()
            parts.model.go.set()
            await asyncio.gather(first, *waits[1:])
            assert parts.metrics.records["m", "1"].refusals == 2

    asyncio.run(ask())


def test_a_request_in_a_tray_times_out(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            with pytest.raises(DeadlinePassed, match="model 'm' did not answer within"):
                await asyncio.gather(one.infer(1, 1, timeout=0.1), other.infer(1, 1, timeout=0.1))
            late = [asyncio.create_task(one.infer(1, 1, timeout=0.1)) for _ in range(2)]
            kept = asyncio.create_task(other.infer(5, 2))
            await asyncio.wait(late)
            assert all(isinstance(task.exception(), DeadlinePassed) for task in late)
            parts.model.go.set()
            await asyncio.gather(first, kept)
            assert parts.model.rows[-1] == 2  # and not the rows of abandoned requests
            await parts.idle()

    asyncio.run(ask())


def test_requests_in_trays_are_refused_when_the_engine_has_ended(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            waits = [asyncio.create_task(front.infer(1)) for front in parts.fronts]
            await turns()
            for front in parts.fronts:
                front.sent.lost()
            found = await asyncio.gather(first, *waits, return_exceptions=True)
            assert all(isinstance(error, Unavailable) for error in found)

    asyncio.run(ask())


def test_evicted_request_records_do_not_affect_trays(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            waits = [asyncio.create_task(front.infer(10)) for front in parts.fronts]
            await turns()
            for front in parts.fronts:
                front.taken.changed()
                front.sent.changed()
            parts.model.go.set()
            await asyncio.gather(first, *waits)
            await asyncio.gather(one.infer(3), other.infer(4))
            await asyncio.gather(one.infer(3), other.infer(4))
            assert (one.messages, other.messages) == (1, 1)

    asyncio.run(ask())


def test_requests_are_answered_while_a_process_that_was_stopped_has_the_lock(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            queued = [asyncio.create_task(front.infer(10)) for front in parts.fronts]
            await turns()
            (trays,) = parts.offered()
            with held(memory, trays):
                sent = [asyncio.create_task(front.infer(20)) for front in parts.fronts]
                parts.model.go.set()
                await asyncio.gather(first, *queued, *sent)
            await asyncio.gather(one.infer(1), other.infer(1))
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
            await one.infer(4)
            with pytest.raises(Internal, match="a row holds -1"):
                await one.infer(-1)  # alone in its tray
            assert (one.messages, other.messages) == (0, 0)
            await parts.idle()

    asyncio.run(ask())


def test_requests_that_are_padded_share_trays_and_are_cut_also_where_one_fails(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory, width=-1) as parts:
            parts.model.buckets = True
            one, other = parts.fronts
            for width in (20, 31, 32):
                for front in parts.fronts:
                    await ask_often(front, width)
            assert len(parts.offered()) == 1
            one.messages = other.messages = 0
            parts.model.rows.clear()
            await asyncio.gather(*(f.infer(n, width=w) for n in range(8) for w in (20, 31, 32) for f in parts.fronts))
            assert one.messages + other.messages == 0 and len(parts.model.rows) < 48
            asked = [front.infer(n, width=20 + n) for n in range(13) for front in parts.fronts]
            failed = [asyncio.create_task(one.infer(-1, width=w)) for w in (20, 31)]
            await asyncio.gather(*asked)
            found = await asyncio.gather(*failed, return_exceptions=True)
            assert all(isinstance(error, Internal) for error in found)
            await parts.idle()

    asyncio.run(ask())


def test_an_output_that_contradicts_the_model_is_not_returned(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            await parts.known()
            whole = parts.model.run
            parts.model.run = lambda *given: [y[:, :1] for y in whole(*given)]  # type: ignore[method-assign]
            with pytest.raises(Internal):
                await parts.fronts[0].infer(1)
            parts.model.run = whole  # type: ignore[method-assign]
            await parts.fronts[0].infer(1)

    asyncio.run(ask())


@pytest.mark.parametrize("runs", [False, True])
def test_a_client_that_disconnects_does_not_affect_others(runs: bool, memory: TrayMemory) -> None:
    """runs: the run of its batch has started."""

    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            tasks = [asyncio.create_task(f.infer(n)) for n, f in enumerate((one, other, one, other))]
            await turns()
            if runs:
                parts.model.stops[2] = threading.Event()
                parts.model.go.set()
                await first
                while len(parts.model.ran) < 2:
                    await asyncio.sleep(0.001)
            tasks[0].cancel()
            tasks[2].cancel()
            await turns()
            for event in (parts.model.go, *parts.model.stops.values()):
                event.set()
            await asyncio.gather(first, tasks[1], tasks[3])
            await asyncio.gather(one.infer(7), other.infer(8))
            await parts.idle()

    asyncio.run(ask())


def test_a_reloaded_model_receives_requests_outside_the_old_trays(memory: TrayMemory) -> None:
    async def ask() -> None:
        async with connected(memory) as parts:
            first = await parts.blocked()
            one, other = parts.fronts
            between = asyncio.create_task(other.infer(20))
            await turns()
            former, parts.batcher = parts.batcher, Batcher(parts.model, Metrics(NoTraces()))  # type: ignore[arg-type]
            for front in parts.fronts:
                front.taken.changed()
            closing = asyncio.create_task(former.close())
            await turns()
            late = asyncio.create_task(one.infer(21))  # which knows only the old trays
            await turns()
            parts.model.go.set()
            await asyncio.gather(closing, first, between, late)
            assert one.messages == 1
            await asyncio.gather(one.infer(3), other.infer(4))
            await asyncio.gather(one.infer(5), other.infer(6))
            assert parts.offered() and one.messages == 1

    asyncio.run(ask())


@pytest.fixture(scope="module")
def wide(serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("wide")
    for name, width in (("wide", WIDTH), ("open", "s")):
        small_model(root / name / "1" / "model.onnx", width=width)
        (root / name / "config.toml").write_text(f"max_batch = {MOST}\n")
    return serve(root, "--frontends", 2)


def asked(server: Any, seed: int, model: str = "wide", widths: Sequence[int] = (WIDTH,)) -> Iterator[float]:
    """Yields the largest error of each answer."""
    random = np.random.default_rng(seed)
    with tritonclient.http.InferenceServerClient(server.http) as client:
        for _ in range(20):
            x = random.random((int(random.integers(1, 4)), int(random.choice(widths))), np.float32)
            given = tritonclient.http.InferInput("x", list(x.shape), "FP32")
            given.set_data_from_numpy(x)
            yield float(abs(client.infer(model, [given]).as_numpy("y") - 2 * x).max())


def test_every_client_gets_its_own_rows_of_its_own_extents(wide: Any) -> None:
    with ThreadPoolExecutor(8) as threads:
        every = threads.map(lambda seed: max(asked(wide, seed, "open", (8, 16, 31))), range(16))
        assert max(every) == 0


def test_every_client_gets_its_own_rows_also_after_a_front_end_was_killed(wide: Any) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(lambda seed: max(asked(wide, seed)), range(8))) == 0

    def killed(seed: int) -> int:
        """Returns how many answers arrived before the connection was lost."""
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
        assert max(threads.map(killed, range(8))) == 20  # the other one's connections remain
    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(lambda seed: max(asked(wide, seed)), range(4))) == 0
