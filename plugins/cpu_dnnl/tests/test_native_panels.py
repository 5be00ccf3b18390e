"""Weights packed into panels: bitwise copies, whatever their layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_cpu_dnnl.native_library import native

EXTENTS = [(1, 1, 32), (3, 63, 32), (3, 64, 16), (2, 130, 32), (5, 1, 32), (31, 1024, 32), (4, 17, 1)]


def packed(source: Any, lens: tuple[int, ...], strides: list[int]) -> Any:
    md = native().MemoryDesc
    made = native().pack(source.ctypes.data, md(lens, "float32", strides), md(lens, "float32"))
    return np.frombuffer(made, np.uint32).reshape(lens)


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 0, 1), (0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("lens", EXTENTS)
def test_panels_of_every_layout(lens: tuple[int, int, int], order: tuple[int, int, int]) -> None:
    """order: the axes in memory, the largest stride first; arbitrary bits, including NaN."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, [lens[axis] for axis in order], np.uint32)
    seen = bits.transpose(np.argsort(order))
    found = packed(bits, lens, [step // 4 for step in seen.strides])
    np.testing.assert_array_equal(found, seen)


def test_panels_with_strided_columns() -> None:
    bits = np.arange(3 * 40 * 100, dtype=np.uint32).reshape(3, 40, 100)
    seen = bits[:, :32, :70].transpose(0, 2, 1)
    np.testing.assert_array_equal(packed(bits, (3, 70, 32), [4000, 1, 100]), seen)
