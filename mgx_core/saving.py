"""Saves programs and loads them; apart from `api`, so that a process that runs a saved program loads no parser and no ops."""

from __future__ import annotations

from typing import Any

from .garbage import rarer_collections
from .program import Program

__all__ = ["load", "load_buffer", "save", "save_buffer"]


def save(program: Program, path: Any, format: str = "msgpack") -> None:
    """Writes a program, compiled or not, to a file (``msgpack`` or ``json``)."""
    from . import store

    store.save(program, path, format)


@rarer_collections()
def load(path: Any, format: str = "msgpack", *, trust: bool | None = None, check: bool = False) -> Program:
    """Loads a program written by `save`; detects the format.

    check: verify the checksums of all literals too, which reads the whole file.
    trust: whether to load compiled code from the file; None: if the same user wrote it.
    Errors: StoreError for corrupt files and files of a newer mgx.
    """
    from . import store

    store.check_format(format)
    return Program.loaded(store.load(path, check, trust))


def save_buffer(program: Program, format: str = "msgpack") -> bytes:
    """Serializes a program to bytes (``msgpack`` or ``json``)."""
    from . import store

    return store.save_buffer(program, format)


@rarer_collections()
def load_buffer(data: bytes, *, trust: bool | None = None) -> Program:
    """Loads a program from bytes; see `load`.  Errors: StoreError."""
    from . import store

    return Program.loaded(store.load_buffer(data, trust))
