"""A stamp of the code that reads and compiles models: where it is the same, the same model becomes the same program."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sys
import time
from functools import cache
from pathlib import Path

from .hooks import Lazy
from .manager import Plugins, manager

__all__ = ["stamp"]

CORE = "mgx_core"
CODE = (".py", ".so", ".pyd", ".dll", ".dylib")


def stamp() -> str:
    """Returns a hash of the code that takes part in reading and compiling; empty where it cannot be told.

    It covers Python, the names and versions of all installed distributions, and size and time of every file of the core's
    package and of the packages that plugins are in and offer things from.  Plugins that were registered by hand are not known
    by any file, and code that was changed after this process began may not be what runs in it: neither has a stamp.
    """
    plugins = manager()
    if any(r.distribution == "-" for r in plugins.records):
        return ""
    return _stamp(_packages(plugins), tuple(sys.path))


def _packages(plugins: Plugins) -> tuple[str, ...]:
    """The core's package and all that plugins which loaded name in their entry points and offers."""
    paths = [r.module for r in plugins.records if r.state == "ok"]
    paths += [lazy.path for hook in ("targets", "frontends", "operations") for _, lazy in plugins.offered(hook)]
    paths += [lazy.path for lazy in _offered_to_all(plugins)]
    return tuple(sorted({CORE, *(p.partition(":")[0].partition(".")[0] for p in paths)}))


def _offered_to_all(plugins: Plugins) -> list[Lazy]:
    """Returns what plugins offer to each target and frontend."""
    found = [("kernels", {"target": t}) for t in plugins.names("targets")]
    found += [("rules", {"target": t}) for t in plugins.names("targets")]
    found += [("converters", {"frontend": f}) for f in plugins.names("frontends")]
    return [lazy for hook, asked in found for lazy in plugins.offers_to(hook, **asked)]


@cache
def _stamp(packages: tuple[str, ...], path: tuple[str, ...]) -> str:
    begun = _begun()
    code = []
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            return ""
        origin = Path(spec.origin)
        files = _files(str(origin.parent)) if spec.submodule_search_locations else [_about(str(origin))]
        if any(changed >= begun for _, _, changed in files):
            return ""
        code.append(files)
    about = (sys.version, platform.machine(), _distributions(path), code)
    return hashlib.sha256(repr(about).encode()).hexdigest()


def _files(folder: str) -> list[tuple[str, int, int]]:
    """Path, bytes and time of each file of code in a package, sorted."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(CODE):
                found.append(_about(entry.path))
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                found += _files(entry.path)
    return sorted(found)


def _about(path: str) -> tuple[str, int, int]:
    state = os.stat(path)
    return path, state.st_size, state.st_mtime_ns


def _distributions(path: tuple[str, ...]) -> list[list[str]]:
    """The names of the installed distributions' records, which have their versions, in each folder of the path."""
    found = []
    for folder in path:
        try:
            found.append(sorted(n for n in os.listdir(folder or os.curdir) if n.endswith((".dist-info", ".egg-info"))))
        except OSError:
            continue
    return found


def _begun() -> int:
    """The nanosecond, as files count, at which this process began; the present where the system does not tell."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.time_ns() - int((uptime - ticks / os.sysconf("SC_CLK_TCK")) * 1e9)
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time_ns()
