"""Reshapes: other extents for the same elements."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError, UnrankedError
from mgx_core.ops.reshape import Flatten, Reshape, ReshapeLazy, Squeeze, Unsqueeze, resolve
from mgx_core.types.shape import Shape

X = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
N = dim.symbol("n", 1, 64)


@pytest.mark.parametrize(
    ("old", "wanted", "allowzero", "meant"),
    [
        ((2, 3, 4), (4, -1), False, (4, 6)),
        ((2, 3, 4), (0, -1), False, (2, 12)),
        ((2, 0, 4), (0, 0, 2, 2), True, (0, 0, 2, 2)),
        ((0, 4), (2, 0), False, (2, 0)),
        ((0, 4), (0, -1), False, (0, 4)),
        ((2, 0), (4, -1), False, (4, 0)),
        ((), (1, 1), False, (1, 1)),
        ((1,), (), False, ()),
        ((N, 3, 4), (0, -1), False, (N, 12)),
        ((N, 3, 4), (-1, 6), False, (2 * N, 6)),
        ((N, 12), (N, 3, 4), False, (N, 3, 4)),
    ],
)
def test_resolve(old: tuple[dim.Dim, ...], wanted: tuple[dim.Dim, ...], allowzero: bool, meant: object) -> None:
    assert resolve(old, wanted, allowzero) == meant


@pytest.mark.parametrize(
    ("old", "wanted", "allowzero"),
    [((2, 3), (5,), False), ((2, 3), (4, -1), False), ((2, 3), (-1, -1), False), ((2, 3), (-2,), False),
     ((2, 3), (6, 1, 0), False), ((0, 3), (0, -1), True), ((2, 3), (0, 3), True), ((N,), (0, 2, -3), False)],
)  # fmt: skip
def test_resolve_refuses(old: tuple[dim.Dim, ...], wanted: tuple[dim.Dim, ...], allowzero: bool) -> None:
    with pytest.raises(ShapeError):
        resolve(old, wanted, allowzero)


@pytest.mark.parametrize("op", [Reshape, ReshapeLazy])
def test_reshape(op: type[Reshape]) -> None:
    made = op(dims=(0, -1))
    assert made.result([Shape.of(dt.int16, (2, 3, 4))]) == Shape.of(dt.int16, (2, 12))
    np.testing.assert_array_equal(made.evaluate([X.transpose(0, 2, 1)]), X.transpose(0, 2, 1).reshape(2, 12))
    assert made.normal(Shape.of(dt.int16, (2, 3, 4))).dims == (2, 12)


def test_reshape_to_extents_known_while_running() -> None:
    shape = Reshape().result([Shape.of(dt.int16, (2, 3, 4)), Shape.of(dt.int64, (2,))])
    assert shape.rank == 2
    assert shape.dynamic()
    assert not Reshape().result([Shape.of(dt.int16, (N,)), Shape.of(dt.int64, (N,))]).ranked
    assert Reshape().evaluate([X, np.array([-1, 8])]).shape == (3, 8)
    assert Reshape(allowzero=True).evaluate([X[:0], np.array([5, 0])]).shape == (5, 0)
    with pytest.raises(ShapeError, match="24 elements"):
        Reshape().evaluate([X, np.array([5, 5])])


def test_explicit_extents_restore_a_rank() -> None:
    found = Reshape(dims=(4, -1)).result([Shape.unranked(dt.float32)])
    assert found.dims[0] == 4
    assert not isinstance(found.dims[1], int)
    with pytest.raises(UnrankedError):
        Reshape(dims=(0, -1)).result([Shape.unranked(dt.float32)])


def test_flatten() -> None:
    for axis, dims in ((0, (1, 24)), (1, (2, 12)), (2, (6, 4)), (3, (24, 1)), (-1, (6, 4)), (-3, (1, 24))):
        assert Flatten(axis=axis).result([Shape.of(dt.int16, (2, 3, 4))]).dims == dims
        np.testing.assert_array_equal(Flatten(axis=axis).evaluate([X]), X.reshape(dims))
    assert Flatten(axis=2).result([Shape.of(dt.int16, (N, 3, 4))]).dims == (3 * N, 4)
    assert Flatten(axis=0).evaluate([np.float32(3).reshape(())]).shape == (1, 1)
    with pytest.raises(ShapeError, match=r"\[-3, 3\]"):
        Flatten(axis=4).result([Shape.of(dt.int16, (2, 3, 4))])


def test_squeeze() -> None:
    x = Shape.of(dt.float32, (1, N, 1, 3))
    assert Squeeze(axes=(0, -2)).result([x]).dims == (N, 3)
    assert Squeeze(axes=(1,)).result([x]).dims == (1, 1, 3)
    assert not Squeeze().result([x]).ranked  # n may be 1
    assert Squeeze().result([Shape.of(dt.float32, (1, dim.symbol("m", 2), 1))]).rank == 1
    assert Squeeze().result([x, Shape.of(dt.int64, (2,))]).rank == 2
    assert Squeeze().evaluate([np.zeros((1, 2, 1)), np.array([-1])]).shape == (1, 2)
    assert Squeeze().evaluate([np.zeros((1, 2, 1))]).shape == (2,)
    with pytest.raises(ShapeError, match="axis 3"):
        Squeeze(axes=(3,)).result([x])
    with pytest.raises(ShapeError, match="extent 1"):
        Squeeze().evaluate([np.zeros((2, 1)), np.array([0])])


def test_unsqueeze() -> None:
    assert Unsqueeze(axes=(0, -1)).result([Shape.of(dt.float32, (N, 3))]).dims == (1, N, 3, 1)
    assert Unsqueeze(axes=(3, 0)).normal(Shape.of(dt.float32, (2, 3))).axes == (0, 3)
    assert Unsqueeze().result([Shape.of(dt.float32, (N,)), Shape.of(dt.int64, (2,))]).rank == 3
    assert Unsqueeze().evaluate([X, np.array([1, -1])]).shape == (2, 1, 3, 4, 1)
    for axes in ((4,), (0, 0), (0, -3)):
        with pytest.raises(ShapeError):
            Unsqueeze(axes=axes).result([Shape.of(dt.float32, (2,))])


@pytest.mark.parametrize("dims", [(1, 0), (0, 3)])
def test_the_normal_form_keeps_extents_of_zero(dims: tuple[int, ...]) -> None:
    """They are not copied from the operand, whose extent may turn out to be 0 only at run time."""
    x = Shape.of(dt.float32, (dim.symbol("m", 0, 64),))
    for kind in (Reshape, ReshapeLazy):
        found = kind(dims=dims, allowzero=True).normal(x)
        assert found.result([x]) == Shape.of(dt.float32, dims)
        assert kind(dims=(2, -1)).normal(Shape.of(dt.float32, (2, 3))) == kind(dims=(2, 3))
