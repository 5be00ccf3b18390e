"""Distributes models to the processes that run them.

A model is read once, by the process that loads it.  The first process on each kind of machine compiles it; all others of that
kind receive the compiled file, and all processes of a machine map the same copy, weights included.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

import mgx_core as mgx
from mgx_core import Program, __version__
from mgx_core.cache import write_file
from mgx_core.settings import cache_directory

from ..model import Model, compiled, source
from ..settings import ModelSettings
from .exchange import LEASE, as_array, exchange

__all__ = ["PublishedModel", "publish", "withdraw"]

KEPT = 7 * 86400.0  # seconds that a machine keeps an unused file


@dataclass(frozen=True)
class PublishedModel:
    """A handle of a model, which any process of the cluster can open.

    key: of the file in the exchange.
    """

    name: str
    version: str
    key: str
    settings: ModelSettings

    def open(self) -> Model:
        """Opens the model, compiled for this kind of machine.  Errors: MgxError if it cannot be compiled."""
        name = self.settings.target or mgx.best_target()
        target = mgx.get_target(name)
        kind = f"{__version__} {name} {target.machine(target.get_context())} {self._compiling()}"
        key = f"{self.key}-{hashlib.sha256(kind.encode()).hexdigest()[:32]}"
        path = _fetch(key) or self._compiled(key)
        return Model(self.name, self.version, compiled(mgx.load(path, trust=True), self.settings), self.settings)

    def _compiling(self) -> str:
        given = self.settings
        return f"{given.precision} {given.max_batch} {given.preferred} {given.warm} {given.inputs}"

    def _compiled(self, key: str) -> Path:
        """Returns the compiled file, compiled here or by the process that holds the claim."""
        place, who = exchange(), uuid.uuid4().hex
        while not ray.get(place.claim.remote(key, who)):
            path = _fetch(key)
            if path is not None:
                return path
            time.sleep(0.2)
        with _renewing(place, key, who):
            original = _fetch(self.key)
            if original is None:
                raise mgx.ParameterError(f"model {self.name!r} is no longer in the cluster; load it again")
            program = compiled(mgx.load(original), self.settings)
            Model(self.name, self.version, program, self.settings).warm()
            data = program_bytes(program)
            ray.get(place.put.remote(key, as_array(data)))
        return _write(key, [data])


def publish(name: str, version: str, path: Path, settings: ModelSettings, holder: str = "") -> PublishedModel:
    """Reads a model and stores it in the exchange.

    holder: who withdraws it later; "" keeps the model as long as the cluster.
    Errors: MgxError if it cannot be read.
    """
    data = program_bytes(source(path))
    key = hashlib.sha256(data).hexdigest()
    ray.get(exchange().hold.remote(key, as_array(data), holder))
    _write(key, [data])
    return PublishedModel(name, version, key, settings)


def withdraw(published: PublishedModel, holder: str) -> None:
    """Drops a model from the exchange, unless it has other holders."""
    ray.get(exchange().drop.remote(published.key, holder))


def program_bytes(program: Program) -> bytes:
    return mgx.save_buffer(program)


@contextlib.contextmanager
def _renewing(place: Any, key: str, who: str) -> Iterator[None]:
    """Renews a claim while its file is being made."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE / 3):
            place.claim.remote(key, who)

    thread = threading.Thread(target=renew, name="mgx-claim", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        ray.get(place.release.remote(key, who))


def _folder() -> Path:
    return cache_directory() / "serve"


def _fetch(key: str) -> Path | None:
    """Returns this machine's copy of a file, fetched by one process while others wait; None if the exchange does not have it."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / f"{key}.mxr"
        if path.exists():
            os.utime(path)
            return path
        found = ray.get(exchange().get.remote(key))
        return _write(key, [memoryview(ray.get(found[0]))]) if found else None


def _write(key: str, chunks: list[Any]) -> Path:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}.mxr"
    if not path.exists():
        write_file(path, chunks)
        _prune(folder)
    return path


def _prune(folder: Path) -> None:
    """Deletes files that have not been used for long; existing mappings stay valid.

    Lock files are kept: deleting a held lock would let a second process acquire it.
    """
    oldest = time.time() - KEPT
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.suffix != ".lock" and path.stat().st_mtime < oldest:
                path.unlink()
