"""Prebuilt loops: object code that was compiled when the package was built, so that processes need not load LLVM.

There is one file per processor kind next to the native module; `mgx_cpu_dnnl.prebuilt_loops` writes it.  The file records a
hash of the code generator's sources and is ignored if they have changed since: loops are then compiled on first use.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mgx_core.hashing import sha256

__all__ = ["FEATURES", "PROCESSORS", "PrebuiltLoops", "file_name", "generator", "kind_of", "symbol_of", "write"]

MAGIC: Final = "mgx ready loops 1"
# LLVM's CPU names by kind
PROCESSORS: Final = {"avx2": "x86-64-v3", "avx512": "x86-64-v4", "avx512-dividing": "x86-64-v4"}
LEVEL_3: Final = frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe"})
# features that code for these CPUs may use; a virtual machine may hide some of them
FEATURES: Final = {
    "x86-64-v3": LEVEL_3,
    "x86-64-v4": LEVEL_3 | {f"avx512{part}" for part in ("bw", "cd", "dq", "f", "vl")},
}
PLACE: Final = struct.Struct("<12sIII")  # the symbol's hash; offset, size and CRC of its object


def kind_of(wide: bool, divides: bool) -> str:
    """Returns the processor kind, which selects the file; without AVX-512, code does not depend on the speed of divisions."""
    return ("avx512-dividing" if divides else "avx512") if wide else "avx2"


def file_name(kind: str) -> str:
    """Returns the name of the file of prebuilt loops for a processor kind."""
    return f"ready-{kind}.loops"


def symbol_of(stamp: str, key: str) -> str:
    """Returns a function's symbol; stamp: identifies the generator and the processor; key: identifies the function."""
    return "k" + sha256(f"{stamp}\n{key}".encode()).hexdigest()[:24]


class PrebuiltLoops:
    """Reads a file of prebuilt loops; empty if the file is missing, corrupt or from another version of the generator.

    File format: a text header (one line each: magic, stamp, hash of the sources' sizes, hash of their contents, number of
    loops), an index of `PLACE` records, and the zlib-compressed objects.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp = ""
        self._places: dict[bytes, tuple[int, int, int]] = {}
        if path is None:
            return
        try:
            with open(path, "rb") as file:
                self._read(file)
        except (OSError, ValueError, struct.error):
            self._places = {}

    def _read(self, file: Any) -> None:
        magic, stamp, sizes, contents, count = (file.readline().decode().rstrip("\n") for _ in range(5))
        sources = _sources()
        if magic != MAGIC or sizes != _sizes(sources):
            return
        built = os.fstat(file.fileno()).st_mtime_ns
        if any(s.st_mtime_ns >= built for s in sources.values()) and contents != _contents(sources):
            return
        places = file.read(int(count) * PLACE.size)
        start = file.tell()
        self._stamp = stamp
        self._places = {name: (start + at, size, check) for name, at, size, check in PLACE.iter_unpack(places)}

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Returns the symbol and object of a function; None if it is not in the file."""
        if self._path is None or not self._places:
            return None
        symbol = symbol_of(self._stamp, key)
        place = self._places.get(bytes.fromhex(symbol[1:]))
        if place is None:
            return None
        at, size, check = place
        try:
            with open(self._path, "rb") as file:
                file.seek(at)
                data = file.read(size)
        except OSError:
            return None
        return (symbol, zlib.decompress(data)) if zlib.crc32(data) == check else None


def generator() -> tuple[str, str]:
    """Returns hashes of the sizes and of the contents of the code generator's sources."""
    sources = _sources()
    return _sizes(sources), _contents(sources)


def write(path: Path, stamp: str, images: Mapping[str, bytes], made_by: tuple[str, str]) -> None:
    """Writes a file of prebuilt loops; images: objects by symbol; made_by: `generator()` when the generator was imported."""
    places, objects, at = [], [], 0
    for symbol, image in sorted(images.items()):
        data = zlib.compress(image, 9)
        places.append(PLACE.pack(bytes.fromhex(symbol[1:]), at, len(data), zlib.crc32(data)))
        objects.append(data)
        at += len(data)
    head = "".join(f"{x}\n" for x in (MAGIC, stamp, *made_by, len(images)))
    made = path.with_name(path.name + ".new")
    made.write_bytes(b"".join([head.encode(), *places, *objects]))
    made.replace(path)


def _sources() -> dict[str, os.stat_result]:
    """Returns the source files of the code generator, sorted by name."""
    with os.scandir(Path(__file__).parent) as entries:
        return {e.name: e.stat() for e in sorted(entries, key=lambda e: e.name) if e.name.endswith(".py")}


def _sizes(sources: Mapping[str, os.stat_result]) -> str:
    return sha256("".join(f"{name} {stat.st_size}\n" for name, stat in sources.items()).encode()).hexdigest()


def _contents(sources: Mapping[str, os.stat_result]) -> str:
    folder = Path(__file__).parent
    texts = (f"{name} {sha256((folder / name).read_bytes()).hexdigest()}\n" for name in sources)
    return sha256("".join(texts).encode()).hexdigest()
