"""Products with packed weights, compared with float64 numpy: every tile height, partial panels, both weight types, fused ops."""

from __future__ import annotations

import numpy as np
import pytest
from run_loops import run_numpy

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.ir.module import Module
from mgx_core.ops import activation, pointwise, trigonometry
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.movement import Transpose
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit import gemm
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.gemm import compile_gemm
from mgx_cpu_dnnl.jit.gemm_epilogue import Product, row_step
from mgx_cpu_dnnl.jit.gemm_plan import panel_width
from mgx_cpu_dnnl.jit.native_loop import NativeLoop


def panels(b, width):
    """Returns full panels and, for a remainder, a padded one, in the kernel's layout."""
    k, n = b.shape
    full = np.ascontiguousarray(b[:, : n // width * width].reshape(k, -1, width).swapaxes(0, 1))
    if n % width == 0:
        return [full]
    last = np.zeros((k, width), b.dtype)
    last[:, : n % width] = b[:, n // width * width :]
    return [full, last] if full.size else [last, last]


def run(engine, a, b, out, body=None, at=0, extra=(), chunks=1, threads=1):
    shape = lambda x: Shape(dt.of(x.dtype), x.shape, [s // x.itemsize for s in x.strides])  # noqa: E731
    outs = out if isinstance(out, list) else [out]
    others = [shape(x) for x in extra]
    product = Product(shape(a), b.shape[1], [shape(o) for o in outs], body, at, others, threads)
    kernel = compile_gemm(product, dt.of(b.dtype), engine)
    assert not isinstance(kernel, No), kernel.why
    run_numpy(kernel, [a, *panels(b, panel_width(engine)), *extra, *outs], chunks)
    return kernel


def bound(a, b):
    """Returns the bound of rounding errors of k float32 products and sums, in any order."""
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    return 2.0**-24 * (a.shape[1] + 2) * size


@pytest.mark.parametrize("weights", [np.float32, dt.bfloat16.numpy])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 31, 64, 197, 500])
def test_every_number_of_rows(engine, m, weights):
    r = np.random.default_rng(m)
    for k, n in ((1, 1), (5, 16), (37, 50), (130, 33)):
        a = r.standard_normal((m, k)).astype(np.float32)
        b = r.standard_normal((k, n)).astype(weights)
        out = np.full((m, n), np.nan, np.float32)
        run(engine, a, b, out, chunks=3, threads=2)
        assert (np.abs(out - a.astype(np.float64) @ b.astype(np.float64)) <= bound(a, b)).all()


@pytest.mark.parametrize("weights", [np.float32, dt.bfloat16.numpy])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_rows_are_multiplied_with_several_panels_at_a_time(m, native, weights):
    """With AVX2 only: every number of panels in a group, with a full or a partial last panel."""
    engine = Engine("x86-64-v3", cache=None)
    width = panel_width(engine)
    r = np.random.default_rng(m)
    for columns in (*range(3, 5 * width, 13), 3 * width, 4 * width, 70 * width, 71 * width - 9):
        a = r.standard_normal((m, 43)).astype(np.float32)
        b = r.standard_normal((43, columns)).astype(weights)
        out = np.full((m, columns), np.nan, np.float32)
        kernel = run(engine, a, b, out, None if native else tail(m, columns, [("tanh", None)]), chunks=2)
        assert isinstance(kernel.code, NativeLoop) == native
        # accumulators of a group
        assert kernel.scratch_bytes == 4 * m * width * min(4, max(1, -(-columns // width) // 4))
        exact = a.astype(np.float64) @ b.astype(np.float64)
        assert (np.abs(out - (exact if native else np.tanh(exact))) <= bound(a, b) + 2e-6).all()


@pytest.mark.parametrize("columns", [16, 39, 16 * 70])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_sums_of_few_rows_keep_their_digits(m, columns):
    """With AVX2 only: single panels and adjacent ones.  A single float32 sum of that many terms has an error of 8e-7."""
    r = np.random.default_rng(m)
    a, b = r.random((m, 4096)).astype(np.float32), r.random((4096, columns)).astype(np.float32)
    out = np.full((m, columns), np.nan, np.float32)
    run(Engine("x86-64-v3", cache=None), a, b, out)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.sqrt(np.mean((out / exact - 1) ** 2)) < 2.0**-24


@pytest.mark.pairs
@pytest.mark.parametrize("weights", [np.float32, dt.bfloat16.numpy])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(250, 800, 96), (12, 1000, 300), (1, 1023, 257), (40, 385, 64), (29, 2601, 70)]
)
def test_depths_and_blocks(engine, m, k, n, weights):
    r = np.random.default_rng(1)
    a = r.standard_normal((m, k)).astype(np.float32)
    b = r.standard_normal((k, n)).astype(weights)
    out = np.full((m, n), np.nan, np.float32)
    run(engine, a, b, out, chunks=2, threads=4)
    assert (np.abs(out - a.astype(np.float64) @ b.astype(np.float64)) <= bound(a, b)).all()


@pytest.mark.parametrize("m", range(1, 14))
def test_every_tile_height_reads_strided_rows_in_blocks(engine, m):
    """Each row's address is part of an instruction; later blocks of k start from the sums of earlier ones."""
    r = np.random.default_rng(m)
    room = r.standard_normal((m, 2080)).astype(np.float32)
    for k in (2055, 21):  # three blocks, one block; neither has a whole number of iterations
        a, b = room[:, 9 : 9 + k], r.standard_normal((k, 49)).astype(np.float32)
        out = np.full((m, 49), np.nan, np.float32)
        run(engine, a, b, out, threads=2)
        assert (np.abs(out - a.astype(np.float64) @ b) <= bound(a, b)).all()


@pytest.mark.parametrize(("elements", "blocks"), [(72 * 1024, 2), (146 * 1024, 1)])
def test_blocks_of_rows_fill_the_cache(monkeypatch, elements, blocks):
    """Panels are read once per block of rows."""
    monkeypatch.setattr(gemm, "block_elements", lambda: elements)
    engine = Engine(cache=None)
    r = np.random.default_rng(8)
    a = r.standard_normal((128, 768)).astype(np.float32)
    b = r.standard_normal((768, 8 * panel_width(engine))).astype(np.float32)
    out = np.full((128, b.shape[1]), np.nan, np.float32)
    assert run(engine, a, b, out, threads=8).work == 8 * blocks
    assert (np.abs(out - a.astype(np.float64) @ b) <= bound(a, b)).all()


def test_products_of_any_size_share_one_function(engine):
    """Extents, loop order and prefetch distances are arguments of a kernel, not part of its code.

    With AVX2 only, products of few rows have a function of their own.
    """
    body = lambda m, n: tail(m, n, [("tanh", None)])  # noqa: E731  # the native module does not do it
    r = np.random.default_rng(7)
    found = set()
    width = panel_width(engine)
    for m, k, panels_ in ((1, 7, 1), (5, 16, 3), (64, 40, 2), (500, 1999, 4)):
        a = r.standard_normal((m, k)).astype(np.float32)
        b = r.standard_normal((k, panels_ * width)).astype(np.float32)
        out = np.full((m, panels_ * width), np.nan, np.float32)
        found.add(run(engine, a, b, out, body(m, panels_ * width), threads=2).code.symbol)
        assert (np.abs(out - np.tanh(a.astype(np.float64) @ b)) <= bound(a, b) + 2e-6).all()
    assert len(found) == (1 if engine.wide else 2)


def tail(m, n, steps, first="product"):
    """A body: operations on a product [m, n], each with a row, a matrix, a sum of two matrices or a number."""
    body = Module("tail")
    dims = (m, n)
    y = body.add_parameter(first, Shape("float32", dims))
    for i, (name, what) in enumerate(steps):
        if isinstance(what, float):
            other = body.add_literal(np.float32(what))
            y = body.add(OPS[name](), y, body.add(Multibroadcast(out_lens=dims), other))
        elif what is None:
            y = body.add(OPS[name](), y)
        else:
            lens = [n] if what == "row" else dims
            other = body.add_parameter(f"p{i}", Shape("float32", lens))
            if what == "row":
                other = body.add(Multibroadcast(out_lens=dims), other)
            if what == "two":
                other = body.add(pointwise.Add(), other, body.add_parameter(f"q{i}", Shape("float32", dims)))
            y = body.add(OPS[name](), y, other)
    body.add_return([y])
    return body


OPS = {
    "add": pointwise.Add,
    "max": pointwise.Max,
    "min": pointwise.Min,
    "mul": pointwise.Mul,
    "tanh": trigonometry.Tanh,
}
ENDS = [
    ([("add", "row")], True),
    ([("max", 0.0)], True),
    ([("add", "row"), ("add", "matrix"), ("add", "row"), ("max", 0.0)], True),
    ([("add", "row"), ("max", -0.5), ("min", 1.5)], True),
    ([("min", 1.5), ("max", -0.5), ("add", "matrix")], True),
    ([("max", 0.0), ("add", "row")], True),
    ([("add", "row"), ("add", "two"), ("max", 0.0)], True),
    ([("add", "two")], True),
    ([("min", 0.5)], False),
    ([("max", 0.5), ("min", -0.5)], False),
    ([("add", "row"), ("add", "row"), ("add", "row"), ("add", "row")], False),
    ([("max", 0.0), ("add", "row"), ("max", 0.0)], False),
    ([("max", 0.0), ("add", "two")], False),
    ([("add", "two"), ("add", "row")], False),
    ([("mul", "row")], False),
    ([("mul", 0.5)], False),
]


@pytest.mark.pairs
@pytest.mark.parametrize(("m", "k", "n"), [(1, 60, 70), (2, 9, 64), (30, 2, 3), (25, 40, 64), (26, 2055, 50)])
@pytest.mark.parametrize(
    ("steps", "native"), ENDS, ids=lambda x: "-".join(w for w, _ in x) if isinstance(x, list) else str(x)
)
def test_terms_and_bounds_need_no_compiled_code(engine, m, k, n, steps, native):
    r = np.random.default_rng(m)
    a, b = r.standard_normal((m, k)).astype(np.float32), (r.standard_normal((k, n)) / k).astype(np.float32)
    a[0, 0] = np.nan
    body = tail(m, n, steps)
    extra = [r.standard_normal(p.shape.lens()).astype(np.float32) for p in list(body.parameters.values())[1:]]
    out = np.full((m, n), np.nan, np.float32)
    kernel = run(engine, a, b, out, body, 0, extra, chunks=2, threads=2)
    assert isinstance(kernel.code, NativeLoop) == native
    with np.errstate(invalid="ignore"):
        wanted, given = a.astype(np.float64) @ b, iter(extra)
        for name, what in steps:
            other = what if isinstance(what, float) else next(given) + (next(given) if what == "two" else 0)
            wanted = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[name](wanted, other)
        size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) + 8
        allowed = 2.0**-24 * (k + 8) * size * 4
    assert np.isnan(out[0]).all() and (np.abs(out[1:] - wanted[1:]) <= allowed[1:]).all()


@pytest.mark.parametrize("m", [1, 19])
@pytest.mark.parametrize("columns", [8, 40, 37, 136])
def test_columns_that_fill_their_vectors_need_no_masks(m, columns):
    """With AVX2 only: masked stores take ten times as long on some processors."""
    engine = Engine("x86-64-v3", cache=None)
    r = np.random.default_rng(columns)
    a, b = r.standard_normal((m, 20)).astype(np.float32), r.standard_normal((20, columns)).astype(np.float32)
    out = np.full((m, columns), np.nan, np.float32)
    waiting = engine._waiting  # compiling empties another list
    kernel = run(engine, a, b, out, tail(m, columns, [("tanh", None)]))
    (text,) = (p.text for p in waiting if p.function is kernel.code)
    assert ("@llvm.umin" in text) == (columns % 8 != 0)  # of the number of lanes
    assert "@llvm.masked.store" not in text
    assert (np.abs(out - np.tanh(a.astype(np.float64) @ b)) <= bound(a, b) + 2e-6).all()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("k", "far", "lines"), [(16, True, 5), (33, True, 0), (16, False, 0)])
def test_lines_of_far_results_are_loaded_ahead_of_shallow_products(monkeypatch, native, k, far, lines):
    """With AVX2 only, if the results exceed the second-level cache."""
    monkeypatch.setattr(gemm.native(), "cache_sizes", lambda: {"l2": 4 * 67 * 72 - far})
    engine = Engine("x86-64-v3", cache=None)
    r = np.random.default_rng(k)
    a, b = r.standard_normal((67, k)).astype(np.float32), r.standard_normal((k, 72)).astype(np.float32)
    out = np.full((67, 72), np.nan, np.float32)
    kernel = run(engine, a, b, out, None if native else tail(67, 72, [("tanh", None)]), chunks=2, threads=2)
    assert isinstance(kernel.code, NativeLoop) == native
    assert kernel.args[13] == lines
    exact = a.astype(np.float64) @ b
    assert (np.abs(out - (exact if native else np.tanh(exact))) <= bound(a, b) + 2e-6).all()


def test_rows_with_gaps_and_results_with_gaps(engine):
    r = np.random.default_rng(2)
    a = r.standard_normal((9, 60)).astype(np.float32)[:, 7:41]
    b = r.standard_normal((34, 45)).astype(np.float32)
    room = np.full((9, 80), 5.0, np.float32)
    run(engine, a, b, room[:, 10:55])
    assert (np.abs(room[:, 10:55] - a.astype(np.float64) @ b) <= bound(a, b)).all()
    assert (room[:, :10] == 5).all() and (room[:, 55:] == 5).all()


def test_bfloat16_results_are_rounded_once(engine):
    r = np.random.default_rng(3)
    for m in (1, 3, 20):
        a = r.standard_normal((m, 64)).astype(np.float32)
        b = r.standard_normal((64, 48)).astype(dt.bfloat16.numpy)
        exact = np.full((m, 48), np.nan, np.float32)
        run(engine, a, b, exact)
        out = np.zeros((m, 48), dt.bfloat16.numpy)
        run(engine, a, b, out)
        assert (out == exact.astype(dt.bfloat16.numpy)).all()


def fused(dims, bias, residual, first):
    """relu(product + bias) * residual; the product is the first or the last parameter."""
    body = Module("tail")
    wide = lambda v: v if v.shape.dims == tuple(dims) else body.add(Multibroadcast(out_lens=tuple(dims)), v)  # noqa: E731
    given = {}
    words = ["product", "bias", "residual"]
    for word in words if first else words[::-1]:
        lens = {"product": dims, "bias": bias, "residual": residual}[word]
        given[word] = body.add_parameter(word, Shape("float32", lens))
    y = body.add(pointwise.Add(), given["product"], wide(given["bias"]))
    y = body.add(activation.Relu(), y)
    body.add_return([body.add(pointwise.Mul(), y, wide(given["residual"]))])
    return body


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("bias", [[40], [1, 1, 1], [3, 5, 1]])
@pytest.mark.parametrize("rows", ["3 x 5", "1 x 2"])
def test_pointwise_work_on_the_results(engine, first, bias, rows):
    r = np.random.default_rng(4)
    dims = [3, 5, 40] if rows == "3 x 5" else [1, 2, 40]
    bias = [min(x, d) for x, d in zip(bias, dims[-len(bias) :], strict=True)]
    m = dims[0] * dims[1]
    a = r.standard_normal((m, 21)).astype(np.float32)
    b = r.standard_normal((21, 40)).astype(np.float32)
    x, y = r.standard_normal(bias).astype(np.float32), r.standard_normal(dims).astype(np.float32)
    out = np.full(dims, np.nan, np.float32)
    extra = [x, y] if first else [y, x]
    run(engine, a, b, out, fused(dims, bias, dims, first), 0 if first else 2, extra)
    product = (a.astype(np.float64) @ b).reshape(dims)
    wanted = np.maximum(product + x, 0) * y
    allowed = (bound(a, b).reshape(dims) + 2.0**-23 * np.abs(product + x)) * np.abs(y) + 2.0**-23 * np.abs(wanted)
    assert (np.abs(out - wanted) <= allowed).all()


@pytest.mark.parametrize("step", [1, -1, 2])
def test_columns_of_an_operand_step_either_way(engine, step):
    """Kernels that differ in nothing else, compiled consecutively by one engine."""
    r = np.random.default_rng(8)
    a, b = r.standard_normal((5, 20)).astype(np.float32), r.standard_normal((20, 40)).astype(np.float32)
    x = r.standard_normal(80).astype(np.float32)[:: 2 if step == 2 else 1][:40][:: min(step, 1)]
    body = Module("tail")
    y, row = body.add_parameter("y", Shape("float32", [5, 40])), body.add_parameter("x", Shape("float32", [40], [step]))
    body.add_return([body.add(pointwise.Add(), y, body.add(Multibroadcast(out_lens=(5, 40)), row))])
    out = np.full((5, 40), np.nan, np.float32)
    run(engine, a, b, out, body, 0, [x])
    assert (np.abs(out - (a.astype(np.float64) @ b + x)) <= bound(a, b) + 2.0**-23 * np.abs(out)).all()


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("n", [40, 64])
@pytest.mark.parametrize("turned", [False, True])
def test_a_result_may_alias_an_operand_read_at_the_same_positions(engine, turned, n, at):
    r = np.random.default_rng(9)
    a, b, x = (r.standard_normal((n, n)).astype(np.float32) for _ in range(3))
    body = Module("tail")
    given = [body.add_parameter(name, Shape("float32", [n, n])) for name in "yx"]
    read = body.add(pointwise.Neg(), given[1 - at])
    if turned:
        read = body.add(Transpose(permutation=(1, 0)), read)
    body.add_return([body.add(pointwise.Add(), given[at], read)])
    wanted = a.astype(np.float64) @ b - (x.T if turned else x)
    out = np.full((n, n), np.nan, np.float32)
    kernel = run(engine, a, b, out, body, at, [x])
    assert kernel.inplace == (set() if turned else {kernel.inputs - 1})
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
    if kernel.inplace:
        run(engine, a, b, x, body, at, [x], chunks=3)
        assert (x == out).all()


@pytest.mark.parametrize("m", [2, 14, 50])
def test_several_results(engine, m):
    """relu(product) and the product plus a row, also if the columns are a middle axis."""
    r = np.random.default_rng(6)
    a, b = r.standard_normal((m, 30)).astype(np.float32), r.standard_normal((30, 37)).astype(np.float32)
    bias = r.standard_normal(37).astype(np.float32)
    body = Module("tail")
    y, x = body.add_parameter("y", Shape("float32", [m, 37])), body.add_parameter("x", Shape("float32", [37]))
    summed = body.add(pointwise.Add(), y, body.add(Multibroadcast(out_lens=(m, 37)), x))
    body.add_return([body.add(activation.Relu(), y), summed])
    outs = [np.full((m, 37), np.nan, np.float32), np.full((m, 37), np.nan, np.float32)]
    run(engine, a, b, outs, body, 0, [bias], chunks=2)
    exact = a.astype(np.float64) @ b
    assert (np.abs(outs[0] - np.maximum(exact, 0)) <= bound(a, b)).all()
    assert (np.abs(outs[1] - (exact + bias)) <= bound(a, b) + 2.0**-23 * np.abs(exact + bias)).all()


def test_in_place_on_an_operand(engine):
    r = np.random.default_rng(5)
    a = r.standard_normal((14, 30)).astype(np.float32)
    b = r.standard_normal((30, 36)).astype(np.float32)
    y = r.standard_normal((14, 36)).astype(np.float32)
    one = np.ones(36, np.float32)
    separate = np.full((14, 36), np.nan, np.float32)
    body = fused([14, 36], [36], [14, 36], True)
    run(engine, a, b, separate, body, 0, [one, y])
    run(engine, a, b, y, body, 0, [one, y])
    assert (y == separate).all()


def test_errors_of_invalid_input(engine):
    f32 = lambda *lens: Shape("float32", lens)  # noqa: E731
    turned = Shape("float32", [4, 8], [1, 4])
    cases = [
        (turned, 5, f32(4, 5)),
        (Shape("float64", [4, 8]), 5, f32(4, 5)),
        (f32(4, 8), 5, f32(4, 6)),
        (f32(4, 8), 5, Shape("float32", [4, 5], [1, 4])),
        (f32(4, 0), 5, f32(4, 5)),
        (f32(4, 8), 5, Shape("int32", [4, 5])),
    ]
    for a, n, out in cases:
        assert isinstance(compile_gemm(Product(a, n, [out]), dt.float32, engine), No)
    assert isinstance(compile_gemm(Product(f32(4, 8), 5, [f32(4, 5)]), dt.int8, engine), No)


def test_one_step_for_all_rows():
    assert row_step([2, 3, 4], [12, 4, 1]) == 4
    assert row_step([2, 3, 4], [30, 10, 1]) == 10
    assert row_step([2, 3, 4], [40, 10, 1]) is None
    assert row_step([1, 3, 4], [999, 4, 1]) == 4
    assert row_step([2, 3, 4], [0, 0, 1]) == 0
    assert row_step([2, 3, 4], [0, 4, 1]) is None
    assert row_step([1, 1, 4], [7, 7, 1]) == 0


@pytest.mark.parametrize(("m", "k", "columns"), [(196, 576, 96), (128, 768, 96)])
def test_few_items_of_work_are_parted_evenly(engine, m, k, columns):
    product = Product(Shape(dt.float32, [m, k]), columns, [Shape(dt.float32, [m, columns])], threads=2)
    made = compile_gemm(product, dt.float32, engine)
    assert not isinstance(made, No)
    assert made.work % 2 == 0
