"""The model repository: a model file, or a folder of ``NAME/VERSION/model.*``."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mgx_core import MgxError, ParameterError, UnsupportedError
from mgx_core.parsing import PROGRAM, PROGRAM_TEXT, reader_of

from .deployment import Backend, Deployment
from .error_text import error_text
from .errors import NotFound, ServeError, Unavailable
from .metrics import Metrics
from .settings import ModelSettings, model_settings

__all__ = ["Entry", "Repository"]

log = logging.getLogger("mgx_serve")
MODELS = "model.*"
_Deployed = tuple[Deployment, float]  # and the seconds it took


@dataclass
class Entry:
    """One model of the repository: paths of its versions, the loaded versions, and why it is not ready.

    settings, files: of the loaded versions; loading: lock that serializes compilation of versions; unloads: counts unload
    requests.
    """

    name: str
    paths: Mapping[str, Path]
    folder: Path | None = None
    loaded: dict[str, Deployment] = field(default_factory=dict)
    settings: ModelSettings = field(default_factory=ModelSettings)
    files: Mapping[str, str] = field(default_factory=dict)
    state: str = "UNAVAILABLE"
    reason: str = "not loaded"
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    unloads: int = 0


class Repository:
    """Finds, loads, replaces and unloads models.  Requests name models, never files, so nothing outside the root is accessible.

    root: a model file or folder, or a folder of models; changed: called when the served version of a model changes.
    Errors: ParameterError if it is neither.
    """

    def __init__(self, root: Path, settings: ModelSettings, metrics: Metrics, backend: Backend) -> None:
        self.root, self.settings, self.metrics, self.backend = root.resolve(), settings, metrics, backend
        if not self.root.exists():
            raise ParameterError(f"{root}: there is no such model or folder")
        self._one = self.root.is_file() or not _doubt(self.root)  # a SavedModel is a folder
        # not resolved: a link keeps its own name
        self._name = root.stem if self.root.is_file() else root.name.removesuffix(".savedmodel")
        self.entries: dict[str, Entry] = {}
        self.changed: Callable[[], None] = lambda: None
        self.scan()
        if not self.entries:
            log.warning("%s holds no model: files NAME/VERSION/model.* are required", root)

    def scan(self) -> None:
        """Scans the disk: adds new models and drops deleted ones that are not loaded."""
        if self._one:
            self.entries.setdefault(self._name, Entry(self._name, {"1": self.root}))
            return
        found = {f.name: f for f in sorted(self.root.iterdir()) if f.is_dir() and not f.name.startswith(".")}
        for name, folder in found.items():
            try:
                paths = self._versions(folder)
            except OSError as error:  # the error concerns this model only
                log.warning("%s cannot be read: %s", folder, error)
                continue
            if paths:
                entry = self.entries.setdefault(name, Entry(name, {}, folder))
                entry.paths = paths
        for name in [n for n, e in self.entries.items() if not (n in found or e.loaded or e.loading.locked())]:
            del self.entries[name]

    def _versions(self, folder: Path) -> dict[str, Path]:
        """Returns the model files in a folder by version.  Errors: OSError if it cannot be read."""
        file = self._file(folder)
        inside = [p for p in folder.iterdir() if p.is_dir() and _is_version(p.name)]
        versions = {p.name: _model_in(p, self.root, file) for p in inside}
        return {v: p for v, p in versions.items() if p is not None}

    def _file(self, folder: Path) -> str:
        """Returns the file name pattern of the model in a version folder."""
        with contextlib.suppress(MgxError, OSError):  # loading reports invalid settings
            return glob.escape(model_settings(folder, self.settings).file) or MODELS
        return MODELS

    def find(self, name: str, version: str = "") -> Deployment:
        """Returns a version of a model, by default the newest.  Errors: NotFound, Unavailable."""
        entry = self.entries.get(name)
        if entry is None or (version and version not in entry.paths and version not in entry.loaded):
            what = f"version {version!r} of model {name!r}" if entry is not None else f"model {name!r}"
            raise NotFound(f"there is no {what}")
        if not entry.loaded:
            raise Unavailable(f"model {name!r} is not ready: {entry.reason}")
        if version:
            if version not in entry.loaded:
                raise Unavailable(f"version {version!r} of model {name!r} is not loaded")
            return entry.loaded[version]
        return entry.loaded[max(entry.loaded, key=int)]

    def ready(self) -> bool:
        return all(e.loaded for e in self.entries.values())

    async def load_all(self) -> None:
        """Loads every model; failures are reported in the index and do not affect other models."""
        for name in list(self.entries):
            with contextlib.suppress(Unavailable):  # logged
                await self.load(name)

    async def load(self, name: str) -> None:
        """Loads or reloads the newest version, or as many as the settings request; the old versions serve until then.

        Other models can be loaded and unloaded concurrently; unloading this model during compilation cancels the load.
        Errors: NotFound; Unavailable if it cannot be compiled, or was unloaded meanwhile.
        """
        self.scan()
        entry = self._entry(name)
        unloads = entry.unloads
        async with entry.loading:
            paths = entry.paths
            try:
                settings = self.settings if entry.folder is None else model_settings(entry.folder, self.settings)
                deployed = await self._deployed(name, paths, settings)
            except Exception as error:  # an arbitrary failure of a reader must not affect other models
                if not isinstance(error, (MgxError, OSError, ServeError)):
                    log.exception("model %s cannot be loaded", name)
                else:
                    log.error("model %s cannot be loaded: %s", name, error)
                entry.reason = error_text(error, self.root.parent if self._one else self.root)
                if not entry.loaded:
                    entry.state = "UNAVAILABLE"
                raise Unavailable(f"model {name!r} cannot be loaded: {entry.reason}") from error
            if entry.unloads != unloads:
                await _closed(deployed)
                raise Unavailable(f"model {name!r} was unloaded while it was being loaded")
            for deployment, seconds in deployed:
                self.metrics.loaded(deployment.signature, seconds)
            former = list(entry.loaded.values())
            entry.loaded = {d.signature.version: d for d, _ in deployed}
            entry.settings, entry.files = settings, {version: paths[version].name for version in entry.loaded}
            entry.state, entry.reason = "READY", ""
            self.changed()
        await self._end(former, entry)

    async def _deployed(self, name: str, paths: Mapping[str, Path], settings: ModelSettings) -> list[_Deployed]:
        """Loads the versions to serve; if one fails, unloads all of them."""
        wanted = _newest(paths, settings)
        if len(wanted) > 1 and self.backend.one_version:
            raise ParameterError(
                f"on Ray, one version of a model is served; got versions {', '.join(wanted)} (served = 1)"
            )
        made: list[_Deployed] = []
        try:
            for version in wanted:
                start = time.monotonic()
                deployment = await self.backend.deploy(name, version, paths[version], settings)
                made.append((deployment, time.monotonic() - start))
        except BaseException:
            await _closed(made)
            raise
        return made

    async def unload(self, name: str) -> None:
        """Stops serving a model immediately; returns when its queued requests have run and a pending load has ended.

        Errors: NotFound.
        """
        entry = self._entry(name)
        entry.unloads += 1
        former = list(entry.loaded.values())
        entry.loaded, entry.state, entry.reason = {}, "UNAVAILABLE", "unloaded"
        self.changed()
        async with entry.loading:  # a rolling update still needs the former version
            await self._end(former, entry)

    def _entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise NotFound(f"there is no model {name!r} in the repository")
        return self.entries[name]

    async def _end(self, former: list[Deployment], entry: Entry) -> None:
        """Closes versions after their queued requests have run, and drops their metrics."""
        for deployment in former:
            await deployment.close()
            if deployment.signature.version not in entry.loaded:
                self.metrics.unloaded(deployment.signature)

    def hurry(self) -> None:
        """Stops waiting for further requests to batch (for a drain)."""
        for entry in self.entries.values():
            for deployment in entry.loaded.values():
                deployment.hurry()

    async def close(self) -> None:
        for name in list(self.entries):
            await self.unload(name)
        await self.backend.close()


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _newest(there: Collection[str], settings: ModelSettings) -> list[str]:
    """Returns the versions to serve, oldest first.  Errors: ParameterError if none of them exists."""
    found = [v for v in there if not settings.versions or int(v) in settings.versions]
    if not found:
        raise ParameterError(
            f"one of versions {sorted(settings.versions)} is required, there are {sorted(map(int, there))}"
        )
    return sorted(found, key=int)[-settings.served :]


async def _closed(deployed: list[_Deployed]) -> None:
    for deployment, _ in deployed:
        await deployment.close()


def _model_in(folder: Path, root: Path, pattern: str) -> Path | None:
    """Returns the model file of a version; among several candidates, the most likely one.

    The model may be in a subfolder of the same name, next to its weights.  Links that leave the repository are ignored.
    """
    found = [p / p.name if (p / p.name).is_file() else p for p in sorted(folder.glob(pattern))]
    return min((p for p in found if p.resolve().is_relative_to(root)), key=_doubt, default=None)


def _doubt(path: Path) -> int:
    """Returns 0 for a model by its extension, 1 for JSON or text that may be one, 2 for a file that no frontend reads."""
    try:
        reader = reader_of(path)
    except UnsupportedError:
        return 2
    return int(reader in (PROGRAM, PROGRAM_TEXT) and path.suffix != ".mxr")
