"""Random quantized programs: the size of one unit, and that the comparison detects errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mgx_conformance.quantized_graphs import quantized_sketch, units_apart


def test_units_of_integers_and_floats() -> None:
    np.testing.assert_array_equal(units_apart(np.array([0, 255], np.uint8), np.array([1, 0], np.uint8)), [1, 255])
    kind = ml_dtypes.float8_e4m3fn
    ones = np.array([1.0, -1.0, 0.0, np.nan], kind)
    others = np.array([1.125, -0.9375, -0.0, np.nan], kind)
    np.testing.assert_array_equal(units_apart(ones, others), [1, 1, 0, 0])


def test_equal_numbers_give_equal_programs() -> None:
    assert repr(quantized_sketch(11)) == repr(quantized_sketch(11))


def test_an_error_of_two_units_is_wrong() -> None:
    for seed in range(20):
        sketch = quantized_sketch(seed)
        results = sketch.wanted()
        assert sketch.wrong(results) == ""
        if results[0].dtype == np.uint8:
            moved = np.where(results[0] > 127, results[0] - 3, results[0] + 3).astype(np.uint8)
            assert "units away" in sketch.wrong([moved, *results[1:]])
