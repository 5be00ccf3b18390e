"""Rules that find windows: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.rules.engine import Rewriter
from mgx_core.rules.windows import WINDOWS

GATHER = """\
  %x = @param["x"] -> float32[n, 22, 3]
  %1 = @literal({}) -> int64[2, 3]
  %2 = gather[axis=1](%x, %1)
  @return(%2)
"""
SHIFT = """\
  %x = @param["x"] -> float32[n, {rows}, 27]
  %1 = pad[pads=[0, 0, 0, 0, 0, 1], mode="{mode}", value=0.0](%x)
  %2 = reshape[dims=[n, {flat}]](%1)
  %3 = pad[pads=[0, 0, 0, {more}], mode="constant", value=0.0](%2)
  %4 = reshape[dims=[n, {taller}, 27]](%3)
  %5 = slice[axes=[1, 2], starts=[0, {first}], ends=[{rows}, 27]](%4)
  @return(%5)
"""
NO_BATCH = """\
  %x = @param["x"] -> float32[0, 3, 4]
  %1 = pad[pads=[0, 0, 0, 0, 0, 1], mode="constant", value=0.0](%x)
  %2 = reshape[dims=[0, 7]](%1)
  %3 = slice[axes=[1], starts=[1], ends=[5]](%2)
  @return(%3)
"""


def shift(rows: int, first: int, mode: str = "constant") -> str:
    return SHIFT.format(rows=rows, flat=rows * 28, more=27 - rows, taller=rows + 1, first=first, mode=mode)


CASES = [
    ("gather-of-windows", "overlapping", GATHER.format("4, 5, 6, 6, 7, 8"), ["slice", "sliding_windows"]),
    ("gather-of-windows", "apart", GATHER.format("0, 1, 2, 19, 20, 21"), ["sliding_windows"]),
    ("gather-of-windows", "outside", GATHER.format("-1, 0, 1, 1, 2, 3"), ["gather"]),
    ("gather-of-windows", "adjacent", GATHER.format("4, 5, 6, 7, 8, 9"), ["slice", "reshape"]),
    ("gather-of-windows", "transposed", GATHER.format("4, 7, 10, 5, 8, 11"), ["slice", "sliding_windows", "transpose"]),
    ("gather-of-windows", "downwards", GATHER.format("4, 5, 6, 3, 4, 5"), ["gather"]),
    ("gather-of-windows", "not-consecutive", GATHER.format("4, 5, 7, 6, 7, 9"), ["gather"]),
    ("shifted-rows", "halo", shift(8, 13), ["reshape", "slice", "sliding_windows"]),
    ("shifted-rows", "padding-is-shown", shift(8, 3), ["pad", "reshape", "pad", "reshape", "slice"]),
    ("shifted-rows", "border-is-repeated", shift(8, 13, "edge"), ["pad", "reshape", "pad", "reshape", "slice"]),
    ("shifted-rows", "no-elements", NO_BATCH, ["pad", "reshape", "slice"]),
]


@pytest.mark.parametrize(("text", "ops"), [c[2:] for c in CASES], ids=["-".join(c[:2]) for c in CASES])
def test_turned(text: str, ops: list[str]) -> None:
    before, after = (parse_module(f"symbol n in 1..9\nmodule main\n{text}", STANDARD) for _ in range(2))
    Rewriter(WINDOWS).apply(after)
    assert [i.op.name for i in after if not (i.is_param or i.is_literal or i.is_return)] == ops
    (x,) = after.parameters.values()
    dims = [5 if not isinstance(d, int) else d for d in x.shape.dims]
    given = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    for a, b in zip(Interpreter().run(before, [given]), Interpreter().run(after, [given]), strict=True):
        np.testing.assert_array_equal(a, b)
