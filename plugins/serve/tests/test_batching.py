"""The queue of one model, with a model whose runs the tests see."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from mgx_serve import ModelSettings
from mgx_serve.batching import Batcher
from mgx_serve.metrics import Recorder
from mgx_serve.model import Signature, Tensor


class Watched:
    """y = 2 * x; notes the shape and the thread of each run."""

    def __init__(self, **settings: Any) -> None:
        self.settings = ModelSettings(**settings)
        self.batches = self.settings.max_batch > 1
        x, y = (Tensor(name, "FP32", (-1, -1)) for name in "xy")
        self.signature = Signature("m", "1", "ref", 60.0, (x,), (y,))
        self.runs: list[tuple[tuple[int, ...], int]] = []

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        self.runs.append((feeds["x"].shape, threading.get_ident()))
        return [2 * feeds["x"]]


class Deaf(Recorder):
    """Hears nothing."""

    def waiting(self, model: Signature, count: int) -> None: ...

    def refused(self, model: Signature) -> None: ...

    def failed(self, model: Signature) -> None: ...

    def ran(self, model: Signature, queued: Any, seconds: float, rows: int) -> None: ...


def test_requests_behind_one_that_left_are_answered() -> None:
    async def ask() -> list[Any]:
        model: Any = Watched(queue_size=2, queue_delay=0.2, max_batch=8)
        batcher = Batcher(model, Deaf())
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
        batcher = Batcher(model, Deaf())
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
    for shape in ((1, 5), (33, 4)):
        assert [thread == loop for at, thread in model.runs if at == shape] == [False]
