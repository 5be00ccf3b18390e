"""Reads the entry points of installed distributions, faster than `importlib.metadata`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from ..errors import PluginError
from ..named_tuples import NamedTuple

__all__ = ["Entry", "entries"]


class Entry(NamedTuple):
    """One entry of an ``entry_points.txt``: name, object reference and distribution."""

    name: str
    value: str
    distribution: str
    version: str

    def load(self) -> Any:
        """Imports and returns the module or its attribute.  Errors: PluginError if it does not exist; errors of the import."""
        path, _, attribute = self.value.partition(":")
        module = path.strip()
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name and f"{module}.".startswith(f"{error.name}."):
                raise self._unresolvable(f"there is no module {error.name!r}") from error
            raise
        for part in filter(None, attribute.strip().split(".")):
            try:
                found = getattr(found, part)
            except AttributeError as error:
                raise self._unresolvable(str(error)) from error
        return found

    def _unresolvable(self, why: str) -> PluginError:
        return PluginError(
            f"its entry point `{self.name} = {self.value}` cannot be resolved: {why}; "
            "correct it in the package's pyproject.toml and reinstall the package"
        )


def entries(group: str) -> list[Entry]:
    """Returns the entry points of a group; of several distributions with one name, the first on the path is used.

    Falls back to ``importlib.metadata`` if the path contains archives or other distribution finders are installed.
    """
    finders = [f for f in sys.meta_path if hasattr(f, "find_distributions")]
    folders = [p or os.curdir for p in sys.path]  # as strings: `Path` takes longer than reading the files
    if len(finders) != 1 or any(map(os.path.isfile, folders)):
        return _by_metadata(group)
    header = f"[{group}]".encode()
    found: list[Entry] = []
    seen: set[str] = set()
    for folder in folders:
        try:
            names = sorted(n for n in os.listdir(folder) if n.endswith((".dist-info", ".egg-info")))
        except OSError:
            continue
        for name in names:
            known = name.partition("-")[0].lower().replace(".", "_")
            if known in seen:
                continue
            seen.add(known)
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb", buffering=0) as file:
                    text = file.readall()
            except OSError:
                continue
            lines = _section(text.decode(), group) if header in text else []
            if lines:
                distribution, version = _name_and_version(Path(folder, name))
                found += [Entry(n, v, distribution, version) for n, v in lines]
    return found


def _section(text: str, group: str) -> list[tuple[str, str]]:
    """Returns the name-value pairs of the section ``[group]``."""
    found = []
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{group}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found.append((name.strip(), value.partition("[")[0].strip()))
    return found


def _name_and_version(folder: Path) -> tuple[str, str]:
    """Returns the name and version in a distribution's metadata."""
    fields = {"name": "?", "version": "?"}
    for file in ("METADATA", "PKG-INFO"):
        try:
            head = (folder / file).read_text("utf-8").partition("\n\n")[0]
        except (OSError, UnicodeDecodeError):
            continue
        for line in head.splitlines():
            key, _, value = line.partition(":")
            if key.lower() in fields:
                fields[key.lower()] = value.strip()
        break
    return fields["name"], fields["version"]


def _by_metadata(group: str) -> list[Entry]:
    from importlib.metadata import entry_points

    return [
        Entry(e.name, e.value, *((str(e.dist.name), str(e.dist.version)) if e.dist else ("?", "?")))
        for e in entry_points(group=group)
    ]
