"""Serialization of programs, as bytes or ``.mxr`` files in msgpack or JSON; literals are memory-mapped on load."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..cache import write_file
from ..errors import MgxError, ParameterError, StoreError, UnsupportedError
from ..sources import file_bytes, file_path
from .codec import Decoder
from .container import Stored, json_chunks, msgpack_chunks, pack, read_bytes, read_file, unpack
from .contents import Contents, Storable
from .literals import LiteralReader, LiteralWriter, Sources
from .migrations import migrated
from .seal import seal as seal_of
from .seal import sealed

if TYPE_CHECKING:
    from ..ir.graph import Graph
    from ..targets.target import Target

__all__ = [
    "Contents", "Storable", "cached_chunks", "check_format", "digest", "load", "load_buffer", "load_cached", "save",
    "save_buffer",
]  # fmt: skip

T = TypeVar("T")

# errors raised by decoding corrupt data
FOREIGN: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RecursionError)

_FORMATS: Final = {"msgpack": msgpack_chunks, "json": json_chunks}


def save(program: Storable, path: Any, format: str = "msgpack") -> None:
    """Writes a program to a file (``msgpack`` or ``json``), which is replaced atomically.

    The file of a compiled program contains the optimized module, the target's name, the options, the passes' records, and for
    each instance the target's compiled kernels, tuning results and packed weights; see `load`.
    Errors: ParameterError for an unknown format; StoreError if the file cannot be written or the program holds something that
    has no stored form.
    """
    where = Path(file_path(path, "save", "save_buffer"))
    try:
        write_file(where, _chunks(program, format))
    except StoreError as error:
        raise error.located(str(where)) from None
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror or error}").located(str(where)) from error


def save_buffer(program: Storable, format: str = "msgpack") -> bytes:
    """Serializes a program to bytes."""
    return b"".join(_chunks(program, format))


def digest(program: Storable) -> str:
    """Returns the SHA-256 of a program's serialized form, in hexadecimal; computed in chunks."""
    from hashlib import sha256  # imports OpenSSL, which is slow

    made = sha256()
    for chunk in _chunks(program, "msgpack"):
        made.update(chunk)
    return made.hexdigest()


def cached_chunks(program: Storable, source: Sources, limit: int, key: str) -> Iterator[Any] | None:
    """Serializes a compiled program in chunks; literals stored in the model's files are references to these.

    key: the cache key; the user's seal covers it and all metadata.
    Returns None if its own literals exceed `limit` bytes, if some kernels cannot be stored, or if the user has no key.
    """
    metadata, literals = _encoded(program, source)
    whole = metadata["compiled"]["instances"] and not metadata["compiled"]["notes"]
    if not whole or literals.bytes > limit:
        return None
    packed = pack(metadata)
    mark = seal_of(key.encode() + packed)
    return msgpack_chunks({"program": packed, "seal": mark}, literals) if mark else None


def load_cached(path: Path, source: Sources, target: Target, context: Any, key: str) -> Contents:
    """Loads a file of `cached_chunks` for the caller's target and context, verifying all checksums.

    Errors: StoreError if the file is damaged, or was not written by this user under this key.
    """
    stored = read_file(path, True)
    match stored.metadata:
        case {"program": bytes() as packed, "seal": bytes() as given} if sealed(key.encode() + packed, given):
            return _contents(stored._replace(metadata=unpack(packed)), True, source, (target, context))
    raise StoreError("it has no valid seal of this user for this model")


def load(path: Any, check: bool = False, trust: bool | None = None) -> Contents:
    """Loads a file in either format; its literals are read-only views of the memory-mapped file.

    A compiled program is ready to run, with the kernels from the file if this machine matches the one that compiled them;
    otherwise they are recompiled. If its target is not installed or not usable, the program is left uncompiled (the reason
    is logged and recorded in the executable's notes).
    check: verify the checksums of all literals too, which reads the whole file; trust: whether to load compiled code from
    the file (None: if the same user wrote it).
    Errors: StoreError for files that are corrupt, truncated or written by a newer mgx; UnsupportedError for unknown ops.
    """
    where = Path(file_path(path, "load", "load_buffer"))
    try:
        return _contents(read_file(where, check), trust)
    except (StoreError, UnsupportedError) as error:
        raise error.located(str(where)) from None


def load_buffer(data: Any, trust: bool | None = None) -> Contents:
    """Loads a program from bytes; see `load`."""
    data = file_bytes(data, "load_buffer", "load")
    return _contents(read_bytes(data if isinstance(data, bytes) else bytes(data)), trust)


def check_format(format: str) -> None:
    """Errors: ParameterError for an unknown format."""
    if format not in _FORMATS:
        raise ParameterError(f"format must be one of {', '.join(map(repr, _FORMATS))}, got {format!r}")


def _chunks(program: Storable, format: str) -> Any:
    from .compiled import with_seal

    check_format(format)
    metadata, literals = _encoded(program)
    return _FORMATS[format](with_seal(metadata), literals)


def _encoded(program: Storable, source: Sources | None = None) -> tuple[dict[str, Any], LiteralWriter]:
    """Returns a program's metadata and its literals."""
    from ..plugins.manager import manager
    from ..version import __version__
    from .compiled import plain_executable
    from .modules import ModuleEncoder

    if program.states:
        raise StoreError(
            f"a program with states ({', '.join(program.states)}) cannot be saved; keep the original model file"
        )
    compiled = program.executable
    if compiled is not None and compiled.watches:
        raise StoreError("a program with watched parameters cannot be saved; save it before compiling")
    encoder = ModuleEncoder(source)
    main = encoder.module(program.graph.main if compiled is None else compiled.module)
    extra = None if compiled is None else plain_executable(compiled, encoder.values, encoder.literals)
    metadata = {
        "mgx": __version__,
        "plugins": [[r.name, r.distribution, r.version] for r in manager().records if r.state == "ok"],
        "compiled": extra,
        "outputs": list(program.output_names),
        "symbols": encoder.values.table(),
        "literals": encoder.literals.table,
        "main": main,
    }
    return metadata, encoder.literals


def _contents(
    stored: Stored, trust: bool | None, source: Sources | None = None, on: tuple[Target, Any] | None = None
) -> Contents:
    data: Any = {}

    def fitting(part: Callable[[], T]) -> T:
        """Decodes a part of the program; errors name the file."""
        try:
            return part()
        except UnsupportedError as error:
            written = ", ".join(f"{d} {v}" for _, d, v in data.get("plugins", ())) or "no plugins"
            raise error.located(f"a program written by mgx {data.get('mgx')} with {written}") from None
        except StoreError:
            raise
        except (MgxError, *FOREIGN) as error:
            raise StoreError(f"the file's program is inconsistent: {type(error).__name__}: {error}") from error

    def whole() -> Contents:
        data.update(migrated(stored.metadata, stored.format))
        literals = LiteralReader(data["literals"], stored.section, stored.check, source)
        values = Decoder(data["symbols"])

        def decoded() -> Graph:
            from ..ir.graph import Graph
            from ..plugins.manager import manager
            from .modules import ModuleDecoder

            main = data["main"]  # bytes, except in JSON and in files of older formats
            main = unpack(main) if isinstance(main, bytes) else main
            return Graph(ModuleDecoder(manager().opset(), values, literals).module(main))

        contents = Contents(functools.cache(lambda: fitting(decoded)), [str(n) for n in data["outputs"]])
        if data["compiled"] is not None:
            from .compiled import restore

            restore(contents, data, values, literals, trust, on)
        if contents.executable is None or not contents.executable.restored:
            contents.graph()
        return contents

    return fitting(whole)
