"""Program files: a program as bytes or as a ``.mxr`` file, in msgpack or JSON, literals memory-mapped when read."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any, Final

from ..errors import MgxError, ParameterError, StoreError, UnsupportedError
from ..ir.program import Graph
from ..options import CompileOptions
from ..plugins import manager
from ..program import Program
from .codec import Decoder
from .container import Stored, json_chunks, msgpack_chunks, read_bytes, read_file, write_file
from .literals import LiteralReader
from .modules import ModuleDecoder, ModuleEncoder

__all__ = ["load", "load_buffer", "save", "save_buffer"]

_FORMATS: Final = {"msgpack": msgpack_chunks, "json": json_chunks}
_log = logging.getLogger("mgx")


def save(program: Program, path: Any, format: str = "msgpack") -> None:
    """Write a program to a file (``msgpack`` or ``json``); the file is replaced in one step.

    Of a compiled program the file holds what was compiled, the target's name and the options; see `load`.
    Errors: ParameterError for an unknown format; StoreError if the file cannot be written or the program holds something that
    has no stored form.
    """
    where = Path(path)
    try:
        write_file(where, _chunks(program, format))
    except StoreError as error:
        raise error.located(str(where)) from None


def save_buffer(program: Program, format: str = "msgpack") -> bytes:
    """A program as the bytes of its file."""
    return b"".join(_chunks(program, format))


def load(path: Any, check: bool = False) -> Program:
    """A program from a file in either format; its literals are read-only views of the file, which is memory-mapped.

    A program that was compiled is compiled again for the same target with the same options if that target is installed and
    usable, and left uncompiled otherwise (the reason is logged); this version stores no compiled kernels.
    check: look at the checksums of all literals too, which reads the whole file.
    Errors: StoreError for files that are damaged, cut off or written by a newer mgx; UnsupportedError for unknown ops.
    """
    where = Path(path)
    try:
        return _program(read_file(where, check))
    except (StoreError, UnsupportedError) as error:
        raise error.located(str(where)) from None


def load_buffer(data: Any) -> Program:
    """A program from the bytes of its file; see `load`."""
    return _program(read_bytes(data if isinstance(data, bytes) else bytes(data)))


def _chunks(program: Program, format: str) -> Any:
    if format not in _FORMATS:
        raise ParameterError(f"format must be one of {', '.join(map(repr, _FORMATS))}, got {format!r}")
    from .. import __version__

    encoder = ModuleEncoder()
    main = encoder.module(program.graph.main)
    compiled = program.executable
    metadata = {
        "mgx": __version__,
        "plugins": [[r.name, r.distribution, r.version] for r in manager().records if r.state == "ok"],
        "compiled": None if compiled is None else {"target": compiled.target.name, "options": _plain(compiled.options)},
        "outputs": list(program._output_names),
        "symbols": encoder.values.table(),
        "literals": encoder.literals.table,
        "main": main,
    }
    return _FORMATS[format](metadata, encoder.literals)


def _plain(options: CompileOptions) -> dict[str, Any]:
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    return {k: dict(v) if hasattr(v, "items") else list(v) if isinstance(v, tuple) else v for k, v in given.items()}


def _program(stored: Stored) -> Program:
    data = stored.metadata
    try:
        literals = LiteralReader(data["literals"], stored.section, stored.check)
        decoder = ModuleDecoder(manager().opset(), Decoder(data["symbols"]), literals)
        program = Program(Graph(decoder.module(data["main"])), [str(n) for n in data["outputs"]])
        compiled = data["compiled"]
        target, options = ("", {}) if compiled is None else (str(compiled["target"]), dict(compiled["options"]))
    except UnsupportedError as error:
        written = ", ".join(f"{d} {v}" for _, d, v in data.get("plugins", ())) or "no plugins"
        raise error.located(f"a program written by mgx {data.get('mgx')} with {written}") from None
    except StoreError:
        raise
    except (
        MgxError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        AssertionError,
        RecursionError,
    ) as error:
        raise StoreError(f"the file's program does not fit together: {type(error).__name__}: {error}") from error
    if target:
        _compile_again(program, target, options)
    return program


def _compile_again(program: Program, name: str, options: dict[str, Any]) -> None:
    try:
        if name not in manager().named("targets"):
            raise UnsupportedError(f"target {name!r} is not installed")
        program.compile(manager().target(name), options)
    except MgxError as error:
        _log.warning("the program was compiled for target %r and is left uncompiled: %s", name, error)
