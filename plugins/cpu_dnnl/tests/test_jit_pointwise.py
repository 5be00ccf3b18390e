"""Pointwise loops, compared with the interpreter: random groups, every layout, odd extents, every element type."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_loops import new_engine, run_numpy, shape_of, strided

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops import activation, compare, convert, pointwise, trigonometry
from mgx_core.ops.broadcast import Broadcast, Multibroadcast
from mgx_core.ops.movement import Transpose
from mgx_core.ops.reshape import Squeeze, Unsqueeze
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.graph import Graph
from mgx_cpu_dnnl.jit.pointwise import build, compile_copy, compile_pointwise
from mgx_cpu_dnnl.jit.pointwise_plan import make_plan

get_engine = cache(new_engine)

BINARY = (pointwise.Add, pointwise.Max, pointwise.Div, compare.GreaterOrEqual)


def check(engine, body, arrays, orders=None, chunks=1, tolerance=None, gap=0):
    expected = Interpreter().run(body, [np.array(a, order="C") for a in arrays])
    outs = []
    for i, e in enumerate(expected):
        order = (orders or {}).get(i, range(e.ndim))
        filler = np.full(e.shape, 1, e.dtype)
        outs.append(strided(filler, list(order), gap))
    kernel = compile_pointwise(body, [shape_of(a) for a in arrays], [shape_of(o) for o in outs], engine)
    assert not isinstance(kernel, No), kernel
    run_numpy(kernel, [*arrays, *outs], chunks)
    for out, e in zip(outs, expected, strict=True):
        if e.dtype.kind in "biu":
            assert np.array_equal(out, e)
        else:
            rtol = tolerance or 4 * float(dt.of(e.dtype).epsilon)
            wide = e.astype(np.float64)
            np.testing.assert_allclose(out.astype(np.float64), wide, rtol=max(rtol, 2e-6), atol=max(rtol, 2e-6))
    return kernel


def single(op, *shapes):
    body = Module("single")
    args = [body.add_parameter(f"x{i}", s) for i, s in enumerate(shapes)]
    body.add_return([body.add(op, *args)])
    return body


def numbers(dims, dtype=np.float32, seed=0):
    r = np.random.default_rng(seed)
    if np.dtype(dtype) == bool:
        return r.integers(0, 2, dims).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return r.integers(0, 100, dims).astype(dtype)
    return np.asarray(r.standard_normal(dims)).astype(dtype)


@pytest.mark.parametrize(
    "dims",
    [(), (1,), (7,), (16,), (63,), (64,), (65,), (1000,), (20011,), (3, 5), (2, 3, 4, 5), (5, 9001), (0,), (3, 0, 2)],
)
@pytest.mark.parametrize("op", [pointwise.Add(), pointwise.Pow()], ids=str)
def test_extents(engine, dims, op):
    a, b = np.asarray(np.abs(numbers(dims))), np.asarray(numbers(dims, seed=1))
    body = single(op, Shape("float32", dims), Shape("float32", dims))
    check(engine, body, [a, b], chunks=3)


@pytest.mark.parametrize("op", [pointwise.Max(), pointwise.Min()], ids=str)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16], ids=str)
def test_a_bound_that_is_not_a_number(engine, op, dtype):
    """The reference gives NaN; code for constant bounds assumes that they are numbers."""
    body = Module("bounded")
    x = body.add_parameter("x", Shape(dtype, (3, 37)))
    bound = body.add(Multibroadcast(out_lens=(3, 37)), body.add_literal(np.array([np.nan], dtype.numpy)))
    body.add_return([body.add(op, x, bound), body.add(op, bound, x)])
    check(engine, body, [numbers((3, 37), dtype.numpy)])


@pytest.mark.parametrize(
    "dtype",
    [dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int8, dt.uint8, dt.int16, dt.int32, dt.int64, dt.uint64],
    ids=str,
)
def test_element_types(engine, dtype):
    body = single(pointwise.Add(), Shape(dtype, (5, 67)), Shape(dtype, (5, 67)))
    check(engine, body, [numbers((5, 67), dtype.numpy), numbers((5, 67), dtype.numpy, seed=1)])


@pytest.mark.pairs
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("to", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
@pytest.mark.parametrize("dims", [(3, 20, 37), (2, 5, 3), (1, 64, 64)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float64], ids=lambda d: d.__name__)
def test_orders(engine, order, to, dims, dtype):
    body = single(pointwise.Max(), Shape(dtype, dims), Shape(dtype, dims))
    check(engine, body, [strided(numbers(dims, dtype), order), numbers(dims, dtype, seed=1)], {0: to}, chunks=2)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_gaps(engine, order):
    body = single(pointwise.Mul(), Shape("float32", (9, 35)), Shape("float32", (9, 35)))
    check(engine, body, [strided(numbers((9, 35)), order, 3), numbers((9, 35))], gap=2)
    a = numbers((18, 70))[::2, ::2]
    check(engine, body, [a, numbers((9, 35))])


CONVERTED = [
    dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int8, dt.uint8, dt.int16, dt.int32, dt.uint32, dt.int64, dt.uint64, dt.bool_,
]  # fmt: skip


@pytest.mark.pairs
@pytest.mark.parametrize("source", CONVERTED, ids=str)
@pytest.mark.parametrize("target", CONVERTED, ids=str)
def test_convert(engine, source, target):
    r = np.random.default_rng(1)
    if source.is_float:
        x = np.concatenate(
            [
                r.uniform(-300, 300, 200),
                [0.0, -0.0, 1e10, -1e10, 3e30, -3e30, np.inf, -np.inf, np.nan, 65520, 1e-7, -1e-7],
            ]
        )
        with np.errstate(over="ignore"):
            x = x.astype(np.float32).astype(source.numpy)
        if target.kind == "u":
            x = np.abs(x)  # numpy's results for negative numbers depend on the platform
    elif source is dt.bool_:
        x = r.integers(0, 2, 212).astype(bool)
    else:
        x = r.integers(source.lowest, source.highest, 212, dtype=source.numpy, endpoint=True)
    body = single(convert.Convert(target_type=target), Shape(source, x.shape))
    out = np.empty(x.shape, target.numpy)
    kernel = compile_pointwise(body, [shape_of(x)], [shape_of(out)], engine)
    run_numpy(kernel, [x, out])
    expected = Interpreter().run(body, [x])[0]
    if source is dt.float64 and target in (dt.float16, dt.bfloat16):
        np.testing.assert_allclose(out.astype(float), expected.astype(float), rtol=float(target.epsilon))
    else:
        assert np.array_equal(out.astype(np.float64), expected.astype(np.float64), equal_nan=True)


def test_views(engine):
    """A bias by column, by channel, a scalar, and a value that is reduced and broadcast again."""
    body = Module("views")
    x = body.add_parameter("x", Shape("float32", (2, 3, 50)))
    row = body.add_parameter("row", Shape("float32", (50,)))
    channel = body.add_parameter("channel", Shape("float32", (3,)))
    one = body.add_literal(np.array([3.0], np.float32))
    wide = lambda v: body.add(Multibroadcast(out_lens=(2, 3, 50)), v)  # noqa: E731
    small = body.add(pointwise.Exp(), channel)
    y = body.add(pointwise.Add(), x, wide(row))
    y = body.add(pointwise.Mul(), y, body.add(Broadcast(axis=1, out_lens=(2, 3, 50)), small))
    y = body.add(pointwise.Div(), y, wide(one))
    spread = wide(body.add(Unsqueeze(axes=(1,)), body.add(Squeeze(axes=(1,)), body.add(Unsqueeze(axes=(1,)), channel))))
    z = body.add(pointwise.Div(), y, spread)
    body.add_return([y, z])
    check(engine, body, [numbers((2, 3, 50)), numbers((50,)), np.abs(numbers((3,))) + 1])


def test_division_by_a_spread_number(engine):
    """Extreme divisors that are constant along the loop."""
    body = Module("division")
    x = body.add_parameter("x", Shape("float32", (12, 20)))
    y = body.add_parameter("y", Shape("float32", (12, 1)))
    body.add_return([body.add(pointwise.Div(), x, body.add(Multibroadcast(out_lens=(12, 20)), y))])
    d = np.array([1e-45, 1e-39, 1e-38, 1e-30, 1, 3, 1e30, 3e38, np.inf, 0, np.nan, -1e-40], np.float32).reshape(12, 1)
    x = np.concatenate(
        [numbers((12, 10)), numbers((12, 5)) * np.float32(1e-38), numbers((12, 5)) * np.float32(1e38)], 1
    )
    out = np.empty((12, 20), np.float32)
    run_numpy(compile_pointwise(body, [shape_of(x), shape_of(d)], [shape_of(out)], engine), [x, d, out])
    with np.errstate(all="ignore"):
        expected = x / d
    np.testing.assert_allclose(out, expected, rtol=3e-7, atol=3e-45)


@pytest.mark.parametrize(
    "ends",
    [
        [pointwise.Floor()],
        [pointwise.Nearbyint()],
        [pointwise.Add(), pointwise.Floor()],
        [pointwise.Neg(), convert.Convert(target_type=dt.int32)],
        [pointwise.Max(), pointwise.Sign()],
        [compare.GreaterOrEqual()],
        [pointwise.Div(), pointwise.Ceil()],
    ],
    ids=str,
)
@pytest.mark.parametrize("divisor", [3.0, 7.0, 41.0, 255.0, 1.1])
def test_quotients_that_are_rounded_or_compared_are_exact(engine, divisor, ends):
    """41 times the float32 number nearest to 1 / 41 is less than 1, and its floor is 0."""
    body = Module("stepped")
    x = body.add_parameter("x", Shape("float32", [4001]))
    scalar = Multibroadcast(out_lens=(4001,))
    half = body.add(scalar, body.add_literal(np.float32(0.5)))
    y = body.add(pointwise.Div(), x, body.add(scalar, body.add_literal(np.float32(divisor))))
    for end in ends:
        y = body.add(end, *(y, half)[: 2 if isinstance(end, BINARY) else 1])
    body.add_return([y])
    check(engine, body, [np.arange(-2000, 2001, dtype=np.float32) / np.float32(8)])


def test_sigmoid_is_one_primitive(engine):
    x = np.concatenate([numbers((1000,)) * 40, [np.inf, -np.inf, np.nan, 0, 200, -200]]).astype(np.float32)
    check(engine, single(activation.Sigmoid(), shape_of(x)), [x])


@pytest.mark.parametrize("name", sorted(set(activation.__all__) - {"Prelu"}))
def test_activations(engine, name):
    x = np.linspace(-12, 12, 1003).astype(np.float32)
    check(engine, single(getattr(activation, name)(), shape_of(x)), [x])


def test_literals_and_refusals(engine):
    body = single(pointwise.Add(), Shape("complex64", (3,)), Shape("complex64", (3,)))
    refused = compile_pointwise(body, [Shape("complex64", (3,))] * 2, [Shape("complex64", (3,))], engine)
    assert isinstance(refused, No)
    assert "complex64" in refused.why


def test_one_code_for_all_extents(engine):
    body = single(pointwise.Sub(), Shape("float32", (3, 7)), Shape("float32", (3, 7)))
    before = len(engine._functions)
    kernels = []
    for dims in ((3, 7), (9, 31), (127, 5)):
        a, b = numbers(dims), numbers(dims, seed=2)
        body = single(pointwise.Sub(), Shape("float32", dims), Shape("float32", dims))
        kernels.append(check(engine, body, [a, b]))
    assert len({k.code for k in kernels}) == 1
    assert len(engine._functions) <= before + 1


COMMON = [pointwise.Add(), pointwise.Sub(), pointwise.Mul(), pointwise.Max(), pointwise.Min()]
UNARY = [
    pointwise.Neg(),
    trigonometry.Tanh(),
    activation.Relu(),
    activation.GeluErf(),
    pointwise.Abs(),
    pointwise.Exp(),
    activation.LeakyRelu(alpha=0.1),
]
EXACT = (pointwise.Neg, activation.Relu, pointwise.Abs, pointwise.Max, pointwise.Min)


@st.composite
def groups(draw):
    """Returns a body of a few ops on inputs of random layouts, and the arrays.

    Comparisons use unrounded values: their result must not depend on the last bit of a tanh.
    """
    rank = draw(st.integers(1, 4))
    dims = tuple(draw(st.integers(1, 20 if rank > 2 else 70)) for _ in range(rank))
    body = Module("random")
    arrays, values = [], []
    for i in range(draw(st.integers(1, 4))):
        own = tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in dims)
        own = own[draw(st.integers(0, rank - 1)) :] if draw(st.booleans()) else own
        order = draw(st.permutations(range(len(own))))
        array = strided(np.clip(numbers(own, seed=i), -2, 2), list(order), draw(st.integers(0, 1)))
        arrays.append(array)
        made = body.add_parameter(f"x{i}", Shape("float32", own))
        values.append(made if own == dims else body.add(Multibroadcast(out_lens=dims), made))
    exact = list(values)
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.booleans()):
            a = body.add(draw(st.sampled_from(UNARY)), draw(st.sampled_from(values)))
        elif draw(st.integers(0, 4)) == 0:
            flag = body.add(compare.Less(), draw(st.sampled_from(exact)), draw(st.sampled_from(exact)))
            a = body.add(pointwise.Where(), flag, draw(st.sampled_from(values)), draw(st.sampled_from(values)))
        else:
            a = body.add(draw(st.sampled_from(COMMON)), draw(st.sampled_from(values)), draw(st.sampled_from(values)))
        if isinstance(a.op, EXACT) and set(a.inputs) <= set(exact):
            exact.append(a)
        bound = [
            body.add(Multibroadcast(out_lens=dims), body.add_literal(np.array([v], np.float32))) for v in (-3.0, 3.0)
        ]
        values.append(body.add(pointwise.Clip(), a, *bound))
    count = draw(st.integers(1, 2))
    body.add_return(values[-count:])
    orders = {i: draw(st.permutations(range(rank))) for i in range(count)}
    return body, arrays, orders


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(groups(), st.sampled_from(["host", "avx2"]), st.integers(1, 3))
def test_random_groups(group, which, chunks):
    body, arrays, orders = group
    check(get_engine(which), body, arrays, orders, chunks, tolerance=3e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int64, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize(
    ("order", "to"),
    [
        ((0, 3, 1, 2), (0, 1, 2, 3)),
        ((0, 1, 2, 3), (0, 2, 3, 1)),
        ((3, 2, 1, 0), (0, 1, 2, 3)),
        ((0, 1, 2, 3), (0, 1, 2, 3)),
    ],
)
def test_copies(engine, dtype, order, to):
    x = strided(numbers((2, 19, 7, 21), dtype), order)
    out = strided(np.zeros((2, 19, 7, 21), dtype), to)
    kernel = compile_copy(shape_of(x), shape_of(out), engine)
    run_numpy(kernel, [x, out], 2)
    assert np.array_equal(out, x)


@pytest.mark.parametrize(("dims", "source", "target", "inner", "outer"), [
    ((300, 3, 64), (3, 1, 900), (3, 1, 900), 300, (64, 3)),  # a factor has the large strides, which are not chosen
    ((64, 40, 2, 40, 2), (4, 40 * 256, 2, 256, 1), (6400, 160, 80, 2, 1), 20, (40, 2, 64, 2, 2)),  # depth to space
    ((196, 64, 4), (1, 196, 64 * 196), (256, 4, 1), 64, (196, 4)),  # all axes reversed
])  # fmt: skip
def test_short_inner_axes(engine, dims, source, target, inner, outer):
    """Vectors run along the axis, or the part of it, whose lines use least of the first-level cache, and finish these lines
    first.
    """
    shapes = [Shape("float32", dims, source), Shape("float32", dims[1:])]
    out = Shape("float32", dims, target)
    graph = Graph(dims, frozenset())
    graph.outputs = [graph.prim("mul", dt.float32, (
        graph.load(0, dt.float32, source), graph.load(1, dt.float32, (0, *shapes[1].strides())),
    ))]  # fmt: skip
    plan = make_plan(graph, shapes, [out], engine.lanes)
    assert (plan.axes[-1].extent, tuple(a.extent for a in plan.axes[:-1])) == (inner, outer)
    x, factor = numbers((out.elements(),)), numbers(dims[1:], seed=1)
    seen = np.lib.stride_tricks.as_strided(x, dims, [4 * s for s in source])
    found = np.lib.stride_tricks.as_strided(np.zeros_like(x), dims, [4 * s for s in target])
    run_numpy(build(graph, shapes, [out], engine, "short"), [seen, factor, found], 3)
    assert np.array_equal(found, seen * factor)


@pytest.mark.parametrize(("dims", "pairs"), [
    ((8, 9, 5, 28), True), ((8, 9, 5, 9), True), ((70, 3, 64), True), ((8, 7, 5, 28), False), ((8, 9, 5, 65), False),
])  # fmt: skip
@pytest.mark.parametrize("chunks", [1, 5])
def test_short_rows(engine, dims, pairs, chunks):
    """Many rows of few elements are processed consecutively, with an operand per row and one per column."""
    row, column = (*dims[:-1], 1), (*dims[:-2], 1, dims[-1])
    body = Module("short")
    x, *others = (
        body.add_parameter(n, Shape("float32", d)) for n, d in (("x", dims), ("row", row), ("column", column))
    )
    for other in others:
        x = body.add(pointwise.Add(), x, body.add(Multibroadcast(out_lens=dims), other))
    body.add_return([x])
    given = [numbers(dims), numbers(row, seed=1), numbers(column, seed=2)]
    shapes = [shape_of(a) for a in given]
    graph = Graph(dims, frozenset())
    loads = [graph.load(0, dt.float32, shapes[0].strides())]
    loads += [graph.load(k, dt.float32, [0 if n == 1 else s for n, s in zip(shapes[k].lens(), shapes[k].strides(), strict=True)])
              for k in (1, 2)]  # fmt: skip
    graph.outputs = [graph.prim("add", dt.float32, (graph.prim("add", dt.float32, tuple(loads[:2])), loads[2]))]
    assert make_plan(graph, shapes, [shapes[0]], engine.lanes).pairs == pairs
    check(engine, body, given, chunks=chunks)


def test_copy_of_opaque_types(engine):
    x = np.arange(64, dtype=np.uint8).reshape(8, 8)
    out = np.zeros((8, 8), np.uint8)
    kernel = compile_copy(Shape("float8_e4m3fn", (8, 8), (1, 8)), Shape("float8_e4m3fn", (8, 8)), engine)
    run_numpy(kernel, [x, out])
    assert np.array_equal(out, x.T)


@pytest.mark.parametrize("word", ["plain", "turned", "both"])
def test_only_operands_read_at_the_written_positions_may_be_overwritten(engine, word):
    shape = Shape("float32", [3, 3])
    body = Module("square")
    x, y = body.add_parameter("x", shape), body.add_parameter("y", shape)
    turned = x if word == "plain" else body.add(Transpose(permutation=(1, 0)), x)
    made = body.add(pointwise.Add(), turned, body.add(pointwise.Mul(), x if word == "both" else y, y))
    body.add_return([made])
    kernel = compile_pointwise(body, [shape, shape], [shape], engine)
    assert kernel.inplace == ({0, 1} if word == "plain" else {1})
