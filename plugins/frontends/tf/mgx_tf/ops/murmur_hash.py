"""MurmurHash64A, the string hash of TensorFlow's StringToHashBucket."""

from __future__ import annotations

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.strings import encoded

from .text import each, strings

__all__: list[str] = []

MASK = (1 << 64) - 1


@op("tf_hash64", exact=True)
class Hash64(Operation):
    """The hash bucket of each string.  x: string [..] -> int64 [..].  Source: TensorFlow StringToHashBucket."""

    buckets: int

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.with_dtype(dt.int64)

    def compute(self, x: Array) -> Array:
        return each(lambda w: _hash64(encoded(w)) % self.buckets, x, np.int64)


def _hash64(data: bytes) -> int:
    """Returns the hash of a string.  Source: MurmurHash64A with TensorFlow's seed."""
    scale, seed = 0xC6A4A7935BD1E995, 0xDECAFCAFFE
    found = (seed ^ (len(data) * scale)) & MASK
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little") * scale & MASK
        found = (found ^ ((word ^ (word >> 47)) * scale & MASK)) * scale & MASK
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * scale & MASK
    found = (found ^ (found >> 47)) * scale & MASK
    return found ^ (found >> 47)
