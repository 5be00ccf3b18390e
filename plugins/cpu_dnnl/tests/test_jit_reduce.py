"""Reduction loops, compared with the interpreter: softmax and normalizations, any axes and layouts, empty and odd extents."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_loops import new_engine, run_numpy, shape_of, strided

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops import activation, norm, pointwise, reduce, softmax, trigonometry
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.reduce import compile_reduce
from mgx_cpu_dnnl.jit.single_op import compile_op, op_body

get_engine = cache(new_engine)


def numbers(dims, dtype=np.float32, seed=0):
    r = np.random.default_rng(seed)
    if np.dtype(dtype) == bool:
        return r.integers(0, 2, dims).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return r.integers(0, 100, dims).astype(dtype)
    return np.asarray(r.standard_normal(dims)).astype(dtype)


def compare(outs, expected, count, tolerance=None, term=0.0):
    """Compares results of `count` terms of magnitude up to `term`: if the terms cancel, only their rounding errors remain."""
    for out, e in zip(outs, expected, strict=True):
        if e.dtype.kind in "biu":
            assert np.array_equal(out, e)
            continue
        epsilon = float(dt.of(e.dtype).epsilon)
        rtol = tolerance or 8 * epsilon + 3e-7 * max(1, count) ** 0.5
        wide = e.astype(np.float64)
        size = np.abs(wide[np.isfinite(wide)]).max(initial=1e-30)
        cancelled = epsilon * term * count**0.5
        np.testing.assert_allclose(out.astype(np.float64), wide, rtol=rtol, atol=max(rtol * size, cancelled))


def check(engine, body, axes, arrays, orders=None, chunks=1, gap=0, tolerance=None, term=0.0):
    with np.errstate(all="ignore"):
        expected = Interpreter().run(body, [np.array(a, order="C") for a in arrays])
    outs = []
    for i, e in enumerate(expected):
        outs.append(strided(np.full(e.shape, 1, e.dtype), list((orders or {}).get(i, range(e.ndim))), gap))
    kernel = compile_reduce(body, axes, [shape_of(a) for a in arrays], [shape_of(o) for o in outs], engine)
    assert not isinstance(kernel, No), kernel
    run_numpy(kernel, [*arrays, *outs], chunks)
    count = int(np.prod([arrays[0].shape[a] for a in axes])) if arrays[0].ndim else 1
    compare(outs, expected, count, tolerance, term)
    return kernel


def reducing(op, shape):
    body = Module("reducing")
    body.add_return([body.add(op, body.add_parameter("x", shape))])
    return body


OPS = {
    "sum": reduce.ReduceSum,
    "mean": reduce.ReduceMean,
    "max": reduce.ReduceMax,
    "min": reduce.ReduceMin,
    "prod": reduce.ReduceProd,
}


@pytest.mark.pairs
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("dims", "axes"), [
    ((9,), (0,)), ((1,), (0,)), ((3, 129), (1,)), ((129, 3), (0,)), ((5, 70), (0,)), ((2, 3, 4, 5), (1, 3)),
    ((2, 3, 4, 5), (0, 2)),
    ((2, 64, 7, 7), (2, 3)), ((2, 7, 7, 70), (1, 2)), ((3, 0, 4), (1,)), ((0, 4), (1,)), ((4, 1, 6), (1,)), ((100, 3), (1,)),
    ((6, 7, 300), (0, 1, 2)),
])  # fmt: skip
def test_axes(engine, name, dims, axes):
    x = numbers(dims)
    if name == "prod":
        x = np.exp(x * 0.1).astype(np.float32)
    check(engine, reducing(OPS[name](axes=axes), Shape("float32", dims)), axes, [x], chunks=3)


@pytest.mark.pairs
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", [dt.float64, dt.float16, dt.bfloat16, dt.int8, dt.uint8, dt.int32, dt.int64], ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,)])
def test_element_types(engine, name, dtype, axes):
    body = reducing(OPS[name](axes=axes), Shape(dtype, (37, 45)))
    x = numbers((37, 45), dtype.numpy) if name != "prod" else np.ones((37, 45), dtype.numpy)
    check(engine, body, axes, [x], gap=1)


@pytest.mark.parametrize("name", ["max", "min"])
def test_bool_and_nan(engine, name):
    x = numbers((6, 40), bool)
    x[2], x[3] = True, False
    check(engine, reducing(OPS[name](axes=(1,)), Shape("bool", (6, 40))), (1,), [x])
    y = numbers((6, 40))
    y[1, 3] = y[2, 39] = np.nan
    y[3] = -np.inf
    check(engine, reducing(OPS[name](axes=(1,)), Shape("float32", (6, 40))), (1,), [y])


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16], ids=str)
@pytest.mark.parametrize("length", [7, 16, 49, 128])
def test_a_nan_in_any_lane_is_the_extreme_of_its_row(engine, name, dtype, length):
    x = numbers((length + 1, length), dtype.numpy)
    x[range(length), range(length)] = np.nan
    check(engine, reducing(OPS[name](axes=(1,)), Shape(dtype, x.shape)), (1,), [x])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2)])
def test_layouts(engine, order, axes):
    x = strided(numbers((6, 34, 21)), order, 1)
    check(engine, reducing(reduce.ReduceSum(axes=axes), Shape("float32", x.shape)), axes, [x], {0: order}, chunks=2)


@pytest.mark.pairs
@pytest.mark.parametrize("dims", [(4, 10), (12, 128), (3, 7, 33), (2, 1), (1, 5000), (2, 3, 4, 5)])
@pytest.mark.parametrize("op", [softmax.Softmax, softmax.Logsoftmax], ids=lambda o: o.__name__)
@pytest.mark.parametrize("dtype", [dt.float32, dt.float16, dt.float64], ids=str)
def test_softmax(engine, dims, op, dtype):
    for axis in range(len(dims)):
        x = (numbers(dims) * 3).astype(dtype.numpy)
        out = np.empty(dims, dtype.numpy)
        kernel = compile_op(op(axis=axis), [shape_of(x)], [shape_of(out)], engine)
        run_numpy(kernel, [x, out], 2)
        compare([out], [op(axis=axis).compute(x)], dims[axis])


def test_softmax_of_infinities(engine):
    x = numbers((4, 20))
    x[0, 3:] = -np.inf
    x[1] = -np.inf
    x[2, 5] = np.inf
    x[3, 1] = np.nan
    out = np.empty_like(x)
    run_numpy(compile_op(softmax.Softmax(axis=1), [shape_of(x)], [shape_of(out)], engine), [x, out])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(out, softmax.Softmax(axis=1).compute(x), rtol=1e-6)


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", [dt.float32, dt.float16, dt.bfloat16, dt.float64], ids=str)
@pytest.mark.parametrize("case", ["layer", "layer2", "rms", "group", "instance", "group_last"])
def test_norms(engine, dtype, case):
    dims = {"layer": (3, 5, 100), "layer2": (4, 6, 30), "rms": (7, 65)}.get(case, (2, 12, 5, 7))
    op, count = {
        "layer": (norm.LayerNorm(axis=-1), 100),
        "layer2": (norm.LayerNorm(axis=1), 180),
        "rms": (norm.RmsNorm(axis=1), 65),
        "group": (norm.GroupNorm(num_groups=3), 140),
        "group_last": (norm.GroupNorm(num_groups=4), 105),
        "instance": (norm.InstanceNorm(), 35),
    }[case]
    inner = {"layer": (100,), "layer2": (6, 30), "rms": (65,)}.get(case, (12,))
    x = numbers(dims, dtype.numpy)
    if case == "group_last":
        x = strided(x, (0, 2, 3, 1))
    factors = [numbers(inner, dtype.numpy, seed=s) for s in range(1, 2 if case == "rms" else 3)]
    for some in (factors, []):
        args = [x, *some]
        out = strided(np.zeros(dims, dtype.numpy), (0, 2, 3, 1) if case == "group_last" else range(len(dims)))
        kernel = compile_op(op, [shape_of(a) for a in args], [shape_of(out)], engine)
        assert not isinstance(kernel, No), kernel
        run_numpy(kernel, [*args, out], 2)
        compare([out], [op.compute(*args)], count, 4 * float(dtype.epsilon) + 3e-6 * (dtype is not dt.float64))


def test_in_place(engine):
    x = numbers((20, 90))
    expected = softmax.Softmax(axis=1).compute(x)
    kernel = compile_op(softmax.Softmax(axis=1), [shape_of(x)], [shape_of(x)], engine)
    assert kernel.inplace == {0}
    run_numpy(kernel, [x, x], 3)
    np.testing.assert_allclose(x, expected, rtol=1e-6)


@pytest.mark.parametrize("dims", [(4, 1), (1, 70)])
def test_all_results_are_computed_before_one_overwrites_an_operand(engine, dims):
    axis = dims.index(1)
    body = Module("several")
    x, y = body.add_parameter("x", Shape("float32", dims)), body.add_parameter("y", Shape("float32", dims))
    total = body.add(reduce.ReduceSum(axes=(axis,)), y)
    body.add_return([body.add(pointwise.Add(), total, total), body.add(pointwise.Mul(), x, x)])
    a, b, squares = numbers(dims), numbers(dims, seed=1), np.zeros(dims, np.float32)
    wanted = [2 * b, a * a]
    kernel = compile_reduce(body, (axis,), [shape_of(a), shape_of(b)], [shape_of(a), shape_of(squares)], engine)
    assert 0 in kernel.inplace
    run_numpy(kernel, [a, b, a, squares], 2)
    compare([a, squares], wanted, 1)


@pytest.mark.parametrize(
    ("dims", "order", "axes"),
    [
        ((2, 37, 9, 11), (0, 2, 3, 1), (2, 3)),
        ((1, 40, 70, 71), (0, 2, 3, 1), (2, 3)),  # in pieces
        ((3, 50, 100), (0, 1, 2), (2,)),
        ((2, 20, 3, 30), (0, 2, 1, 3), (1, 3)),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_results_without_reductions_are_stored_while_reducing(engine, dims, order, axes, in_place):
    """Gated values, their means and a multiple of these: nothing is kept for another pass."""
    body = Module("gated")
    x = body.add_parameter("x", Shape("float32", dims))
    gated = body.add(pointwise.Mul(), x, body.add(activation.Sigmoid(), x))
    mean = body.add(reduce.ReduceMean(axes=axes), gated)
    body.add_return([gated, mean, body.add(pointwise.Add(), mean, mean)])
    given = strided(numbers(dims), order)
    expected = Interpreter().run(body, [np.array(given, order="C")])
    outs = [
        given if in_place else strided(np.ones(dims, np.float32), order),
        *(np.ones(e.shape, e.dtype) for e in expected[1:]),
    ]
    kernel = compile_reduce(body, axes, [shape_of(given)], [shape_of(o) for o in outs], engine)
    assert kernel.inplace == {0}
    assert kernel.scratch_bytes <= 512
    assert bool(kernel.after) is (dims[2] == 70)
    run_numpy(kernel, [given, *outs], 3)
    compare(outs, expected, int(np.prod([dims[a] for a in axes])), term=1.0)


def test_several_outputs(engine):
    """Means, a maximum of them, and the centered values in one group."""
    body = Module("several")
    x = body.add_parameter("x", Shape("float32", (6, 50)))
    mean = body.add(reduce.ReduceMean(axes=(1,)), x)
    centered = body.add(pointwise.Sub(), x, body.add(Multibroadcast(out_lens=(6, 50)), mean))
    top = body.add(reduce.ReduceMax(axes=(1,)), body.add(pointwise.Abs(), centered))
    body.add_return([mean, centered, body.add(pointwise.Sqrt(), top)])
    check(engine, body, (1,), [numbers((6, 50))], chunks=2)


CUT = [
    ((1, 300007), (0, 1)), ((700, 1024), (0, 1)), ((3, 90000), (1,)), ((2, 70, 60, 33), (1, 2, 3)), ((1, 90, 90, 64), (1, 2)),
    ((100, 90, 20), (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("dims", "axes"), CUT)
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
def test_long_rows_are_cut(engine, dims, axes, name):
    """Blocks of long rows run separately; the result does not depend on the partition among threads."""
    x = numbers(dims)
    body = reducing(OPS[name](axes=axes), Shape("float32", dims))
    expected = OPS[name](axes=axes).compute(x.astype(np.float64))
    results = []
    for chunks in (1, 2, 5):
        out = np.zeros(expected.shape, np.float32)
        kernel = compile_reduce(body, axes, [shape_of(x)], [shape_of(out)], engine)
        assert len(kernel.after) == 1
        run_numpy(kernel, [x, out], chunks)
        results.append(out)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=3e-3 if name == "sum" else 1e-6)


def test_cut_rows_with_work_around(engine):
    """The root mean square of a difference from a row value, and a maximum, in one split group."""
    body = Module("around")
    x = body.add_parameter("x", Shape("float32", (2, 100000)))
    y = body.add_parameter("y", Shape("float32", (2, 1)))
    d = body.add(pointwise.Sub(), x, body.add(Multibroadcast(out_lens=(2, 100000)), y))
    mean = body.add(reduce.ReduceMean(axes=(1,)), body.add(pointwise.Mul(), d, d))
    top = body.add(reduce.ReduceMax(axes=(1,)), d)
    body.add_return([body.add(pointwise.Sqrt(), mean), body.add(pointwise.Add(), top, y)])
    kernel = check(engine, body, (1,), [numbers((2, 100000)), numbers((2, 1), seed=3)], chunks=3, tolerance=1e-5)
    assert kernel.after


def test_refusals(engine):
    body = Module("wrong")
    x = body.add_parameter("x", Shape("float32", (4, 4)))
    body.add_return([body.add(reduce.ReduceSum(axes=(0,)), x), body.add(reduce.ReduceSum(axes=(1,)), x)])
    refused = compile_reduce(
        body, (0,), [Shape("float32", (4, 4))], [Shape("float32", (1, 4)), Shape("float32", (4, 1))], engine
    )
    assert isinstance(refused, No)
    assert "group over" in refused.why


UNARY = [
    pointwise.Neg(),
    trigonometry.Tanh(),
    activation.Relu(),
    pointwise.Abs(),
    pointwise.Exp(),
    activation.Sigmoid(),
]
BINARY = [pointwise.Add(), pointwise.Sub(), pointwise.Mul(), pointwise.Max()]


@st.composite
def groups(draw):
    """Returns a body with up to three reductions that may depend on one another."""
    rank = draw(st.integers(1, 4))
    dims = tuple(draw(st.integers(1, 12 if rank > 2 else 60)) for _ in range(rank))
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
    body = Module("random")
    arrays, values = [], []
    for i in range(draw(st.integers(1, 3))):
        own = dims if i == 0 else tuple(1 if draw(st.integers(0, 2)) == 0 else n for n in dims)
        array = strided(
            np.clip(numbers(own, seed=i), -2, 2), draw(st.permutations(range(rank))), draw(st.integers(0, 1))
        )
        arrays.append(array)
        made = body.add_parameter(f"x{i}", Shape("float32", own))
        values.append(made if own == dims else body.add(Multibroadcast(out_lens=dims), made))
    bounds = [body.add(Multibroadcast(out_lens=dims), body.add_literal(np.array([v], np.float32))) for v in (-3.0, 3.0)]
    totals = []
    for _ in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(0, 3))):
            if draw(st.booleans()):
                a = body.add(draw(st.sampled_from(UNARY)), draw(st.sampled_from(values)))
            else:
                a = body.add(
                    draw(st.sampled_from(BINARY)), draw(st.sampled_from(values)), draw(st.sampled_from(values))
                )
            values.append(body.add(pointwise.Clip(), a, *bounds))
        kind = draw(st.sampled_from([reduce.ReduceMean, reduce.ReduceMax, reduce.ReduceMin, reduce.ReduceSum]))
        total = body.add(kind(axes=axes), values[-1])
        if draw(st.booleans()):
            total = body.add(trigonometry.Tanh(), total)
        totals.append(total)
        spread = body.add(Multibroadcast(out_lens=dims), total) if total.shape.dims != dims else total
        values.append(
            body.add(pointwise.Clip(), body.add(pointwise.Add(), draw(st.sampled_from(values)), spread), *bounds)
        )
    returned = [totals[-1], *([values[-1]] if draw(st.booleans()) else [])]
    body.add_return(returned)
    return body, axes, arrays, {i: draw(st.permutations(range(rank))) for i in range(len(returned))}


@pytest.mark.parametrize("inner", [7, 9, 10, 15, 17, 31])
@pytest.mark.parametrize("which", ["host", "avx2"])
def test_kept_values_do_not_overrun_each_other(which, inner):
    """Two values stored in scratch for rows whose last vector extends past the row."""
    outer = next(n for n in range(2, 200) if 0 < -n * inner % 64 < 8)
    dims = (outer, 2, inner)
    body = Module("kept")
    x = body.add_parameter("x", Shape("float32", dims))
    one, other = body.add(trigonometry.Tanh(), x), body.add(pointwise.Exp(), x)
    totals = [
        body.add(Multibroadcast(out_lens=dims), body.add(reduce.ReduceMean(axes=(0, 2)), v)) for v in (one, other)
    ]
    body.add_return([body.add(pointwise.Sub(), v, t) for v, t in zip((one, other), totals, strict=True)])
    check(get_engine(which), body, (0, 2), [numbers(dims)], tolerance=1e-5)


@pytest.mark.parametrize("channels", [40, 37])
def test_channels_are_stored_without_masks(channels):
    """With AVX2 only: masked stores take ten times as long on some processors."""
    engine = Engine("x86-64-v3", cache=None)
    dims = (1, channels, 5, 6)
    body = Module("gated")
    x = body.add_parameter("x", Shape("float32", dims))
    y = body.add(pointwise.Mul(), x, body.add(activation.Sigmoid(), x))
    body.add_return([y, body.add(reduce.ReduceMean(axes=(2, 3)), y)])
    last = [0, 2, 3, 1]
    x = strided(numbers(dims) * 10, last)
    outs = [strided(np.zeros(dims, np.float32), last), np.zeros((1, channels, 1, 1), np.float32)]
    kernel = compile_reduce(body, (2, 3), [shape_of(x)], [shape_of(o) for o in outs], engine)
    assert not isinstance(kernel, No), kernel
    (text,) = (p.text for p in engine._waiting if p.function is kernel.code)
    assert ("@llvm.masked.load" in text) == (channels % 8 != 0)
    assert "@llvm.masked.store" not in text
    run_numpy(kernel, [x, *outs], 2)
    exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(outs[0], exact, rtol=4e-7, atol=1e-30)
    np.testing.assert_allclose(outs[1], exact.mean((2, 3), keepdims=True), rtol=1e-5, atol=1e-6)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(groups(), st.sampled_from(["host", "avx2"]), st.integers(1, 3))
def test_random_groups(group, which, chunks):
    body, axes, arrays, orders = group
    check(get_engine(which), body, axes, arrays, orders, chunks, tolerance=2e-4, term=3.0)  # clipped to -3..3


def test_body_of_an_op():
    body = op_body(softmax.Softmax(axis=-1), [Shape("float32", (2, 3))])
    assert [i.op.name for i in body if i.op.name.startswith("reduce")] == ["reduce_max", "reduce_sum"]


@pytest.mark.parametrize(("channels", "rows", "vectors"), [(320, 900, 4), (192, 1500, 2), (200, 1500, 1), (320, 90, 1)])
def test_columns_of_dear_work_from_far_memory_are_several_vectors_wide(engine, channels, rows, vectors):
    """tanh(x) less its mean over the rows, channels in the lanes."""
    x = strided(numbers((1, channels, rows)), [0, 2, 1])
    body = Module("mean")
    y = body.add(trigonometry.Tanh(), body.add_parameter("x", Shape("float32", x.shape)))
    mean = body.add(Multibroadcast(out_lens=x.shape), body.add(reduce.ReduceMean(axes=(2,)), y))
    body.add_return([body.add(pointwise.Sub(), y, mean)])
    kernel = check(engine, body, (2,), [x], orders={0: [0, 2, 1]}, chunks=2, tolerance=1e-5)
    wanted = vectors * (2 if vectors == 2 and not engine.wide else 1)  # 8 lanes divide 192 evenly
    assert kernel.work == -(-channels // (wanted * engine.lanes))


@pytest.mark.parametrize(("length", "channels", "across"), [(40, 128, True), (9, 784, True), (40, 5, False)])
def test_weighted_sums_of_rows_read_contiguous_elements(engine, length, channels, across):
    """The sum over the rows of x [n, rows, channels] times weights [n, rows, 1], whose elements are contiguous along a row."""
    x, w = numbers((3, length, channels)), numbers((3, length, 1))
    body = Module("pool")
    a, b = (body.add_parameter(name, Shape("float32", v.shape)) for name, v in (("a", x), ("b", w)))
    wide = body.add(mgx.op("multibroadcast", out_lens=x.shape), b)
    body.add_return([body.add(reduce.ReduceSum(axes=(1,)), body.add(mgx.op("mul"), a, wide))])
    kernel = check(engine, body, (1,), [x, w], term=20.0)
    assert (kernel.work < 3 * channels) is across
