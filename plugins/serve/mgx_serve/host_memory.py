"""Shared-memory regions on this host: objects under /dev/shm."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import BadRequest
from .shared_memory import Memory, Region

__all__ = ["HostRegion"]

FOLDER: Final = Path("/dev/shm")
_KEY: Final = re.compile(r"/?([A-Za-z0-9_][A-Za-z0-9_.\-]{0,254})")


@dataclass(frozen=True)
class HostRegion(Region):
    """size bytes at `offset` of the object named `key`."""

    key: str
    offset: int = 0

    def opened(self) -> Memory:
        matched = _KEY.fullmatch(self.key)
        if matched is None:
            raise BadRequest(
                f"region {self.name!r}: the key must name an object of shared memory, got {self.key[:80]!r}"
            )
        if self.offset < 0:
            raise BadRequest(f"region {self.name!r}: an offset from 0 on is required, got {self.offset}")
        try:
            number = os.open(FOLDER / matched[1], os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise BadRequest(f"region {self.name!r}: {self.key!r} cannot be opened: {error.strerror}") from None
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode) or found.st_size < self.offset + self.size:
            os.close(number)
            raise BadRequest(
                f"region {self.name!r}: {self.offset + self.size} bytes are required, {self.key!r} has {found.st_size}"
            )
        return _File(self.name, number, self.offset)


class _File(Memory):
    """A shared-memory object accessed through a file descriptor, from an offset on.

    name: the region's name for messages; number: the descriptor, closed by `close`; offset: of the region, in bytes.
    Data is copied with pread and pwrite and never mapped: if a client truncates the object, it gets an error, and this process
    no SIGBUS.
    """

    def __init__(self, name: str, number: int, offset: int) -> None:
        self._name, self._number, self._offset = name, number, offset

    def read(self, at: int, size: int) -> memoryview:
        made = memoryview(bytearray(size))
        self.read_into(at, made)
        return made

    def read_into(self, at: int, place: memoryview) -> None:
        at, left = at + self._offset, place
        while left:  # one system call transfers at most 2 GiB
            count = os.preadv(self._number, [left], at)
            if not count:
                raise BadRequest(f"region {self._name!r}: its object has been cut off")
            left, at = left[count:], at + count

    def write(self, at: int, data: bytes | memoryview) -> None:
        at += self._offset
        if os.fstat(self._number).st_size < at + len(data):
            raise BadRequest(f"region {self._name!r}: its object has been cut off")
        left = memoryview(data)
        while left:
            count = os.pwrite(self._number, left, at)
            left, at = left[count:], at + count

    def close(self) -> None:
        os.close(self._number)
