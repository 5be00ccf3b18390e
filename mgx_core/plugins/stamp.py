"""A stamp of the code that reads and compiles models: where it is the same, the same model becomes the same program."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Any

from ..hashing import sha256
from ..options import CompileOptions
from ..version import IMPORTED
from .hooks import Lazy
from .manager import Plugins, manager

__all__ = ["stamp"]

CORE = "mgx_core"
CODE = (".py", ".pyc", ".pyd", ".dll", ".dylib")  # and shared objects, whose names may go on behind .so
SLACK = 2 * 10**9  # nanoseconds by which a file system's times may lag behind


def stamp(stages: tuple[str, ...], options: CompileOptions | None = None) -> str:
    """Returns a hash of the code that takes part in reading and compiling; empty where it cannot be told.

    It covers Python, the names and versions of all installed distributions, and size and time of every file of code of the
    core's package and of the packages that plugins are in and offer things from.  Plugins that were registered by hand are not
    known by any file, and code that was changed since mgx was imported may not be what runs here: neither has a stamp, and
    nothing has where a package's files cannot be looked at.
    stages: those that plugins are asked for passes of; options: those that they are asked for (None: the default ones).
    """
    plugins = manager()
    if any(r.distribution == "-" for r in plugins.records):
        return ""
    try:
        return _stamp(_packages(plugins, stages, options or CompileOptions()), tuple(sys.path))
    except (OSError, ValueError, ImportError, AttributeError):  # packages in archives, links that lead nowhere
        return ""


def _packages(plugins: Plugins, stages: tuple[str, ...], options: CompileOptions) -> tuple[str, ...]:
    """Returns the core's package and all that plugins which loaded name in their entry points and offers."""
    paths = [r.module for r in plugins.records if r.state == "ok"]
    paths += [lazy.path for hook in ("targets", "frontends", "operations") for _, lazy in plugins.offered(hook)]
    paths += [lazy.path for lazy in _offered_to_all(plugins, stages, options)]
    return tuple(sorted({CORE, *(p.partition(":")[0].partition(".")[0] for p in paths)}))


def _offered_to_all(plugins: Plugins, stages: tuple[str, ...], options: CompileOptions) -> list[Lazy]:
    """Returns what plugins offer to each target and frontend."""
    found: list[tuple[str, dict[str, Any]]] = []
    for target in ("", *plugins.names("targets")):
        found += [("kernels", {"target": target}), ("rules", {"target": target})]
        found += [("passes", {"target": target, "stage": s, "options": options}) for s in stages]
    found += [("converters", {"frontend": f}) for f in plugins.names("frontends")]
    return [lazy for hook, asked in found for lazy in plugins.offers_to(hook, **asked)]


@cache
def _stamp(packages: tuple[str, ...], path: tuple[str, ...]) -> str:
    code = []
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            return ""
        origin = Path(spec.origin)
        files = _files(str(origin.parent)) if spec.submodule_search_locations else [_about(str(origin))]
        if any(changed >= IMPORTED - SLACK for _, _, changed in files):
            return ""
        code.append(files)
    about = (sys.version, platform.machine(), _distributions(path), code)
    return sha256(repr(about).encode()).hexdigest()


def _files(folder: str) -> list[tuple[str, int, int]]:
    """Returns path, bytes and time of each file of code in a package, sorted."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name != "__pycache__" and entry.is_dir():
                found += _files(entry.path)
            elif entry.name.endswith(CODE) or ".so" in entry.name:
                found.append(_about(entry.path))
    return sorted(found)


def _about(path: str) -> tuple[str, int, int]:
    """Returns path, bytes and the last time that the file or what is known of it was changed: the former can be set at will."""
    state = os.stat(path)
    return path, state.st_size, max(state.st_mtime_ns, state.st_ctime_ns)


def _distributions(path: tuple[str, ...]) -> list[list[str]]:
    """Returns the names of the installed distributions' records, which have their versions, in each folder that has some."""
    found = []
    for folder in path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue
        found.append(sorted(n for n in names if n.endswith((".dist-info", ".egg-info"))))
    return [names for names in found if names]
