"""FarmHash's 64-bit fingerprint and hash buckets of strings."""

from __future__ import annotations

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.strings import encoded

from .text import each, strings

__all__ = ["fingerprint"]

MASK = (1 << 64) - 1
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
SEED = 81


@op("tf_hash_bucket", exact=True)
class HashBucket(Operation):
    """The hash bucket of each string: its fingerprint modulo the number of buckets.

    x: string [..] -> int64 [..].  Errors: ShapeError for fewer than one bucket.  Source: TensorFlow StringToHashBucketFast.
    """

    buckets: int

    def infer(self, x: Shape) -> Shape:
        strings(x)
        if self.buckets < 1:
            raise ShapeError(f"at least one bucket is required, got {self.buckets}")
        return x.with_dtype(dt.int64)

    def compute(self, x: Array) -> Array:
        return each(lambda w: fingerprint(encoded(w)) % self.buckets, x, np.int64)


@op("tf_fingerprint_bytes", exact=True)
class FingerprintBytes(Operation):
    """The 64-bit fingerprint of each string, as bytes.  x: string [n] -> uint8 [n, 8].  Source: TensorFlow Fingerprint."""

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return Shape.of(dt.uint8, (*x.dims, 8))

    def compute(self, x: Array) -> Array:
        found = each(lambda w: fingerprint(encoded(w)), x, np.uint64)
        return found.astype("<u8").view(np.uint8).reshape(*x.shape, 8)


def fingerprint(data: bytes) -> int:
    """Returns the 64-bit fingerprint of a string.  Source: FarmHash, Fingerprint64."""
    size = len(data)
    if size <= 16:
        return _short(data, size)
    scale = (K2 + 2 * size) & MASK
    if size <= 32:
        first, last = _word(data, 0) * K1 & MASK, _word(data, size - 8) * scale & MASK
        second, third = _word(data, 8), _word(data, size - 16) * K2 & MASK
        return _mixed(
            _turned(first + second, 43) + _turned(last, 30) + third, first + _turned(second + K2, 18) + last, scale
        )
    if size <= 64:
        return _middle(data, size, scale)
    return _long(data, size)


def _word(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _turned(value: int, by: int) -> int:
    value &= MASK
    return (value >> by | value << (64 - by)) & MASK


def _folded(value: int) -> int:
    value &= MASK
    return value ^ value >> 47


def _mixed(u: int, v: int, scale: int) -> int:
    u, v = u & MASK, v & MASK
    a = _folded((u ^ v) * scale)
    return _folded((v ^ a) * scale) * scale & MASK


def _short(data: bytes, size: int) -> int:
    scale = (K2 + 2 * size) & MASK
    if size >= 8:
        a, b = _word(data, 0) + K2 & MASK, _word(data, size - 8)
        return _mixed(_turned(b, 37) * scale + a, (_turned(a, 25) + b) * scale, scale)
    if size >= 4:
        return _mixed(size + (_word(data, 0, 4) << 3), _word(data, size - 4, 4), scale)
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _folded(y * K2 & MASK ^ z * K0 & MASK) * K2 & MASK
    return K2


def _middle(data: bytes, size: int, scale: int) -> int:
    a, b = _word(data, 0) * K2 & MASK, _word(data, 8)
    c, d = _word(data, size - 8) * scale & MASK, _word(data, size - 16) * K2 & MASK
    y = _turned(a + b, 43) + _turned(c, 30) + d & MASK
    z = _mixed(y, a + _turned(b + K2, 18) + c, scale)
    e, f = _word(data, 16) * scale & MASK, _word(data, 24)
    g, h = (y + _word(data, size - 32)) * scale & MASK, (z + _word(data, size - 24)) * scale & MASK
    return _mixed(_turned(e + f, 43) + _turned(g, 30) + h, e + _turned(f + a, 18) + g, scale)


def _pair(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Hashes 32 bytes with two seeds to two 64-bit words."""
    w, x, y, z = (_word(data, at + k) for k in (0, 8, 16, 24))
    a = a + w & MASK
    b = _turned(b + a + z, 21)
    c, a = a, a + x + y & MASK
    return a + z & MASK, b + _turned(a, 44) + c & MASK


def _long(data: bytes, size: int) -> int:
    y = SEED * K1 + 113 & MASK
    z = _folded(y * K2 + 113) * K2 & MASK
    x = SEED * K2 + _word(data, 0) & MASK
    v, w = (0, 0), (0, 0)
    end = (size - 1) // 64 * 64
    for at in range(0, end, 64):
        x, y, z, v, w = _block(data, at, (x, y, z), v, w, K1, 1)
    scale = K1 + ((z & 0xFF) << 1)
    first = w[0] + ((size - 1) & 63) & MASK
    v = (v[0] + first & MASK, v[1])
    w = (first + v[0] & MASK, w[1])
    x, y, z, v, w = _block(data, end + ((size - 1) & 63) - 63, (x, y, z), v, w, scale, 9)
    return _mixed(_mixed(v[0], w[0], scale) + _folded(y) * K0 + z, _mixed(v[1], w[1], scale) + x, scale)


def _block(
    data: bytes, at: int, words: tuple[int, int, int], v: tuple[int, int], w: tuple[int, int], scale: int, weight: int
) -> tuple[int, int, int, tuple[int, int], tuple[int, int]]:
    """Returns the state after hashing 64 more bytes."""
    x, y, z = words
    x = _turned(x + y + v[0] + _word(data, at + 8), 37) * scale & MASK
    y = _turned(y + v[1] + _word(data, at + 48), 42) * scale & MASK
    x ^= w[1] * weight & MASK
    y = y + v[0] * weight + _word(data, at + 40) & MASK
    z = _turned(z + w[0], 33) * scale & MASK
    v = _pair(data, at, v[1] * scale & MASK, x + w[0] & MASK)
    w = _pair(data, at + 32, z + w[1] & MASK, y + _word(data, at + 16) & MASK)
    return z, y, x, v, w
