"""Shuffles, ballots, scans and reductions, for both wave widths and every thread order."""

from __future__ import annotations

import numpy as np
import pytest

ORDERS = ["forward", "backward", "shuffled"]
TYPES = {
    "float": np.float32,
    "double": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "half_t": np.float16,
}


def data(rng, dtype, n):
    return rng.integers(0, 100, n).astype(dtype)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("type", TYPES)
def test_shuffles_move_values_between_lanes(runner, rng, type, order):
    wave, n = runner.wave, 128
    source = f"""KERNEL(256) k(const {type}* x, {type}* y, u32 n) {{
      u32 i = threadIdx.x;
      {type} v = x[i];
      y[i] = wave_xor(v, 5), y[n + i] = wave_get(v, (lane_id() * 7 + 3) % WAVE),
        y[2 * n + i] = wave_down(v, 3), y[3 * n + i] = wave_up(v, 2);
    }}"""
    x = data(rng, TYPES[type], n)
    y = np.zeros((4, n), TYPES[type])
    runner.compile(source).launch((1,), (n,), 0, [x, y, n], order)
    lane = np.arange(n) % wave
    base = np.arange(n) - lane
    np.testing.assert_array_equal(y[0], x[base + (lane ^ 5)])
    np.testing.assert_array_equal(y[1], x[base + (lane * 7 + 3) % wave])
    np.testing.assert_array_equal(y[2], x[base + np.where(lane + 3 < wave, lane + 3, lane)])
    np.testing.assert_array_equal(y[3], x[base + np.where(lane >= 2, lane - 2, lane)])


def test_ballots_return_one_bit_per_lane(runner, rng):
    source = """KERNEL(256) k(const i32* x, u64* y, i32* t) { u64 b = wave_ballot(x[threadIdx.x] > 50);
      if (lane_id() == 0) y[wave_id()] = b;
      t[threadIdx.x] = (i32)bit_count(b) + (wave_any(x[threadIdx.x] == 7) ? 1000 : 0);
      t[threadIdx.x] += (wave_all(x[threadIdx.x] < 100) ? 10000 : 0); }"""
    x = data(rng, np.int32, 128)
    x[:64] %= 5
    x[3] = 7
    waves = 128 // runner.wave
    y, t = np.zeros(waves, np.uint64), np.zeros(128, np.int32)
    runner.compile(source)((1,), (128,), 0, [x, y, t])
    for w in range(waves):
        part = x[w * runner.wave : (w + 1) * runner.wave]
        assert int(y[w]) == sum(1 << i for i, v in enumerate(part) if v > 50)
        want = (part > 50).sum() + (1000 if (part == 7).any() else 0) + (10000 if (part < 100).all() else 0)
        assert (t[w * runner.wave : (w + 1) * runner.wave] == want).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("threads", [64, 256, 1024])
def test_block_reductions(runner, rng, threads, order):
    source = """KERNEL(1024) k(const float* x, const i64* q, float* y, i64* z, float* s) {
      SHARED(float, f, [32]); SHARED(i64, g, [32]);
      u32 i = threadIdx.x;
      float a = block_reduce<Sum>(x[i], f), b = block_reduce<Max>(x[i], f), c = block_reduce<Min>(x[i], f);
      i64 d = block_reduce<Max>(q[i], g);
      y[3 * i] = a, y[3 * i + 1] = b, y[3 * i + 2] = c, z[i] = d, s[i] = wave_scan<Sum>(x[i]);
    }"""
    x, q = data(rng, np.float32, threads), rng.integers(-(1 << 60), 1 << 60, threads)
    y, z, s = np.zeros((threads, 3), np.float32), np.zeros(threads, np.int64), np.zeros(threads, np.float32)
    runner.compile(source).launch((1,), (threads,), 0, [x, q, y, z, s], order)
    assert (y == [x.sum(), x.max(), x.min()]).all()
    assert (z == q.max()).all()
    np.testing.assert_array_equal(s, np.cumsum(x.reshape(-1, runner.wave), axis=1).reshape(-1))


def test_reductions_over_part_of_a_wave_and_nan(runner, rng):
    source = """KERNEL(64) k(const float* x, float* y) { y[threadIdx.x] = wave_reduce<Sum, 8>(x[threadIdx.x]);
      y[64 + threadIdx.x] = wave_reduce<Max>(x[threadIdx.x]); }"""
    x = data(rng, np.float32, 64)
    y = np.zeros((2, 64), np.float32)
    x[5] = np.nan
    runner.compile(source)((1,), (64,), 0, [x, y])
    np.testing.assert_array_equal(y[0], np.repeat(x.reshape(8, 8).sum(1), 8))
    assert np.isnan(y[1, : runner.wave]).all()
