"""Cache of parsed and compiled programs on disk, shared between processes and keyed by the contents of the model's files.

The key of a parsed program covers the contents of the model file and of the files beside it that it references (external
weights), the parse options, and a fingerprint of all code that takes part.  Only the parser knows which files are referenced, so
their list is stored under the digest of the model file.  The key of a compiled program adds target, machine, settings and compile
options; it names a program file in the user's cache folder.  A later process that reads the same contents parses the model
only if its modules are accessed, and compiles it by loading that file.  Missing and damaged entries are recreated.

Programs are cached from the second process on that compiles a file (see `mgx_core.first_compilation`), from the first where
``MGX_KEEP_PROGRAMS`` is 1, and never where it is 0.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgpack

from ..cache import DiskCache, is_private
from ..compile.pipeline import STAGES
from ..errors import MgxError, ParseError, StoreError
from ..hashing import sha256
from ..ir.graph import Graph
from ..log import debugging, listen, log
from ..options import CompileOptions
from ..plugins.fingerprint import fingerprint
from ..plugins.manager import manager
from ..records import dataclass
from ..settings import compilation_variables
from ..targets.calls import called
from ..types.dynamic_dimension import DynamicDimension
from ..types.signature import Signature
from . import cached_chunks, load_cached
from .codec import Decoder, Encoder
from .digests import is_stable
from .literals import Sources
from .model_file import ModelFile
from .seal import SIZE, seal, sealed, seals

if TYPE_CHECKING:
    from ..run.executable import Executable
    from ..targets.target import Target

__all__ = ["Origin", "Place"]

FORMAT: Final = 4
LIMIT: Final = 4 << 30  # maximum bytes of all programs; files above a quarter of it are not cached
INSTANCES: Final = 4  # maximum instances of one program, and writes of it per process
PLAIN: Final = (type(None), bool, int, float, str, bytes)


class Origin:
    """The files and options that determine a parsed program.

    files: the model file and the files in its folder that it references; key: the cache key of all.
    """

    def __init__(self, file: ModelFile, about: str) -> None:
        self.files: tuple[ModelFile, ...] = (file,)
        self.known: Signature | None = None  # the record of an earlier process
        self._names: list[str] = []  # of the files but the first
        self._since = time.time_ns()
        self._first_key = sha256(about.encode()).hexdigest()

    @classmethod
    def of(cls, path: Any, frontend: str, options: Mapping[str, Any]) -> Self | None:
        """Returns the origin of a model file; None if it cannot be determined, or must not be cached."""
        listen()
        given = _as_text(dict(options))
        if given is None or debugging() or not seals():
            return None
        code = fingerprint(STAGES)
        file = ModelFile.of(Path(path), LIMIT // 4) if code else None
        if file is None:
            return None
        return cls(file, repr((FORMAT, file.digest, frontend, given, code, compilation_variables("MGX_"))))

    @property
    def others(self) -> list[Path]:
        """The referenced files (all but the first), with symlinks resolved."""
        return [file.path.resolve() for file in self.files[1:]]

    @property
    def key(self) -> str:
        if not self._names:
            return self._first_key
        digests = [file.digest for file in self.files[1:]]
        return sha256(repr((self._first_key, self._names, digests)).encode()).hexdigest()

    @property
    def source(self) -> Sources:
        return Sources(*(file.bytes for file in self.files))

    @property
    def there(self) -> bool:
        """True if all paths still refer to the files that were read."""
        return all(file.there for file in self.files)

    @property
    def unchanged(self) -> bool:
        """True if all paths still refer to the files that were read, with unchanged contents."""
        return all(file.unchanged for file in self.files)

    def contents(self) -> bytes:
        """Returns the bytes that were read, even if the path has been replaced.

        Errors: ParseError if they were overwritten or are incomplete.
        """
        data = self.files[0].contents() if not self._names else None
        if data is None:
            moved = next((file.path for file in self.files if not file.there), None) if self._names else None
            changed = "the file was overwritten" if moved is None else f"{str(moved)!r} was changed"
            raise ParseError(f"{changed} after it was parsed; parse it again")
        return data

    def covers(self, files: Sequence[Any], identities: Mapping[str, tuple[int, ...]]) -> bool:
        """Returns True if these are all files that a program was just parsed from, unchanged.

        files: the model file first; identities: of the others, by name, when they were opened (see `Program`).  New files are
        examined now; their last change must precede the creation of this origin by enough to detect later changes.
        """
        if not files or Path(files[0]).absolute() != self.files[0].path:
            return False
        if not identities:
            return len(files) == 1 and not self._names
        if not self._names:
            rest = all(is_stable(identity, self._since) for identity in identities.values())
            if not rest or not self._look_at(sorted(identities)):
                return False
        same = all(f.identity == identities.get(n) for n, f in zip(self._names, self.files[1:], strict=True))
        return same and self._names == sorted(identities) and {*map(Path, files[1:])} == {*self.others}

    def _look_at(self, names: list[str]) -> bool:
        """Adds files by their names in the first one's folder; returns False if one is missing or the total size is too large."""
        folder = self.files[0].path.resolve().parent
        left = LIMIT // 4 - self.files[0].bytes.size
        found = []
        for name in names:
            file = ModelFile.of(folder / name, left)
            if file is None:
                return False
            found.append(file)
            left -= file.bytes.size
        self._names, self.files = names, (self.files[0], *found)
        return True

    def look_up(self) -> Signature | None:
        """Returns an earlier process's record of the program, and stores it as `known`."""
        plain = self._noted()
        if plain is not None and "files" in plain:
            plain = self._noted() if self._look_at(plain["files"]) else None
        if plain is None:
            return None
        values = Decoder(plain["symbols"])
        shapes = {name: values.shape(shape) for name, shape in plain["parameters"].items()}
        self.known = Signature(shapes, [values.shape(shape) for shape in plain["results"]], plain["outputs"])
        return self.known

    def describe(self, about: Signature) -> None:
        """Records the program's signature, so that later processes need not parse it."""
        values = Encoder()
        plain = {
            "parameters": {name: values.shape(shape) for name, shape in about.parameters.items()},
            "results": [values.shape(shape) for shape in about.results],
            "outputs": list(about.output_names),
        }
        self._note(self.key, {**plain, "symbols": values.table()})
        if self._names:
            self._note(self._first_key, {"files": self._names})

    def _noted(self) -> Any:
        """Returns the record that an earlier process of this user stored under the current key, or None."""
        found = DiskCache("parsed", FORMAT).get(self.key)
        if found is None or not sealed(self.key.encode() + found[SIZE:], found[:SIZE]):
            return None
        return msgpack.unpackb(found[SIZE:])

    def _note(self, key: str, plain: Any) -> None:
        packed = msgpack.packb(plain)
        DiskCache("parsed", FORMAT).put(key, seal(key.encode() + packed) + packed)

    def place(self, target: Target, context: Any, options: CompileOptions) -> Place | None:
        """Returns the cache entry of the program compiled for a target; None if the target or options are not cacheable."""
        if options.exhaustive_tune or options.validate or target.name not in manager().names("targets"):
            return None
        folder = _programs().folder
        if os.path.exists(folder) and not is_private(folder):
            return None
        settings = called(target, "settings", lambda: target.settings(context))
        if settings is None or type(target) is not type(manager().target(target.name)):
            return None
        passes = "" if options == CompileOptions() else fingerprint(STAGES, options)  # by default those of the key
        if not passes and options != CompileOptions():
            return None
        about = repr((self.key, passes, target.name, target.machine(context), settings, options))
        return Place(self, sha256(about.encode()).hexdigest(), target, context)


@dataclass
class Place:
    """The cache entry of a compiled program, which may not exist yet."""

    origin: Origin
    key: str
    target: Target
    context: Any
    note: str = ""  # why the existing entry could not be used
    left: int = INSTANCES  # remaining writes

    def load(self, about: Signature) -> Executable | None:
        """Returns the program that an earlier process compiled; None if it is missing or corrupt, or if a file changed."""
        path = _programs().path(self.key)
        if not os.path.isfile(path) or not is_private(path) or not seals() or not self.origin.there:
            return None
        try:
            found = load_cached(path, self.origin.source, self.target, self.context, self.key).executable
            notes = ["its kernels are missing"] if found is None else found.notes
        except MgxError as error:
            found, notes = None, [str(error)]
        if not self.origin.there:
            return None
        if notes or found is None:
            _programs().drop(self.key)
            self.note = f"the cached program could not be used and was recompiled: {notes[0]}"
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # evicts the oldest entries
        found.on_instance = functools.partial(self._write, about)
        return found

    def keep(self, about: Signature, made: Executable) -> None:
        """Writes a compiled program, once it has an instance, and again with each of the next few instances."""
        if made.instances():
            self._write(about, made)
        made.on_instance = functools.partial(self._write, about)
        if self.note:
            made.note(self.note)

    def _write(self, about: Signature, made: Executable) -> None:
        """Writes the compiled program, unless a file of the model changed since it was read or the program has notes."""
        try:
            if not self.left or not self.origin.there or not made.restore_saved():
                return
            if len(made.instances()) > INSTANCES or any(note != self.note for note in made.notes):
                return
            chunks = cached_chunks(_Whole(about.output_names, made), self.origin.source, LIMIT // 4, self.key)
            if chunks is not None:
                self.left -= 1
                _programs().put_file(self.key, self._unless_changed(chunks))
                self.origin.describe(about)
        except Exception as error:  # caching errors must not make compilation fail
            log.debug("the program is not cached: %s: %s", type(error).__name__, error)

    def _unless_changed(self, chunks: Iterable[Any]) -> Iterator[Any]:
        """Yields the chunks of a file.

        Errors: StoreError at the end if a file of the model changed meanwhile, so that nothing is cached.
        """
        yield from chunks
        if not self.origin.unchanged:
            raise StoreError("a file of the model was changed")


@dataclass
class _Whole:
    """A compiled program to be written; its modules are those of its executable."""

    output_names: list[str]
    executable: Executable
    states: dict[str, Any] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return Graph(self.executable.module)


def _programs() -> DiskCache:
    return DiskCache("programs", FORMAT, limit=LIMIT)


def _as_text(value: Any) -> Any:
    """Returns options as text for a cache key; None if a value has no stable text."""
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
