"""Constants of steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Shape
from mgx_core.targets.step_list import StepList
from mgx_core.targets.values import Buffer, Value
from mgx_core.types.argument import Array


class Copying(StepList):
    """Steps whose constants are copies that do not reference their sources."""

    def copy_into(self, source: Value, target: Value) -> None:
        raise NotImplementedError

    def make_literal(self, array: Array, owner: Any) -> Value:
        copy = np.array(array)
        return Value(Shape("float", copy.shape), Buffer("literal", copy.nbytes, array=copy))


def test_arrays_at_one_address_one_after_the_other_are_different_constants() -> None:
    steps = Copying()
    for n in range(200):
        value = steps.literal(np.full(3, n, np.float32))
        array = steps.memory(value)
        assert array is not None
        assert array.tolist() == [n] * 3
