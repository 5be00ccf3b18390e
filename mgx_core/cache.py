"""Caches on disk and in memory, and atomic file writes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from .hashing import sha256
from .named_tuples import NamedTuple
from .settings import cache_directory

__all__ = ["DiskCache", "Held", "Recent", "is_private", "make_private", "write_file"]

V = TypeVar("V")

MAGIC: Final = b"mgxc"
LIMIT: Final = 1 << 30  # maximum bytes of one cache
SHARE: Final = 16  # on average, a cache is pruned after this fraction (1/16) of its limit was written


class Held(NamedTuple):
    """Size of a cache."""

    entries: int
    bytes: int


class Recent(Generic[V]):
    """Thread-safe LRU cache in memory.

    limit: maximum number of values; dropped: number of evicted values.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.dropped = 0
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> V | None:
        """Returns the value of a key and marks it as most recently used; None if there is none."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def put(self, key: Hashable, value: V) -> V:
        """Adds a value and returns it."""
        with self._lock:
            self._values[key] = value
            while len(self._values) > self.limit:
                self._values.popitem(last=False)
                self.dropped += 1
        return value

    def values(self) -> list[V]:
        """Returns all values, least recently used first."""
        with self._lock:
            return list(self._values.values())


class DiskCache:
    """Cache of bytes by key in a folder of the user's cache directory, shared by all processes.

    name: of the folder; version: of the entries' format, other versions are ignored; folder: overrides the location; limit:
    maximum bytes (exceeded by a sixteenth on average), above which the oldest entries are evicted.
    Damaged entries are ignored and replaced; an inaccessible folder is not an error.
    """

    def __init__(self, name: str, version: int = 1, folder: Path | None = None, limit: int = LIMIT) -> None:
        self.folder = cache_directory() / name if folder is None else folder
        self.limit = limit
        self._head = MAGIC + version.to_bytes(4, "little")

    def get(self, key: str) -> bytes | None:
        """Returns the bytes of a key; None if there are none or they are damaged."""
        path = self.path(key)
        try:
            state = path.stat()
            if not stat.S_ISREG(state.st_mode) or state.st_size > self.limit:  # reading a pipe or device would not end
                return None
            found = path.read_bytes()
        except OSError:
            return None
        size = len(self._head)
        data = found[size + 32 :]
        return data if found[: size + 32] == self._head + sha256(data).digest() else None

    def put(self, key: str, data: bytes) -> None:
        """Stores bytes with a checksum."""
        self.put_file(key, [self._head, sha256(data).digest(), data])

    def put_file(self, key: str, chunks: Iterable[Any]) -> None:
        """Writes an entry without header; its reader opens it by `path` and verifies it."""
        path = self.path(key)
        with contextlib.suppress(OSError):
            make_private(path.parent)
            if path.is_symlink() or not path.is_file():  # a pipe may have no reader, and a link may lead elsewhere
                self.drop(key)
            write_file(path, chunks, 0o600)
            if self._due(path, path.stat().st_size):
                self._prune()

    def drop(self, key: str) -> None:
        """Removes an entry, if it exists."""
        with contextlib.suppress(OSError):
            self.path(key).unlink()

    def held(self) -> Held:
        """Returns the number of entries and their bytes."""
        files = self._files()
        return Held(len(files), sum(size for _, size, _ in files))

    def path(self, key: str) -> Path:
        """Returns the path of an entry, which may not exist."""
        return self.folder / sha256(key.encode()).hexdigest()[:40]

    def _files(self) -> list[tuple[int, int, str]]:
        """Returns the modification time, size and path of each entry."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as found:
            return [(e.stat().st_mtime_ns, e.stat().st_size, e.path) for e in found if e.is_file()]
        return []

    def _due(self, path: Path, size: int) -> bool:
        """Returns True if the cache should be pruned: for one in 256 entries, more often for larger ones.

        Entries of at least 1/`SHARE` of the limit always prune.  The hash in the name serves as random number, so that processes
        need no shared counter.
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
    """Creates a folder and its parent with access for this user only, unless they exist.  Errors: OSError."""
    for each in (folder.parent, folder):
        each.mkdir(0o700, parents=True, exist_ok=True)


def is_private(path: Path) -> bool:
    """Returns True if a file or folder exists and only this user can write to it."""
    try:
        state = path.stat()
    except OSError:
        return False
    return not hasattr(os, "geteuid") or (state.st_uid == os.geteuid() and not state.st_mode & 0o022)


def write_file(path: Path, chunks: Iterable[Any], mode: int = 0o666) -> None:
    """Writes a file atomically (temporary file and rename).  mode: permissions before the umask.  Errors: OSError.

    A device or pipe, such as /dev/null, is not replaced: the bytes are written to it.  Of a link, the file it names is replaced.
    """
    if not path.name:  # "." and "/" have no sibling for the temporary file
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        with open(path, "wb") as file:
            file.writelines(chunks)
        return
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    # of the name, only as much as leaves the rest within 255 bytes
    beside = path.with_name(f".{path.name[:40]}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with open(beside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for chunk in chunks:
                file.write(chunk)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
