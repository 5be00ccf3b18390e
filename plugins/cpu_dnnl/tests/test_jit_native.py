"""Chains on rows, column sums and row copies of the native module, compared with the interpreter and numpy, without LLVM."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from run_loops import run_numpy, shape_of

from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops import pointwise, reduce
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.kernel import JitKernel
from mgx_cpu_dnnl.jit.native_loop import NativeLoop
from mgx_cpu_dnnl.jit.pointwise import compile_copy, compile_pointwise
from mgx_cpu_dnnl.jit.reduce import compile_reduce

OPS = {"add": pointwise.Add, "max": pointwise.Max, "min": pointwise.Min, "mul": pointwise.Mul, "sub": pointwise.Sub}


def chain_body(dims, steps):
    """Returns a module, and a chain of operations in it that begins with x."""
    body = Module("chain")
    y = body.add_parameter("x", Shape("float32", dims))
    for i, (name, what) in enumerate(steps):
        if isinstance(what, float):
            other = body.add_literal(np.float32(what))
        else:
            other = body.add_parameter(f"p{i}", Shape("float32", [dims[-1]] if what == "row" else dims))
        if other.shape.dims != tuple(dims):
            other = body.add(Multibroadcast(out_lens=tuple(dims)), other)
        y = body.add(OPS[name](), y, other)
    return body, y


def body_of(dims, steps, mean):
    """Returns the sum or mean of a chain over its middle axes."""
    body, y = chain_body(dims, steps)
    kind = reduce.ReduceMean if mean else reduce.ReduceSum
    body.add_return([body.add(kind(axes=tuple(range(1, len(dims) - 1))), y)])
    return body


CHAINS = [
    ([], True),
    ([("add", "row"), ("max", 0.0), ("min", 6.0)], True),
    ([("mul", "row"), ("add", "all"), ("max", "all")], True),
    ([("sub", "row")], False),
]


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize(("steps", "native"), CHAINS, ids=["alone", "clipped", "three", "difference"])
@pytest.mark.parametrize("dims", [(1, 7, 7, 64), (2, 3, 5, 133), (3, 9, 4), (1, 5, 1000)])
def test_sums_of_columns(engine, dims, steps, native, mean):
    r = np.random.default_rng(len(dims))
    body = body_of(dims, steps, mean)
    given = [r.standard_normal(p.shape.lens()).astype(np.float32) for p in body.parameters.values()]
    turned = np.ascontiguousarray(given[0].swapaxes(1, -2)).swapaxes(1, -2)  # the reduced axes have another order
    wanted = Interpreter().run(body, given)[0]
    out = np.full(wanted.shape, np.nan, np.float32)
    for first in (given[0], turned):
        arrays = [first, *given[1:]]
        axes = tuple(range(1, len(dims) - 1))
        kernel = compile_reduce(body, axes, [shape_of(x) for x in arrays], [shape_of(out)], engine)
        assert isinstance(kernel, JitKernel) and isinstance(kernel.code, NativeLoop) == native
        run_numpy(kernel, [*arrays, out], chunks=3)
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("steps", "native"), [CHAINS[0], CHAINS[3]], ids=["alone", "difference"])
@pytest.mark.parametrize("dims", [(4, 6000, 24), (4, 1500, 4, 24), (4, 4, 1500, 24)])
@pytest.mark.parametrize("swap", [False, True])
def test_long_columns_are_summed_in_blocks(engine, dims, steps, native, swap):
    """A running sum of 6000 terms has a relative error of up to 3e-6; summing blocks of 64 terms has at most a third of that."""
    body = body_of(dims, steps, mean=False)
    r = np.random.default_rng(0)
    given = [r.random(p.shape.lens(), np.float32) - i for i, p in enumerate(body.parameters.values())]
    if swap:
        given[0] = np.ascontiguousarray(given[0].swapaxes(1, -2)).swapaxes(1, -2)
    axes = tuple(range(1, len(dims) - 1))
    exact = given[0].astype(np.float64)
    for other in given[1:]:
        exact -= other
    wanted = exact.sum(axes, keepdims=True)
    out = np.full(wanted.shape, np.nan, np.float32)
    kernel = compile_reduce(body, axes, [shape_of(x) for x in given], [shape_of(out)], engine)
    assert isinstance(kernel, JitKernel) and isinstance(kernel.code, NativeLoop) == native
    run_numpy(kernel, [*given, out])
    np.testing.assert_allclose(out, wanted, rtol=1e-6)


def test_nan_affects_only_its_column(engine):
    dims = (1, 6, 40)
    body = body_of(dims, [("max", 0.0), ("min", 6.0)], True)
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    x[0, 3, 37] = np.nan
    out = np.zeros((1, 1, 40), np.float32)
    kernel = compile_reduce(body, (1,), [shape_of(x)], [shape_of(out)], engine)
    assert isinstance(kernel, JitKernel) and isinstance(kernel.code, NativeLoop)
    run_numpy(kernel, [x, out])
    assert np.flatnonzero(np.isnan(out)).tolist() == [37]


@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.float64])
@pytest.mark.parametrize(
    "lens", [(3, 5, 256), (2, 20000), (2, 4100), (40, 9), (4, 10, 33), (2, 3, 17), (5, 16), (7, 3)]
)
def test_copies_of_rows_leave_gaps_alone(engine, lens, kind):
    r = np.random.default_rng(1)
    source = (r.standard_normal((*lens[:-1], lens[-1] + 3)) * 50).astype(kind)[..., 1:-2]
    room = np.full((*lens[:-1], lens[-1] + 8), 77, kind)
    kernel = compile_copy(shape_of(source), shape_of(room[..., 8:]), engine)
    assert isinstance(kernel, JitKernel) and isinstance(kernel.code, NativeLoop)
    run_numpy(kernel, [source, room[..., 8:]], chunks=3)
    assert (room[..., 8:] == source).all() and (room[..., :8] == 77).all()


# source: its extents, the slice, and the order of axes
MOVES = {
    "heads": ((4, 16, 8, 5), np.s_[:], (0, 2, 1, 3)),
    "few elements": ((3, 8, 16, 2), np.s_[:], (0, 2, 1, 3)),
    "every third": ((5, 40, 90), np.s_[:, ::2, ::3], (0, 1, 2)),
    "one axis": ((9000,), np.s_[::2], (0,)),
    "blocks": ((3, 18000), np.s_[:, ::2], (0, 1)),
    "repeated rows": ((6, 1, 40), np.s_[:], (0, 1, 2)),
    "repeated elements": ((6, 70, 1), np.s_[:], (0, 1, 2)),
    "backwards": ((4, 33), np.s_[:, ::-1], (0, 1)),
    "five axes": ((2, 3, 2, 5, 7), np.s_[:, :, :, :, ::2], (4, 0, 3, 1, 2)),
    "a single element": ((3, 3), np.s_[1:2, 1:2], (0, 1)),
}


def check_copy(engine, source):
    """Checks a copy into the middle of wider rows: it is native, exact, and writes nothing outside its result."""
    room = np.full((*source.shape[:-1], source.shape[-1] + 8), 77, source.dtype)
    for chunks in (1, 3):
        target = room[..., 3:-5]
        target[...] = 0
        kernel = compile_copy(shape_of(source), shape_of(target), engine)
        assert isinstance(kernel, JitKernel) and isinstance(kernel.code, NativeLoop)
        run_numpy(kernel, [source, target], chunks)
        assert (target == source).all() and (room[..., :3] == 77).all() and (room[..., -5:] == 77).all()


@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.float16, np.int64])
@pytest.mark.parametrize("name", MOVES)
def test_elements_in_any_order(engine, name, kind):
    lens, part, order = MOVES[name]
    source = (np.random.default_rng(1).standard_normal(lens) * 50).astype(kind)[part].transpose(order)
    if name.startswith("repeated"):
        source = np.broadcast_to(source, [n if n > 1 else 37 for n in source.shape])
    check_copy(engine, source)


# extents of the source, and the order of axes
TILES = [
    ((48, 32), (1, 0)), ((8, 8), (1, 0)), ((33, 21), (1, 0)), ((3, 50, 9), (0, 2, 1)), ((2, 17, 3, 40), (3, 2, 0, 1)),
    ((2, 3, 9, 16, 2, 5), (0, 4, 3, 1, 5, 2)), ((5, 4, 100), (2, 0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("kind", [np.float32, np.int32])
@pytest.mark.parametrize(("lens", "order"), TILES)
def test_transposed_tiles(engine, lens, order, kind):
    """Full and partial tiles of all axes."""
    source = (np.random.default_rng(2).standard_normal(lens) * 50).astype(kind).transpose(order)
    check_copy(engine, source)


@pytest.mark.parametrize("rows", range(2, 6))
def test_few_rows_are_woven_without_compiled_code(engine, rows):
    source = np.random.default_rng(2).standard_normal((2, rows, 5000)).astype(np.float32)
    target = np.moveaxis(np.zeros((2, 5000, rows), np.float32), -1, 1)
    kernel = compile_copy(shape_of(source), shape_of(target), engine)
    assert isinstance(kernel, JitKernel) and isinstance(kernel.code, NativeLoop) == (rows <= 4)
    run_numpy(kernel, [source, target], chunks=3)
    assert (target == source).all()


ROWS = [
    ([("mul", "row"), ("add", "row"), ("max", 0.0)], True),
    ([("add", "all")], True),
    ([("mul", "all"), ("max", "row"), ("min", "all"), ("min", 0.5)], True),
    ([("sub", "row")], False),
    ([("max", float("nan"))], False),  # the bound would be ignored
]


@pytest.mark.parametrize(("steps", "native"), ROWS, ids=["batch norm", "sum", "bounds", "difference", "no number"])
@pytest.mark.parametrize("dims", [(2, 5, 64), (3, 2, 2, 301), (9000,), (2, 8200), (4, 9), (5, 65)])
def test_chains_on_rows(engine, dims, steps, native):
    """The operands and the result are slices of wider arrays; nothing is written outside the result."""
    r = np.random.default_rng(len(dims))
    body, y = chain_body(dims, steps)
    body.add_return([y])
    wide = [r.standard_normal((*p.shape.lens()[:-1], p.shape.lens()[-1] + 3)) for p in body.parameters.values()]
    given = [x.astype(np.float32)[..., 1:-2] for x in wide]
    given[0][..., -1] = np.nan
    room = np.full((*dims[:-1], dims[-1] + 8), 77, np.float32)
    kernel = compile_pointwise(body, [shape_of(x) for x in given], [shape_of(room[..., 8:])], engine)
    assert isinstance(kernel, JitKernel) and isinstance(kernel.code, NativeLoop) == (native and dims[-1] not in (9, 65))
    run_numpy(kernel, [*given, room[..., 8:]], chunks=3)
    np.testing.assert_array_equal(room[..., 8:], Interpreter().run(body, given)[0])
    assert (room[..., :8] == 77).all()


def test_a_chain_may_write_over_its_operand(engine):
    body, y = chain_body((3, 272), [("mul", "row"), ("add", "all")])
    body.add_return([y])
    r = np.random.default_rng(3)
    given = [r.standard_normal(p.shape.lens()).astype(np.float32) for p in body.parameters.values()]
    wanted = Interpreter().run(body, given)[0]
    kernel = compile_pointwise(body, [shape_of(x) for x in given], [shape_of(given[0])], engine)
    assert isinstance(kernel, JitKernel) and isinstance(kernel.code, NativeLoop) and 0 in kernel.inplace
    run_numpy(kernel, [*given, given[0]], chunks=2)
    np.testing.assert_array_equal(given[0], wanted)


def test_neither_llvm_nor_its_ir_writer_is_loaded_for_a_native_loop():
    """Importing them takes longer than the rest of compiling a small network."""
    program = """
import sys
import mgx_core as mgx
p = mgx.Program()
main = p.get_main_module()
x, y = (main.add_parameter(n, mgx.Shape("float32", [40, 128])) for n in "xy")
s = main.add(mgx.op("add"), x, y)
main.add_return([main.add(mgx.op("max"), s, y)])
p.compile(mgx.get_target("cpu"))
print(sorted(m for m in sys.modules if m.startswith("llvmlite") or m.endswith("_loops") and ".jit." in m))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
