"""Contents of operands while plans are timed."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dtype
from mgx_gpu_hip.plan_timing import samples


@pytest.mark.parametrize("of", [dtype.uint8, dtype.int8, dtype.int4, dtype.float16, dtype.float8_e4m3fn], ids=str)
def test_samples_are_in_the_range_of_their_type(of) -> None:
    exact = samples(4096, dtype.float64)
    found = samples(4096, of).astype(np.float64)
    if not of.is_float:
        exact = (128 * exact).clip(max(of.lowest, -127), min(of.highest, 127))
    assert np.abs(found - exact).max() <= (0.05 if of.is_float else 1)
