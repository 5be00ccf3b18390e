"""Slices of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.slice import ScanSlice, Slice, SlidingWindows, Split, Step
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import Trace, value_of

N = dim.symbol("n", 0, 64)
M = dim.symbol("m", 8, 64)
END = 9223372036854775807


def f32(*dims: dim.Dim) -> Shape:
    return Shape.of(dt.float32, dims)


def i64(n: dim.Dim) -> Shape:
    return Shape.of(dt.int64, (n,))


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 7), st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([-END, -3, -2, -1, 1, 2, 3, END])
)  # fmt: skip
def test_every_range_behaves_like_python(length: int, start: int, end: int, step: int) -> None:
    x = np.arange(length)
    made = Slice(axes=(0,), starts=(start,), ends=(end,), steps=(step,))
    out = made.evaluate([x])
    assert out.tolist() == list(range(length))[start:end:step]
    assert made.result([Shape.of(dt.int64, (length,))]).dims == out.shape
    late = Slice().evaluate([x, np.array([start]), np.array([end]), np.array([0]), np.array([step])])
    assert late.tolist() == out.tolist()
    normal = made.normal(Shape.of(dt.int64, (length,)))
    assert normal.evaluate([x]).tolist() == out.tolist()
    assert all(abs(s) <= max(length, 1) for s in normal.steps)


@pytest.mark.parametrize(
    ("start", "end", "length", "extent"),
    [
        (0, END, N, N), (1, END, M, M - 1), (-3, END, M, 3), (0, -1, M, M - 1), (2, 5, M, 3), (0, M, M, M),
        (M - 4, END, M, 4), (0, 2, dim.symbol("k", 4, 9), 2), (5, 3, M, 0),
    ],
)  # fmt: skip
def test_symbolic_extents(start: dim.Dim, end: dim.Dim, length: dim.Dim, extent: dim.Dim) -> None:
    assert Slice(axes=(0,), starts=(start,), ends=(end,)).result([f32(length)]).dims == (extent,)


def test_symbolic_bounds_hold_for_every_value() -> None:
    """The inferred extent in n equals the computed one for each value of n."""
    for start, end, step in ((1, 5, 1), (-4, END, 1), (2, -1, 2), (N - 3, END, 1), (-1, -END, -1), (0, N, 3)):
        made = Slice(axes=(0,), starts=(start,), ends=(end,), steps=(step,))
        (extent,) = made.result([f32(N)]).dims
        for n in range(9):
            out = made.substitute({"n": n}).evaluate([np.zeros(n, np.float32)])
            low, high = dim.bounds(dim.substitute(extent, {"n": n}))
            assert low <= len(out) <= high


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, END, 3), (2, 20, 3), (-3, END, 1), (1, -1, 2), (-1, -END, -1), (-2, -END, -3), (20, 3, -2), (5, 2, 1)],
)
def test_ranges_of_traced_extents_are_expressions(start: int, end: int, step: int) -> None:
    cut = Slice(axes=(0,), starts=(start,), ends=(end,), steps=(step,))
    trace = Trace()
    x = Shape.of(dt.float32, (trace.extent(14), 6))
    rows = [*cut.result([x]).lens()[:1]]
    view = cut.view(x)
    if view is not None:
        rows += [view[1].lens()[0], view[0]]
    holds, evaluate = trace.test(), trace.evaluator(rows)
    for n in range(30):
        first, *_ = taken = [*range(n)[start:end:step], 0]
        if holds(n):
            assert evaluate(n) == [len(taken) - 1, len(taken) - 1, first * 6][: len(rows)]
    assert all(map(holds, (13, 14, 15)))


def test_operands_known_while_running() -> None:
    x = f32(4, N, 6)
    assert Slice().result([x, i64(1), i64(1)]).dims[1:] == (N, 6)
    partly = Slice(axes=(-1,)).result([x, i64(1), i64(1)])
    assert partly.dims[:2] == (4, N)
    assert dim.bounds(partly.dims[2]) == (0, 6)
    everywhere = Slice().result([x, i64(1), i64(1), i64(1), i64(1)])
    assert [dim.bounds(d)[1] for d in everywhere.dims] == [4, 64, 6]
    assert not any(isinstance(d, int) for d in everywhere.dims)
    data = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(Slice(axes=(1,)).evaluate([data, np.array([1]), np.array([-1])]), data[:, 1:-1])
    np.testing.assert_array_equal(Slice().evaluate([data, np.array([1]), np.array([3])]), data[1:3])


@pytest.mark.parametrize(
    "op",
    [
        Slice(axes=(0,), starts=(0,), ends=(1,), steps=(0,)),
        Slice(axes=(2,), starts=(0,), ends=(1,)),
        Slice(axes=(0, -2), starts=(0, 0), ends=(1, 1)),
        Slice(axes=(0,), starts=(0, 1), ends=(1,)),
    ],
)
def test_slice_refuses(op: Slice) -> None:
    with pytest.raises(ShapeError):
        op.result([f32(2, 3)])
    with pytest.raises(ShapeError):
        op.evaluate([np.zeros((2, 3))])


def test_lengths_of_operands() -> None:
    for operands in ([i64(1), i64(2)], [i64(3), i64(3)], [i64(1), i64(1), i64(2)], [f32(1), i64(1)]):
        with pytest.raises(ShapeError):
            Slice().result([f32(2, 3), *operands])


def test_split() -> None:
    x = np.arange(12).reshape(2, 6)
    made = Split(axis=-1, count=3)
    parts: Any = made.evaluate([x, np.array([1, 0, 5])])
    assert [p.tolist() for p in parts] == [x[:, :1].tolist(), x[:, 1:1].tolist(), x[:, 1:].tolist()]
    shapes: Any = made.result([f32(2, 6), i64(3)])
    assert [dim.bounds(s.dims[1]) for s in shapes.items] == [(0, 6)] * 3
    for sizes in ([1, 2, 4], [7, -1, 0]):
        with pytest.raises(ShapeError, match="add up"):
            made.evaluate([x, np.array(sizes)])


def test_step() -> None:
    x = np.arange(35).reshape(5, 7)
    np.testing.assert_array_equal(Step(axes=(-1, 0), steps=(3, 2)).evaluate([x]), x[::2, ::3])
    assert Step(axes=(0,), steps=(2,)).result([f32(M, 7)]).dims == ((M + 1) // 2, 7)
    assert Step(axes=(-1, 0), steps=(END, 2)).normal(f32(5, 7)) == Step(axes=(1, 0), steps=(7, 2))
    assert Step(axes=(0,), steps=(END,)).normal(f32(0)) == Step(axes=(0,), steps=(1,))
    for bad in (Step(axes=(0,), steps=(0,)), Step(axes=(0, 1), steps=(2,)), Step(axes=(2,), steps=(1,))):
        with pytest.raises(ShapeError):
            bad.result([f32(5, 7)])


def test_scan_slice() -> None:
    x = np.arange(6).reshape(2, 3)
    assert ScanSlice(axis=1).result([f32(2, N), i64(1)]).dims == (2, 1)
    assert ScanSlice(axis=1).evaluate([x, np.array([2])]).tolist() == [[2], [5]]
    assert ScanSlice(axis=1, direction=1).evaluate([x, np.array(2)]).tolist() == [[0], [3]]
    for at in (3, -1):
        with pytest.raises(ShapeError, match="index"):
            ScanSlice(axis=1).evaluate([x, np.array([at])])


def test_sliding_windows() -> None:
    x = np.arange(14).reshape(7, 2)
    windows = SlidingWindows(axis=0, size=3, step=2).evaluate([x])
    np.testing.assert_array_equal(windows, np.stack([x[0:3], x[2:5], x[4:7]]))
    assert SlidingWindows(axis=-1, size=2).evaluate([x]).shape == (7, 1, 2)
    assert SlidingWindows(axis=0, size=3, step=2).result([f32(N, 4)]).dims == ((N - 3) // 2 + 1, 3, 4)
    with pytest.raises(ShapeError, match="does not fit"):
        SlidingWindows(axis=0, size=8).result([f32(7)])
    with pytest.raises(ShapeError, match="at least 1"):
        SlidingWindows(axis=0, size=3, step=0).result([f32(7)])


@pytest.mark.parametrize("step", [1, 3])
def test_slices_to_traced_extents_stay_traced(step: int) -> None:
    trace = Trace()
    end = trace.extent(20)
    op = Slice(axes=(0,), starts=(2,), ends=(end,), steps=(step,))
    found = op.infer(Shape("float32", [64, 4])).dims[0]
    view = op.view(Shape("float32", [64, 4]))
    assert view is not None and view[0] == 8
    lens = view[1].lens()
    assert [value_of(n) for n in lens] == [len(range(64)[2:20:step]), 4]
    evaluate, test = trace.evaluator([found, lens[0]]), trace.test()
    assert not test(2)  # an empty slice begins elsewhere
    for n in (3, 7, 33, 63):
        assert test(n) and evaluate(n) == [len(range(64)[2:n:step])] * 2
