"""Replicas that fail during a request, without a cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from ray.exceptions import RayError

from mgx_serve.errors import Internal
from mgx_serve.metrics import Recorder
from mgx_serve.model import Signature
from mgx_serve.on_ray.replicas import Replicas


class Counts(Recorder):
    """Counts metrics."""

    def __init__(self) -> None:
        self.told = Counter[str]()

    def waiting(self, model: Signature, count: int) -> None: ...

    def refused(self, model: Signature) -> None:
        self.told["refused"] += 1

    def failed(self, model: Signature) -> None:
        self.told["failed"] += 1

    def ran(self, model: Signature, *figures: Any) -> None:
        self.told["ran"] += 1


class Failing:
    """A handle whose replicas fail."""

    def options(self, **given: Any) -> Failing:
        return self

    async def remote(self, *given: Any) -> Any:
        raise RayError("it fails")


def test_a_request_that_fails_on_ray_is_counted_once() -> None:
    counts = Counts()
    replicas = Replicas(Failing(), Signature("m", "1", "ref", 10.0, (), ()), counts)
    with pytest.raises(Internal, match="model 'm' failed"):
        asyncio.run(replicas.infer({}, 0, 0.0))
    assert counts.told == {"failed": 1}
