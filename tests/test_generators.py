"""Tests that each test draws its own random numbers, although a module's tests share one generator."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(5)
EXPECTED = np.random.default_rng(5).random(3).tolist()


@pytest.mark.parametrize("test", ["first", "second"])
def test_values_do_not_depend_on_earlier_tests(test):
    assert RNG.random(3).tolist() == EXPECTED, test
