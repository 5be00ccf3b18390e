"""Permuted and reversed axes."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.concat import Concat
from mgx_core.ops.movement import Contiguous, Layout, Reverse, ReverseSequence, Transpose
from mgx_core.types.shape import Shape

N = dim.symbol("n", 1, 64)
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def f32(*dims: dim.Dim) -> Shape:
    return Shape.of(dt.float32, dims)


def test_transpose() -> None:
    assert Transpose(permutation=(2, 0, 1)).result([f32(N, 3, 4)]).dims == (4, N, 3)
    assert Transpose().result([f32(N, 3)]).dims == (3, N)
    np.testing.assert_array_equal(Transpose(permutation=(0, -1, 1)).evaluate([X]), X.transpose(0, 2, 1))
    assert Transpose().evaluate([np.float32(1).reshape(())]).shape == ()
    for bad in ((0, 1), (0, 0, 1), (0, 1, 3)):
        with pytest.raises(ShapeError, match="permutation"):
            Transpose(permutation=bad).result([f32(2, 3, 4)])


def test_contiguous_and_layout() -> None:
    turned = X.transpose(2, 1, 0)
    out = Contiguous().evaluate([turned])
    assert out.flags.c_contiguous
    np.testing.assert_array_equal(out, turned)
    assert Contiguous().evaluate([np.float32(1).reshape(())]).shape == ()
    assert Contiguous().result([Shape(dt.float32, (2, 3), (1, 2))]).standard()
    nhwc = Layout(permutation=(0, 2, 1)).evaluate([X])
    np.testing.assert_array_equal(nhwc, X)
    assert nhwc.transpose(0, 2, 1).flags.c_contiguous
    cycled = Layout(permutation=(2, 0, 1)).evaluate([X])
    assert cycled.transpose(2, 0, 1).flags.c_contiguous
    np.testing.assert_array_equal(cycled, X)
    with pytest.raises(ShapeError):
        Layout(permutation=(0, 1)).result([f32(2, 3, 4)])


def test_reverse() -> None:
    np.testing.assert_array_equal(Reverse(axes=(0, -1)).evaluate([X]), X[::-1, :, ::-1])
    for bad in ((3,), (0, -3)):
        with pytest.raises(ShapeError):
            Reverse(axes=bad).result([f32(2, 3, 4)])


@pytest.mark.parametrize(("batch", "time"), [(0, 1), (1, 0), (0, 2), (2, 1), (-1, 0)])
def test_reverse_sequence(batch: int, time: int) -> None:
    rng = np.random.default_rng(3 * time + batch + 1)
    x = rng.integers(0, 100, (3, 4, 5))
    lens = rng.integers(0, x.shape[time] + 1, x.shape[batch])
    out = ReverseSequence(batch_axis=batch, time_axis=time).evaluate([x, lens])
    moved, expected = np.moveaxis(x, (batch, time), (0, 1)), np.moveaxis(x, (batch, time), (0, 1)).copy()
    for b, n in enumerate(lens):
        expected[b, :n] = moved[b, :n][::-1]
    np.testing.assert_array_equal(np.moveaxis(out, (batch, time), (0, 1)), expected)


def test_reverse_sequence_refuses() -> None:
    lens = Shape.of(dt.int64, (3,))
    with pytest.raises(ShapeError, match="differ"):
        ReverseSequence(batch_axis=0, time_axis=-2).result([f32(4, 3), lens])
    with pytest.raises(ShapeError):
        ReverseSequence().result([f32(4, 2), lens])
    for bad in ([1, 5, 1], [-1, 0, 0]):
        with pytest.raises(ShapeError, match="sequence_lens"):
            ReverseSequence().evaluate([np.zeros((4, 3)), np.array(bad)])


def test_concat() -> None:
    made = Concat(axis=-2)
    assert made.result([f32(N, 3, 4), f32(2, N, 4), f32(2, 1, 4)]).dims == (2, N + 4, 4)
    np.testing.assert_array_equal(made.evaluate([X, X[:, :1]]), np.concatenate([X, X[:, :1]], 1))
    half = Shape.of(dt.float16, (2, 3))
    for bad in ([], [f32(2), f32(2, 3)], [f32(2, 3), half], [f32(2, 3, 4), f32(3, 3, 4)]):
        with pytest.raises(ShapeError):
            made.result(bad)
