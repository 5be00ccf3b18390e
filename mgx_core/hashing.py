"""SHA-256 without OpenSSL, whose library takes as long to load as the model of a small network takes to read."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, Protocol

__all__ = ["Hash", "sha256"]

LARGE: Final = 1 << 18  # bytes from which on OpenSSL's instructions are worth loading it


class Hash(Protocol):
    """A hash that was computed, as `hashlib` gives it."""

    def digest(self) -> bytes:
        """Returns its bytes."""

    def hexdigest(self) -> str:
        """Returns it in hexadecimal digits."""


def sha256(data: bytes) -> Hash:
    """Returns the hash of some bytes, the same as `hashlib.sha256` computes."""
    made: Hash = _small()(data) if len(data) < LARGE else _large()(data)
    return made


@cache
def _small() -> Any:
    for name in (
        "_sha2",
        "_sha256",
    ):  # the interpreter's own, as the module random has them: since Python 3.12, and before
        try:
            return import_module(name).sha256
        except ImportError:
            continue
    return _large()


def _large() -> Any:
    from hashlib import sha256

    return sha256
