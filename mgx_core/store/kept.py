"""Programs kept between processes: what a model file was read as and compiled to, found by the file's contents.

A program that was read from one file is known by that file's contents, the options it was read with, and the stamp of all code
that takes part.  Together with target, machine, settings and compile options they name what it was compiled to, which lies in
the user's cache folder as a program file.  The next process that reads the same contents gets a program that is parsed only if
someone looks at its modules, and compiles it by loading that file.  Whatever cannot be found, or is damaged, is made again.

Programs are kept from the second process on that compiles a file (see `mgx_core.seen`), from the first where
``MGX_KEEP_PROGRAMS`` is 1, and never where it is 0.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgpack
import numpy as np

from ..cache import DiskCache, is_private
from ..compile.pipeline import STAGES
from ..errors import MgxError, ParseError, StoreError
from ..ir.graph import Graph
from ..log import debugging, listen, log
from ..options import CompileOptions
from ..plugins.manager import manager
from ..plugins.stamp import stamp
from ..records import dataclass
from ..settings import of_code
from ..targets.calls import called
from ..types.argument import Array
from ..types.dynamic_dimension import DynamicDimension
from ..types.signature import Signature
from . import kept_chunks, load_kept
from .codec import Decoder, Encoder
from .digests import RememberedDigest, digest_of, identity_of
from .seal import SIZE, seal, sealed, seals

if TYPE_CHECKING:
    from ..run.executable import Executable
    from ..targets.target import Target

__all__ = ["Origin", "Place"]

FORMAT: Final = 3
LIMIT: Final = 4 << 30  # bytes of all programs together; a file of more than a quarter is not kept
INSTANCES: Final = 4  # sets of input shapes of one program, and how often a process writes it
PLAIN: Final = (type(None), bool, int, float, str, bytes)


class Origin:
    """The one file that a program was read from, its contents mapped, and all that decided what they were read as.

    digest: of the contents; key: a name for everything.
    """

    def __init__(
        self, path: Path, mapped: mmap.mmap, digest: str, key: str, state: os.stat_result, rests: bool
    ) -> None:
        self.path = path
        self.source: Array = np.frombuffer(mapped, np.uint8)
        self.digest = digest
        self.key = key
        self.known: Signature | None = None  # what an earlier process noted of the program
        self._mapped = mapped
        self._state = identity_of(state)
        self._rests = rests

    @classmethod
    def of(cls, path: Any, frontend: str, options: Mapping[str, Any]) -> Self | None:
        """Returns the origin of what a frontend reads from a file; None where it cannot be known, or not be kept."""
        listen()
        given = _as_text(dict(options))
        if given is None or debugging() or not seals():
            return None
        code = stamp(STAGES)
        if not code:
            return None
        try:
            with open(path, "rb") as file:
                state = os.fstat(file.fileno())
                if not stat.S_ISREG(state.st_mode) or not 0 < state.st_size <= LIMIT // 4:
                    return None
                mapped = mmap.mmap(file.fileno(), state.st_size, access=mmap.ACCESS_READ)
                remembered = RememberedDigest(path, state)
                digest = remembered.found or digest_of(np.frombuffer(mapped, np.uint8))
                if identity_of(os.fstat(file.fileno())) != identity_of(state):
                    return None
                remembered.remember(digest)
        except (OSError, TypeError, ValueError):
            return None
        about = repr((FORMAT, digest, frontend, given, code, of_code("MGX_")))
        key = hashlib.sha256(about.encode()).hexdigest()
        return cls(Path(path).absolute(), mapped, digest, key, state, remembered.rests)

    @property
    def there(self) -> bool:
        """True if its path still leads to the file that was read."""
        try:
            return identity_of(self.path.stat()) == self._state
        except OSError:
            return False

    @property
    def unchanged(self) -> bool:
        """True if its path still leads to the file that was read, with the same contents.

        The contents are read again only where a change could have left all that the system notes of the file as it was.
        """
        return self.there and self._whole and (self._rests or digest_of(self.source) == self.digest)

    def contents(self) -> bytes:
        """Returns the bytes that were read, whatever the path leads to now.  Errors: ParseError if they were overwritten."""
        if self._whole:
            data = self.source.copy()
            if digest_of(data) == self.digest:
                return data.tobytes()
        raise ParseError("the file was overwritten after it was parsed; parse it again")

    @property
    def _whole(self) -> bool:
        """True if the file was not cut off: pages behind its end must not be touched."""
        return self._mapped.size() >= len(self._mapped)

    def look_up(self) -> Signature | None:
        """Returns what an earlier process noted of the program, and keeps it as `known`."""
        found = DiskCache("parsed", FORMAT).get(self.key)
        if found is None or not sealed(self.key.encode() + found[SIZE:], found[:SIZE]):
            return None
        plain = msgpack.unpackb(found[SIZE:])
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
        packed = msgpack.packb({**plain, "symbols": values.table()})
        DiskCache("parsed", FORMAT).put(self.key, seal(self.key.encode() + packed) + packed)

    def place(self, target: Target, context: Any, options: CompileOptions) -> Place | None:
        """Returns the place of the program's compiled form for a target; None for targets and options of which none is kept."""
        if options.exhaustive_tune or options.validate or target.name not in manager().names("targets"):
            return None
        folder = _programs().folder
        if folder.exists() and not is_private(folder):
            return None
        settings = called(target, "settings", lambda: target.settings(context))
        if settings is None or type(target) is not type(manager().target(target.name)):
            return None
        passes = "" if options == CompileOptions() else stamp(STAGES, options)  # by default those of the key
        if not passes and options != CompileOptions():
            return None
        about = repr((self.key, passes, target.name, target.machine(context), settings, options))
        return Place(self, hashlib.sha256(about.encode()).hexdigest(), target, context)


@dataclass
class Place:
    """The place of a compiled program in the cache, filled or not."""

    origin: Origin
    key: str
    target: Target
    context: Any
    note: str = ""  # why what lay there could not be used
    left: int = INSTANCES  # how often it may still be written

    def load(self, about: Signature) -> Executable | None:
        """Returns what an earlier process compiled; None if there is nothing, nothing intact, or if the model's file changed."""
        path = _programs().path(self.key)
        if not is_private(path) or not seals() or not self.origin.there:
            return None
        try:
            found = load_kept(path, self.origin.source, self.target, self.context, self.key).executable
            notes = ["its kernels are missing"] if found is None else found.notes
        except MgxError as error:
            found, notes = None, [str(error)]
        if not self.origin.there:
            return None
        if notes or found is None:
            _programs().drop(self.key)
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
        """Writes what is compiled, unless the model's file changed since it was read or something is to be told of it."""
        try:
            if not self.left or not self.origin.there or not made.restore_saved():
                return
            if len(made.instances()) > INSTANCES or any(note != self.note for note in made.notes):
                return
            chunks = kept_chunks(_Whole(about.output_names, made), self.origin.source, LIMIT // 4, self.key)
            if chunks is not None:
                self.left -= 1
                _programs().put_file(self.key, self._unless_changed(chunks))
                self.origin.describe(about)
        except Exception as error:  # keeping a program must not make compiling fail
            log.debug("the program is not kept: %s: %s", type(error).__name__, error)

    def _unless_changed(self, chunks: Iterable[Any]) -> Iterator[Any]:
        """Yields pieces of a file.

        Errors: StoreError at its end if the model's file changed meanwhile, so that it is not kept.
        """
        yield from chunks
        if not self.origin.unchanged:
            raise StoreError("the model's file was changed")


@dataclass
class _Whole:
    """A compiled program to be written, which has no other modules than its executable's."""

    output_names: list[str]
    executable: Executable
    states: dict[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return Graph(self.executable.module)


def _programs() -> DiskCache:
    return DiskCache("programs", FORMAT, limit=LIMIT)


def _as_text(value: Any) -> Any:
    """Returns options as what names them in a key; None if they hold something that has no such name."""
    match value:
        case None | bool() | int() | float() | str() | bytes() if type(value) in PLAIN:
            return repr(value)
        case os.PathLike():
            return repr(os.fspath(value))
        case DynamicDimension():
            names = value.ranges() if value.is_symbolic() else {}
            own = (value.min, value.max, sorted(value.optimals), str(value.extent))
            return repr((*own, [(n, _as_text(r)) for n, r in names.items()]))
        case Mapping():
            parts = [(_as_text(k), _as_text(v)) for k, v in value.items()]
            return None if any(p is None for pair in parts for p in pair) else repr(("mapping", parts))
        case list() | tuple():
            items = [_as_text(v) for v in value]
            return None if None in items else repr(("list", items))
    return None
