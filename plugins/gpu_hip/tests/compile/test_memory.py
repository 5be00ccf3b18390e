"""Vector access, asynchronous copies and atomics of the prelude."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

TYPES = {
    "float": np.float32, "double": np.float64, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "half_t": np.float16, "bf16_t": ml_dtypes.bfloat16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("type", "count"), [("float", 4), ("float", 2), ("half_t", 8), ("half_t", 2), ("u8", 16), ("u8", 1), ("double", 2)]
)
def test_vectors_move_whole(runner, rng, type, count):
    source = f"""KERNEL(64) k(const {type}* x, {type}* y) {{
      vec<{type}, {count}> v = ldv<{type}, {count}>(x + threadIdx.x * {count});
      for (int i = 0; i < {count} / 2; ++i) {{ {type} t = v.v[i]; v.v[i] = v.v[{count} - 1 - i]; v.v[{count} - 1 - i] = t; }}
      stv(y + threadIdx.x * {count}, v); }}"""
    x = rng.integers(0, 100, (64, count)).astype(TYPES.get(type, np.uint8))
    y = np.zeros_like(x)
    runner.compile(source)((1,), (64,), 0, [x, y])
    np.testing.assert_array_equal(y, x[:, ::-1])


PIPELINE = """KERNEL(64) k(const float* x, float* y, u32 steps) {
  SHARED(float, tile, [2][256]);
  u32 i = threadIdx.x;
  async_copy<16>(&tile[0][i * 4], x + i * 4); async_commit();
  float sum = 0;
  for (u32 s = 0; s < steps; ++s) {
    bool more = s + 1 < steps;
    async_copy<16>(&tile[(s + 1) % 2][i * 4], x + (s + 1) * 256 + i * 4, more); async_commit();
    WAIT
    __syncthreads();
    for (int j = 0; j < 4; ++j) sum += tile[s % 2][(i * 4 + j + 64) % 256];
    __syncthreads();
  }
  y[i] = sum + tile[steps % 2][i];
}"""


def test_copies_arrive_when_waited_for_and_zeros_where_invalid(runner, rng):
    x = rng.integers(0, 9, (3, 256)).astype(np.float32)
    y = np.zeros(64, np.float32)
    runner.compile(PIPELINE.replace("WAIT", "if (s + 1 < steps) async_wait<1>(); else async_wait<0>();"))(
        (1,), (64,), 0, [x, y, 3]
    )
    np.testing.assert_array_equal(y, np.roll(x, -64, 1).reshape(3, 64, 4).sum((0, 2)))


def test_a_missing_wait_shows(emulated, rng):
    x = rng.integers(0, 9, (3, 256)).astype(np.float32)
    y = np.zeros(64, np.float32)
    emulated.compile(PIPELINE.replace("WAIT", ""))((1,), (64,), 0, [x, y, 3])
    assert np.isnan(y).any()


@pytest.mark.parametrize("type", TYPES)
def test_atomics(runner, rng, type):
    dtype = TYPES[type]
    source = f"""KERNEL(256) k(const {type}* x, {type}* sums, {type}* most, {type}* least, {type}* product, u32 n) {{
      u32 i = blockIdx.x * 256 + threadIdx.x;
      atomic_add(sums + i % n, x[i]); atomic_max(most + i % n, x[i]); atomic_min(least + i % n, x[i]);
      if (i < n) atomic_mul(product + i, x[i]); }}"""
    x = rng.integers(0, 20, (512 // 4, 4)).astype(dtype)
    sums, product = np.zeros(4, dtype), np.full(4, 3, dtype)
    most, least = np.zeros(4, dtype), np.full(4, 100, dtype)
    runner.compile(source)((2,), (256,), 0, [x, sums, most, least, product, 4])
    exact = x.astype(np.float64)
    if type != "bf16_t":  # sums above 256 round in bfloat16
        np.testing.assert_array_equal(sums.astype(np.float64), exact.sum(0))
    np.testing.assert_array_equal(most.astype(np.float64), exact.max(0))
    np.testing.assert_array_equal(least.astype(np.float64), exact.min(0))
    np.testing.assert_array_equal(product.astype(np.float64), exact[0] * 3)


def test_dot_of_four_bytes(runner, rng):
    x, y, c = (rng.integers(-128, 128, (64, 4)).astype(np.int8) for _ in range(3))
    out = np.zeros(64, np.int32)
    c = c[:, 0].astype(np.int32)
    runner.compile(
        "KERNEL(64) k(const i32* x, const i32* y, const i32* c, i32* o) { u32 i = threadIdx.x; o[i] = dot4(x[i], y[i], c[i]); }"
    )((1,), (64,), 0, [x, y, c, out])
    np.testing.assert_array_equal(out, (x.astype(np.int32) * y).sum(1) + c)


def test_indices_cover_grid_and_block(runner):
    source = """KERNEL(1024) k(i32* o) {
      u32 b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z),
        t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      o[b * 64 + t] = (i32)(b * 64 + thread_id()); }"""
    out = np.zeros(2 * 3 * 4 * 64, np.int32)
    runner.compile(source)((2, 3, 4), (8, 4, 2), 0, [out])
    np.testing.assert_array_equal(out, np.arange(out.size))
