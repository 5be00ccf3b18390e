"""Class probabilities from those of pairs by the native loop, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("classes", "rows"), [(2, 1), (3, 5), (10, 300), (120, 2)])
def test_class_probabilities(agrees: Callable[..., None], classes: int, rows: int, dtype: Any) -> None:
    pairs = RNG.uniform(0, 1, (rows, classes * (classes - 1) // 2)).astype(dtype)
    agrees(mgx.op("pairwise_coupling", classes=classes), pairs, tolerance=1e-6)


def test_certain_and_unknown_pairs(agrees: Callable[..., None]) -> None:
    pairs = np.array([[1, 1, 0], [0.5, np.nan, 0.5], [-1, 2, np.inf]])
    agrees(mgx.op("pairwise_coupling", classes=3), pairs, tolerance=1e-9)
