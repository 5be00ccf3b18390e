"""Native programs: values, steps, results, errors, threads."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core.errors import DeviceError, ParameterError, ShapeError
from mgx_cpu_dnnl.native_library import native

n = native()
MD = n.MemoryDesc


def literal(program: Any, array: np.ndarray) -> int:
    return program.literal(array.ctypes.data, array.nbytes, array)


def mlp(width: int = 256, rows: int = 64) -> tuple[Any, np.ndarray, np.ndarray]:
    """relu(x @ w) @ w in one arena."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((width, width)).astype(np.float32) / 16
    x = rng.standard_normal((rows, width)).astype(np.float32)
    md = MD((rows, width), "float32")
    program = n.NativeProgram("mlp", rows * width * 4)
    source, out = program.input(np.float32, x.shape), program.output(np.float32, x.shape)
    middle = program.arena(0, rows * width * 4)
    for name, a, b, post in (("up", source, middle, [("eltwise", "relu")]), ("down", middle, out, [])):
        p = n.matmul(md, MD(w.shape, "float32", "any"), md, post_ops=post)
        packed = n.pack(w.ctypes.data, MD(w.shape, "float32"), p.weights)
        weights = program.literal(packed.address, packed.nbytes, packed)
        program.add_primitive(name, p, {n.ARG_SRC: a, n.ARG_WEIGHTS: weights, n.ARG_DST: b})
    program.finish()
    return program, x, np.maximum(x @ w, 0) @ w


def test_primitives_in_a_row_and_their_times() -> None:
    program, x, expected = mlp()
    (y,) = program.run_arrays([x])
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)
    into = np.empty_like(y)
    program.run([x.ctypes.data], [into.ctypes.data])
    np.testing.assert_array_equal(into, y)
    arena = n.empty((program.arena_bytes,), np.uint8)
    into[:] = 0
    program.run([x.ctypes.data], [into.ctypes.data], arena.ctypes.data)
    np.testing.assert_array_equal(into, y)
    assert program.step_names == ["up", "down"] and program.step_kinds == ["primitive", "primitive"]
    times = program.time([x], runs=5, warmup=1)
    assert len(times) == 2 and all(t > 1000 for t in times)


def test_programs_share_memory_for_their_runs() -> None:
    gc.collect()
    before = n.arena_pool_bytes()
    programs = [mlp(width, 512) for width in (256, 512, 1024, 512, 256)]
    for program, x, expected in [*programs, *reversed(programs)]:
        (y,) = program.run_arrays([x])
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)
    most = max(p.arena_bytes + p.scratch_bytes + 64 for p, _, _ in programs)
    assert n.arena_pool_bytes() <= max(before, most)
    del program, programs
    gc.collect()
    assert n.arena_pool_bytes() <= before


def test_results_own_and_release_their_memory() -> None:
    program, x, _ = mlp()
    (first,) = program.run_arrays([x])
    (second,) = program.run_arrays([x])
    assert first.flags.owndata and first.base is None and first.ctypes.data % 64 == 0
    assert first.ctypes.data != second.ctypes.data
    first[:] = 0
    assert second.any()
    address = second.ctypes.data
    del second
    gc.collect()
    assert n.recycled_bytes() >= first.nbytes
    (third,) = program.run_arrays([x])
    assert third.ctypes.data == address


def test_recycled_memory_survives_what_numpy_does_with_arrays() -> None:
    a = n.empty((3, 4), ml_dtypes.bfloat16)
    assert a.shape == (3, 4) and a.dtype == ml_dtypes.bfloat16
    b = n.empty((10,), np.int32)
    b[:] = np.arange(10)
    b.resize((100000,), refcheck=False)
    assert b[:10].tolist() == list(range(10)) and not b[10:].any()
    assert n.empty((0, 3), np.float32).shape == (0, 3)
    n.set_recycling_limit(0)
    assert n.recycled_bytes() == 0
    del a, b
    assert n.recycled_bytes() == 0
    n.set_recycling_limit(256 << 20)


def test_inputs_are_checked_and_made_row_major() -> None:
    program, x, expected = mlp()
    turned = np.asfortranarray(x)
    np.testing.assert_allclose(program.run_arrays([turned])[0], expected, rtol=1e-3, atol=1e-3)
    for wrong in (x[:3], x.astype(np.float64), x[None], "x", None):
        with pytest.raises(ParameterError, match=r"input 0 must be"):
            program.run_arrays([wrong])
    with pytest.raises(ParameterError, match=r"input 0 must be a numpy array float32\[.*\], got an object of type str"):
        program.run_arrays(["x"])
    with pytest.raises(ParameterError, match="takes 1 input, got 2"):
        program.run_arrays([x, x])


@pytest.mark.parametrize("size", [1, 5, 300_000])
def test_copy_and_fill(size: int) -> None:
    program = n.NativeProgram("copy", 0)
    source, out = program.input(np.int16, (size,)), program.output(np.int16, (2, size))
    program.add_loop("copy", n.native_loop("copy_2"), None, [source, (out, 2 * size)], [1, size, 1, 1], size, 1000)
    program.add_loop("fill", n.native_loop("fill_2"), None, [out], [-300], size, 1000)
    program.finish()
    x = np.arange(size).astype(np.int16)
    (y,) = program.run_arrays([x])
    np.testing.assert_array_equal(y[1], x)
    assert (y[0] == -300).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("dims", [(3, 4, 5), (40, 50, 60)])
def test_strided_copy(dtype: Any, dims: tuple[int, ...]) -> None:
    x = (np.arange(np.prod(dims)) % 251).astype(dtype).reshape(dims)
    views = {
        "transpose": x.transpose(2, 0, 1),
        "reverse": x[:, ::-1, 1:],
        "broadcast": np.broadcast_to(x[:, :1], dims),
        "whole": x,
        "one": x[0, 0, :1],
    }
    for name, view in views.items():
        program = n.NativeProgram(name, 0)
        source, out = program.input(dtype, dims), program.output(dtype, view.shape)
        offset = view.ctypes.data - x.ctypes.data
        steps = [s // x.itemsize for s in view.strides]
        to = [s // x.itemsize for s in np.empty(view.shape, dtype).strides]
        numbers = [view.ndim, *view.shape, *steps, *to]
        loop = n.native_loop(f"copy_{x.itemsize}")
        program.add_loop(name, loop, None, [(source, offset), out], numbers, view.size, 5000)
        program.finish()
        np.testing.assert_array_equal(program.run_arrays([x])[0], view, name)


@pytest.mark.parametrize("wide", [True, False])
def test_gather_rows_and_refuse_rows_outside(wide: bool) -> None:
    table = np.arange(2 * 10 * 6, dtype=np.float32).reshape(2, 10, 6)
    index = np.int64 if wide else np.int32
    program = n.NativeProgram("gather", 0)
    rows, out = program.input(index, (5,)), program.output(np.float32, (2, 5, 6))
    loop = n.native_loop("gather_rows_int64" if wide else "gather_rows_int32")
    program.add_loop("embedding", loop, None, [literal(program, table), rows, out], [10, 5, 24], 10)
    program.finish()
    picked = np.array([0, 9, -1, -10, 4], index)
    np.testing.assert_array_equal(program.run_arrays([picked])[0], table[:, picked])
    for bad in (10, -11):
        with pytest.raises(ShapeError, match=rf"embedding.*index {bad} is out of bounds"):
            program.run_arrays([np.array([0, bad, 0, 0, 0], index)])
    # the failure has no lasting effect
    np.testing.assert_array_equal(program.run_arrays([picked])[0], table[:, picked])


@pytest.mark.parametrize("item", ["uint8", "uint16", "float32", "float64", "complex128"])
def test_gather_single_items(item: str) -> None:
    """Items of each width with specialized code, partitioned among threads in the middle of an axis."""
    table = np.arange(3 * 40_000).reshape(3, 40_000).astype(item)
    program = n.NativeProgram("gather", 0)
    rows, out = program.input(np.int64, (70_001,)), program.output(table.dtype, (3, 70_001))
    loop = n.native_loop(f"gather_{'rows' if table.itemsize == 16 else table.itemsize}_int64")
    where = [literal(program, table), rows, out]
    program.add_loop("single", loop, None, where, [40_000, 70_001, table.itemsize], 3 * 70_001, 1000)
    program.finish()
    picked = np.random.default_rng(0).integers(-40_000, 40_000, 70_001)
    np.testing.assert_array_equal(program.run_arrays([picked])[0], table[:, picked])


def loop(source: str) -> tuple[int, Any]:
    """Returns the address of a function compiled from LLVM IR, and the object that owns its code."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(source), machine)
    engine.finalize_object()
    return engine.get_function_address("f"), engine


SCALE = """
define void @f(ptr %b, ptr %args, i64 %begin, i64 %end, ptr %scratch) {
entry:
  %x = load ptr, ptr %b
  %py = getelementptr ptr, ptr %b, i64 1
  %y = load ptr, ptr %py
  %k = load i64, ptr %args
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %px = getelementptr i64, ptr %x, i64 %i
  %v = load i64, ptr %px
  %w = mul i64 %v, %k
  store i64 %w, ptr %scratch
  %u = load i64, ptr %scratch
  %pz = getelementptr i64, ptr %y, i64 %i
  store i64 %u, ptr %pz
  %next = add i64 %i, 1
  br label %test
done:
  ret void
}
"""


@pytest.mark.parametrize(("work", "grain"), [(1, 1), (7, 1), (7, 100), (1001, 10), (0, 1)])
def test_compiled_loops_share_their_work(work: int, grain: int) -> None:
    address, owner = loop(SCALE)
    program = n.NativeProgram("loop", 0)
    source, out = program.input(np.int64, (work,)), program.output(np.int64, (work,))
    program.add_loop("scale", address, owner, [source, out], args=(3,), work=work, grain=grain, scratch_bytes=8)
    program.finish()
    assert program.scratch_bytes >= 64
    x = np.arange(work)
    np.testing.assert_array_equal(program.run_arrays([x])[0], 3 * x)


def test_a_compiled_loop_can_fail_the_run() -> None:
    address, owner = loop(
        f"""
define void @f(ptr %b, ptr %args, i64 %begin, i64 %end, ptr %scratch) {{
  %fail = inttoptr i64 {n.loop_failed_address()} to ptr
  %code = load i64, ptr %args
  call void %fail(i64 %code, i64 42)
  ret void
}}"""
    )
    for code, error, text in (
        (1, ShapeError, "index 42"),
        (2, ShapeError, "division by zero"),
        (9, DeviceError, "code 9"),
    ):
        program = n.NativeProgram("failing", 0)
        program.add_loop("the loop", address, owner, [], args=(code,), work=4)
        program.finish()
        for _ in range(2):
            with pytest.raises(error, match=f"the loop: .*{text}"):
                program.run_arrays([])


def test_host_steps_see_arrays_and_objects() -> None:
    program = n.NativeProgram("host", 64)
    x, extra = program.input(np.float32, (4,)), program.object_input()
    middle, slot, out = program.arena(0, 64), program.object(), program.output(np.float32, (2, 2))
    seen = []

    def double(inputs: list[Any]) -> Any:
        seen.append(inputs[1])
        return [2 * inputs[0], inputs[0][1:]]  # the second one reads the run's memory

    def add(inputs: list[Any], outputs: list[Any]) -> None:
        outputs[0][:] = inputs[0] + len(inputs[1])

    program.add_host("double", double, [(x, 0, np.float32, (4,)), extra], [(middle, 0, np.float32, (4,)), slot])
    program.add_host(
        "add", add, [(middle, 0, np.float32, (2, 2), (1, 2)), slot], [(out, 0, np.float32, (2, 2))], into=True
    )
    program.result(slot)
    program.result(out)
    program.finish()
    given = np.arange(4, dtype=np.float32)
    tail, y = program.run_arrays([given, "hello"])
    assert seen == ["hello"]
    np.testing.assert_array_equal(tail, [1, 2, 3])
    assert tail.flags.owndata
    np.testing.assert_array_equal(y, (2 * given).reshape(2, 2).T + 3)
    with pytest.raises(ParameterError, match="run on arrays"):
        program.run([0, 0], [0])


def test_errors_of_host_steps_reach_the_caller() -> None:
    def bad(inputs: list[Any]) -> Any:
        raise KeyError("inside")

    cases = [
        (bad, KeyError, "inside"),
        (lambda _: [], DeviceError, "must return 1 result$"),
        (lambda _: [np.zeros(3)], ShapeError, r"wrong: the result must be float32\[2\], got float64\[3\]"),
    ]
    for function, error, text in cases:
        program = n.NativeProgram("host", 0)
        out = program.output(np.float32, (2,))
        program.add_host("wrong", function, [], [(out, 0, np.float32, (2,))])
        program.finish()
        for _ in range(2):
            with pytest.raises(error, match=text):
                program.run_arrays([])


def test_programs_nest_through_host_steps() -> None:
    inner, x, expected = mlp()
    outer = n.NativeProgram("outer", 0)
    source, out = outer.input(np.float32, x.shape), outer.output(np.float32, x.shape)
    outer.add_host("body", inner.run_arrays, [(source, 0, np.float32, x.shape)], [(out, 0, np.float32, x.shape)])
    outer.finish()
    np.testing.assert_allclose(outer.run_arrays([x])[0], expected, rtol=1e-3, atol=1e-3)


def test_programs_in_reference_cycles_are_collected() -> None:
    class Owner:
        def step(self, inputs: list[Any]) -> Any:
            return [np.full(2, self.value, np.float32)]

        value = 3

    owner = Owner()
    owner.program = n.NativeProgram("cycle", 0)
    out = owner.program.output(np.float32, (2,))
    owner.program.add_host("step", owner.step, [], [(out, 0, np.float32, (2,))])
    owner.program.finish()
    assert owner.program.run_arrays([])[0].tolist() == [3, 3]
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_building_mistakes_are_reported() -> None:
    program = n.NativeProgram("wrong", 64)
    with pytest.raises(ParameterError, match="outside the arena"):
        program.arena(32, 64)
    with pytest.raises(ParameterError, match="no value 7"):
        program.add_loop("copy", n.native_loop("copy_1"), None, [7, 7])
    slot = program.object()
    with pytest.raises(ParameterError, match="not memory"):
        program.add_loop("copy", n.native_loop("copy_1"), None, [slot, slot])
    with pytest.raises(ParameterError, match="not finished"):
        program.run_arrays([])
    program.finish()
    with pytest.raises(ParameterError, match="is finished"):
        program.add_loop("fill", n.native_loop("fill_1"), None, [program.arena(0, 4)], [0], 4)


def test_many_threads_on_one_program() -> None:
    program, x, expected = mlp()
    failures: list[BaseException] = []

    def work(scale: float) -> None:
        try:
            for _ in range(20):
                (y,) = program.run_arrays([x * np.float32(scale)])
                np.testing.assert_allclose(y, expected * scale, rtol=1e-3, atol=1e-2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1 + i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert program.frames <= n.thread_count()  # at most as many concurrent runs as threads
    program.prepare_single()
    np.testing.assert_allclose(program.run_arrays([x])[0], expected, rtol=1e-3, atol=1e-2)


def test_the_number_of_threads_is_bounded() -> None:
    before = n.thread_count()
    assert 1 <= n.available_threads() <= len(os.sched_getaffinity(0))
    program, x, expected = mlp()
    try:
        n.set_threads(1)
        assert n.thread_count() == 1
        np.testing.assert_allclose(program.run_arrays([x])[0], expected, rtol=1e-3, atol=1e-3)  # planned for more
    finally:
        n.set_threads(before)
    np.testing.assert_allclose(program.run_arrays([x])[0], expected, rtol=1e-3, atol=1e-3)


def holds_in_a_child(check: Callable[[], Any]) -> bool:
    """Returns whether something holds in a forked process, within 30 seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_still_runs() -> None:
    program, x, expected = mlp()
    program.run_arrays([x])

    def check() -> bool:
        return n.thread_count() == 1 and np.allclose(program.run_arrays([x])[0], expected, rtol=1e-3, atol=1e-3)

    assert holds_in_a_child(check)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_compiles_on_one_thread() -> None:
    program, x, _ = mlp()
    program.run_arrays([x])

    def check() -> bool:
        n.set_threads(4)
        made, given, wanted = mlp()
        return n.thread_count() == 1 and np.allclose(made.run_arrays([given])[0], wanted, rtol=1e-3, atol=1e-3)

    assert holds_in_a_child(check)


def test_numbers_of_steps_follow_the_extents_of_a_run() -> None:
    program = n.NativeProgram("rows", 0)
    source, out = program.input(np.float32, (4, 3)), program.output(np.float32, (8, 3))
    copy = n.native_loop("copy_4")
    program.add_loop("first", copy, None, [source, out], [1, 12, 1, 1], 12, 1)
    program.add_loop("second", copy, None, [source, (out, 48)], [1, 12, 1, 1], 12, 1)
    program.vary([
        (0, 0, 0, 0, 0), (1, 0, 0, 0, 1),
        *((kind, step, 0, at, 2) for step in (0, 1) for kind, at in ((2, 1), (3, 0), (4, 0))), (5, 1, 0, 1, 3),
    ])  # fmt: skip
    program.finish()
    for rows in (4, 9, 2, 2, 300):
        program.assign([rows, 2 * rows, 3 * rows, 12 * rows])
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        (y,) = program.run_arrays([x])
        np.testing.assert_array_equal(y, np.concatenate([x, x]))
    with pytest.raises(ParameterError, match=r"must be float32\[300, 3\]"):
        program.run_arrays([x[1:]])


def test_only_numbers_of_loops_follow_extents() -> None:
    program, *_ = mlp()
    with pytest.raises(ParameterError, match="step 1 is not a loop"):
        program.vary([(2, 1, 0, 0, 0)])
