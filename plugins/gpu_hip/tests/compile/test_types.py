"""Element types of the prelude: every narrow value, rounding, and conversions between types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.ops.scalar import convert

NARROW = {
    "half_t": np.float16, "bf16_t": ml_dtypes.bfloat16, "f8e4m3_t": ml_dtypes.float8_e4m3fn, "f8e5m2_t": ml_dtypes.float8_e5m2,
    "f8e4m3z_t": ml_dtypes.float8_e4m3fnuz, "f8e5m2z_t": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
OTHERS = {
    "bool": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
    "i64": np.int64, "u64": np.uint64, "float": np.float32, "double": np.float64,
}  # fmt: skip
LOOP = "for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"


def converted(lanes, source, target, values, out_dtype):
    text = f"KERNEL(256) k(const {source}* x, {target}* y, u32 n) {{ {LOOP} y[i] = convert<{target}>(x[i]); }}"
    out = np.zeros(values.shape, out_dtype)
    lanes.compile(text)((4,), (256,), 0, [values, out, values.size])
    return out


@pytest.mark.parametrize("type", NARROW)
def test_every_narrow_value_widens(lanes, type):
    numpy = np.dtype(NARROW[type])
    bits = np.arange(1 << (8 * numpy.itemsize), dtype=f"u{numpy.itemsize}").view(numpy)
    np.testing.assert_array_equal(converted(lanes, type, "float", bits, np.float32), bits.astype(np.float32))


@pytest.mark.parametrize("type", NARROW)
def test_floats_round_to_the_nearest_narrow_value(lanes, rng, type):
    numpy = np.dtype(NARROW[type])
    every = np.arange(1 << (8 * numpy.itemsize), dtype=f"u{numpy.itemsize}").view(numpy).astype(np.float32)
    every = np.sort(every[np.isfinite(every)])
    halves = (every[1:].astype(np.float64) + every[:-1].astype(np.float64)) / 2
    exponents = rng.uniform(-50, 40, 4000)
    edge = (3 * every[-1].astype(np.float64) - every[-2]) / 2  # half an ulp above the largest
    halves = np.concatenate([halves, [edge, -edge]])
    above = np.nextafter(halves.astype(np.float32), np.float32(1e30))
    below = np.nextafter(halves.astype(np.float32), np.float32(-1e30))
    spread = rng.choice([-1, 1], 4000) * 2.0**exponents
    x = np.concatenate([every, halves, above, below, spread, [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(np.float32)
    got = converted(lanes, "float", type, x, numpy)
    with np.errstate(all="ignore"):
        want = x.astype(numpy)
    both_nan = np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32))
    view = f"u{numpy.itemsize}"
    wrong = (got.view(view) != want.view(view)) & ~both_nan
    assert not wrong.any(), f"{x[wrong][:4]}: {got[wrong][:4]} instead of {want[wrong][:4]}"


@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize("source", ["float", "double", "half_t", "i32", "i64", "u8", "bool"])
def test_conversions_follow_the_core(lanes, source, target):
    numpy = np.dtype(NARROW.get(source) or OTHERS[source])
    values = np.array(
        [0, 1, -1, 2.5, -2.5, 127.5, 128, 300, -300, 70000, 3e9, -3e9, 1e19, -1e19, 1e20, np.inf, -np.inf, np.nan]
    )
    if numpy.kind in "iu":
        info = np.iinfo(numpy)
        values = np.array(
            [
                v
                for v in (0, 1, -1, 2, 127, 128, 200, 255, 300, -300, 70000, -(1 << 31), 1 << 40)
                if info.min <= v <= info.max
            ]
        )
    elif numpy.kind == "b":
        values = np.array([0, 1])
    with np.errstate(all="ignore"):
        x = values.astype(numpy)
        want = convert(x, dt.of(np.dtype(OTHERS[target])))
    np.testing.assert_array_equal(converted(lanes, source, target, x, OTHERS[target]), want)
