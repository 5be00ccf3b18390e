"""Several narrow elements packed into one byte."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.packing import PackFp4, PackInt4, UnpackBits, UnpackFp4, UnpackInt4
from mgx_core.types.shape import Shape


def test_the_earlier_element_is_the_low_half() -> None:
    assert PackInt4().evaluate([np.array([1, 2, 15, 0], np.uint8)]).tolist() == [0x21, 0x0F]
    assert UnpackInt4().evaluate([np.array([0x21, 0x0F], np.uint8)]).tolist() == [1, 2, 15, 0]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_signed_round_trip(axis: int) -> None:
    x = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    packed = PackInt4(axis=axis).evaluate([x])
    assert packed.dtype == np.int8
    assert packed.shape == PackInt4(axis=axis).result([Shape(dt.int8, [4, 4])]).dims
    np.testing.assert_array_equal(UnpackInt4(axis=axis).evaluate([packed]), x)


def test_float4_round_trip() -> None:
    x = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -6], np.float32)
    out = UnpackFp4().evaluate([PackFp4().evaluate([x])])
    assert dt.of(out.dtype) is dt.float8_e4m3fn
    np.testing.assert_array_equal(out.astype(np.float32), x)
    wide = UnpackFp4(out_type=dt.float32).evaluate([PackFp4().evaluate([np.array([100, 2.4], np.float32)])])
    assert wide.tolist() == [6, 2]


def test_codes_of_any_width() -> None:
    byte = np.array([[0b11100100]], np.uint8)
    assert UnpackBits(bits=2).evaluate([byte]).tolist() == [[0, 1, 2, 3]]
    assert UnpackBits(bits=1).evaluate([byte]).tolist() == [[0, 0, 1, 0, 0, 1, 1, 1]]
    with pytest.raises(ParameterError, match="1, 2, 4 or 8"):
        UnpackBits(bits=3)


def test_odd_extents_are_refused() -> None:
    with pytest.raises(ShapeError, match="even extent"):
        PackInt4().result([Shape(dt.int8, [2, 3])])
    with pytest.raises(ShapeError, match="must be int8 or uint8"):
        UnpackInt4().result([Shape(dt.int32, [2])])
