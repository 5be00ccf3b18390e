"""A cluster-wide registry of model files: each model is read once, and compiled once per kind of machine.

Replicas also register their local endpoints here.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import ray

from ..tensors import Array

__all__ = ["ANNOUNCED", "LEASE", "Exchange", "exchange"]

LEASE = 30.0  # seconds before a claim that is not renewed expires
ANNOUNCED = 10.0  # seconds before a registration that is not renewed expires


class Exchange:
    """A Ray actor that stores program files by key.  The bytes are in Ray's object store, one copy per machine that reads them.

    A file is kept until all its holders have dropped it; derived files, whose keys start with its key and a hyphen, go with it.
    """

    def __init__(self) -> None:
        self._files: dict[str, Any] = {}
        self._claims: dict[str, tuple[str, float]] = {}
        self._holders: dict[str, set[str]] = {}
        self._members: dict[str, dict[tuple[str, str], float]] = {}

    def hold(self, key: str, file: Array, holder: str) -> None:
        """Keeps a file for a holder.  file: bytes as uint8."""
        self._holders.setdefault(key, set()).add(holder)
        self.put(key, file)

    def put(self, key: str, file: Array) -> None:
        """Stores a derived file, for as long as its source is kept."""
        if key not in self._files and _original(key) in self._holders:
            self._files[key] = ray.put(file)
        self._claims.pop(key, None)

    def drop(self, key: str, holder: str) -> None:
        """Removes a holder of a file; the last one removes the file."""
        holders = self._holders.get(key, set())
        holders.discard(holder)
        if not holders:
            self._holders.pop(key, None)
            self._files = {k: f for k, f in self._files.items() if _original(k) != key}

    def get(self, key: str) -> list[Any]:
        """Returns a list with a reference to the file, empty if there is none."""
        return [self._files[key]] if key in self._files else []

    def claim(self, key: str, who: str) -> bool:
        """Returns True if the caller must make the file, renewing its claim meanwhile; False if another process does."""
        owner, until = self._claims.get(key, (who, 0.0))
        now = time.monotonic()
        if key in self._files or (owner != who and now < until):
            return False
        self._claims[key] = who, now + LEASE
        return True

    def release(self, key: str, who: str) -> None:
        """Drops a claim, so that others can make the file."""
        if self._claims.get(key, ("", 0.0))[0] == who:
            del self._claims[key]

    def announce(self, application: str, node: str, name: str) -> None:
        """Registers a replica of an application, by node and socket name; must be repeated."""
        self._members.setdefault(application, {})[node, name] = time.monotonic() + ANNOUNCED

    def leave(self, application: str, node: str, name: str) -> None:
        """Unregisters a replica."""
        self._members.get(application, {}).pop((node, name), None)

    def members(self, application: str) -> list[tuple[str, str]]:
        """Returns node and socket name of each live replica."""
        now = time.monotonic()
        found = {member: until for member, until in self._members.pop(application, {}).items() if now < until}
        if found:
            self._members[application] = found
        return list(found)


def _original(key: str) -> str:
    return key.partition("-")[0]


def exchange() -> Any:
    """Returns the cluster's exchange actor; starts it if necessary.  It lives as long as the cluster."""
    actor = ray.remote(num_cpus=0, max_restarts=-1)(Exchange)
    return actor.options(name="mgx-exchange", namespace="mgx", lifetime="detached", get_if_exists=True).remote()


def as_array(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)
