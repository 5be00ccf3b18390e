"""The queue of one model, with a model whose runs are visible to the tests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import DeviceError, ParameterError
from mgx_serve import ModelSettings, input_staging
from mgx_serve.batch import run
from mgx_serve.batch_buffers import BatchBuffer, put
from mgx_serve.batching import Batcher
from mgx_serve.errors import BadRequest, Internal
from mgx_serve.metrics import Recorder
from mgx_serve.model import Model, Signature, batch_sizes
from mgx_serve.run_times import Spent
from mgx_serve.settings import model_settings
from mgx_serve.shared_memory import Memory, Place, Region, Regions
from mgx_serve.tensors import DeferredInput, Layout, Tensor


class Watched:
    """y = 2 * x, z = -x; records the shape, the thread and the requested outputs of each run."""

    def __init__(self, **settings: Any) -> None:
        self.settings = ModelSettings(**settings)
        self.batches = self.settings.max_batch > 1
        self.sizes = batch_sizes(self.settings.max_batch) if self.batches else ()
        x, y, z = (Tensor(name, "FP32", (-1, -1)) for name in "xyz")
        self.signature = Signature("m", "1", "ref", 60.0, (x,), (y, z))
        self.seconds: dict[Any, float] = {}
        self.runs: list[tuple[tuple[int, ...], int]] = []
        self.asked: list[list[int]] = []
        self.own_memory = False
        self.taken: list[int] = []

    def host_memory(self, size: int) -> Any:
        self.taken.append(size)
        return np.empty(size, np.uint8)

    def padding(self, rows: Mapping[str, Sequence[int]]) -> None: ...

    def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
        self.runs.append((feeds["x"].shape, threading.get_ident()))
        self.asked.append(list(wanted))
        return [(2 * feeds["x"], -feeds["x"])[n] for n in wanted]


class Slow(Watched):
    """Runs for as long as the test says; records its inputs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.end = threading.Semaphore(0)
        self.given: list[Any] = []

    def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
        self.given.append(feeds["x"])
        assert self.end.acquire(timeout=60)
        return super().run(feeds, wanted)


class NoRecorder(Recorder):
    """Records nothing."""

    def waiting(self, model: Signature, count: int) -> None: ...

    def refused(self, model: Signature) -> None: ...

    def failed(self, model: Signature) -> None: ...

    def ran(self, model: Signature, queued: Any, seconds: float, rows: int) -> None: ...


def test_requests_after_an_abandoned_one_are_answered() -> None:
    async def ask() -> list[Any]:
        model: Any = Watched(queue_size=2, queue_delay=0.2, max_batch=8)
        batcher = Batcher(model, NoRecorder())
        x = np.ones((1, 4), np.float32)
        first = asyncio.create_task(batcher.infer({"x": x}))
        await asyncio.sleep(0.1)
        first.cancel()
        others = [asyncio.create_task(batcher.infer({"x": n * x})) for n in (2, 3)]
        async with asyncio.timeout(20):
            answers = [(await other)[1][0] for other in others]
        await batcher.close()
        return answers

    np.testing.assert_array_equal(np.concatenate(asyncio.run(ask())), [[4.0] * 4, [6.0] * 4])


@pytest.mark.parametrize("max_batch", [0, 64])
def test_shapes_that_were_not_seen_leave_the_event_loop_alone(max_batch: int) -> None:
    async def ask(model: Any) -> int:
        batcher = Batcher(model, NoRecorder())
        for _ in range(50):
            await batcher.infer({"x": np.ones((1, 4), np.float32)})
        await batcher.infer({"x": np.ones((1, 5), np.float32)})
        await batcher.infer({"x": np.ones((33, 4), np.float32)})
        await batcher.close()
        return threading.get_ident()

    model = Watched(max_batch=max_batch)
    loop = asyncio.run(ask(model))
    small = [thread for shape, thread in model.runs if shape == (1, 4)]
    assert loop in small[1:] and small[0] != loop
    for shape in ((1, 5), (48 if max_batch else 33, 4)):  # padded to a size of runs
        assert [thread == loop for at, thread in model.runs if at == shape] == [False]


def test_sizes_of_runs() -> None:
    assert batch_sizes(32) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    assert batch_sizes(20, (5,)) == (1, 2, 3, 4, 5, 6, 8, 12, 16, 20)
    for most in range(2, 300):
        sizes = batch_sizes(most)
        assert sizes[-1] == most and all(3 * (b - a - 1) < 2 * b for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize("rows", [[1, 1, 3, 2], [5], [0, 5], [0], [8, 8, 8, 8, 1], [40]])
def test_runs_have_one_of_few_sizes(rows: list[int]) -> None:
    async def ask(model: Any) -> list[Any]:
        batcher = Batcher(model, NoRecorder())
        given = [np.full((n, 4), i, np.float32) for i, n in enumerate(rows)]
        answers = await asyncio.gather(*(batcher.infer({"x": x}) for x in given))
        await batcher.close()
        return [(x, made[0]) for x, (_, made) in zip(given, answers, strict=True)]

    model = Watched(max_batch=32)
    for x, y in asyncio.run(ask(model)):
        np.testing.assert_array_equal(y, 2 * x)
    for shape, _ in model.runs:
        assert shape[0] in (*model.sizes, 0, 40)


def test_sizes_are_compiled_before_requests_come(small_model: Any, tmp_path: Path) -> None:
    model = Model.read("m", "1", small_model(tmp_path / "m.onnx"), ModelSettings(target="ref", max_batch=6))
    model.warm()
    executable = model.program.executable
    assert executable is not None
    assert [i.shapes["x"].lens()[0] for i in executable.instances()] == [1, 2, 3, 4, 6]


def test_sizes_without_memory_are_left_to_requests(
    small_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model.read("m", "1", small_model(tmp_path / "m.onnx"), ModelSettings(target="ref", max_batch=6))
    executable = model.program.executable
    assert executable is not None
    tried, whole = [], executable.run

    def bounded(feeds: Any) -> Any:
        tried.append(len(feeds["x"]))
        if tried[-1] > 2:
            raise MemoryError
        return whole(feeds)

    monkeypatch.setattr(executable, "run", bounded)
    model.warm()
    assert tried == [1, 1, 2, 2, 3]
    assert list(model.seconds) == [((1, 4),), ((2, 4),)]


def test_sizes_depend_on_requests_if_configured(small_model: Any, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("warm = false\nmax_batch = 6\n")
    settings = model_settings(tmp_path, ModelSettings(target="ref"))
    model = Model.read("m", "1", small_model(tmp_path / "m.onnx"), settings)
    model.warm()
    executable = model.program.executable
    assert executable is not None
    assert not executable.instances() and not model.seconds
    for wrong in ("warm = 1", 'warm = "no"', "max_batch = true"):
        (tmp_path / "config.toml").write_text(wrong)
        with pytest.raises(ParameterError, match="must be of type"):
            model_settings(tmp_path, settings)


@pytest.mark.parametrize(
    ("measured", "spent", "inside"),
    [
        pytest.param(1e-5, [1e-3, 1e-5], [False, True], id="the first waited for others"),
        pytest.param(None, [1e-3, 1e-5], [False, False], id="nothing was measured"),
        pytest.param(1e-2, [1e-5, 1e-5], [False, True], id="zeros were slow"),
        pytest.param(1e-5, [2.0, 2.0], [False, False], id="values take longer than zeros"),
        pytest.param(1e-5, [1e-5, 2.0, 2.0, 1e-5], [False, True, False, False], id="some values do"),
        pytest.param(1e-5, [1e-5, *[5e-3] * 6], [False, *[True] * 5, False], id="by less than is seen at once"),
        pytest.param(1e-5, [1e-5, 5e-3, 1e-5, 1e-5], [False, True, True, True], id="one was interrupted"),
    ],
)
@pytest.mark.parametrize(("max_batch", "rows", "size"), [(0, 1, 1), (8, 5, 6)])
def test_runs_that_are_short_have_no_thread(
    measured: float | None,
    spent: list[float],
    inside: list[bool],
    max_batch: int,
    rows: int,
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """measured: seconds of a run on zeros; spent: of each run; inside: the runs made in the event loop."""
    left = iter(spent)
    monkeypatch.setattr("mgx_serve.batching.run", lambda *given: (run(*given)[0], Spent(next(left), 0.0)))

    async def ask(model: Any) -> None:
        batcher = Batcher(model, NoRecorder())
        for _ in spent:
            await batcher.infer({"x": np.ones((rows, 4), np.float32)})
        await batcher.close()

    model = Watched(max_batch=max_batch)
    if measured is not None:
        model.seconds[((size, 4),)] = measured
    asyncio.run(ask(model))
    assert [(shape, thread == threading.get_ident()) for shape, thread in model.runs] == [
        ((size, 4), where) for where in inside
    ]


def test_a_whole_batch_begins_as_soon_as_the_one_before_it_ends() -> None:
    async def ask() -> None:
        model: Any = Slow(max_batch=2)
        batcher = Batcher(model, NoRecorder())
        asked = [asyncio.create_task(batcher.infer({"x": np.full((1, 4), n, np.float32)})) for n in range(7)]
        while len(model.given) < 1:
            await asyncio.sleep(0.001)
        model.end.release()
        # the event loop is blocked from here on: the thread has the next whole batch, and no more
        until = time.monotonic() + 60
        while len(model.given) < 2 and time.monotonic() < until:
            time.sleep(0.001)
        assert len(model.given) == 2
        model.end.release()
        time.sleep(0.05)
        assert len(model.given) == 2
        for _ in range(4):
            model.end.release()
        for n, (_, (y, _)) in enumerate(await asyncio.gather(*asked)):
            np.testing.assert_array_equal(y, np.full((1, 4), 2 * n))
        assert [shape[0] for shape, _ in model.runs] == [2, 2, 2, 1]
        await batcher.close()

    asyncio.run(ask())


def test_a_thread_continues_with_waiting_requests_when_a_run_ends() -> None:
    async def ask() -> None:
        model: Any = Slow(max_batch=4)
        batcher = Batcher(model, NoRecorder())
        asked = []
        for n in range(3):
            asked.append(asyncio.create_task(batcher.infer({"x": np.full((1, 4), n, np.float32)})))
            await until(lambda: len(model.given) == 1)
        await asyncio.sleep(0.01)
        model.end.release()
        # the event loop is blocked from here on
        end = time.monotonic() + 60
        while len(model.given) < 2 and time.monotonic() < end:
            time.sleep(0.001)
        np.testing.assert_array_equal(model.given[1][:, 0], [1, 2])
        model.end.release()
        for n, (_, (y, _)) in enumerate(await asyncio.gather(*asked)):
            np.testing.assert_array_equal(y, np.full((1, 4), 2 * n))
        await batcher.close()

    asyncio.run(ask())


def test_a_thread_without_work_ends_its_turn() -> None:
    async def ask() -> None:
        model: Any = Slow(max_batch=4)
        batcher = Batcher(model, NoRecorder())
        first, left = (asyncio.create_task(batcher.infer({"x": np.ones((1, 4), np.float32)})) for _ in range(2))
        await until(lambda: len(model.given) == 1)
        late = asyncio.create_task(batcher.infer({"x": np.ones((1, 4), np.float32)}))
        await asyncio.sleep(0.01)
        for task in (left, late):
            task.cancel()
        model.end.release()
        await first
        await asyncio.wait([left, late])
        model.end.release()
        _, (y, _) = await batcher.infer({"x": np.ones((2, 4), np.float32)})
        np.testing.assert_array_equal(y, np.full((2, 4), 2))
        await batcher.close()
        assert [rows for (rows, _), _ in model.runs] == [2, 2]

    asyncio.run(ask())


def held_up() -> tuple[Any, threading.Event, threading.Event]:
    """A model whose runs block, with an event that a run has started and one that lets runs finish."""
    model: Any = Watched(max_batch=4)
    began, end = threading.Event(), threading.Event()
    plain = model.run

    def run(feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
        began.set()
        assert end.wait(60)
        return list(plain(feeds, wanted))

    model.run = run
    return model, began, end


def test_requests_are_let_go_of_once_they_are_answered() -> None:
    async def ask() -> None:
        model, began, end = held_up()
        batcher = Batcher(model, NoRecorder())
        given = [np.ones((1, 4), np.float32) for _ in range(3)]
        kept = [weakref.ref(x) for x in given]
        asked = [asyncio.create_task(batcher.infer({"x": given.pop()}))]
        await asyncio.to_thread(began.wait, 60)
        while given:
            asked.append(asyncio.create_task(batcher.infer({"x": given.pop()})))
            await asyncio.sleep(0.02)
        end.set()
        await asyncio.gather(*asked)
        asked.clear()
        await until(lambda: not any(x() is not None for x in kept))
        await batcher.close()

    gc.disable()
    try:
        asyncio.run(ask())
    finally:
        gc.enable()


def test_a_queue_is_closed_once_its_runs_are_answered() -> None:
    ran: list[int] = []

    class Noted(NoRecorder):
        def ran(self, model: Signature, queued: Any, seconds: float, rows: int) -> None:
            ran.append(rows)

    async def ask() -> None:
        model: Any = Slow(max_batch=4)
        batcher = Batcher(model, Noted())
        asked = asyncio.create_task(batcher.infer({"x": np.ones((3, 4), np.float32)}))
        await until(lambda: len(model.given) == 1)

        async def close() -> list[int]:
            await batcher.close()
            return ran.copy()

        closing = asyncio.create_task(close())
        await asyncio.sleep(0.01)
        model.end.release()
        assert await closing == [3], "later metrics would belong to a removed model"
        await asked

    asyncio.run(ask())


def test_requests_that_others_may_join_wait_in_trays() -> None:
    async def ask() -> None:
        model, began, end = held_up()
        batcher = Batcher(model, NoRecorder())
        x = np.ones((1, 4), np.float32)
        asked = [asyncio.create_task(batcher.infer({"x": x}))]
        await asyncio.to_thread(began.wait, 60)
        for _ in range(2):
            asked += [asyncio.create_task(batcher.infer({"x": x}))]
            await asyncio.sleep(0.02)
        end.set()
        await asyncio.gather(*asked)
        assert [shape[0] for shape, _ in model.runs] == [1, 2]
        await batcher.close()

    asyncio.run(ask())


def test_a_run_computes_the_results_that_its_requests_want() -> None:
    async def ask(*each: Sequence[str]) -> list[list[Any]]:
        model: Any = Watched(max_batch=8)
        batcher = Batcher(model, NoRecorder())
        given = [np.full((n + 1, 4), n, np.float32) for n in range(len(each))]
        asked = [batcher.infer({"x": x}, wanted=names) for x, names in zip(given, each, strict=True)]
        answers = [made for _, made in await asyncio.gather(*asked)]
        await batcher.close()
        for x, names, made in zip(given, each, answers, strict=True):
            assert len(made) == len(names or "yz")
            for name, value in zip(names or "yz", made, strict=True):
                np.testing.assert_array_equal(value, 2 * x if name == "y" else -x)
        wanted: list[list[int]] = model.asked
        return wanted

    assert asyncio.run(ask("z")) == [[1]]
    assert asyncio.run(ask("z", "z")) == [[1]]
    assert asyncio.run(ask("z", "yy")) == [[0, 1]]
    assert asyncio.run(ask("z", "")) == [[0, 1]]
    assert asyncio.run(ask("zyz")) == [[0, 1]]


def test_requests_of_a_batch_that_failed_get_what_they_want() -> None:
    class Picky(Watched):
        """Accepts one row only."""

        def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
            if len(feeds["x"]) > 1:
                raise ValueError("one row is required")
            return super().run(feeds, wanted)

    async def ask() -> None:
        model: Any = Picky(max_batch=8)
        batcher = Batcher(model, NoRecorder())
        x = np.ones((1, 4), np.float32)
        (_, (y,)), (_, (z,)) = await asyncio.gather(*(batcher.infer({"x": x}, wanted=name) for name in "yz"))
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(z, -x)
        assert model.asked == [[0], [1]]
        await batcher.close()

    asyncio.run(ask())


def test_a_program_is_run_for_some_of_its_results(small_model: Any, tmp_path: Path) -> None:
    model = Model.read("m", "1", small_model(tmp_path / "m.onnx"), ModelSettings(target="ref", max_batch=4))
    (z,) = model.run({"x": np.ones((2, 4), np.float32)}, [1])
    np.testing.assert_array_equal(z, [[4], [4]])


async def until(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not seen():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("columns", [4, 1 << 16])
def test_inputs_are_assembled_while_another_batch_runs(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    joined = BatchBuffer.concatenated

    def noted(self: BatchBuffer, name: str, values: Sequence[Any], spare: int) -> Any:
        made = joined(self, name, values, spare)
        copied.append(threading.get_ident())
        return made

    def noted_rows(values: Sequence[Any], place: Any) -> None:
        put(values, place)
        copied.append(threading.get_ident())

    monkeypatch.setattr(BatchBuffer, "concatenated", noted)
    monkeypatch.setattr(input_staging, "put", noted_rows)

    async def ask() -> None:
        model: Any = Slow(max_batch=2)
        batcher = Batcher(model, NoRecorder())
        asked = [asyncio.create_task(batcher.infer({"x": np.full((1, columns), n, np.float32)})) for n in range(6)]
        await until(lambda: len(copied) == 2)
        assert len(model.given) == 1 and not model.runs
        assert (copied[-1] == threading.get_ident()) == (columns == 4)  # long runs have a thread
        for _ in range(3):
            model.end.release()
        for n, (_, (y, _)) in enumerate(await asyncio.gather(*asked)):
            np.testing.assert_array_equal(y, np.full((1, columns), 2 * n))
        await batcher.close()

    asyncio.run(ask())


class Rows:
    """Requests of one row whose elements are their number, next to a run that has started.

    Rows copied by threads are recorded by their number; a request is large enough for a thread.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.model: Any = Slow(**settings)
        self.batcher = Batcher(self.model, NoRecorder())
        self.copied: list[float] = []
        self.asked: list[asyncio.Task[Any]] = []
        monkeypatch.setattr(input_staging, "PART", 1)
        monkeypatch.setattr(input_staging, "LARGE", 1)
        monkeypatch.setattr(input_staging, "put", self._noted)

    def _noted(self, values: Sequence[Any], place: Any) -> None:
        put(values, place)
        self.copied += place[: sum(v.shape[0] for v in values), 0].tolist()

    async def begun(self, *numbers: float, **given: Any) -> None:
        """Sends numbers one by one, and waits until the first run has started."""
        for number in numbers:
            x = np.full((1, 4), number, np.float32)
            self.asked.append(asyncio.create_task(self.batcher.infer({"x": x}, **given)))
            await until(lambda: len(self.model.given) >= 1)
            await asyncio.sleep(0)

    async def ended(self, runs: int) -> list[Any]:
        for _ in range(runs):
            self.model.end.release()
        async with asyncio.timeout(20):
            made = await asyncio.gather(*self.asked, return_exceptions=True)
        await self.batcher.close()
        return [m if isinstance(m, BaseException) else float(m[1][0][0, 0]) for m in made]


def test_large_requests_are_copied_when_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=8)
        await rows.begun(0, 1, 2, 3)
        await until(lambda: sorted(rows.copied) == [1, 2, 3])
        assert not rows.model.runs, "before the previous run has ended"
        assert await rows.ended(2) == [0, 2, 4, 6]
        assert [shape[0] for shape, _ in rows.model.runs] == [1, 3]
        assert len(rows.copied) == 3, "once each"

    asyncio.run(ask())


def test_large_requests_are_copied_while_they_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=8, queue_delay=30.0)
        given = [np.full((1, 4), n, np.float32) for n in (1, 2, 3)]
        rows.asked = [asyncio.create_task(rows.batcher.infer({"x": x})) for x in given]
        await until(lambda: sorted(rows.copied) == [1, 2, 3])
        assert not rows.model.given
        rows.batcher.hurry()
        assert await rows.ended(1) == [2, 4, 6]
        assert len(rows.copied) == 3, "once each"

    asyncio.run(ask())


@pytest.mark.parametrize(("own", "copied"), [(False, []), (True, [1.0])])
def test_a_single_request_is_copied_for_targets_with_their_own_memory(
    monkeypatch: pytest.MonkeyPatch, own: bool, copied: list[float]
) -> None:
    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=8)
        rows.model.own_memory = own
        await rows.begun(0, 1)
        await asyncio.sleep(0.05)
        assert rows.copied == copied
        assert await rows.ended(2) == [0, 2]

    asyncio.run(ask())


def test_requests_that_a_batch_leaves_out_are_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=8)
        rows.model.seconds = {((n, 4),): n for n in rows.model.sizes}
        await rows.begun(*range(6))
        await until(lambda: len(rows.copied) == 5)
        assert await rows.ended(3) == [0, 2, 4, 6, 8, 10]
        assert [list(given[:, 0]) for given in rows.model.given] == [[0], [1, 2, 3, 4], [5]]

    asyncio.run(ask())


@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_request_that_left_after_it_was_copied_leaves_the_others_as_they_are(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=8)
        await rows.begun(0, 1, 2, 3)
        await until(lambda: len(rows.copied) == 3)
        rows.asked[left].cancel()
        await rows.begun(4)
        made = await rows.ended(2)
        assert isinstance(made.pop(left), asyncio.CancelledError)
        assert made == [2.0 * n for n in range(5) if n != left]
        assert [shape[0] for shape, _ in rows.model.runs] == [1, 3]

    asyncio.run(ask())


@pytest.mark.parametrize("own", [False, True])
def test_no_request_is_lost_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=3)
        rows.model.own_memory = own
        await rows.begun(0)
        monkeypatch.setattr(rows.batcher._stager._threads, "submit", refused)
        await rows.begun(1, 2, 3, 4, 5)
        assert await rows.ended(6) == [0, 2, 4, 6, 8, 10]
        assert not rows.copied

    asyncio.run(ask())


def test_a_run_that_has_no_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    async def ask() -> None:
        model: Any = Watched(max_batch=3)
        batcher = Batcher(model, NoRecorder())
        plain = batcher._threads.submit
        for asked in (1, 3):
            monkeypatch.setattr(batcher._threads, "submit", refused)
            x = {"x": np.ones((1, 4), np.float32)}
            async with asyncio.timeout(20):
                made = await asyncio.gather(*(batcher.infer(x) for _ in range(asked)), return_exceptions=True)
            assert [type(m) for m in made] == [Internal] * asked
            monkeypatch.setattr(batcher._threads, "submit", plain)
            _, (y, _) = await batcher.infer(x)
            np.testing.assert_array_equal(y, np.full((1, 4), 2))
        await batcher.close()

    asyncio.run(ask())


@pytest.mark.parametrize("instances", [1, 2])
def test_every_request_gets_its_own_rows(monkeypatch: pytest.MonkeyPatch, instances: int) -> None:
    """Requests of several shapes and priorities arrive and leave while runs and copies take arbitrary times."""
    draw = random.Random(instances)

    def slowly(values: Sequence[Any], place: Any) -> None:
        time.sleep(draw.choice((0, 0, 0.001)))
        put(values, place)

    class Random(Watched):
        def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
            made = super().run(feeds, wanted)
            time.sleep(draw.choice((0, 0.001, 0.003)))
            np.testing.assert_array_equal(made[0], 2 * feeds["x"])  # nothing writes to a batch while it runs
            return made

    async def ask() -> None:
        model: Any = Random(max_batch=8, instances=instances)
        model.seconds = {((n, width),): n for n in model.sizes for width in (4, 6)}
        model.own_memory = True
        batcher = Batcher(model, NoRecorder())
        batcher._stager._threads._max_workers = 4

        async def client(number: int) -> int:
            answered = 0
            for turn in range(30):
                shape = (draw.randint(1, 3), draw.choice((4, 4, 4, 6)))
                x = np.full(shape, 100 * number + turn, np.float32)
                asked = asyncio.create_task(batcher.infer({"x": x}, priority=draw.choice((1, 1, 2))))
                if draw.random() < 0.2:
                    await asyncio.sleep(draw.choice((0, 0.001, 0.003)))
                    asked.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    _, (y, z) = await asked
                    np.testing.assert_array_equal(y, 2 * x)
                    np.testing.assert_array_equal(z, -x)
                    answered += 1
            return answered

        assert sum(await asyncio.gather(*map(client, range(16)))) > 300
        await batcher.close()

    monkeypatch.setattr(input_staging, "PART", 1)
    monkeypatch.setattr(input_staging, "LARGE", 1)
    monkeypatch.setattr(input_staging, "put", slowly)
    asyncio.run(ask())


def test_urgent_requests_go_before_those_that_were_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=3)
        await rows.begun(0, priority=5)
        await rows.begun(1, 2, priority=5)
        await until(lambda: len(rows.copied) == 2)
        urgent = [{"x": np.full((1, 4), n, np.float32)} for n in (3, 4)]
        rows.asked += [asyncio.create_task(rows.batcher.infer(x, priority=1)) for x in urgent]
        await asyncio.sleep(0.01)
        assert await rows.ended(3) == [0, 2, 4, 6, 8]
        assert [sorted(given[:, 0]) for given in rows.model.given] == [[0], [1, 3, 4], [2]]

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("each", "rows", "wanted"),
    [
        (lambda n: n, [1] * 5, [4, 1]),  # seconds of a run: 4 + 1 rows take less than 6
        (lambda n: n, [1] * 7, [6, 1]),
        (lambda n: n, [1] * 8, [8]),
        (lambda n: n, [2, 3, 2], [8]),  # 6 would hold two of them, and be padded
        (lambda n: n, [5], [6]),  # a request is never split
        (lambda n: n, [1, 4, 1, 1], [6, 1]),
        (lambda n: n, [3, 2], [3, 2]),
        (lambda n: 10 + n, [1] * 5, [6]),  # two runs take longer than a larger one
        (None, [1] * 5, [6]),  # nothing was measured
    ],
)
def test_batches_are_padded_where_two_runs_take_longer(
    each: Callable[[int], float] | None, rows: list[int], wanted: list[int]
) -> None:
    async def ask() -> None:
        model: Any = Slow(max_batch=8)
        if each is not None:
            model.seconds = {((n, 4),): each(n) for n in model.sizes}
        batcher = Batcher(model, NoRecorder())
        first = asyncio.create_task(batcher.infer({"x": np.zeros((1, 4), np.float32)}))
        await until(lambda: len(model.given) == 1)
        asked = [asyncio.create_task(batcher.infer({"x": np.full((n, 4), i, np.float32)})) for i, n in enumerate(rows)]
        await asyncio.sleep(0.01)
        for _ in range(len(wanted) + 1):
            model.end.release()
        for i, (n, (_, (y, _))) in enumerate(zip(rows, await asyncio.gather(*asked), strict=True)):
            np.testing.assert_array_equal(y, np.full((n, 4), 2 * i))
        await first
        await batcher.close()
        assert [shape[0] for shape, _ in model.runs[1:]] == wanted

    asyncio.run(ask())


def test_requests_of_another_shape_wait_for_their_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=8)
        await rows.begun(0, 1, 2)
        wide = [asyncio.create_task(rows.batcher.infer({"x": np.full((1, 6), n, np.float32)})) for n in (7, 8)]
        await asyncio.sleep(0)
        rows.asked += wide
        await rows.begun(3)
        assert await rows.ended(3) == [0, 2, 4, 14, 16, 6]
        assert [shape for shape, _ in rows.model.runs] == [(1, 4), (3, 4), (2, 6)]

    asyncio.run(ask())


def test_inputs_that_were_copied_are_free_once_they_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        rows = Rows(monkeypatch, max_batch=8)
        memories = [Counted(X + n) for n in range(3)]
        given = await inputs_in(*memories)
        await rows.begun(0)
        rows.asked += [asyncio.create_task(rows.batcher.infer({"x": given.pop()})) for _ in memories]
        await until(lambda: len(rows.copied) == 3 * len(X))
        await rows.ended(2)
        rows.asked.clear()
        await until(lambda: all(m.closed for m in memories))

    gc.disable()
    try:
        asyncio.run(ask())
    finally:
        gc.enable()


@pytest.mark.parametrize("columns", [4, 1 << 16])
def test_a_batch_that_cannot_be_assembled_runs_one_by_one(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise MemoryError

    async def ask() -> None:
        model: Any = Slow(max_batch=2)
        batcher = Batcher(model, NoRecorder())
        asked = [asyncio.create_task(batcher.infer({"x": np.full((1, columns), n, np.float32)})) for n in range(2)]
        await until(lambda: len(model.given) == 1)
        monkeypatch.setattr(BatchBuffer, "concatenated", refused)
        monkeypatch.setattr(BatchBuffer, "array", refused)
        asked += [asyncio.create_task(batcher.infer({"x": np.full((1, columns), n, np.float32)})) for n in (2, 3)]
        for _ in range(3):
            model.end.release()
        for n, (_, (y, _)) in enumerate(await asyncio.gather(*asked)):
            np.testing.assert_array_equal(y, np.full((1, columns), 2 * n))
        await batcher.close()

    asyncio.run(ask())


def test_batches_use_the_same_memory() -> None:
    async def ask() -> None:
        model: Any = Watched(max_batch=4)
        batcher = Batcher(model, NoRecorder())
        for turn in range(5):
            given = [np.full((1, 4), 10 * turn + n, np.float32) for n in range(2 + turn % 3)]
            for x, (_, (y, z)) in zip(
                given, await asyncio.gather(*(batcher.infer({"x": x}) for x in given)), strict=True
            ):
                np.testing.assert_array_equal(y, 2 * x)
                np.testing.assert_array_equal(z, -x)
        assert model.taken == [4 * 4 * 4]  # of the largest batch, once
        wide = [np.ones((1, 12), np.float32)] * 2
        await asyncio.gather(*(batcher.infer({"x": x}) for x in wide))
        assert model.taken == [4 * 4 * 4, 4 * 12 * 4]
        await batcher.close()

    asyncio.run(ask())


def test_memory_of_a_batch_that_failed_is_not_used_again() -> None:
    class Failing(Watched):
        """Fails for two rows."""

        def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
            if len(feeds["x"]) == 2:
                raise ValueError("no two rows")
            return super().run(feeds, wanted)

    async def ask() -> None:
        model: Any = Failing(max_batch=4)
        batcher = Batcher(model, NoRecorder())
        x = {"x": np.ones((1, 4), np.float32)}
        for rows in (3, 2, 3, 3):
            await asyncio.gather(*(batcher.infer(x) for _ in range(rows)))
        assert len(model.taken) == 2
        await batcher.close()

    asyncio.run(ask())


@pytest.mark.parametrize("own", [False, True])
def test_a_whole_request_is_copied_ahead_for_targets_with_memory_of_their_own(own: bool) -> None:
    async def ask() -> None:
        model: Any = Slow(max_batch=2)
        model.own_memory = own
        batcher = Batcher(model, NoRecorder())
        given = [np.full((2, 4), n, np.float32) for n in range(2)]
        asked = [asyncio.create_task(batcher.infer({"x": x})) for x in given]
        for _ in given:
            model.end.release()
        for x, (_, (y, _)) in zip(given, await asyncio.gather(*asked), strict=True):
            np.testing.assert_array_equal(y, 2 * x)
        assert [g is x for g, x in zip(model.given, given, strict=True)] == [True, not own]
        await batcher.close()

    asyncio.run(ask())


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16, ml_dtypes.bfloat16, object])
def test_elements_of_any_type_are_concatenated(dtype: Any) -> None:
    stack = BatchBuffer(lambda size: np.empty(size, np.uint8), 8)
    for rows in ([1, 2], [3, 0, 1], [0, 0], [9]):
        values = [np.arange(6 * n).reshape(n, 2, 3).astype(dtype) for n in rows]
        whole = np.concatenate(values)
        made = stack.concatenated("x", values, 2 if len(whole) else 0)
        assert made.dtype == whole.dtype
        np.testing.assert_array_equal(made[: len(whole)], whole)
        np.testing.assert_array_equal(made[len(whole) :], np.repeat(whole[-1:], 2, axis=0) if len(whole) else made[:0])


def test_memory_that_a_driver_refuses_is_replaced_by_plain_memory(
    small_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model.read("m", "1", small_model(tmp_path / "m.onnx"), ModelSettings(target="ref", max_batch=6))

    def refused(shape: Any) -> Any:
        raise DeviceError("no page can be locked")

    assert model.host_memory(5).shape == (5,)
    executable: Any = model.program.executable
    monkeypatch.setattr(executable.context, "host_array", refused)
    assert (model.host_memory(5).shape, model.host_memory(5).dtype) == ((5,), np.uint8)


X = np.arange(8, dtype=np.float32).reshape(2, 4)


class Counted(Memory):
    """The bytes of an array; records where they are copied to."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.data, self.places, self.released, self.closed = data.tobytes(), list[int](), False, False

    def read(self, at: int, size: int) -> memoryview:
        raise AssertionError("elements were copied on the way to their batch")

    def read_into(self, at: int, place: memoryview) -> None:
        if self.released:
            raise BadRequest("it has been cut off")
        place[:] = self.data[at : at + len(place)]
        self.places.append(np.frombuffer(place, np.uint8).__array_interface__["data"][0])

    def write(self, at: int, data: bytes | memoryview) -> None: ...

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class CountedRegion(Region):
    memory: Counted

    def opened(self) -> Memory:
        return self.memory


async def inputs_in(*memories: Counted) -> list[DeferredInput]:
    """Returns the contents of memories as inputs, with their regions unregistered."""
    regions, given = Regions(True), []
    for number, memory in enumerate(memories):
        size = len(memory.data)
        await regions.register(CountedRegion(f"r{number}", size, memory))
        layout = Layout.of("x", "FP32", [size // 16, 4])
        given.append(regions.input(layout, Place(f"r{number}", size)))
    regions.unregister(CountedRegion)
    return given


def inputs_of(*memories: Counted) -> list[DeferredInput]:
    return asyncio.run(inputs_in(*memories))


def test_inputs_are_copied_once_to_the_memory_of_their_batch() -> None:
    memories = [Counted(X), Counted(X + 9)]
    given: list[Any] = inputs_of(*memories)
    stack = BatchBuffer(lambda size: np.empty(size, np.uint8), 8)
    made = stack.concatenated("x", [given[0], X + 5, given[1]], 2)
    np.testing.assert_array_equal(made, np.concatenate([X, X + 5, X + 9, *[(X + 9)[-1:]] * 2]))
    start = made.__array_interface__["data"][0]
    assert [m.places for m in memories] == [[start], [start + 64]]
    assert not any(m.closed for m in memories), "memory must stay mapped while an input refers to it"
    del given
    assert all(m.closed for m in memories)


def test_a_region_that_is_cut_off_fails_its_own_request_alone() -> None:
    kept, cut = Counted(X), Counted(X + 9)
    good, bad = inputs_of(kept, cut)
    cut.released = True
    model: Any = Watched(max_batch=4)

    async def ask() -> list[Any]:
        batcher = Batcher(model, NoRecorder())
        asked = [batcher.infer({"x": x}) for x in (good, bad)]
        made = await asyncio.gather(*asked, return_exceptions=True)
        await batcher.close()
        return made

    (_, answered), refused = asyncio.run(ask())
    np.testing.assert_array_equal(answered[0], 2 * X)
    assert isinstance(refused, BadRequest) and "cut off" in str(refused)
