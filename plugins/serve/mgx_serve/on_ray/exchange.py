"""One place of a Ray cluster where models are handed over: each is read once, and compiled once for each kind of machine."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import ray

from ..tensors import Array

__all__ = ["LEASE", "Exchange", "exchange"]

LEASE = 30.0  # seconds for which a claim holds that is not renewed


class Exchange:
    """Program files by key; an actor.  The bytes lie in Ray's object store, once for each machine that asks for them."""

    def __init__(self) -> None:
        self._files: dict[str, Any] = {}
        self._claims: dict[str, tuple[str, float]] = {}

    def put(self, key: str, file: Array) -> None:
        """file: bytes as uint8."""
        if key not in self._files:
            self._files[key] = ray.put(file)
        self._claims.pop(key, None)

    def get(self, key: str) -> list[Any]:
        """Returns a reference to the file in a list; an empty list if there is none."""
        return [self._files[key]] if key in self._files else []

    def claim(self, key: str, who: str) -> bool:
        """True if the caller is to make the file, and renew its claim until it has; False if another does."""
        owner, until = self._claims.get(key, (who, 0.0))
        now = time.monotonic()
        if key in self._files or (owner != who and now < until):
            return False
        self._claims[key] = who, now + LEASE
        return True

    def release(self, key: str, who: str) -> None:
        """Lets others try to make the file."""
        if self._claims.get(key, ("", 0.0))[0] == who:
            del self._claims[key]


def exchange() -> Any:
    """Returns the cluster's exchange, started if it is not there.  It ends with the cluster."""
    actor = ray.remote(num_cpus=0, max_restarts=-1)(Exchange)
    return actor.options(name="mgx-exchange", namespace="mgx", lifetime="detached", get_if_exists=True).remote()


def as_array(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)
