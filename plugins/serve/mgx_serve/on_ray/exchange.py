"""One place of a Ray cluster where models are handed over: each is read once, and compiled once for each kind of machine.

It is also where replicas announce themselves to processes that ask them past Ray.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import ray

from ..tensors import Array

__all__ = ["ANNOUNCED", "LEASE", "Exchange", "exchange"]

LEASE = 30.0  # seconds for which a claim holds that is not renewed
ANNOUNCED = 10.0  # seconds for which a replica is a member that does not announce itself again


class Exchange:
    """Program files by key; an actor.  The bytes lie in Ray's object store, once for each machine that asks for them.

    A file stays until all who hold it have dropped it; those made of it, with keys that begin with its own and a hyphen, go too.
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
        """Keeps a file as long as the one that it was made of."""
        if key not in self._files and _original(key) in self._holders:
            self._files[key] = ray.put(file)
        self._claims.pop(key, None)

    def drop(self, key: str, holder: str) -> None:
        """Takes a holder of a file away, and the file with the last one."""
        holders = self._holders.get(key, set())
        holders.discard(holder)
        if not holders:
            self._holders.pop(key, None)
            self._files = {k: f for k, f in self._files.items() if _original(k) != key}

    def get(self, key: str) -> list[Any]:
        """Returns a reference to the file in a list; an empty list if there is none."""
        return [self._files[key]] if key in self._files else []

    def claim(self, key: str, who: str) -> bool:
        """Returns True if the caller is to make the file, and renew its claim until it has; False if another does."""
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

    def announce(self, application: str, node: str, name: str) -> None:
        """Notes a replica, by its node and the name of its socket there, as one of an application's."""
        self._members.setdefault(application, {})[node, name] = time.monotonic() + ANNOUNCED

    def leave(self, application: str, node: str, name: str) -> None:
        """Notes that a replica wants no requests any more."""
        self._members.get(application, {}).pop((node, name), None)

    def members(self, application: str) -> list[tuple[str, str]]:
        """Returns node and name of each replica that has announced itself of late."""
        now = time.monotonic()
        found = {member: until for member, until in self._members.pop(application, {}).items() if now < until}
        if found:
            self._members[application] = found
        return list(found)


def _original(key: str) -> str:
    return key.partition("-")[0]


def exchange() -> Any:
    """Returns the cluster's exchange, started if it is not there.  It ends with the cluster."""
    actor = ray.remote(num_cpus=0, max_restarts=-1)(Exchange)
    return actor.options(name="mgx-exchange", namespace="mgx", lifetime="detached", get_if_exists=True).remote()


def as_array(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)
