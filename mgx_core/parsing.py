"""Parses files of any format: selects the frontend, checks its options and fixes extents."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import MgxError, ParameterError, ParseError, PluginError, UnsupportedError, suggestion
from .extents import EXTENT_OPTIONS, with_extents
from .first_compilation import FirstCompilation
from .frontend import Frontend, checked_frontend
from .garbage import rarer_collections
from .log import debugging, listen, log
from .option_types import check_options
from .program import Program
from .settings import keeps_programs
from .sources import contents, file_bytes, file_path, unreadable

if TYPE_CHECKING:
    from logging import LogRecord

    from .store.program_cache import Origin

__all__ = ["PROGRAM", "PROGRAM_TEXT", "frontend_of", "parse", "parse_buffer", "reader_of", "refuse_others"]

STORED: Final = ("mxr", "mgx", "msgpack", "json")  # extensions of program files
TEXT: Final = ("txt", "text")  # extensions of programs as text
WARNING: Final = 30  # as in `logging`, which is loaded for the first message
WHICH: Final = 'name the frontend that reads it: parse(path, "NAME"), in the driver --frontend NAME'
PROGRAM, PROGRAM_TEXT = "a stored program", "a program as text"


@rarer_collections()
def parse(path: str | os.PathLike[str] | bytes, frontend: str | None = None, **options: Any) -> Program:
    """Returns a program from a file of any format that an installed frontend reads, or that mgx writes.

    path: path of the file, or its contents as bytes, which need an explicit frontend unless mgx wrote them.
    frontend: name of the frontend; by default selected by the file's extension.
    options: the frontend's own, and ``default_dim_value``, ``default_dyn_dim_value``, ``dim_params``, ``map_input_dims`` and
    ``map_dyn_input_dims`` (`with_extents`), supported for all formats: the core fixes the extents if the frontend does not.
    Errors: UnsupportedError if no frontend reads the format; ParameterError for an option that the frontend does not have or a
    value of the wrong type; ParseError for missing and corrupt files; other errors of the frontend, with the file's name added.
    """
    if isinstance(path, (bytes, bytearray, memoryview)):
        return _of_bytes(bytes(path), **options) if frontend is None else parse_buffer(path, frontend, **options)
    path = file_path(path, "parse", "parse_buffer(data, frontend)")
    reader = reader_of(path) if frontend is None else frontend
    if reader not in (PROGRAM, PROGRAM_TEXT):
        return _cached_or_parsed(reader, options, path)
    refuse_others(f"{reader} ({os.fspath(path)!r})", (), options)
    if reader == PROGRAM:
        from . import store

        return with_extents(Program.loaded(store.load(path)), **options)
    text = contents(path)
    try:
        return with_extents(_of_text(text), **options)
    except MgxError as error:
        raise error.located(_file(path)) from None


def _of_bytes(data: bytes, **options: Any) -> Program:
    """Loads a program from the bytes of an mgx file.  Errors: ParameterError for other bytes, which need an explicit frontend."""
    from .store.container import is_program

    if is_program(data[:256]):
        from . import store

        refuse_others("a stored program", (), options)
        return with_extents(Program.loaded(store.load_buffer(data)), **options)
    if not _is_text(data[:256]):
        raise ParameterError(
            f"parse got {len(data)} bytes, which are not a program of mgx: name the frontend that reads them, "
            'parse(data, "NAME")'
        )
    refuse_others("a program as text", (), options)
    return with_extents(_of_text(data), **options)


def _of_text(data: bytes) -> Program:
    """Parses a program in text form (UTF-8).  Errors: ParseError for other text."""
    from .ir.text.parser import parse_graph
    from .plugins.manager import manager

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"a program as text must be UTF-8, got byte {error.start} as {data[error.start]:#x}") from None
    return Program(parse_graph(text, manager().opset()))


def _cached_or_parsed(reader: str, options: Mapping[str, Any], path: str | os.PathLike[str]) -> Program:
    """Returns the program of a model file: from the program cache if its contents match, else parsed."""
    keeping = keeps_programs()
    first = FirstCompilation.of(path, reader) if keeping == "again" else None
    origin = None
    if keeping != "never" and first is None:
        from .store.program_cache import Origin

        origin = Origin.of(path, reader, options)
    if origin is None:
        made = frontend_of(reader)
        program = _parsed(reader, made.parse, options, made, path)
        if first is not None:
            program.stems_from(first)
        return program
    known = origin.look_up()
    if known is not None:
        return Program.kept(
            origin, known.output_names, Path(path), lambda: _parsed_again(reader, options, path, origin)
        )
    warnings = _Warnings()
    log.addFilter(warnings)
    try:
        made = frontend_of(reader)
        program = _parsed(reader, made.parse, options, made, path)
    finally:
        log.removeFilter(warnings)
    if not warnings.seen and origin.covers(program.files, program.beside):
        program.stems_from(origin)
    return program


def _parsed_again(reader: str, options: Mapping[str, Any], path: str | os.PathLike[str], origin: Origin) -> Program:
    """Parses a file by path if it is unchanged before and after, else from the contents already read."""
    made = frontend_of(reader)
    if origin.there:
        program = _parsed(reader, made.parse, options, made, path)
        if origin.there:
            return program
    try:
        return _parsed(reader, made.parse_buffer, options, made, origin.contents())
    except MgxError as error:
        raise error.located(_file(path)) from None


class _Warnings:
    """Records whether there were warnings: a cached program is loaded without them, so it must have been parsed without any."""

    seen = False

    def __call__(self, record: LogRecord) -> bool:
        self.seen = self.seen or record.levelno >= WARNING
        return True


@rarer_collections()
def parse_buffer(data: bytes, frontend: str, **options: Any) -> Program:
    """Parses the bytes of a file with the named frontend; options and errors as for `parse`."""
    data = file_bytes(data, f"parse_buffer for frontend {frontend!r}", "parse")
    made = frontend_of(frontend)
    return _parsed(frontend, made.parse_buffer, options, made, data if isinstance(data, bytes) else bytes(data))


def reader_of(path: str | os.PathLike[str]) -> str:
    """Returns the name of the frontend for a file, `PROGRAM` or `PROGRAM_TEXT`.

    The longest matching extension wins (``tar.gz`` before ``gz`` for ``model.tar.gz``).  A file with an extension of program
    files that is not a program goes to a frontend with that extension.
    Errors: UnsupportedError if no frontend reads the extension; ParseError if there is no such file.
    """
    from .plugins.manager import manager
    from .plugins.missing import FILES

    name = Path(path).name.lower()
    offered = {n.lstrip(".").lower(): n for n in manager().names("frontends")}
    offered |= {e.lower(): lazy.name for _, lazy in manager().offered("frontends") for e in lazy.files}
    if os.path.isdir(path):  # `Path.is_dir` raises if the folder around it may not be entered
        return _reader_of_folder(Path(path), offered)
    fitting = [n for n in (*offered, *STORED, *TEXT) if name.endswith("." + n)]
    if fitting:
        longest = max(fitting, key=len)
        ours = PROGRAM if longest in STORED else PROGRAM_TEXT if longest in TEXT else None
        if ours is None or (longest in offered and not _holds(path, ours)):
            return offered[longest]
        return ours
    last = name.rpartition(".")[2]
    if last in FILES:
        return FILES[last]
    if os.path.isfile(path) and _holds(path, PROGRAM):
        return PROGRAM
    try:
        os.stat(path)
    except OSError as error:
        raise unreadable(path, error) from None
    have = ", ".join(f".{n}" for n in sorted({*offered, *STORED, *TEXT}))
    raise UnsupportedError(f"no frontend reads the extension of {os.fspath(path)!r} (known are {have}); {WHICH}")


def _reader_of_folder(folder: Path, offered: Mapping[str, str]) -> str:
    """Returns the name of the frontend for a folder, selected by the files in it."""
    for name in sorted(offered, key=len, reverse=True):
        if "." in name and os.path.isfile(folder / name):
            return offered[name]
    if "saved_model.pb" not in offered and os.path.isfile(folder / "saved_model.pb"):
        return "tf"
    have = ", ".join(sorted(n for n in offered if "." in n))
    known = f"it holds none of {have}" if have else "no installed frontend reads folders; mgx-tf reads SavedModels"
    raise UnsupportedError(f"no frontend reads the folder {os.fspath(folder)!r} ({known}); {WHICH}")


def _holds(path: str | os.PathLike[str], kind: str) -> bool:
    """Returns True if a file starts with the signature of an mgx program.  Errors: ParseError if it cannot be read."""
    head = contents(path, 256)
    if kind == PROGRAM:
        from .store.container import is_program

        return is_program(head)
    return _is_text(head)


def _is_text(head: bytes) -> bool:
    return head.lstrip().startswith((b"module ", b"symbol "))


def frontend_of(name: str) -> Frontend:
    """Returns the frontend for a format.  Errors: UnsupportedError if none is installed; PluginError if it is broken."""
    from .plugins.manager import manager

    named = {n.lstrip("."): n for n in manager().names("frontends")}
    return manager().make("frontends", named.get(name.lstrip("."), name), checked_frontend)


def _parsed(
    name: str, read: Callable[..., Any], options: Mapping[str, Any], frontend: Frontend, source: Any
) -> Program:
    """Parses a file or bytes with a frontend and fixes its extents.  Errors: see `parse`."""
    place = "" if isinstance(source, (bytes, bytearray, memoryview)) else _file(source)
    taken, any_other = _options_of(frontend, read)
    if not any_other:
        refuse_others(f"frontend {name!r}", taken, options)
    given = {k: v for k, v in options.items() if k in taken or (any_other and k not in EXTENT_OPTIONS)}
    rest = {k: v for k, v in options.items() if k not in given}
    for stated in (read, frontend.parse_buffer) if frontend.options is None else (frontend.options,):
        check_options(f"frontend {name!r}", stated, given)
    check_options(f"frontend {name!r}", with_extents, rest)
    try:
        try:
            program = read(source, **given)
        except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
            if isinstance(error, MgxError):
                raise
            if isinstance(error, OSError) and isinstance(error.filename, str):
                raise unreadable(error.filename, error) from error
            raise PluginError(f"frontend {name!r} failed: {type(error).__name__}: {error}") from error
        if not isinstance(program, Program):
            raise PluginError(f"frontend {name!r} must return a Program, got {type(program).__name__}")
        try:
            program.get_output_names()
        except ParameterError as error:
            raise PluginError(f"frontend {name!r} returned an invalid program: {error.message}") from None
        listen()
        if debugging():
            log.debug("parsed %s: %d instructions", place or f"{name} bytes", len(program.get_main_module()))
        return with_extents(program, **rest) if rest else program
    except MgxError as error:
        if place and os.fspath(source) not in str(error):
            error.located(place)
        if place and isinstance(error, ParseError) and os.path.isfile(source) and _holds(source, PROGRAM):
            error.message += "; the file holds a program of mgx, which load reads"
        raise


def _options_of(frontend: Frontend, read: Callable[..., Any]) -> tuple[frozenset[str], bool]:
    """Returns the option names in a frontend's signature, and whether it accepts others.

    A frontend may declare a record of options; a `parse` with ``**options`` passes them on to `parse_buffer`.
    """
    if frontend.options is not None:
        return frozenset(f.name for f in dataclasses.fields(frontend.options)), False
    names: set[str] = set()
    asked = read
    while True:
        parameters = list(inspect.signature(asked).parameters.values())[1:]
        names |= {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return frozenset(names), False
        if asked == frontend.parse_buffer:
            return frozenset(names), True
        asked = frontend.parse_buffer


def refuse_others(who: str, taken: tuple[str, ...] | frozenset[str], options: Mapping[str, Any]) -> None:
    """Errors: ParameterError for an unknown option, or for extents of the wrong type."""
    for name in options:
        if name not in taken and name not in EXTENT_OPTIONS:
            near = suggestion(name, [*sorted(taken), *EXTENT_OPTIONS])
            raise ParameterError(f"{who} takes no option {name!r}; {near}")
    check_options(who, with_extents, {k: v for k, v in options.items() if k not in taken})


def _file(path: Any) -> str:
    return f"file {os.fspath(path)!r}"
