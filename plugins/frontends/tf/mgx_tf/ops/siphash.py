"""SipHash-2-4, a keyed hash, and hash buckets of strings."""

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

__all__ = ["keyed_hash"]

MASK = (1 << 64) - 1


@op("tf_hash_bucket_strong", exact=True)
class HashBucketStrong(Operation):
    """The hash bucket of each string: its keyed hash modulo the number of buckets.

    x: string [..] -> int64 [..]; key: two 64-bit numbers.
    Errors: ShapeError for fewer than one bucket or a malformed key.  Source: TensorFlow StringToHashBucketStrong.
    """

    buckets: int
    key: tuple[int, ...]

    def infer(self, x: Shape) -> Shape:
        strings(x)
        if self.buckets < 1 or len(self.key) != 2:
            raise ShapeError(
                f"at least one bucket and a key of two 64-bit numbers are required, got {self.buckets}, {self.key}"
            )
        return x.with_dtype(dt.int64)

    def compute(self, x: Array) -> Array:
        first, second = (k & MASK for k in self.key)
        return each(lambda w: keyed_hash(encoded(w), first, second) % self.buckets, x, np.int64)


def keyed_hash(data: bytes, first: int, second: int) -> int:
    """Returns the SipHash-2-4 of bytes.  Source: Aumasson and Bernstein, SipHash: a fast short-input PRF (2012)."""
    v = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    whole = len(data) // 8 * 8
    words = [int.from_bytes(data[k : k + 8], "little") for k in range(0, whole, 8)]
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    for word in words:
        v[3] ^= word
        _mixed(v)
        _mixed(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        _mixed(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _turned(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & MASK


def _mixed(v: list[int]) -> None:
    """Applies one SipRound to the state."""
    v[0] = (v[0] + v[1]) & MASK
    v[1] = _turned(v[1], 13) ^ v[0]
    v[0] = _turned(v[0], 32)
    v[2] = (v[2] + v[3]) & MASK
    v[3] = _turned(v[3], 16) ^ v[2]
    v[0] = (v[0] + v[3]) & MASK
    v[3] = _turned(v[3], 21) ^ v[0]
    v[2] = (v[2] + v[1]) & MASK
    v[1] = _turned(v[1], 17) ^ v[2]
    v[2] = _turned(v[2], 32)
