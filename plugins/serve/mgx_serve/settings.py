"""Settings of the server and of models, from the command line, `config.toml` and `config.pbtxt`."""

from __future__ import annotations

import dataclasses
import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgx_core import ParameterError

from .pbtxt import settings_of
from .tensors import DATATYPES, OPEN, Tensor

__all__ = ["ModelSettings", "Settings", "changed_settings", "model_settings"]


def _require(settings: object, name: str, least: int) -> None:
    """Errors: ParameterError if a number is less, infinite or NaN."""
    value = getattr(settings, name)
    if not least <= value < math.inf:
        raise ParameterError(f"{name} must be a finite number of at least {least}, got {value}")


@dataclass(frozen=True)
class ModelSettings:
    """Settings by which one model is compiled and batched.

    target: "" for the best one on this machine; precision: "", "fp16" or "bf16"; instances: concurrent runs; max_batch: maximum
    rows of a batch, 0 disables batching (set it only if the rows of the model are independent);
    preferred: batch sizes that run without waiting for more; queue_delay: seconds a request may wait for others to batch with;
    queue_size: maximum number of queued requests, beyond which requests are rejected; timeout: of queued requests, in seconds;
    warm: compiles and measures all batch sizes when the model is loaded, not on the first request of each size;
    priority: default priority; versions: that may be served, () for all; served: number of versions served at a time, newest
    first, 0 for all; file: the model's file name in a version folder, "" for ``model.*``; inputs, outputs: expected tensors:
    may fix open extents of inputs, which requests must then match; buckets: ascending sizes by the name of an open extent;
    requests are padded to the next one; fill: padding values by input, default 0.

    On Ray: replicas: number of processes, or the minimum if max_replicas is larger; load: requests per replica, queued and
    running, above which another replica is started; cpus, gpus: per replica; gpus may be fractional.
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
    priority: int = 0
    versions: tuple[int, ...] = ()
    served: int = 1
    file: str = ""
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    buckets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fill: Mapping[str, float] = field(default_factory=dict)
    replicas: int = 1
    max_replicas: int = 0
    load: float = 0.0
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.precision not in ("", "fp16", "bf16"):
            raise ParameterError(f"precision must be fp16 or bf16, got {self.precision!r}")
        for name in ("instances", "queue_size", "replicas"):
            _require(self, name, 1)
        for name in ("max_batch", "queue_delay", "priority", "served", "max_replicas", "load", "cpus", "gpus"):
            _require(self, name, 0)
        if not 0 < self.timeout < math.inf:
            raise ParameterError(f"timeout must be a number of seconds above 0, got {self.timeout}")
        if any(not isinstance(n, int) or not 0 < n <= max(self.max_batch, 1) for n in self.preferred):
            raise ParameterError(f"preferred batch sizes lie between 1 and max_batch, got {self.preferred}")
        if any(not isinstance(n, int) or n < 0 for n in self.versions):
            raise ParameterError(f"versions must be numbers of at least 0, got {list(self.versions)}")
        for name, sizes in self.buckets.items():
            if not sizes or list(sizes) != sorted({n for n in sizes if type(n) is int and n > 0}):
                raise ParameterError(f"buckets of {name!r} must be ascending sizes from 1 on, got {list(sizes)}")
        if self.file and (Path(self.file).name != self.file or self.file == ".."):
            raise ParameterError(f"file is a name in the folder of a version, got {self.file!r}")


@dataclass(frozen=True)
class Settings:
    """Settings of the server.

    http_port, grpc_port: 0 for any free port, -1 to disable; tokens: token -> model names, ("*",) for all models, and loading and
    unloading; certificate, key: TLS files; max_bytes: of one request; drain: seconds for requests in flight on shutdown;
    memory: budget in bytes of all requests in flight; connections: maximum per port;
    shared_memory: allows clients to register regions of this host's shared memory; traces: enables OpenTelemetry; ray: address
    of the Ray cluster that runs the models, "" to start one, None to run them in this process; frontends: number of processes
    that handle HTTP and gRPC for this one.
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
    frontends: int = 0
    model: ModelSettings = ModelSettings()

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ParameterError("TLS needs both a certificate and its key")
        for name in ("frontends", "max_bytes", "memory", "connections", "drain"):
            _require(self, name, 0)
        for name in ("http_port", "grpc_port"):
            if not -1 <= getattr(self, name) < 1 << 16:
                raise ParameterError(f"{name} must be between -1 and 65535, got {getattr(self, name)}")


def model_settings(folder: Path, default: ModelSettings) -> ModelSettings:
    """Returns a model's settings: those of `config.toml` or `config.pbtxt` in its folder override the server's defaults.

    Errors: ParameterError that names the file and the key.
    """
    for path, read in (
        (folder / "config.toml", tomllib.loads),
        (folder / "config.pbtxt", functools.partial(settings_of, name=folder.name)),
    ):
        if path.is_file():
            try:
                given = read(path.read_text())
            except (ParameterError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ParameterError(f"{path}: {error}") from None
            except RecursionError:
                raise ParameterError(f"{path}: it nests too deeply to be read") from None
            return changed_settings(path, default, given)
    return default


def changed_settings(place: object, default: ModelSettings, given: Mapping[str, Any]) -> ModelSettings:
    """Returns settings, those that are given by name changed.  Errors: ParameterError that names the place and the setting."""
    known = {f.name: f for f in dataclasses.fields(ModelSettings)}
    for name in given:
        if name not in known:
            raise ParameterError(f"{place}: there is no setting {name!r}; known are {', '.join(known)}")
    changed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    if isinstance(changed.get("buckets"), dict):
        changed["buckets"] = {n: tuple(v) if isinstance(v, list) else (v,) for n, v in changed["buckets"].items()}
    for name in ("inputs", "outputs"):
        if name in changed:
            changed[name] = _tensors(f"{place}: {name}", changed[name])
    for name, value in changed.items():
        wanted = type(getattr(default, name))
        fits = isinstance(value, (wanted, int) if wanted is float else wanted)
        if not fits or isinstance(value, bool) != (wanted is bool):
            raise ParameterError(f"{place}: {name} must be of type {wanted.__name__}, got {value!r}")
    try:
        return dataclasses.replace(default, **changed)
    except ParameterError as error:
        raise ParameterError(f"{place}: {error}") from None


def _tensors(place: str, given: Any) -> tuple[Tensor, ...]:
    """Returns the inputs or outputs that a list of tables states.  Errors: ParameterError."""
    made = []
    for item in given if isinstance(given, tuple) else (given,):
        if isinstance(item, dict) and item.keys() == {"name", "datatype", "shape"}:
            shape = item["shape"]
            if isinstance(shape, list) and all(isinstance(n, int) for n in shape):
                item = Tensor(str(item["name"]), str(item["datatype"]), tuple(shape))
        if (
            not isinstance(item, Tensor)
            or item.datatype not in DATATYPES
            or min(*item.shape, *(item.inner or ()), 0, 0) < OPEN
        ):
            raise ParameterError(f"{place}: name, datatype and shape are required of each, got {item!r}")
        if item.inner is not None and _kept(item.inner) != _kept(item.shape):
            raise ParameterError(
                f"{place}: {item.name!r} is reshaped from {list(item.shape)} to {list(item.inner)}; as many elements, "
                f"and as many extents that vary (-1), are required of both"
            )
        made.append(item)
    return tuple(made)


def _kept(shape: tuple[int, ...]) -> tuple[int, int]:
    """Returns the properties of a shape that reshaping keeps: the product of its fixed extents, and the number of others."""
    return math.prod(n for n in shape if n != OPEN), shape.count(OPEN)
