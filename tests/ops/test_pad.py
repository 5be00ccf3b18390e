"""Padding of a tensor's borders."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.pad import FixedPad, Pad
from mgx_core.types.shape import Shape

N = dim.symbol("n", 1, 64)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["constant", "reflect", "edge", "wrap"]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
)
def test_agrees_with_numpy(mode: str, lens: tuple[int, int], pads: list[int]) -> None:
    x = np.arange(lens[0] * lens[1], dtype=np.float32).reshape(lens) + 1
    made = Pad(pads=tuple(pads), mode=mode)
    out = made.evaluate([x])
    expected: Any = np.pad(x, [(pads[0], pads[2]), (pads[1], pads[3])], mode=mode)  # type: ignore[call-overload]
    np.testing.assert_array_equal(out, expected)
    assert made.result([Shape.of(dt.float32, lens)]).dims == out.shape
    late = Pad(mode=mode).evaluate([x, np.array(pads)])
    np.testing.assert_array_equal(late, expected)


def test_negative_pads_crop_first() -> None:
    x = np.arange(1, 6)
    assert Pad(pads=(-1, 2)).evaluate([x]).tolist() == [2, 3, 4, 5, 0, 0]
    assert Pad(pads=(1, -2), mode="edge").evaluate([x]).tolist() == [1, 1, 2, 3]
    assert Pad(pads=(2, -2), mode="reflect").evaluate([x]).tolist() == [3, 2, 1, 2, 3]
    assert Pad(pads=(-7, 3), value=9).evaluate([x]).tolist() == [9]
    with pytest.raises(ShapeError, match="crop"):
        Pad(pads=(-3, -3)).evaluate([x])


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint64, np.float16, ml_dtypes.bfloat16, ml_dtypes.int4, object]
)
def test_value_in_the_type_of_x(dtype: Any) -> None:
    x = np.array(["a"], object) if dtype is object else np.ones(1, dtype)
    border = np.array("z", object) if dtype is object else np.asarray(1, dtype)
    out = Pad().evaluate([x, np.array([1, 0]), border])
    assert out.dtype == x.dtype
    assert out.tolist() == [border.item(), x[0]]
    if dtype is not object:
        assert Pad(pads=(1, 0)).evaluate([x]).astype(np.float32).tolist() == [0, 1]


def test_axes() -> None:
    x = np.ones((2, 3))
    assert Pad().evaluate([x, np.array([1, 2]), None, np.array([-1])]).shape == (2, 6)
    with pytest.raises(ShapeError):
        Pad().evaluate([x, np.array([1, 2, 3]), None, np.array([-1])])


def test_symbolic_extents() -> None:
    x = Shape.of(dt.float32, (N, 3))
    assert Pad(pads=(1, 0, N, 2)).result([x]).dims == (2 * N + 1, 5)
    found = Pad().result([x, Shape.of(dt.int64, (4,))])
    assert found.rank == 2
    assert found.dynamic()
    for pads in ((1, 1), (0, -2, 0, -2)):
        with pytest.raises(ShapeError):
            Pad(pads=pads).result([x])
    with pytest.raises(ShapeError):
        Pad().result([x, Shape.of(dt.int64, (3,))])
    with pytest.raises(ShapeError, match="type"):
        Pad(pads=(0, 0, 1, 1)).result([x, None, Shape.of(dt.int32, ())])
    with pytest.raises(ParameterError):
        Pad(mode="mirror")


def test_nothing_to_repeat() -> None:
    for mode in ("reflect", "edge", "wrap"):
        with pytest.raises(ShapeError, match="empty"):
            Pad(pads=(1, 0), mode=mode).evaluate([np.zeros(0)])
    assert Pad(pads=(1, 1)).evaluate([np.zeros(0)]).tolist() == [0, 0]


def test_fixed_pad() -> None:
    assert FixedPad(output_lens=(64, 3)).result([Shape.of(dt.float32, (N, 3))]).dims == (64, 3)
    assert FixedPad(output_lens=(2, 3)).evaluate([np.ones((1, 2))]).tolist() == [[1, 1, 0], [0, 0, 0]]
    with pytest.raises(ShapeError, match="larger"):
        FixedPad(output_lens=(2,)).evaluate([np.ones(3)])
    for lens in ((4, 4), (2,)):
        with pytest.raises(ShapeError):
            FixedPad(output_lens=lens).result([Shape.of(dt.float32, (3,))])


def test_an_axis_that_is_cropped_away_is_padded_by_constants_alone() -> None:
    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(Pad(pads=(3, -3), value=5.0).evaluate([x]), [5, 5])
    with pytest.raises(ShapeError, match="nothing to repeat"):
        Pad(pads=(3, -3), mode="edge").evaluate([x])
