"""Requests that time out, whatever else is waiting."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mgx_serve import ModelSettings
from mgx_serve.batch import Request, RequestSpec
from mgx_serve.batching import Batcher
from mgx_serve.deadlines import Deadlines
from mgx_serve.errors import DeadlinePassed
from mgx_serve.metrics import Metrics
from mgx_serve.model import Signature
from mgx_serve.tensors import Tensor
from mgx_serve.tracing import NoTraces

X = {"x": np.ones((1, 4), np.float32)}


class Stuck:
    """A model whose runs last until the test ends them."""

    def __init__(self, timeout: float) -> None:
        self.settings = ModelSettings(timeout=timeout)
        self.batches, self.sizes, self.seconds = False, (), {}
        tensor = Tensor("x", "FP32", (-1, 4))
        self.signature = Signature("m", "1", "ref", timeout, (tensor,), (tensor,))
        self.end = threading.Event()

    def host_memory(self, size: int) -> Any:
        return np.empty(size, np.uint8)

    def run(self, feeds: Mapping[str, Any], wanted: Sequence[int]) -> list[Any]:
        assert self.end.wait(60)
        return [feeds["x"]]


def test_each_request_has_its_own_time() -> None:
    async def ask() -> None:
        model: Any = Stuck(60.0)
        batcher = Batcher(model, Metrics(NoTraces()))
        ended: list[float] = []

        async def one(limit: float) -> None:
            with pytest.raises(DeadlinePassed, match=f"'m' did not answer within {limit:g} s"):
                await batcher.infer(X, timeout=limit)
            ended.append(limit)

        kept = asyncio.create_task(batcher.infer(X))  # runs, and has a timeout of a minute
        await asyncio.gather(*(one(limit) for limit in (0.3, 0.1, 0.2)))
        assert ended == [0.1, 0.2, 0.3] and not kept.done()
        model.end.set()
        np.testing.assert_array_equal((await kept)[1][0], X["x"])
        await batcher.close()

    asyncio.run(ask())


def test_the_models_timeout_applies_to_requests_without_one() -> None:
    async def ask() -> None:
        model: Any = Stuck(0.05)
        batcher = Batcher(model, Metrics(NoTraces()))
        with pytest.raises(DeadlinePassed, match=r"within 0\.05 s"):
            await batcher.infer(X)
        model.end.set()
        await batcher.close()

    asyncio.run(ask())


def test_answered_requests_leave_no_state() -> None:
    async def ask() -> None:
        loop, deadlines = asyncio.get_running_loop(), Deadlines("m")

        def request(limit: float) -> Any:
            return Request(X, RequestSpec(1, None, 0, 0, limit, (0,)), loop.create_future(), time.monotonic())

        answered, left = request(0.02), request(0.03)
        for one in (answered, left):
            deadlines.add(one)
        answered.done.set_result([])
        left.done.cancel()
        for one in (answered, left):
            deadlines.discard(one)
        late = request(0.06)
        deadlines.add(late)
        with pytest.raises(DeadlinePassed):
            await late.done
        deadlines.discard(late)
        await asyncio.sleep(0)
        assert deadlines._next == math.inf and not deadlines._open
        deadlines.close()

    asyncio.run(ask())
