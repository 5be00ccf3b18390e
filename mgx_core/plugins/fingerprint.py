"""Fingerprint of all code that parses and compiles models, a part of the keys of the program cache."""

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

__all__ = ["fingerprint"]

CORE = "mgx_core"
CODE = (".py", ".pyc", ".pyd", ".dll", ".dylib")  # and shared objects, whose names may continue after .so
SLACK = 2 * 10**9  # nanoseconds; maximum lag of file system timestamps


def fingerprint(stages: tuple[str, ...], options: CompileOptions | None = None) -> str:
    """Returns a hash of the code that parses and compiles models; empty if it cannot be determined.

    It covers Python, the names and versions of installed distributions, and sizes and times of the code files of the core and
    of all packages from which plugins load objects.  It cannot be determined if a plugin was registered through the API, if a
    file was modified since mgx was imported (so that other code may be running), or if a package's files are not accessible.
    stages, options: arguments for the plugins' hook `passes`; options: None: the defaults.
    """
    plugins = manager()
    if any(r.distribution == "-" for r in plugins.records):
        return ""
    try:
        return _fingerprint(_packages(plugins, stages, options or CompileOptions()), tuple(sys.path))
    except (OSError, ValueError, ImportError, AttributeError):  # packages in archives, dangling symlinks
        return ""


def _packages(plugins: Plugins, stages: tuple[str, ...], options: CompileOptions) -> tuple[str, ...]:
    """Returns the core's package and the packages named in the entry points and records of loaded plugins."""
    paths = [r.module for r in plugins.records if r.state == "ok"]
    paths += [lazy.path for hook in ("targets", "frontends", "operations") for _, lazy in plugins.offered(hook)]
    paths += [lazy.path for lazy in _offered_to_all(plugins, stages, options)]
    return tuple(sorted({CORE, *(p.partition(":")[0].partition(".")[0] for p in paths)}))


def _offered_to_all(plugins: Plugins, stages: tuple[str, ...], options: CompileOptions) -> list[Lazy]:
    """Returns the records of hooks with arguments, for all targets and frontends."""
    found: list[tuple[str, dict[str, Any]]] = []
    for target in ("", *plugins.names("targets")):
        found += [("kernels", {"target": target}), ("rules", {"target": target})]
        found += [("passes", {"target": target, "stage": s, "options": options}) for s in stages]
    found += [("converters", {"frontend": f}) for f in plugins.names("frontends")]
    return [lazy for hook, asked in found for lazy in plugins.offers_to(hook, **asked)]


@cache
def _fingerprint(packages: tuple[str, ...], path: tuple[str, ...]) -> str:
    code = []
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            return ""
        origin = Path(spec.origin)
        files = _files(str(origin.parent)) if spec.submodule_search_locations else [_file_state(str(origin))]
        if any(changed >= IMPORTED - SLACK for _, _, changed in files):
            return ""
        code.append(files)
    about = (sys.version, platform.machine(), _distributions(path), code)
    return sha256(repr(about).encode()).hexdigest()


def _files(folder: str) -> list[tuple[str, int, int]]:
    """Returns the sorted paths, sizes and times of the code files of a package."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name != "__pycache__" and entry.is_dir():
                found += _files(entry.path)
            elif entry.name.endswith(CODE) or ".so" in entry.name:
                found.append(_file_state(entry.path))
    return sorted(found)


def _file_state(path: str) -> tuple[str, int, int]:
    """Returns path, size and the later of mtime and ctime; programs can set the mtime to any value."""
    state = os.stat(path)
    return path, state.st_size, max(state.st_mtime_ns, state.st_ctime_ns)


def _distributions(path: tuple[str, ...]) -> list[list[str]]:
    """Returns the names of metadata folders, which include versions, for each folder on the path that has any."""
    found = []
    for folder in path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:
            continue
        found.append(sorted(n for n in names if n.endswith((".dist-info", ".egg-info"))))
    return [names for names in found if names]
