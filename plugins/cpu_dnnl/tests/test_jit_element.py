"""Conversions between element types in memory and in registers."""

from __future__ import annotations

import pytest

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType
from mgx_cpu_dnnl.jit.code import Code, V
from mgx_cpu_dnnl.jit.element import MEMORY, convert, from_memory, to_memory


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16], ids=str)
def test_rounded_values_are_not_rounded_again(dtype: DType) -> None:
    """Values that were widened from a narrow type are stored as they were; others are rounded once."""
    other = dt.bfloat16 if dtype is dt.float16 else dt.float16
    c = Code(16, True)
    raw = c.load(V("%buffers", "ptr", 0), MEMORY[dtype], 16)
    x = from_memory(c, raw, dtype)
    assert to_memory(c, x, dtype) == raw
    assert to_memory(c, x, other) != raw
    rounded = convert(c, c.op("fadd", x, x), dt.float32, dtype)
    before = list(c.lines)
    assert to_memory(c, rounded, dtype).elem == MEMORY[dtype]
    assert c.lines == before
    to_memory(c, c.op("fadd", rounded, x), dtype)
    assert len(c.lines) > len(before) + 1
