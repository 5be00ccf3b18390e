"""Detects writes to watched constants in caller-owned memory, by a digest computed on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Final

import numpy as np

from mgx_core import Watch

from .compile.build import build
from .compile.source import parameter_codes
from .runtime import Device, DeviceArray, Launch
from .runtime.conditional_graph import EMULATED, ConditionalGraph, decider

__all__ = ["DeviceWatch"]

PIECE: Final = 1 << 16  # bytes read contiguously by a block
VECTOR: Final = 16  # bytes per access
BLOCKS: Final = 8  # per multiprocessor; limits the bandwidth taken from the program that runs concurrently

# pieces: address, number of vectors and number of trailing bytes of each.  state: sum so far, blocks finished, initial digest,
# changed flag.  flag: flag in host memory, set once the digest differs.
DIGEST: Final = """
DEV u64 mixed(u64 x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 29;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}
DEV u64 both(vec<u64, 2> v, u64 place) {
  u64 key = place * 0x9e3779b97f4a7c15ull;
  return mixed(v.v[0] ^ key) + mixed(v.v[1] ^ ~key);
}
KERNEL(256) watch_digest(const u64* pieces, u32 count, u64* state, u32* flag, u32 first) {
  SHARED(u64, sums, [256]);
  u64 sum = 0;
  for (u32 p = blockIdx.x; p < count; p += gridDim.x) {
    const u64* words = (const u64*)pieces[3 * p];
    u32 vectors = (u32)pieces[3 * p + 1], rest = (u32)pieces[3 * p + 2];
    u64 place = (u64)(p + 1) << 32;
    u32 at = threadIdx.x;
    for (; at + 768 < vectors; at += 1024) {
      vec<u64, 2> v[4];
      UNROLL for (int n = 0; n < 4; n++) v[n] = ldv<u64, 2>(words + 2 * (at + 256 * n));
      UNROLL for (int n = 0; n < 4; n++) sum += both(v[n], place + at + 256 * n);
    }
    for (; at < vectors; at += 256) sum += both(ldv<u64, 2>(words + 2 * at), place + at);
    const u8* bytes = (const u8*)(words + 2 * (u64)vectors);
    for (u32 i = threadIdx.x; i < rest; i += 256) sum += mixed(bytes[i] ^ (place + 0x80000000u + i) * 0x9e3779b97f4a7c15ull);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (u32 half = 128; half; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x) return;
  atomic_add(state, sums[0]);
  __threadfence();
  if (atomic_add(state + 1, (u64)1) != gridDim.x - 1) return;
  __threadfence();
  u64 all = atomic_add(state, (u64)0);
  state[0] = 0;
  state[1] = 0;
  if (first) state[2] = all;
  state[3] = all != state[2];
  if (state[3]) *flag = 1;
}
"""


class DeviceWatch(Watch):
    """A 64-bit digest of all bytes of some arrays, taken at construction.

    Errors: DeviceError if the driver does not support conditional graph nodes.
    """

    def __init__(self, device: Device, arrays: Sequence[DeviceArray]) -> None:
        self.device = device
        self.arrays = list(arrays)  # keeps the memory alive
        rows = [row for a in arrays for row in _pieces(a)]
        self._count = len(rows)
        self._pieces = device.upload(np.array(rows or [(0, 0, 0)], np.uint64))
        self._state = device.upload(np.zeros(4, np.uint64))
        self._pinned = device.pinned(4)
        self._told = self._pinned.array(np.uint32, (1,))
        self._told[0] = 0
        sources = [SimpleNamespace(name="watch_digest", text=DIGEST)]
        if device.kind == "host":
            sources.append(SimpleNamespace(name="decide", text=EMULATED))
        codes = build(sources, device.arch)
        self._digest = device.load(codes[0].image).function("watch_digest", parameter_codes(DIGEST, "watch_digest"))
        self._decide = decider(device, codes[1].image if device.kind == "host" else None)
        for array in self.arrays:
            if array.stream is not None:
                device.default_stream.after(array.stream)
        self._launch(first=True)(device.default_stream.handle)
        device.default_stream.wait()

    @property
    def changed(self) -> bool:
        return bool(self._told[0])

    def checks(self, choice: ConditionalGraph) -> list[Callable[[int], None]]:
        """Returns the calls that set a graph's condition to 1 if the contents have changed."""
        decide = self._decide.bind((1,), (32,), 0, (self._state.address + 24, choice.condition))
        return [self._launch(), decide]

    def _launch(self, first: bool = False) -> Launch:
        blocks = max(1, min(self._count, self.device.properties.units * BLOCKS))
        state, flag = self._state.address, self._pinned.address
        return self._digest.bind((blocks,), (256,), 0, (self._pieces.address, self._count, state, flag, int(first)))


def _pieces(array: DeviceArray) -> Iterator[tuple[int, int, int]]:
    """Yields address, number of vectors and number of trailing bytes of each piece of an array's memory."""
    size = array.device_shape.element_space() * array.dtype.size
    for at in range(0, size, PIECE):
        length = min(PIECE, size - at)
        vectors = 0 if array.address % VECTOR else length // VECTOR
        yield array.address + at, vectors, length - vectors * VECTOR
