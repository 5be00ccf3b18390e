"""Regions of this host's shared memory that clients name, to hand tensors over without sending them."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import BadRequest, NotFound, Unsupported

__all__ = ["Place", "Region", "Regions"]

FOLDER: Final = Path("/dev/shm")
_KEY: Final = re.compile(r"/?([A-Za-z0-9_][A-Za-z0-9_.\-]{0,254})")
MOST: Final = 4096  # regions


@dataclass(frozen=True)
class Region:
    """size bytes at `offset` of the object that `key` names."""

    name: str
    key: str
    offset: int
    size: int


@dataclass(frozen=True)
class Place:
    """size bytes at `offset` of a region: of an input's elements, or for an output's."""

    region: str
    size: int
    offset: int = 0


class Regions:
    """The regions that clients have registered.

    Elements are copied by reads and writes of the object and never mapped: a client that cuts its object off gets a refusal, and
    cannot end this process.
    offered: False to refuse every region, since whoever registers one has this process read and write it.
    """

    def __init__(self, offered: bool) -> None:
        self.offered = offered
        self._open: dict[str, tuple[Region, int]] = {}

    def register(self, region: Region) -> None:
        """Errors: BadRequest if there is no such object, or it is too short, or the name is taken; Unsupported."""
        if not self.offered:
            raise Unsupported("shared memory is not offered; start the server with --shared-memory")
        matched = _KEY.fullmatch(region.key)
        if matched is None:
            raise BadRequest(
                f"region {region.name!r}: the key must name an object of shared memory, got {region.key[:80]!r}"
            )
        if not region.name or region.name in self._open or len(self._open) >= MOST:
            raise BadRequest(f"region {region.name!r}: a name is required that no other of at most {MOST} regions has")
        if region.offset < 0 or region.size < 1:
            raise BadRequest(
                f"region {region.name!r}: an offset from 0 and a size from 1 on are required, got {region}"
            )
        try:
            number = os.open(FOLDER / matched[1], os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise BadRequest(f"region {region.name!r}: {region.key!r} cannot be opened: {error.strerror}") from None
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode) or found.st_size < region.offset + region.size:
            os.close(number)
            raise BadRequest(
                f"region {region.name!r}: {region.offset + region.size} bytes are required, {region.key!r} has {found.st_size}"
            )
        self._open[region.name] = region, number

    def unregister(self, name: str = "") -> None:
        """Forgets a region, or all of them; one that is not known is none."""
        for known in [name] if name else list(self._open):
            _, number = self._open.pop(known, (None, -1))
            if number >= 0:
                os.close(number)

    def status(self, name: str = "") -> list[Region]:
        """Errors: NotFound for a region that is not registered."""
        if name and name not in self._open:
            raise NotFound(f"there is no region {name!r}")
        return [r for r, _ in self._open.values() if name in ("", r.name)]

    def read(self, place: Place) -> memoryview:
        """Returns the bytes of a place.  Errors: BadRequest."""
        number, at = self._at(place)
        data = left = memoryview(bytearray(place.size))
        while left:  # one call moves 2 GiB at most
            count = os.preadv(number, [left], at)
            if not count:
                raise BadRequest(f"region {place.region!r}: its object has been cut off")
            left, at = left[count:], at + count
        return data

    def write(self, place: Place, data: bytes) -> None:
        """Errors: BadRequest if the place is too small."""
        number, at = self._at(place)
        if len(data) > place.size:
            raise BadRequest(f"region {place.region!r}: {len(data)} bytes are required for an output, got {place.size}")
        if os.fstat(number).st_size < at + len(data):
            raise BadRequest(f"region {place.region!r}: its object has been cut off")
        left = memoryview(data)
        while left:
            count = os.pwrite(number, left, at)
            left, at = left[count:], at + count

    def _at(self, place: Place) -> tuple[int, int]:
        found = self._open.get(place.region)
        if found is None:
            raise BadRequest(f"there is no region {place.region!r}")
        region, number = found
        if place.offset < 0 or place.size < 0 or place.offset + place.size > region.size:
            raise BadRequest(
                f"region {place.region!r} has {region.size} bytes; {place.size} at {place.offset} do not lie in it"
            )
        return number, region.offset + place.offset
