"""Programs kept between processes: what a model file was read as and compiled to, found by the file's contents.

A program that was read from one file is known by that file's contents, the options it was read with, and the stamp of all code
that takes part.  Together with target, machine, settings and compile options they name what it was compiled to, which lies in
the user's cache folder as a program file.  The next process that reads the same contents gets a program that is parsed only if
someone looks at its modules, and compiles it by loading that file.  Whatever cannot be found, or is damaged, is made again.

Programs are kept only where ``MGX_KEEP_PROGRAMS`` is 1.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgpack
import numpy as np

from ..cache import DiskCache
from ..errors import MgxError, ParseError
from ..ir.graph import Graph
from ..log import debugging, listen, log
from ..options import CompileOptions
from ..plugins.manager import manager
from ..plugins.stamp import stamp
from ..settings import of_code
from ..types.argument import Array
from ..types.dynamic_dimension import DynamicDimension
from ..types.signature import Signature
from . import kept_chunks, load_kept
from .codec import Decoder, Encoder

if TYPE_CHECKING:
    from ..run.executable import Executable
    from ..targets.target import Target

__all__ = ["Origin", "Place"]

FORMAT: Final = 1
LIMIT: Final = 4 << 30  # bytes of all programs together; a file of more than a quarter is not kept
INSTANCES: Final = 4  # sets of input shapes of one program
PLAIN: Final = (type(None), bool, int, float, str, bytes)


class Origin:
    """The one file that a program was read from, its contents mapped, and all that decided what they were read as.

    digest: of the contents; key: a name for everything.
    """

    def __init__(self, path: Path, source: Array, digest: str, key: str, state: os.stat_result) -> None:
        self.path = path
        self.source = source
        self.digest = digest
        self.key = key
        self.known: Signature | None = None  # what an earlier process noted of the program
        self._state = _identity(state)

    @classmethod
    def of(cls, path: Any, frontend: str, options: Mapping[str, Any]) -> Self | None:
        """The origin of what a frontend reads from a file; None where it cannot be known, or not be kept."""
        listen()
        said = _said(dict(options))
        code = stamp() if not debugging() and said is not None else ""
        if not code:
            return None
        try:
            with open(path, "rb") as file:
                state = os.fstat(file.fileno())
                if not stat.S_ISREG(state.st_mode) or not 0 < state.st_size <= LIMIT // 4:
                    return None
                digest = _digest(file)
                source = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        except (OSError, TypeError, ValueError):
            return None
        about = repr((FORMAT, digest, frontend, said, code, of_code("MGX_")))
        return cls(Path(path).absolute(), source, digest, hashlib.sha256(about.encode()).hexdigest(), state)

    @property
    def there(self) -> bool:
        """True if its path still leads to the file that was read."""
        try:
            return _identity(self.path.stat()) == self._state
        except OSError:
            return False

    def contents(self) -> bytes:
        """The bytes that were read, whatever the path leads to now.  Errors: ParseError if they were overwritten."""
        data = self.source.tobytes()
        if _digest(io.BytesIO(data)) != self.digest:
            raise ParseError("the file was overwritten after it was parsed; parse it again")
        return data

    def look_up(self) -> Signature | None:
        """Returns what an earlier process noted of the program, and keeps it as `known`."""
        found = DiskCache("parsed", FORMAT).get(self.key)
        if found is None:
            return None
        plain = msgpack.unpackb(found)
        values = Decoder(plain["symbols"])
        shapes = {name: values.shape(shape) for name, shape in plain["parameters"].items()}
        self.known = Signature(shapes, [values.shape(shape) for shape in plain["results"]], plain["outputs"])
        return self.known

    def describe(self, about: Signature) -> None:
        """Notes what the program is, so that it need not be parsed again."""
        values = Encoder()
        plain = {
            "parameters": {name: values.shape(shape) for name, shape in about.parameters.items()},
            "results": [values.shape(shape) for shape in about.results],
            "outputs": list(about.output_names),
        }
        DiskCache("parsed", FORMAT).put(self.key, msgpack.packb({**plain, "symbols": values.table()}))

    def place(self, target: Target, context: Any, options: CompileOptions) -> Place | None:
        """The place of the program's compiled form for a target; None for targets and options of which none is kept."""
        if options.exhaustive_tune or options.validate or target.name not in manager().names("targets"):
            return None
        settings = target.settings(context)
        if settings is None or type(target) is not type(manager().target(target.name)):
            return None
        about = repr((self.key, target.name, target.machine(context), settings, options))
        return Place(self, hashlib.sha256(about.encode()).hexdigest(), target, context)


@dataclass
class Place:
    """The place of a compiled program in the cache, filled or not."""

    origin: Origin
    key: str
    target: Target
    context: Any
    note: str = ""  # why what lay there could not be used

    @property
    def _disk(self) -> DiskCache:
        return DiskCache("programs", FORMAT, limit=LIMIT)

    def load(self, about: Signature) -> Executable | None:
        """Returns what an earlier process compiled; None if there is nothing, or nothing intact."""
        path = self._disk.path(self.key)
        if not path.is_file():
            return None
        try:
            found = load_kept(path, self.origin.source, self.target, self.context).executable
            notes = ["its kernels are missing"] if found is None else found.notes
        except MgxError as error:
            found, notes = None, [str(error)]
        if notes or found is None:
            self._disk.drop(self.key)
            self.note = f"what was kept of this program could not be used, so it was compiled again: {notes[0]}"
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the oldest go first
        found.on_instance = functools.partial(self._write, about)
        return found

    def keep(self, about: Signature, made: Executable) -> None:
        """Writes a compiled program: now, or once a run has given it an instance; and again with each of the next few."""
        if made.instances():
            self._write(about, made)
        made.on_instance = functools.partial(self._write, about)
        if self.note:
            made.note(self.note)

    def _write(self, about: Signature, made: Executable) -> None:
        try:
            if made.restore_saved() > INSTANCES:
                return
            whole = _Whole(about.output_names, made)
            chunks = kept_chunks(whole, self.origin.source, LIMIT // 4)
        except MgxError as error:
            log.debug("the program is not kept: %s", error)
            return
        if chunks is not None:
            self._disk.put_file(self.key, chunks)
            self.origin.describe(about)


@dataclass
class _Whole:
    """A compiled program to be written, which has no other modules than its executable's."""

    output_names: list[str]
    executable: Executable
    states: dict[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return Graph(self.executable.module)


def _digest(file: Any) -> str:
    """A digest of a file's contents, by the quickest way that is installed."""
    try:
        from xxhash import xxh3_128
    except ImportError:
        return "sha256 " + hashlib.file_digest(file, "sha256").hexdigest()
    return "xxh3 " + hashlib.file_digest(file, xxh3_128).hexdigest()


def _identity(state: os.stat_result) -> tuple[int, ...]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _said(value: Any) -> Any:
    """Options as what names them in a key; None if they hold something that has no such name."""
    match value:
        case None | bool() | int() | float() | str() | bytes() if type(value) in PLAIN:
            return repr(value)
        case os.PathLike():
            return repr(os.fspath(value))
        case DynamicDimension():
            return repr((value.min, value.max, sorted(value.optimals)))
        case Mapping():
            parts = [(_said(k), _said(v)) for k, v in value.items()]
            return None if any(p is None for pair in parts for p in pair) else repr(("mapping", parts))
        case list() | tuple():
            items = [_said(v) for v in value]
            return None if None in items else repr(("list", items))
    return None
