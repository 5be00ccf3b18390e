"""Hashes without OpenSSL, whose library takes as long to load as the model of a small network takes to read."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, Protocol

__all__ = ["LARGE", "Hash", "blake2b", "hmac_sha256", "sha256"]

LARGE: Final = 1 << 18  # bytes from which on OpenSSL's instructions are worth loading it
BLOCK: Final = 64  # bytes of a block of SHA-256


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


def hmac_sha256(key: bytes, data: bytes) -> bytes:
    """Returns what authenticates data under a key of at most a block, as `hmac.digest` computes it with SHA-256 (RFC 2104)."""
    if len(key) > BLOCK:
        raise ValueError(f"a key of {len(key)} bytes is longer than a block of {BLOCK}")
    block = key.ljust(BLOCK, b"\0")
    inner = sha256(bytes(b ^ 0x36 for b in block) + data).digest()
    return sha256(bytes(b ^ 0x5C for b in block) + inner).digest()


def blake2b(data: bytes, size: int) -> bytes:
    """Returns the BLAKE2b hash of some bytes with `size` bytes."""
    try:
        made = import_module("_blake2").blake2b  # the interpreter's own
    except ImportError:
        from hashlib import blake2b as made
    found: bytes = made(data, digest_size=size).digest()
    return found


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
