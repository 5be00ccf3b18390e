"""Models on disk: a file, or a folder of ``NAME/VERSION/model.*``."""

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
from .errors import NotFound, ServeError, Unavailable
from .metrics import Metrics
from .reasons import told
from .settings import ModelSettings, model_settings

__all__ = ["Entry", "Repository"]

log = logging.getLogger("mgx_serve")
MODELS = "model.*"
_Deployed = tuple[Deployment, float]  # and the seconds that it took


@dataclass
class Entry:
    """One model of the repository: where its versions lie, those that are loaded, and why it is not ready.

    settings: those of the loaded versions; files: their names; loading: held while a version is compiled, so that two are never
    compiled at once; unloads: how often it was unloaded.
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
    """Finds, loads, replaces and unloads models.  Requests name models, never files: what lies outside the root is out of reach.

    root: a model's file or folder, or a folder of models; changed: called when another version answers, or none.
    Errors: ParameterError if it is neither.
    """

    def __init__(self, root: Path, settings: ModelSettings, metrics: Metrics, backend: Backend) -> None:
        self.root, self.settings, self.metrics, self.backend = root.resolve(), settings, metrics, backend
        if not self.root.exists():
            raise ParameterError(f"{root}: there is no such model or folder")
        self._one = self.root.is_file() or not _doubt(self.root)  # TensorFlow's models are folders
        # as it was named: a link has a name of its own
        self._name = root.stem if self.root.is_file() else root.name.removesuffix(".savedmodel")
        self.entries: dict[str, Entry] = {}
        self.changed: Callable[[], None] = lambda: None
        self.scan()
        if not self.entries:
            log.warning("%s holds no model: files NAME/VERSION/model.* are required", root)

    def scan(self) -> None:
        """Looks for models that are new on disk, and forgets those that are gone and not loaded."""
        if self._one:
            self.entries.setdefault(self._name, Entry(self._name, {"1": self.root}))
            return
        found = {f.name: f for f in sorted(self.root.iterdir()) if f.is_dir() and not f.name.startswith(".")}
        for name, folder in found.items():
            try:
                paths = self._versions(folder)
            except OSError as error:  # other models go on
                log.warning("%s cannot be read: %s", folder, error)
                continue
            if paths:
                entry = self.entries.setdefault(name, Entry(name, {}, folder))
                entry.paths = paths
        for name in [n for n, e in self.entries.items() if not (n in found or e.loaded or e.loading.locked())]:
            del self.entries[name]

    def _versions(self, folder: Path) -> dict[str, Path]:
        """Returns the models in a folder by version.  Errors: OSError if it cannot be read."""
        file = self._file(folder)
        inside = [p for p in folder.iterdir() if p.is_dir() and _is_version(p.name)]
        versions = {p.name: _model_in(p, self.root, file) for p in inside}
        return {v: p for v, p in versions.items() if p is not None}

    def _file(self, folder: Path) -> str:
        """Returns the pattern of the model's name in the folder of a version."""
        with contextlib.suppress(MgxError, OSError):  # loading tells what is wrong with the settings
            return glob.escape(model_settings(folder, self.settings).file) or MODELS
        return MODELS

    def find(self, name: str, version: str = "") -> Deployment:
        """Returns the version of a model, its newest if none is named.  Errors: NotFound, Unavailable."""
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
        """Loads every model; the index says why one failed; the others are loaded."""
        for name in list(self.entries):
            with contextlib.suppress(Unavailable):  # which is logged
                await self.load(name)

    async def load(self, name: str) -> None:
        """Loads the newest version from disk, or as many as the settings say, or loads them anew; the old ones answer until then.

        Other models are loaded and unloaded meanwhile, and so may this one be: an unload while it is compiled cancels the load.
        Errors: NotFound; Unavailable with the reason if it cannot be compiled, or was unloaded.
        """
        self.scan()
        entry = self._entry(name)
        asked = entry.unloads
        async with entry.loading:
            paths = entry.paths
            try:
                settings = self.settings if entry.folder is None else model_settings(entry.folder, self.settings)
                deployed = await self._deployed(name, paths, settings)
            except Exception as error:  # whatever a file makes of its reader, other models go on
                if not isinstance(error, (MgxError, OSError, ServeError)):
                    log.exception("model %s cannot be loaded", name)
                else:
                    log.error("model %s cannot be loaded: %s", name, error)
                entry.reason = told(error, self.root.parent if self._one else self.root)
                if not entry.loaded:
                    entry.state = "UNAVAILABLE"
                raise Unavailable(f"model {name!r} cannot be loaded: {entry.reason}") from error
            if entry.unloads != asked:
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
        """Returns the versions of a model that are to be served; none is left loaded where one cannot be."""
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
        """Stops serving a model at once; returns when what is queued has run and a load under way has ended.

        Errors: NotFound.
        """
        entry = self._entry(name)
        entry.unloads += 1
        former = list(entry.loaded.values())
        entry.loaded, entry.state, entry.reason = {}, "UNAVAILABLE", "unloaded"
        self.changed()
        async with entry.loading:  # what replaces the former version needs it while it is rolled out
            await self._end(former, entry)

    def _entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise NotFound(f"there is no model {name!r} in the repository")
        return self.entries[name]

    async def _end(self, former: list[Deployment], entry: Entry) -> None:
        """Lets what is queued run; of versions that are not loaded any more, figures are forgotten."""
        for deployment in former:
            await deployment.close()
            if deployment.signature.version not in entry.loaded:
                self.metrics.unloaded(deployment.signature)

    def hurry(self) -> None:
        """Lets no request wait for others any more."""
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
    """Returns the versions that are to be served, the oldest first.  Errors: ParameterError if none of them is there."""
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
    """Returns the version's model, of several files with fitting names the one that most likely is it.

    It may lie in a folder of its name, beside its weights.  A link that leads out of the repository is none.
    """
    found = [p / p.name if (p / p.name).is_file() else p for p in sorted(folder.glob(pattern))]
    return min((p for p in found if p.resolve().is_relative_to(root)), key=_doubt, default=None)


def _doubt(path: Path) -> int:
    """Returns 0 for a file that is a model by its name, 1 for JSON and text that may be one, 2 for what nothing reads."""
    try:
        reader = reader_of(path)
    except UnsupportedError:
        return 2
    return int(reader in (PROGRAM, PROGRAM_TEXT) and path.suffix != ".mxr")
