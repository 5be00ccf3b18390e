"""Arrays quantized part by part: codes, scales, errors and ratios equal those of the whole array."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.quantize.scales import PART, dequantized, rounded, rounded_with_error, signal_to_noise
from mgx_core.types.dtype import DType


@pytest.mark.parametrize("to", [dt.int8, dt.float8_e4m3fn])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dims", [(3, PART // 2 + 7), (2 * PART + 3, 2), (70, 30, 3, 9), (1, 1)])
def test_the_parts_are_those_of_the_whole(dims: tuple[int, ...], axis: int | None, to: DType) -> None:
    value = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    value[0] = 0
    narrow, scale = rounded(value, axis, to)
    got, factors, error, ratio = rounded_with_error(value, axis, to)
    np.testing.assert_array_equal(got.view(np.uint8), narrow.view(np.uint8))
    np.testing.assert_array_equal(factors, scale)
    spread = scale.reshape([-1 if a == axis else 1 for a in range(value.ndim)]) if axis is not None else scale
    wanted = narrow.astype(np.float32) * spread - value
    np.testing.assert_array_equal(error, wanted)
    energy, lost = (float((v.astype(np.float64) ** 2).sum()) for v in (value, wanted))
    assert ratio == pytest.approx(10 * np.log10(energy / lost) if energy else 200.0, abs=1e-4)
    assert ratio == pytest.approx(signal_to_noise(value, wanted), abs=1e-4)


@pytest.mark.parametrize(("spread", "to", "scales"), [
    (12.0, dt.float8_e4m3fn, 1), (40.0, dt.float8_e4m3fn, 32), (12.0, dt.int8, 32),
])  # fmt: skip
def test_similar_columns_of_floats_have_one_scale(spread: float, to: DType, scales: int) -> None:
    value = np.random.default_rng(3).standard_normal((4096, 32)).astype(np.float32)
    value *= np.geomspace(1, spread, 32, dtype=np.float32) / np.abs(value).max(0)
    narrow, scale, error, _ = rounded_with_error(value, 1, to)
    assert scale.size == scales
    np.testing.assert_array_equal(narrow, rounded(value, 1, to)[0])
    for column in (0, 31):  # as precise as with a scale of its own
        own = rounded_with_error(value[:, column], None, to)[3]
        assert signal_to_noise(value[:, column], error[:, column]) == pytest.approx(own, abs=0.5)


@pytest.mark.parametrize("size", [1e-25, 1e-18, 1e18, 1e25])
def test_ratios_of_numbers_whose_squares_are_no_float32(size: float) -> None:
    value = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
    wanted = rounded_with_error(value, 0, dt.int8)[3]
    assert rounded_with_error(value * np.float32(size), 0, dt.int8)[3] == pytest.approx(wanted, abs=0.1)


@pytest.mark.parametrize("to", [dt.int8, dt.float8_e4m3fn, dt.float8_e5m2])
@pytest.mark.parametrize("axis", [None, 1])
def test_dequantized_numbers_are_those_of_the_codes(axis: int | None, to: DType) -> None:
    """Numbers of all magnitudes and both signs, zeros, ties, and the largest of the type."""
    rng = np.random.default_rng(4)
    value = rng.standard_normal((512, 64)).astype(np.float32) * np.exp2(rng.integers(-24, 8, (512, 64))).astype(
        np.float32
    )
    value[:256, :8] = np.arange(256, dtype=np.uint8)[:, None].view(dt.float8_e4m3fn.numpy).astype(np.float32)
    value[:256, 4:8] *= np.float32(1.0625)  # in the middle of two numbers of a power of two
    value[~np.isfinite(value)] = 0
    narrow, scale = rounded(value, axis, to)
    np.testing.assert_array_equal(dequantized(value, axis, to), narrow.astype(np.float32) * scale)
