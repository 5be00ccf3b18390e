"""Settings of a server and of a model: the command line's, `config.toml`'s and `config.pbtxt`'s."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgx_core import ParameterError

__all__ = ["ModelSettings", "Settings", "model_settings"]


@dataclass(frozen=True)
class ModelSettings:
    """How one model is compiled and batched.

    target: "" for the best one here; precision: "" or "fp16" or "bf16"; instances: runs at a time; max_batch: rows of one run
    at most, 0 to run each request by itself: to be set where rows of the model do not depend on each other;
    preferred: batch sizes that are run without waiting for more; queue_delay: seconds that a request may wait for others;
    queue_size: requests that may wait before others are refused; timeout: seconds after which a waiting request is given up;
    warm: the sizes of runs are compiled and measured when the model is loaded, and not when the first request of each comes.

    On Ray: replicas: processes that run the model, as many as are needed between it and max_replicas where this is larger;
    load: requests of a replica, waiting and running, above which another is started; cpus, gpus: of a replica, parts of a GPU
    too.
    """

    target: str = ""
    precision: str = ""
    instances: int = 1
    max_batch: int = 0
    preferred: tuple[int, ...] = ()
    queue_delay: float = 0.0
    queue_size: int = 256
    timeout: float = 60.0
    warm: bool = True
    replicas: int = 1
    max_replicas: int = 0
    load: float = 0.0
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.precision not in ("", "fp16", "bf16"):
            raise ParameterError(f"precision must be fp16 or bf16, got {self.precision!r}")
        for name in ("instances", "queue_size", "replicas"):
            if getattr(self, name) < 1:
                raise ParameterError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_batch < 0 or not 0 <= self.queue_delay < math.inf or not 0 < self.timeout < math.inf:
            raise ParameterError(f"max_batch and queue_delay start at 0 and timeout above it, got {self}")
        if (
            not (0 <= self.load < math.inf and 0 <= self.cpus < math.inf and 0 <= self.gpus < math.inf)
            or self.max_replicas < 0
        ):
            raise ParameterError(f"max_replicas, load, cpus and gpus start at 0, got {self}")
        if any(not isinstance(n, int) or not 0 < n <= max(self.max_batch, 1) for n in self.preferred):
            raise ParameterError(f"preferred batch sizes lie between 1 and max_batch, got {self.preferred}")


@dataclass(frozen=True)
class Settings:
    """Where a server listens and whom it serves.

    http_port, grpc_port: 0 for any free one, -1 for none; tokens: token -> names of models it may use, ("*",) for all and for
    loading and unloading; certificate, key: files for TLS; max_bytes: of one request; drain: seconds for requests in flight
    when the server ends; memory: bytes that all requests in flight may take together; connections: to either port, at most;
    shared_memory: clients may name regions of this host's shared memory; traces: for OpenTelemetry; ray: address of a Ray
    cluster for the models to run in, "" for one that is started here, None for this process.
    """

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    tokens: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    certificate: Path | None = None
    key: Path | None = None
    max_bytes: int = 256 << 20
    drain: float = 30.0
    memory: int = 2 << 30
    connections: int = 4096
    shared_memory: bool = False
    traces: bool = False
    ray: str | None = None
    model: ModelSettings = ModelSettings()

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ParameterError("TLS needs both a certificate and its key")


def model_settings(folder: Path, default: ModelSettings) -> ModelSettings:
    """Returns the settings that `config.toml` or `config.pbtxt` of a model's folder states over the server's own.

    Errors: ParameterError that names the file and the key.
    """
    toml, pbtxt = folder / "config.toml", folder / "config.pbtxt"
    if toml.is_file():
        try:
            given = tomllib.loads(toml.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ParameterError(f"{toml}: {error}") from None
        return _changed(toml, default, given)
    if pbtxt.is_file():
        try:
            return _changed(pbtxt, default, _of_pbtxt(pbtxt.read_text()))
        except UnicodeDecodeError as error:
            raise ParameterError(f"{pbtxt}: {error}") from None
    return default


def _changed(path: Path, default: ModelSettings, given: Mapping[str, Any]) -> ModelSettings:
    known = {f.name: f for f in dataclasses.fields(ModelSettings)}
    for name in given:
        if name not in known:
            raise ParameterError(f"{path}: there is no setting {name!r}; known are {', '.join(known)}")
    changed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    for name, value in changed.items():
        wanted = type(getattr(default, name))
        fits = isinstance(value, (wanted, int) if wanted is float else wanted)
        if not fits or isinstance(value, bool) != (wanted is bool):
            raise ParameterError(f"{path}: {name} must be of type {wanted.__name__}, got {value!r}")
    try:
        return dataclasses.replace(default, **changed)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from None


_MAX_BATCH = re.compile(r"\bmax_batch_size\s*:\s*(\d+)")
_DELAY = re.compile(r"\bmax_queue_delay_microseconds\s*:\s*(\d+)")
_PREFERRED = re.compile(r"\bpreferred_batch_size\s*:\s*\[([\d,\s]*)\]")
_COUNT = re.compile(r"\binstance_group\b[^}]*\bcount\s*:\s*(\d+)")
_QUEUE = re.compile(r"\bmax_queue_size\s*:\s*(\d+)")


def _of_pbtxt(text: str) -> dict[str, Any]:
    """Returns the settings that this server shares with Triton's configuration; other fields are left aside."""
    text = re.sub(r"#[^\n]*", "", text)
    found: dict[str, Any] = {}
    for name, pattern in (("max_batch", _MAX_BATCH), ("instances", _COUNT), ("queue_size", _QUEUE)):
        matched = pattern.search(text)
        if matched:
            found[name] = int(matched[1])
    delay, preferred = _DELAY.search(text), _PREFERRED.search(text)
    if delay:
        found["queue_delay"] = int(delay[1]) / 1e6
    if preferred:
        found["preferred"] = tuple(int(n) for n in preferred[1].replace(",", " ").split())
    return found
