"""Operands of reductions are copied to one memory order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.targets.values import Value
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.plans.loops import MIN_REORDERED, in_one_order


class Copies:
    """An emitter without constants that only notes copies."""

    def is_constant(self, value: Value) -> bool:
        return False

    def packed(self, value: Value, strides: Sequence[int]) -> Any:
        return Value(Shape(value.shape.dtype, value.lens, strides), value.buffer)


def operand(lens: Sequence[int], strides: Sequence[int]) -> Value:
    return Value(Shape(dt.float16, lens, strides), cast(Any, None))


LENS, ROWS, COLUMNS = [8, 32, 512], [16384, 512, 1], [16384, 1, 32]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([(LENS, COLUMNS), (LENS, ROWS)], [COLUMNS, COLUMNS]),  # as the first, whose order the results have
        ([(LENS, ROWS), (LENS, COLUMNS)], [ROWS, ROWS]),
        ([([*LENS, 1], [*COLUMNS, 32]), (LENS, ROWS)], [[*ROWS, 1], ROWS]),  # results are row-major, as the second
        ([(LENS, COLUMNS), ([8, 1, 32, 512], [16384, 7, 1, 32])], [COLUMNS, [16384, 7, 1, 32]]),
        ([(LENS, COLUMNS), ([512], [1])], [COLUMNS, [1]]),
        ([(LENS, COLUMNS), (LENS, [0, 512, 1])], [COLUMNS, [0, 512, 1]]),
    ],
)
def test_orders(given: Sequence[Any], wanted: Sequence[Sequence[int]]) -> None:
    made = in_one_order(cast(GpuEmitter, Copies()), [operand(*a) for a in given])
    assert [list(v.strides) for v in made] == [list(w) for w in wanted]


def test_small_operands_stay() -> None:
    lens = [MIN_REORDERED // 64 - 1, 64]
    args = [operand(lens, [64, 1]), operand(lens, [1, lens[0]])]
    assert list(in_one_order(cast(GpuEmitter, Copies()), args)) == args
