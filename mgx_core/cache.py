"""Caches: bytes by key in the user's cache folder, files that are written atomically, and values kept in memory."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from .hashing import sha256
from .settings import cache_directory

__all__ = ["DiskCache", "Held", "Recent", "is_private", "make_private", "write_file"]

V = TypeVar("V")

MAGIC: Final = b"mgxc"
LIMIT: Final = 1 << 30  # bytes of one cache
SHARE: Final = 16  # the part of its limit that is written between two prunings, on average


class Held(NamedTuple):
    """Contents of a cache."""

    entries: int
    bytes: int


class Recent(Generic[V]):
    """Values in memory by key, the least recently used dropped first; several threads may use it.

    limit: how many are kept; dropped: how many were not.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.dropped = 0
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> V | None:
        """Returns the value of a key, which is the most recently used one now; None if there is none."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def put(self, key: Hashable, value: V) -> V:
        """Keeps a value and returns it."""
        with self._lock:
            self._values[key] = value
            while len(self._values) > self.limit:
                self._values.popitem(last=False)
                self.dropped += 1
        return value

    def values(self) -> list[V]:
        """Returns all values, the least recently used first."""
        with self._lock:
            return list(self._values.values())


class DiskCache:
    """Bytes by key in one folder of the user's cache, shared by all processes.

    name: the folder; version: of what the bytes mean, entries of others count as absent; folder: another place; limit: the
    bytes that it grows to (a sixteenth more on average), then the oldest entries go.
    A damaged entry counts as absent and is replaced; a folder that cannot be read or written is not an error.
    """

    def __init__(self, name: str, version: int = 1, folder: Path | None = None, limit: int = LIMIT) -> None:
        self.folder = cache_directory() / name if folder is None else folder
        self.limit = limit
        self._head = MAGIC + version.to_bytes(4, "little")

    def get(self, key: str) -> bytes | None:
        """Returns what was put under a key; None if there is nothing, or nothing intact."""
        try:
            found = self.path(key).read_bytes()
        except OSError:
            return None
        size = len(self._head)
        data = found[size + 32 :]
        return data if found[: size + 32] == self._head + sha256(data).digest() else None

    def put(self, key: str, data: bytes) -> None:
        self.put_file(key, [self._head, sha256(data).digest(), data])

    def put_file(self, key: str, chunks: Iterable[Any]) -> None:
        """Writes an entry that is read as a file of its own (`path`) and tells itself whether it is intact."""
        path = self.path(key)
        with contextlib.suppress(OSError):
            make_private(path.parent)
            write_file(path, chunks, 0o600)
            if self._due(path, path.stat().st_size):
                self._prune()

    def drop(self, key: str) -> None:
        """Removes an entry, if there is one."""
        with contextlib.suppress(OSError):
            self.path(key).unlink()

    def held(self) -> Held:
        """Returns the number of entries and their bytes."""
        files = self._files()
        return Held(len(files), sum(size for _, size, _ in files))

    def path(self, key: str) -> Path:
        """Returns the file of an entry, which need not exist."""
        return self.folder / sha256(key.encode()).hexdigest()[:40]

    def _files(self) -> list[tuple[int, int, str]]:
        """When each entry was written, its bytes and its path."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as found:
            return [(e.stat().st_mtime_ns, e.stat().st_size, e.path) for e in found if e.is_file()]
        return []

    def _due(self, path: Path, size: int) -> bool:
        """True for every 256th entry or so, and the more often the larger entries are: always from 1/`SHARE` of the limit on.

        The name decides, which is as good as random: processes that write little each need to know nothing of one another.
        """
        drawn = int(path.name[:8], 16) / (1 << 32)
        return drawn < 1 / 256 or drawn * self.limit < SHARE * size

    def _prune(self) -> None:
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self.limit:
                return
            Path(path).unlink(missing_ok=True)
            total -= size


def make_private(folder: Path) -> None:
    """Makes a folder, and the one that it lies in, that only this user can look into; those there stay.  Errors: OSError."""
    for each in (folder.parent, folder):
        each.mkdir(0o700, parents=True, exist_ok=True)


def is_private(path: Path) -> bool:
    """Returns True for a file or folder that is there, and that no other user can have written to."""
    try:
        state = path.stat()
    except OSError:
        return False
    return not hasattr(os, "geteuid") or (state.st_uid == os.geteuid() and not state.st_mode & 0o022)


def write_file(path: Path, chunks: Iterable[Any], mode: int = 0o666) -> None:
    """Writes beside a file, then renames: readers see the old file or the new one.  mode: less the umask.  Errors: OSError."""
    if not path.name:  # "." and "/", beside which there is no name to be made
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for chunk in chunks:
                file.write(chunk)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
