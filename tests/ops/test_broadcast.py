"""Repetition along axes."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.broadcast import (
    Broadcast,
    BroadcastForDot,
    BroadcastWithDims,
    Multibroadcast,
    Scalar,
    Tile,
)
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import Trace, surely_equal

N = dim.symbol("n", 1, 64)


def f32(*dims: dim.Dim) -> Shape:
    return Shape.of(dt.float32, dims)


def test_multibroadcast() -> None:
    x = np.arange(3, dtype=np.float32).reshape(3, 1)
    assert Multibroadcast(out_lens=(N, 3, 4)).result([f32(3, 1)]).dims == (N, 3, 4)
    assert Multibroadcast(out_lens=(N, 4)).result([f32(N, 1)]).dims == (N, 4)
    np.testing.assert_array_equal(Multibroadcast(out_lens=(2, 3, 4)).evaluate([x]), np.broadcast_to(x, (2, 3, 4)))
    assert Multibroadcast().result([f32(3, 1), f32(N, 1, 5), f32(5)]).dims == (N, 3, 5)
    assert Multibroadcast().evaluate([x, np.zeros((2, 1, 4))]).shape == (2, 3, 4)
    assert Multibroadcast(out_lens=(0, 2)).evaluate([np.ones((1, 2))]).shape == (0, 2)
    for dims in ((4, 4), (3,)):
        with pytest.raises(ShapeError):
            Multibroadcast(out_lens=dims).result([f32(3, 1)])
    with pytest.raises(ShapeError, match="cannot be broadcast"):
        Multibroadcast(out_lens=(2,)).evaluate([np.zeros(3)])


def test_broadcast() -> None:
    bias = np.arange(3, dtype=np.float32)
    out = Broadcast(axis=1, out_lens=(2, 3, 4)).evaluate([bias])
    np.testing.assert_array_equal(out, np.broadcast_to(bias[:, None], (2, 3, 4)))
    assert Broadcast(axis=1).result([f32(3), f32(N, 3, 7)]).dims == (N, 3, 7)
    assert Broadcast(axis=-2, out_lens=(2, 3, 4)).evaluate([bias]).shape == (2, 3, 4)
    for op in (Broadcast(axis=0, out_lens=(2, 3)), Broadcast(axis=2, out_lens=(2, 3)), Broadcast(out_lens=())):
        with pytest.raises(ShapeError):
            op.result([f32(3)])


def test_broadcast_for_dot() -> None:
    assert BroadcastForDot().result([f32(2, 3), f32(N, 1, 3, 4)]).dims == (N, 1, 2, 3)
    assert BroadcastForDot().evaluate([np.zeros((5, 1, 2, 3)), np.zeros((7, 3, 4))]).shape == (5, 7, 2, 3)
    with pytest.raises(ShapeError):
        BroadcastForDot().result([f32(2, 3, 4), f32(3, 4, 5)])


def test_broadcast_with_dims() -> None:
    found = BroadcastWithDims().result([f32(3, 1), Shape.of(dt.int64, (3,))])
    assert found.dims[1] == 3
    assert not any(isinstance(found.dims[i], int) for i in (0, 2))
    assert BroadcastWithDims().result([f32(3, 1), Shape.of(dt.int64, (1,))]).dims[0] == 3
    assert not BroadcastWithDims().result([f32(3), Shape.of(dt.int64, (N,))]).ranked
    assert not BroadcastWithDims().result([Shape.unranked(dt.float32), Shape.of(dt.int64, (3,))]).ranked
    x = np.arange(3.0).reshape(3, 1)
    np.testing.assert_array_equal(BroadcastWithDims().evaluate([x, np.array([2, 1, 6])]), np.broadcast_to(x, (2, 3, 6)))
    assert BroadcastWithDims().evaluate([x, np.array([], np.int64)]).shape == (3, 1)
    for dims in ([2, 6], [-1, 1]):
        with pytest.raises(ShapeError):
            BroadcastWithDims().evaluate([x, np.array(dims)])


def test_scalar() -> None:
    assert Scalar(scalar_bcst_dims=(2, N)).result([f32(1)]).dims == (2, N)
    np.testing.assert_array_equal(Scalar(scalar_bcst_dims=(2, 2)).evaluate([np.array([7])]), np.full((2, 2), 7))
    with pytest.raises(ShapeError):
        Scalar(scalar_bcst_dims=(2,)).result([f32(2)])


def test_tile() -> None:
    x = np.arange(6).reshape(2, 3)
    for repeats in ((1, 1), (2, 3), (0, 2), (3, 1)):
        expected = np.tile(x, repeats)
        np.testing.assert_array_equal(Tile(repeats=repeats).evaluate([x]), expected)
        np.testing.assert_array_equal(Tile().evaluate([x, np.array(repeats)]), expected)
    assert Tile(repeats=(2, N)).result([f32(N, 3)]).dims == (2 * N, 3 * N)
    assert Tile().result([f32(N, 3), Shape.of(dt.int64, (2,))]).rank == 2
    assert Tile().evaluate([np.float32(3).reshape(()), np.array([], np.int64)]).shape == ()
    for bad in ([2], [-1, 2]):
        with pytest.raises(ShapeError):
            Tile().evaluate([x, np.array(bad)])
    with pytest.raises(ShapeError):
        Tile(repeats=(2,)).result([f32(2, 3)])


def test_views_are_valid_for_all_traced_extents() -> None:
    trace = Trace()
    n = trace.extent(9)
    view = Broadcast(axis=1, out_lens=(3, n, 4)).view(f32(n))
    assert view is not None and view[1].strides() == [0, 1, 0] and surely_equal(view[1].lens(), [3, n, 4])
    assert not trace.conditions
