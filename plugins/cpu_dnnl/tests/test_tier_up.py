"""Tiered execution: a first result without LLVM, equal results after loops are compiled, saved programs."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.jit.byte_gemm import compile_byte_gemm
from mgx_cpu_dnnl.jit.byte_gemm_loops import BytePlan
from mgx_cpu_dnnl.jit.byte_pairs import compile_pairs
from mgx_cpu_dnnl.jit.byte_pairs_loops import PairPlan
from mgx_cpu_dnnl.jit.engine import Engine, Function
from mgx_cpu_dnnl.jit.gemm_epilogue import Product
from mgx_cpu_dnnl.jit.opcode_handlers import write
from mgx_cpu_dnnl.jit.opcodes import KEY
from mgx_cpu_dnnl.open_program import open_program
from mgx_cpu_dnnl.prebuilt_loops.network import Network, Value
from mgx_cpu_dnnl.shared import KernelCache, shared
from mgx_cpu_dnnl.target import CpuTarget
from mgx_cpu_dnnl.tier_up import MIN_RUNS

FEED = {
    "x1": np.linspace(-3, 3, 96 * 700, dtype=np.float32).reshape(96, 700),
    "x2": np.linspace(-9, 9, 9000, dtype=np.float32),
}


@cache
def machine() -> Function:
    """Returns the interpreter, which takes a second to compile."""
    made = Engine(cache=None).function(KEY, write)
    assert made.address
    return made


def with_machine() -> Engine:
    engine = Engine(cache=None)
    vars(engine)["interpreter"] = machine()
    return engine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    """The process's engine, with the interpreter and without other loops."""
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))
    made = with_machine()
    monkeypatch.setitem(vars(shared()), "engine", made)
    monkeypatch.setattr(shared(), "kernels", KernelCache())
    return made


def program() -> mgx.Program:
    """Rows normalized by their maximum, and single numbers: two loops."""
    n = Network()
    x, y = n.input(96, 700), n.input(9000)
    top = n.add("reduce_max", n.each("abs", x), axes=(1,))
    made = n.each("tanh", n.each("sub", n.each("mul", x, x), top))
    return n.finished(made, n.each("exp", n.each("neg", n.each("abs", y))))


def run(made: mgx.Program, times: int = 1) -> list[np.ndarray]:
    for _ in range(times):
        found = [np.asarray(y) for y in made.run(FEED)]
    return found


def waited(engine: Engine, compiled: int) -> bool:
    """Waits up to a minute for a number of compiled functions; returns whether it was reached."""
    end = time.monotonic() + 60
    while engine.compiled < compiled and time.monotonic() < end:
        time.sleep(0.01)
    return engine.compiled == compiled


def test_loops_are_compiled_once_they_ran_often(engine: Engine) -> None:
    made = program()
    made.compile(CpuTarget())
    first = run(made)
    run(made, MIN_RUNS - 2)
    assert engine.compiled == 0
    run(made, 2000)
    assert waited(engine, 2)
    for a, b in zip(first, run(made, 3), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_loop_of_many_rows_is_compiled_after_one_run(engine: Engine) -> None:
    """Distances between all pairs of 500 and 400 points: a run loses more than 20 ms to interpretation."""
    n = Network()
    x, y = n.input(500, 1, 16), n.input(1, 400, 16)
    apart = n.each("abs", n.each("sub", x, y))
    made = n.finished(n.add("reduce_sum", apart, axes=(2,)))
    feed = {name: np.ones(s.lens(), np.float32) for name, s in made.get_parameter_shapes().items()}
    made.compile(CpuTarget())
    made.run(feed)
    assert waited(engine, 1)


def test_loops_of_files_are_compiled_where_they_run(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program()
    made.compile(CpuTarget())
    first = run(made)
    made.save(tmp_path / "a.mxr")
    other = with_machine()
    monkeypatch.setitem(vars(shared()), "engine", other)
    read = mgx.load(tmp_path / "a.mxr")
    for a, b in zip(first, run(read), strict=True):
        np.testing.assert_array_equal(a, b)
    assert other.compiled == 0
    run(read, 2000)
    assert waited(other, 2)
    for a, b in zip(first, run(read, 3), strict=True):
        np.testing.assert_array_equal(a, b)
    assert engine.compiled == 0


def test_times_are_those_of_compiled_loops(engine: Engine) -> None:
    made = program()
    made.compile(CpuTarget())
    run(made)
    (instance,) = made.executable.instances()
    runner = instance.runner
    runner.time(list(FEED.values()), 1, 0)
    assert engine.compiled == 2


@pytest.mark.parametrize("error", [RuntimeError("no memory"), ImportError("No module named 'llvmlite'")])
def test_programs_run_on_where_a_loop_cannot_be_compiled(
    error: Exception, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Engine, text: str) -> bytes:
        raise error

    made = program()
    made.compile(CpuTarget())
    first = run(made)
    monkeypatch.setattr(Engine, "emit_object", fail)
    found = run(made, 2000)
    end = time.monotonic() + 60
    while len(engine._failed) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert {why for _, why in engine._failed.values()} == {str(error)}
    for a, b, c in zip(first, found, run(made), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert engine.compiled == 0


def test_a_process_that_forks_meanwhile_leaves_no_lock_closed_in_its_child(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, began = Engine.emit_object, threading.Event()

    def compiled(self: Engine, text: str) -> bytes:
        began.set()
        time.sleep(0.3)
        return slow(self, text)

    made = program()
    made.compile(CpuTarget())
    first = run(made)
    monkeypatch.setattr(Engine, "emit_object", compiled)
    run(made, 2000)
    assert began.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later versions of Python warn in any process with threads
        child = os.fork()
    if not child:
        signal.alarm(30)
        same = all(map(np.array_equal, first, run(made, 20)))
        for thread in threading.enumerate()[1:]:
            thread.join()
        os._exit(0 if same and engine.found("no such loop", lambda code: None) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    run(made, 2000)
    assert waited(engine, 2)


def test_a_loop_that_needs_more_scratch_memory_does_not_replace_another(engine: Engine) -> None:
    made = program()
    made.compile(CpuTarget())
    first = run(made)
    (instance,) = made.executable.instances()
    native = instance.runner.program.program
    ((step, _), *_) = native.deferred_loops()
    assert not native.replace_loop(step, 0, [], 1, 1, 1 << 40)
    for a, b in zip(first, run(made), strict=True):
        np.testing.assert_array_equal(a, b)


def test_operands_that_compiled_loops_transpose_are_gathered_before(engine: Engine) -> None:
    """The compiled loop divides its work otherwise."""
    n = Network()
    x, y = n.input(3, 50, 40), n.input(3, 40, 50)
    made = n.finished(n.each("mul", n.each("add", x, n.transpose(y, 0, 2, 1)), 0.3))
    r = np.random.default_rng(3)
    given = {
        name: r.standard_normal(lens).astype(np.float32) for name, lens in (("x1", (3, 50, 40)), ("x2", (3, 40, 50)))
    }
    made.compile(CpuTarget())
    first = np.asarray(made.run(given)[0])
    assert engine.compiled == 0
    np.testing.assert_array_equal(first, (given["x1"] + given["x2"].swapaxes(1, 2)) * np.float32(0.3))
    for _ in range(2000):
        made.run(given)
    assert waited(engine, 1)
    np.testing.assert_array_equal(first, np.asarray(made.run(given)[0]))


def _gate(n: Network, made: Value, columns: int) -> list[Value]:
    return [n.each("mul", n.each("sigmoid", made), n.input(1, 60, columns))]


def _two_results(n: Network, made: Value, columns: int) -> list[Value]:
    total = n.each("add", made, n.input(1, 60, columns))
    return [total, n.each("mul", total, n.weights(columns))]


def _residual(n: Network, made: Value, columns: int) -> list[Value]:
    """The residual's memory ends here, so that a fused product may write its result there."""
    other = n.each("tanh", n.input(1, 60, columns))
    return [n.each("add", n.each("mul", n.each("exp", made), n.weights(columns)), other)]


def _quotient(n: Network, made: Value, columns: int) -> list[Value]:
    """Loops over rows multiply by the reciprocal of such a divisor."""
    return [n.each("mul", n.each("div", made, n.input(1, 1, 1)), n.input(1, 60, columns))]


# with AVX-512 the last panel of 70 columns is a partial vector, that of 84 a whole one and a partial one; 96 are whole panels
@pytest.mark.parametrize(
    ("epilogue", "columns"),
    [(_gate, 70), (_two_results, 70), (_residual, 70), (_quotient, 70), (_two_results, 84), (_two_results, 96)],
)
def test_a_product_and_its_epilogue_are_two_loops_before(
    epilogue: Callable[[Network, Value, int], list[Value]],
    columns: int,
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saved programs, too; one compiled loop replaces both."""
    n = Network()
    results = epilogue(n, n.linear(n.input(1, 60, 48), columns), columns)
    made = n.finished(*results)
    r = np.random.default_rng(4)
    shapes = made.get_parameter_shapes()
    given = {name: r.standard_normal(shape.lens()).astype(np.float32) for name, shape in shapes.items()}
    made.compile(CpuTarget())
    first = [np.asarray(x) for x in made.run(given)]
    assert engine.compiled == 0
    (instance,) = made.executable.instances()
    deferred = [entry for _, entry in instance.runner.program.program.deferred_loops()]
    assert "gemm" in [kind for kind, *_ in deferred]
    made.save(tmp_path / "a.mxr")
    monkeypatch.setitem(vars(shared()), "engine", with_machine())
    for one in (made, mgx.load(tmp_path / "a.mxr")):
        (instance,) = one.executable.instances()
        instance.runner.time(list(given.values()), 1, 0)  # compiles all loops
        for a, b in zip(first, one.run(given), strict=True):
            np.testing.assert_array_equal(a, np.asarray(b))


def _sigmoid(n: Network, made: Value, columns: int) -> Value:
    return n.each("sigmoid", n.each("add", made, n.input(60, columns)))


def _signed_zeros(n: Network, made: Value, columns: int) -> Value:
    """The sign of a zero that is clamped decides between both infinities."""
    return n.each("mul", n.each("recip", n.each("max", made, 0.0)), n.input(60, columns))


@pytest.mark.parametrize("depth", [64, 50])
@pytest.mark.parametrize("columns", [64, 40])
@pytest.mark.parametrize("epilogue", [_sigmoid, _signed_zeros])
def test_a_product_of_bytes_and_its_epilogue_are_two_loops_before(
    epilogue: Callable[[Network, Value, int], Value], columns: int, depth: int, engine: Engine
) -> None:
    sums = Product(mgx.Shape(dt.uint8, [60, depth]), columns, [mgx.Shape(dt.int32, [60, columns])])
    compile_byte_gemm(sums, engine, tiled=False)
    compile_byte_gemm(sums, engine, tiled=True)
    compile_pairs(sums, engine, signed=False)
    engine.flush()
    r = np.random.default_rng(5)
    n = Network()
    w = n.module.add_literal(r.integers(-127, 128, (depth, columns)).astype(np.int8))
    made = n.add("convert", n.add("quant_dot", n.input(60, depth, type="uint8"), w), target_type=dt.float32)
    program = n.finished(epilogue(n, n.each("mul", made, n.weights(columns)), columns))
    a = r.integers(0, 256, (60, depth)).astype(np.uint8)
    a[:9] = 0
    given = {"x1": a, "x2": r.standard_normal((60, columns)).astype(np.float32)}
    before = engine.compiled
    program.compile(CpuTarget())
    first = np.asarray(program.run(given)[0])
    assert engine.compiled == before
    (instance,) = program.executable.instances()
    (kind, *_), *_ = [deferred for _, deferred in instance.runner.program.program.deferred_loops()]
    assert kind in (BytePlan.kind, PairPlan.kind)
    instance.runner.time(list(given.values()), 1, 0)  # compiles all loops
    assert engine.compiled > before
    np.testing.assert_array_equal(first, np.asarray(program.run(given)[0]))


def test_slow_loops_of_open_programs_are_compiled_before_they_run_and_others_once_they_ran_often(
    engine: Engine,
) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("int64", [symbol("n"), 8]))
    y = x
    for factor in (3, 5, 7, 11):
        wide = m.add(mgx.op("mul"), y, m.add(mgx.op("max"), x, m.add(mgx.op("neg"), y)))
        y = m.add(
            mgx.op("sub"), wide, m.add(mgx.op("multibroadcast", out_lens=x.shape.dims), m.add_literal(np.int64(factor)))
        )
    m.add_return([y])
    program.compile(mgx.get_target("cpu"))
    made = program.executable
    few, many = (open_program(made.parameters, {"n": n}, frozenset("n"), made._lowered) for n in (2, 100_000))
    assert few is not None and many is not None
    assert [len(one.runner.program.interpreted) for one in (few, many)] == [1, 0]
    given = np.random.default_rng(0).integers(-4, 5, (3000, 8))
    wanted = given
    for factor in (3, 5, 7, 11):
        wanted = wanted * np.maximum(given, -wanted) - factor
    np.testing.assert_array_equal(many.runner.run([given])[0], wanted)
    before = engine.compiled
    for n in range(2, 70):
        np.testing.assert_array_equal(few.runner.run([given[:n]])[0], wanted[:n])
    assert few.runner.program.interpreted and engine.compiled == before
    few.runner.program.tier_up.finish()
    assert not few.runner.program.interpreted
    np.testing.assert_array_equal(few.runner.run([given[:70]])[0], wanted[:70])
