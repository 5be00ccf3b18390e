"""Seals, which authenticate the compiled code in a program file.

Compiled kernels are code and a file may come from anywhere, so they are loaded only if the same user wrote the file: compiled
code is sealed, together with all metadata that it is run for (parameters, results, modules, the table of literals), with an
HMAC whose key is stored in the user's cache folder, never in a file.  The rest of a program file is data, which is validated.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from ..cache import make_private
from ..hashing import hmac_sha256, sha256
from ..settings import cache_directory

__all__ = ["seal", "sealed", "seals"]

SIZE: Final = 32


def seal(data: bytes) -> bytes:
    """Returns the user's seal (HMAC) of bytes; empty if no key can be stored."""
    key = _key()
    return hmac_sha256(key, data) if key else b""


def seals() -> bool:
    """Returns True if a key exists or could be created."""
    return bool(_key())


def sealed(data: bytes, given: bytes) -> bool:
    """Returns True if a seal is the user's for these bytes (constant-time comparison)."""
    return bool(given) and sha256(seal(data)).digest() == sha256(given).digest()


def _key() -> bytes:
    path = cache_directory() / "seal.key"
    found = _read(path)
    if not found:
        _make(path)
        found = _read(path)
    return found


def _read(path: Path) -> bytes:
    """Returns the key if no other user could have read or written it."""
    if not os.path.isfile(path):  # opening a pipe would block; `Path.is_file` raises if the folder may not be entered
        return b""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            if hasattr(os, "geteuid") and (state.st_uid != os.geteuid() or state.st_mode & 0o077):
                return b""
            key = file.read(SIZE + 1)
    except OSError:
        return b""
    return key if len(key) == SIZE else b""


def _make(path: Path) -> None:
    """Creates a key atomically, unless one exists; an unwritable folder is not an error."""
    import secrets

    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with contextlib.suppress(OSError):
        make_private(path.parent)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(SIZE))
            os.link(beside, path)
        finally:
            beside.unlink()
