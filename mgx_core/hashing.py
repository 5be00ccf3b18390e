"""Hash functions that avoid OpenSSL for small inputs, since loading it takes as long as parsing a small model."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, Protocol

__all__ = ["LARGE", "Hash", "blake2b", "hmac_sha256", "sha256"]

# Bytes from which on OpenSSL's faster code is worth loading it: that takes 4 ms, and then 0.5 ms per MiB instead of 3.1.
LARGE: Final = 3 << 19
BLOCK: Final = 64  # block size of SHA-256 in bytes


class Hash(Protocol):
    """A hash object of `hashlib`."""

    def digest(self) -> bytes:
        """Returns the hash as bytes."""

    def hexdigest(self) -> str:
        """Returns the hash in hexadecimal."""


def sha256(data: bytes) -> Hash:
    """Computes SHA-256, like `hashlib.sha256`."""
    made: Hash = _small()(data) if len(data) < LARGE else _large()(data)
    return made


def hmac_sha256(key: bytes, data: bytes) -> bytes:
    """Computes HMAC-SHA-256 (RFC 2104), like `hmac.digest`.  Errors: ValueError for a key longer than a block."""
    if len(key) > BLOCK:
        raise ValueError(f"a key of {len(key)} bytes is longer than a block of {BLOCK}")
    block = key.ljust(BLOCK, b"\0")
    inner = sha256(bytes(b ^ 0x36 for b in block) + data).digest()
    return sha256(bytes(b ^ 0x5C for b in block) + inner).digest()


def blake2b(data: bytes, size: int) -> bytes:
    """Computes the BLAKE2b hash with `size` bytes."""
    try:
        made = import_module("_blake2").blake2b  # the interpreter's built-in module
    except ImportError:
        from hashlib import blake2b as made
    found: bytes = made(data, digest_size=size).digest()
    return found


@cache
def _small() -> Any:
    for name in ("_sha2", "_sha256"):  # the interpreter's built-in modules: since Python 3.12, and before
        try:
            return import_module(name).sha256
        except ImportError:
            continue
    return _large()


def _large() -> Any:
    from hashlib import sha256

    return sha256
