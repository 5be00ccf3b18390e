"""Ops that return views: the layout from `view` must show the elements that `compute` returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Broadcast, BroadcastForDot, Multibroadcast, Scalar
from mgx_core.ops.fill import Fill
from mgx_core.ops.movement import Contiguous, Transpose
from mgx_core.ops.reshape import Flatten, Reshape, Squeeze, Unsqueeze, regroup
from mgx_core.ops.slice import Slice, SlidingWindows, Step
from mgx_core.types.argument import shape_of
from mgx_core.types.shape import Shape


def shown(x: np.ndarray[Any, Any], window: tuple[int, Shape]) -> np.ndarray[Any, Any]:
    """Returns the view of the memory that starts at x's first element."""
    offset, shape = window
    size = x.itemsize
    base = np.lib.stride_tricks.as_strided(x, (1 << 20,), (size,))
    return np.lib.stride_tricks.as_strided(base[offset:], shape.lens(), [s * size for s in shape.strides()])


def check(op: Any, *inputs: np.ndarray[Any, Any]) -> bool:
    shapes = [shape_of(i) for i in inputs]
    window = op.view(*shapes)
    if window is None:
        return False
    expected = op.evaluate(inputs)
    assert window[1].lens() == list(expected.shape) == list(op.result(shapes).dims)
    np.testing.assert_array_equal(shown(inputs[0], window), expected)
    return True


X = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
LAYOUTS = [X, np.ascontiguousarray(X.transpose(2, 0, 1)).transpose(1, 2, 0), np.broadcast_to(X[:, :1], (2, 3, 4))]


@pytest.mark.parametrize("x", LAYOUTS, ids=["packed", "permuted", "broadcast"])
@pytest.mark.parametrize(
    "op",
    [
        Transpose(permutation=(2, 0, 1)),
        Transpose(),
        Slice(axes=(1, 2), starts=(1, 0), ends=(3, -1)),
        Slice(axes=(2,), starts=(1,), ends=(100,), steps=(2,)),
        Slice(axes=(0,), starts=(2,), ends=(2,)),
        Step(axes=(2, 0), steps=(3, 2)),
        SlidingWindows(axis=2, size=2),
        SlidingWindows(axis=-2, size=2, step=2),
        SlidingWindows(axis=1, size=3, step=4),
        Unsqueeze(axes=(0, -1)),
        Multibroadcast(out_lens=(5, 2, 3, 4)),
        Broadcast(axis=1, out_lens=(6, 2, 3, 4)),
        Broadcast(axis=0, out_lens=(2, 3, 4, 5)),
    ],
    ids=repr,
)
def test_always_a_view(op: Any, x: np.ndarray[Any, Any]) -> None:
    assert check(op, x)


def test_packed_memory() -> None:
    assert check(Reshape(dims=(4, 6)), X)
    assert check(Flatten(axis=2), X)
    assert check(Contiguous(), X)
    assert check(Squeeze(axes=(1,)), X[:, None])
    assert Contiguous().view(Shape(dt.float32, (2, 3), (1, 2))) is None


def test_one_element_and_second_operands() -> None:
    one = np.full((1, 1), 7, np.float32)
    assert check(Scalar(scalar_bcst_dims=(2, 3)), one)
    assert check(Fill(), one, X)
    assert check(Multibroadcast(), np.arange(3, dtype=np.float32)[:, None], X)
    assert check(BroadcastForDot(), X[:1], np.zeros((5, 2, 4, 6), np.float32))


def test_negative_steps_copy() -> None:
    assert Slice(axes=(0,), starts=(-1,), ends=(-9,), steps=(-1,)).view(shape_of(X)) is None


@st.composite
def strided(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], list[int]]:
    lens = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=0, max_size=4))
    order = draw(st.permutations(range(len(lens))))
    store = np.arange(int(np.prod(lens)), dtype=np.int32).reshape([lens[i] for i in order])
    x = store.transpose(np.argsort(order)) if lens else store
    for axis, n in enumerate(lens):
        if n > 1 and draw(st.integers(0, 4)) == 0:
            x = x[(slice(None),) * axis + (slice(0, 1),)]
            x = np.broadcast_to(x, [*x.shape[:axis], n, *x.shape[axis + 1 :]])
    rest, out = x.size, []
    while rest > 1:
        n = draw(st.sampled_from([k for k in range(2, rest + 1) if rest % k == 0]))
        out.append(n)
        rest //= n
    for _ in range(draw(st.integers(0, 2))):
        out.insert(draw(st.integers(0, len(out))), 1)
    return x, out


@settings(max_examples=300, deadline=None)
@given(strided())
def test_regroup_agrees_with_numpy(case: tuple[np.ndarray[Any, Any], list[int]]) -> None:
    """If numpy reshapes without a copy, so does regroup, with the same elements; otherwise it declines."""
    x, lens = case
    window = regroup(shape_of(x), lens)
    try:
        np.reshape(x, lens, copy=False)
        possible = True
    except ValueError:
        possible = False
    assert (window is not None) == possible
    if window is not None:
        np.testing.assert_array_equal(shown(x, window), x.reshape(lens))
