"""Programs that take changing extents as arguments: results for any extents, what is compiled for them, and their memory."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled_instances import compiled_instances
from growing_decoder import WIDTH, close, decoder, fed
from opened_program import opened

import mgx_core as mgx
from mgx_core.run.arguments import Arguments
from mgx_core.run.changing_extents import WHOLE
from mgx_core.run.executable import SPECIALIZED
from mgx_core.types.dim import symbol
from mgx_gpu_hip import open_run
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.graph_cache import enqueue
from mgx_gpu_hip.library.gemm_problem import GemmProblem, Matrix
from mgx_gpu_hip.open_run import OpenRunner
from mgx_gpu_hip.runtime import DeviceArray, Stream
from mgx_gpu_hip.target import GpuTarget

LAYERS = 2
LENGTHS = (*range(20, 84), 7, 150, 2, 100, 128)


@pytest.fixture
def target(driver_and_device: tuple[Any, ...]) -> GpuTarget:
    return GpuTarget(*driver_and_device)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the shapes of the instances that are compiled."""
    return compiled_instances(monkeypatch)


def programs(program: mgx.Program) -> list[Any]:
    """Returns the programs that take extents as arguments."""
    made: Any = program.executable
    return [one.program for one in made._changing._open]


@pytest.mark.parametrize("on_device", [False, True], ids=["host arrays", "device arrays"])
def test_new_lengths_of_a_cache_compile_nothing(target: GpuTarget, compiled: list[Any], on_device: bool) -> None:
    program = decoder(LAYERS, target, offload_copy=not on_device)
    context = program.executable.context  # type: ignore[union-attr]
    earlier: list[tuple[Any, dict[str, Any]]] = []
    for length in (*range(16, 17 + WHOLE), *LENGTHS):
        given = fed(LAYERS, length)
        results = program.run({n: context.upload(v) for n, v in given.items()} if on_device else given)
        assert on_device == isinstance(results[0].value, DeviceArray)
        earlier.append((results, given))
    for results, given in earlier:  # nothing has been written since
        close(LAYERS, results, given)
    assert len(compiled) == WHOLE
    assert 1 <= len(programs(program)) <= 3
    for one in programs(program):
        assert isinstance(one.runner, OpenRunner)
        assert all(p.place == "target" for p in one.placements)


def test_extents_of_zero_and_one_have_programs_of_their_own(target: GpuTarget) -> None:
    program = decoder(LAYERS, target)
    for length in (16, 17, 18, 19, 1, 0, 20, 1, 0, 2):
        given = fed(LAYERS, length)
        close(LAYERS, program.run(given), given)
    assert programs(program)


def test_runs_on_a_callers_stream_write_to_its_memory(target: GpuTarget) -> None:
    program = decoder(LAYERS, target, offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]
    for length in range(16, 17 + WHOLE):
        program.run(fed(LAYERS, length))
    stream = context.device.stream()
    for length, aligned in ((9, True), (30, False), (31, True), (31, False)):
        given = fed(LAYERS, length)
        sizes = [WIDTH] + [(length + 1) * WIDTH] * LAYERS
        room = [context.upload(np.zeros(n + 1, np.float32)) for n in sizes]
        lens = [(1, WIDTH)] + [(length + 1, WIDTH)] * LAYERS
        places = {
            f"main:#output_{n}": DeviceArray(held.buffer, held.dtype, dims, offset=0 if aligned else 4)
            for n, (held, dims) in enumerate(zip(room, lens, strict=True))
        }
        uploaded = {n: context.upload(v) for n, v in given.items()}
        results = program.run_async({**uploaded, **places}, stream.handle, "ihipStream_t")
        stream.wait()
        assert [r.value.address for r in results[:-1]] == [p.address for p in places.values()]
        close(LAYERS, results, given)


def rows_of_tanh(target: GpuTarget, runs: int) -> tuple[mgx.Program, Any]:
    """Returns a program for any number of rows after some runs, and its context; it is opened after four."""
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("tanh"), m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 4])))])
    program.compile(target, offload_copy=False)
    for rows in range(10, 10 + runs):
        program.run({"x": np.ones((rows, 4), np.float32)})
    assert bool(programs(program)) == (runs > WHOLE)
    return program, program.executable.context  # type: ignore[union-attr]


@pytest.mark.parametrize("runs", [1, WHOLE + 1], ids=["fixed", "open"])
def test_memory_for_results_must_have_their_extents(target: GpuTarget, runs: int) -> None:
    program, context = rows_of_tanh(target, runs)
    given = np.linspace(-1, 1, 160, dtype=np.float32).reshape(40, 4)
    x = context.upload(given)
    turned = context.upload(np.zeros((4, 40), np.float32))
    for place, got in (
        (context.upload(np.zeros((3, 4), np.float32)), r"\[3, 4\]"),
        (context.upload(np.zeros((50, 4), np.float32)), r"\[50, 4\]"),
        (DeviceArray(turned.buffer, turned.dtype, (40, 4), (1, 40)), r"\[40, 4\]\{1, 40\}"),
    ):
        with pytest.raises(mgx.ParameterError, match=rf"must be float32\[40, 4\], got float32{got}"):
            program.run_async({"x": x, "main:#output_0": place}, 0, "ihipStream_t")
        context.device.wait()
        assert not place.to_host().any()
    array = np.zeros((40, 4), np.float32)
    program.run_async({"x": x, "main:#output_0": array}, 0, "ihipStream_t")
    np.testing.assert_allclose(array, np.tanh(given), rtol=1e-6)


@pytest.mark.parametrize("runs", [1, WHOLE + 1], ids=["fixed", "open"])
def test_memory_for_results_may_be_that_of_arguments(target: GpuTarget, runs: int) -> None:
    program, context = rows_of_tanh(target, runs)
    given = np.linspace(-1, 1, 160, dtype=np.float32).reshape(40, 4)
    held = context.upload(np.concatenate([given, given]))
    x, shifted = (DeviceArray(held.buffer, held.dtype, (40, 4), offset=n) for n in (0, 64))
    (result,) = program.run_async({"x": x, "main:#output_0": shifted}, 0, "ihipStream_t")
    assert result.data_ptr() == shifted.address
    np.testing.assert_allclose(result.to_numpy(), np.tanh(given), rtol=1e-6)


@pytest.mark.parametrize("grows", [False, True], ids=["fixed", "open"])
def test_results_can_be_arguments_of_the_next_run(target: GpuTarget, grows: bool) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    past = m.add_parameter("past", mgx.Shape("float32", [3, symbol("n"), 8]))
    new = m.add_parameter("new", mgx.Shape("float32", [3, 1, 8]))
    kept = past if grows else m.add(mgx.op("slice", axes=[1], starts=[1], ends=[1 << 40]), past)
    m.add_return([m.add(mgx.op("concat", axis=1), kept, new)])
    program.compile(target, offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    want = rng.standard_normal((3, 5, 8)).astype(np.float32)
    held = context.upload(want)
    for _ in range(WHOLE + 9):
        row = rng.standard_normal((3, 1, 8)).astype(np.float32)
        (result,) = program.run_async({"past": held, "new": context.upload(row)}, 0, "ihipStream_t")
        want = np.concatenate([want[:, not grows :], row], 1)
        np.testing.assert_array_equal(result.to_numpy(), want)
        held = result.value
    assert bool(programs(program)) == grows


@pytest.mark.parametrize("runs", [1, WHOLE + 1], ids=["fixed", "open"])
def test_parts_of_results_can_be_arguments_of_the_next_run(target: GpuTarget, runs: int) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 64]))
    row = m.add_parameter("row", mgx.Shape("float32", [1, 64]))
    m.add_return([m.add(mgx.op("concat", axis=0), m.add(mgx.op("reverse", axes=[0]), x), row)])
    program.compile(target, offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    want = rng.standard_normal((20 + runs, 64)).astype(np.float32)
    new = rng.standard_normal((1, 64)).astype(np.float32)
    for rows in range(21, 21 + runs):
        program.run({"x": want[:rows], "row": new})
    held = context.upload(want)
    for _ in range(4):
        (result,) = program.run_async({"x": held, "row": new}, 0, "ihipStream_t")
        want = np.concatenate([want[::-1], new])
        np.testing.assert_array_equal(result.to_numpy(), want)
        want, whole = want[1:], result.value
        held = DeviceArray(whole.buffer, whole.dtype, want.shape, offset=4 * 64)
    assert bool(programs(program)) == (runs > WHOLE)


@pytest.mark.parametrize("enqueued", [False, True])
def test_device_arrays_of_new_lengths_are_not_bound_one_by_one(enqueued: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = decoder(LAYERS, GpuTarget("host", 1), offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]

    def run(given: dict[str, Any]) -> Any:
        uploaded = {n: context.upload(v) for n, v in given.items()}
        return program.run_async(uploaded, 0, "ihipStream_t") if enqueued else program.run(uploaded)

    for length in range(16, 17 + WHOLE):
        run(fed(LAYERS, length))
    bound: list[Any] = []
    bind = Arguments.bind
    monkeypatch.setattr(Arguments, "bind", lambda self, given: bound.append(given) or bind(self, given))
    for length in (40, 7):
        close(LAYERS, run(fed(LAYERS, length)), fed(LAYERS, length))
    assert not bound
    for name, array in (("past1", np.float64), ("seen", np.int32)):
        given = fed(LAYERS, 30)
        with pytest.raises(mgx.ParameterError, match=name):
            run({**given, name: given[name].astype(array)})


def test_launches_are_recorded_once_for_a_set_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    program = decoder(LAYERS, GpuTarget("host", 1), offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]
    recorded: list[Any] = []
    record = open_run.captured
    monkeypatch.setattr(open_run, "captured", lambda calls, *rest: recorded.append(calls) or record(calls, *rest))

    def run(uploaded: dict[str, Any], length: int) -> None:
        close(LAYERS, program.run_async(uploaded, 0, "ihipStream_t"), fed(LAYERS, length))

    for length in range(16, 17 + WHOLE):
        run({n: context.upload(v) for n, v in fed(LAYERS, length).items()}, length)
    for length in (40, 7):
        recorded.clear()
        uploaded = {n: context.upload(v) for n, v in fed(LAYERS, length).items()}
        for _ in range(3):
            run(uploaded, length)
        assert len(recorded) == 1


def test_a_stream_that_the_caller_records_gets_the_launches(target: GpuTarget) -> None:
    program = decoder(LAYERS, target, offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]
    for length in range(30, 29 - WHOLE, -1):
        program.run(fed(LAYERS, length))
    (one,) = programs(program)
    one.runner._warmed_up = False
    uploaded = {n: context.upload(v) for n, v in fed(LAYERS, 28).items()}
    stream = context.device.stream()
    with context.device.capture(stream) as capture:
        results = program.run_async(uploaded, stream.handle, "ihipStream_t")
    graph = capture.instantiate()
    program.run_async({n: context.upload(v) for n, v in fed(LAYERS, 20).items()}, 0, "ihipStream_t")
    graph.launch(stream.handle)
    stream.wait()
    close(LAYERS, results, fed(LAYERS, 28))


def test_a_run_waits_for_the_one_before_on_another_stream(target: GpuTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    program, context = rows_of_tanh(target, WHOLE + 1)
    first, second = context.device.stream(), context.device.stream()
    arrays = {rows: context.upload(np.full((rows, 4), rows / 99, np.float32)) for rows in (20, 30)}
    waits: list[int] = []
    after = Stream.after
    monkeypatch.setattr(Stream, "after", lambda self, event: waits.append(self.handle) or after(self, event))
    for stream, rows, waiting in ((first, 20, []), (first, 30, []), (second, 20, [second.handle]), (second, 30, [])):
        waits.clear()
        (result,) = program.run_async({"x": arrays[rows]}, stream.handle, "ihipStream_t")
        assert waits == waiting
        np.testing.assert_allclose(result.to_numpy(), np.full((rows, 4), np.tanh(rows / 99)), rtol=1e-6)
    waits.clear()
    program.run({"x": arrays[20]})
    assert waits == [0]  # the default stream
    program.run_async({"x": arrays[20]}, second.handle, "ihipStream_t")
    assert waits == [0]  # that run has ended


def test_graphs_of_callers_keep_the_memory_that_they_use(target: GpuTarget) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 8]))
    m.add_return([m.add(mgx.op("prefix_scan_sum", axis=0), m.add(mgx.op("softmax", axis=0), x))])
    program.compile(target, offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]
    given = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    for rows in range(10, 11 + WHOLE):
        program.run({"x": given[:rows]})
    stream, x = context.device.stream(), context.upload(given[:13])
    with context.device.capture(stream) as capture:
        (result,) = program.run_async({"x": x}, stream.handle, "ihipStream_t")
    graph = capture.instantiate()
    program.run({"x": given})  # needs more memory
    (one,) = programs(program)
    assert [lent is one.runner._bound for lent in one.runner._lent.values()] == [False]
    graph.launch(stream.handle)
    stream.wait()
    power = np.exp(given[:13].astype(np.float64))
    np.testing.assert_allclose(result.to_numpy(), np.cumsum(power / power.sum(0), 0), rtol=1e-4)


def test_memory_that_cannot_be_placed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = rows_of_tanh(GpuTarget("host", 1), WHOLE + 1)
    given = np.ones((500, 4), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(open_run.Rooms, "place", lambda *rest: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(mgx.DeviceError, match="out of memory"):
            program.run({"x": given})
    np.testing.assert_allclose(program.run({"x": given})[0].to_numpy(), np.tanh(given), rtol=1e-6)
    assert programs(program)[0].runner._bound is not None


def test_some_results_can_be_requested(target: GpuTarget) -> None:
    program = decoder(LAYERS, target)
    for length in range(16, 24):
        given = fed(LAYERS, length)
        made: Any = program.executable
        (cache,) = made.run(given, wanted=[1])
        assert cache.get_shape().lens() == [length + 1, WIDTH]
        np.testing.assert_array_equal(cache.to_numpy()[:-1], given["past0"])


def test_arguments_that_are_less_aligned_than_kernels_need_are_copied(target: GpuTarget) -> None:
    program = decoder(LAYERS, target, offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]
    for length in range(16, 26):
        given = fed(LAYERS, length)
        moved = {}
        for name, array in given.items():
            held = context.upload(np.concatenate([array.ravel()[:1], array.ravel()]))
            moved[name] = DeviceArray(held.buffer, held.dtype, array.shape, offset=array.itemsize)
        close(LAYERS, program.run(moved), given)
    assert programs(program)


def test_threads_run_one_program_for_different_lengths(target: GpuTarget) -> None:
    program, wrong = decoder(LAYERS, target), []
    for length in range(2, WHOLE + 3):
        program.run(fed(LAYERS, length))

    def work(first: int) -> None:
        try:
            for length in range(first, 90, 7):
                given = fed(LAYERS, length)
                close(LAYERS, program.run(given), given)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_grows_by_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[int] = []
    bind = OpenRunner._bind

    def noting(self: Any) -> Any:
        bound.append(sum(self._rooms.bytes))
        return bind(self)

    monkeypatch.setattr(OpenRunner, "_bind", noting)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 8]))
    m.add_return([m.add(mgx.op("prefix_scan_sum", axis=0), m.add(mgx.op("softmax", axis=0), x))])
    program.compile(GpuTarget("host", 1))
    made = opened(program, n=9)
    for rows in [*range(2, 300), 3, 90, 299]:
        given = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        assert made.fits({"n": rows})
        (y,) = made.runner.run([given])
        power = np.exp(given.astype(np.float64))
        np.testing.assert_allclose(y, np.cumsum(power / power.sum(0), 0), rtol=1e-4)
    assert len(bound) <= 9 and bound == sorted(bound)


def test_products_of_many_rows_unpack_codes_on_the_device(target: GpuTarget) -> None:
    rng = np.random.default_rng(0)
    codes, scale = rng.integers(0, 256, (16, 32)).astype(np.uint8), rng.random((16, 2)).astype(np.float32)
    program, reference = mgx.Program(), mgx.Program()
    for one, of in ((program, target), (reference, mgx.get_target("ref"))):
        m = one.get_main_module()
        x = m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 64]))
        product = mgx.op("dequant_dot", bits=4, block_size=32)
        m.add_return([m.add(product, x, m.add_literal(codes), m.add_literal(scale))])
        one.compile(of)
    for rows in (40, 30, 50, 20, 77, 33):
        given = {"x": rng.standard_normal((rows, 64)).astype(np.float32)}
        (got,), (want,) = program.run(given), reference.run(given)
        np.testing.assert_allclose(got.to_numpy(), want.to_numpy(), rtol=1e-4, atol=1e-3)
    (one,) = programs(program)
    assert all(p.place == "target" for p in one.placements)


def test_positions_are_computed_from_extents_as_arguments(target: GpuTarget, compiled: list[Any]) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    t = symbol("t", 0, 9999)
    x = m.add_parameter("x", mgx.Shape("float32", [t]))
    count = m.add(mgx.op("dimensions_of", start=0, end=1), x)
    end = m.add(mgx.op("reshape", dims=[]), m.add(mgx.op("mul"), count, m.add_literal(np.array([2]))))
    zero, two = m.add_literal(np.int64(0)), m.add_literal(np.int64(2))
    places = m.add(mgx.op("dynamic_range", length=t), zero, end, two)
    m.add_return([m.add(mgx.op("add"), x, m.add(mgx.op("convert", target_type="float32"), places)), count])
    program.compile(target)
    for length in (9, 8, 7, 6, 5, 44, 300, 2):
        got, counted = program.run({"x": np.full(length, 0.5, np.float32)})
        np.testing.assert_array_equal(got.to_numpy(), 2 * np.arange(length) + 0.5)
        assert counted.to_numpy().tolist() == [length]
    assert len(compiled) == WHOLE


@pytest.mark.parametrize("on_device", [False, True], ids=["host arrays", "device arrays"])
def test_extents_that_values_decide_are_arguments_of_pieces(
    target: GpuTarget, compiled: list[Any], on_device: bool
) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    n = m.add_parameter("n", mgx.Shape("int64", [1]))
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("t", 0, 999), 8]))
    scaled = m.add(mgx.op("mul"), x, x)
    zeros = m.add(mgx.op("broadcast_with_dims"), m.add_literal(np.int64(0)), n)
    ones = m.add(mgx.op("exp"), m.add(mgx.op("convert", target_type="float32"), zeros))
    m.add_return([m.add(mgx.op("reduce_sum", axes=[0]), scaled), ones])
    program.compile(target, offload_copy=not on_device)
    context = program.executable.context  # type: ignore[union-attr]
    for step, (rows, count) in enumerate([(5, 3), (6, 4), (7, 5), (8, 6), (9, 7), (90, 300), (3, 31), (40, 2)]):
        if step == WHOLE + 2:
            before = len(compiled)
        given = {"n": np.array([count]), "x": np.random.default_rng(step).standard_normal((rows, 8)).astype(np.float32)}
        results = program.run({k: context.upload(v) for k, v in given.items()} if on_device else given)
        total, made = (r.to_numpy() for r in results)
        np.testing.assert_allclose(total[0], (given["x"] ** 2).sum(0), rtol=1e-4)
        assert made.tolist() == [1.0] * count
    assert len(compiled) == before


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_attention_of_any_length_is_one_program(kind: str) -> None:
    """Its tiles are chosen for about the number of queries, and need not divide it."""
    built: list[mgx.Program] = []
    for device in (GpuTarget("host", 1), mgx.get_target("ref")):
        program = mgx.Program()
        m = program.get_main_module()
        x = m.add_parameter("x", mgx.Shape(kind, [2, symbol("t", 0, 9999), 16]))
        scores = m.add(mgx.op("dot"), x, m.add(mgx.op("transpose", permutation=[0, 2, 1]), x))
        m.add_return([m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=2), scores), x)])
        program.compile(device)
        built.append(program)
    one = opened(built[0], t=33)
    assert [s.name.startswith("attention") for s in one.runner.schedule.steps] == [True]
    for t in (33, 9, 64, 100, 7):
        assert one.fits({"t": t})
        given = np.random.default_rng(t).standard_normal((2, t, 16)).astype(kind)
        (got,), (want,) = one.runner.run([given]), built[1].run({"x": given})
        close = 1e-5 if kind == "float32" else 1e-2
        np.testing.assert_allclose(got, want.to_numpy(), rtol=close, atol=close)


def selecting(target: Any, n: Any) -> mgx.Program:
    """Returns a program that suppresses n boxes, and selects rows of the others twice by value."""
    rng = np.random.default_rng(9)
    program = mgx.Program()
    m = program.get_main_module()

    def add(name: str, *xs: Any, **attributes: Any) -> Any:
        return m.add(mgx.op(name, **attributes), *xs)

    x = m.add_parameter("x", mgx.Shape("float32", [n, 4]))
    w = m.add_literal(rng.standard_normal((4, 4)).astype(np.float32))
    y = add("tanh", add("dot", x, w))
    scores = add("unsqueeze", add("reduce_max", x, axes=[1]), axes=[0])  # exact, so that the order is certain
    numbers = [m.add_literal(np.array([v], kind)) for v, kind in ((30, "int64"), (0.3, "float32"), (-0.5, "float32"))]
    chosen = add(
        "nonmaxsuppression", add("unsqueeze", x, axes=[0]), add("transpose", scores, permutation=[0, 2, 1]), *numbers
    )
    chosen = add("squeeze", add("slice", chosen, axes=[1], starts=[2], ends=[3]), axes=[1])
    rows, found = add("gather", y, chosen, axis=0), [chosen]
    for level in (0.3, 0.6):
        score = add("squeeze", add("reduce_max", rows, axes=[1]), axes=[1])
        least = add("multibroadcast", m.add_literal(np.float32(level)), out_lens=list(score.shape.dims))
        places = add("squeeze", add("nonzero", add("greater", score, least)), axes=[0])
        rows = add("softmax", add("dot", add("gather", rows, places, axis=0), w), axis=1)
        found += [places, rows]
    m.add_return(found)
    program.compile(target)
    return program


def test_numbers_of_selected_rows_are_arguments(target: GpuTarget, compiled: list[Any]) -> None:
    program, reference = (selecting(t, symbol("n", 0, 9999)) for t in (target, mgx.get_target("ref")))
    rng = np.random.default_rng(10)
    for step, (n, scale) in enumerate(
        [(20, 1), (30, 1), (40, 1), (50, 1), (130, 2), (33, 0.5), (64, 1), (25, 2), (9, 1)]
    ):
        x = (rng.standard_normal((n, 4)) * scale).astype(np.float32)
        wanted = [r.to_numpy() for r in reference.run({"x": x})]
        before = len(compiled)
        for got, want in zip(program.run({"x": x}), wanted, strict=True):
            np.testing.assert_allclose(got.to_numpy(), want, rtol=1e-5, atol=1e-6)
        if step > WHOLE:
            assert wanted[-1].shape[0] > 1
            assert before == len(compiled)
    for n, scale in ((7, 0.01), (1, 1), (0, 1), (2, 0.1), (20, 0.1)):  # numbers of 0 and 1
        x = (rng.standard_normal((n, 4)) * scale).astype(np.float32)
        for got, want in zip(program.run({"x": x}), reference.run({"x": x}), strict=True):
            np.testing.assert_allclose(got.to_numpy(), want.to_numpy(), rtol=1e-5, atol=1e-6)


def test_numbers_of_selected_rows_of_fixed_arguments_are_arguments(target: GpuTarget, compiled: list[Any]) -> None:
    program, reference = (selecting(t, 48) for t in (target, mgx.get_target("ref")))
    rng, given = np.random.default_rng(11), np.zeros((48, 4), np.float32)
    reference.run({"x": given})
    runner = program.executable.instances()[0].runner  # type: ignore[union-attr]
    before: Any = None
    for step in range(14):
        x = given if step == 13 else (rng.standard_normal((48, 4)) * rng.choice([0.5, 1, 2])).astype(np.float32)
        if step == 9:
            assert runner.specialized > SPECIALIZED
            before = runner.specialized, len(compiled)
        for got, want in zip(program.run({"x": x}), reference.run({"x": x}), strict=True):
            np.testing.assert_allclose(got.to_numpy(), want.to_numpy(), rtol=1e-5, atol=1e-6)
        if 9 <= step < 13:
            assert before == (runner.specialized, len(compiled))


def test_joined_and_padded_images_of_any_size_are_one_program() -> None:
    """Widths of vectors need not divide the extents, whose order does not matter either."""
    built: list[mgx.Program] = []
    for device in (GpuTarget("host", 1), mgx.get_target("ref")):
        program = mgx.Program()
        m = program.get_main_module()
        x = m.add_parameter("x", mgx.Shape("float16", [1, 3, symbol("h", 0, 999), symbol("w", 0, 999)]))
        y = m.add(mgx.op("pad", pads=[0, 0, 1, 2, 0, 0, 0, 1], mode="edge"), m.add(mgx.op("reverse", axes=[3]), x))
        m.add_return([m.add(mgx.op("concat", axis=3), y, m.add(mgx.op("reverse", axes=[2]), y))])
        program.compile(device)
        built.append(program)
    one = opened(built[0], h=17, w=22)
    for h, w in ((30, 9), (12, 40), (25, 26), (9, 13)):
        assert one.fits({"h": h, "w": w})
        given = np.random.default_rng(h).standard_normal((1, 3, h, w)).astype(np.float16)
        np.testing.assert_array_equal(one.runner.run([given])[0], built[1].run({"x": given})[0].to_numpy())


def test_offsets_that_need_64_bits_do_not_fit() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 40]))
    m.add_return([m.add(mgx.op("tanh"), x)])
    program.compile(GpuTarget("host", 1))
    made = opened(program, n=1 << 24)
    assert made.fits({"n": 1 << 25}) and not made.fits({"n": 1 << 26})


def test_sizes_of_memory_that_lose_their_extents_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 40]))
    scores = m.add(mgx.op("softmax", axis=0), m.add(mgx.op("prefix_scan_sum", axis=1), x))
    m.add_return([scores])
    program.compile(GpuTarget("host", 1))
    assert opened(program, n=9) is not None
    scratch = GpuEmitter.scratch
    monkeypatch.setattr(GpuEmitter, "scratch", lambda self, size: scratch(self, len(range(size))))
    assert opened(program, n=9) is None


# products of a vendor's library


class HostProduct:
    """A product of numpy's on the memory of the emulated device, in place of a library plan."""

    name = "host product"
    workspace = 0
    choice = {"library": "cublaslt"}

    def __init__(self, problem: GemmProblem) -> None:
        self.problem = problem

    def launch(self, stream: int, a: int, b: int, d: int, **more: Any) -> None:
        p = self.problem
        product = p.alpha * self._matrix(a, p.a, p.m, p.k) @ self._matrix(b, p.b, p.k, p.n)
        for step in p.epilogue:
            if step == "bias":
                product = product + np.ctypeslib.as_array((ctypes.c_float * p.n).from_address(more["bias"]))
            elif step == "residual":
                assert p.residual is not None
                product = product + self._matrix(more["residual"], p.residual, p.m, p.n)
            else:
                assert step.kind == "relu"
                product = np.maximum(product, 0)
        self._matrix(d, p.d, p.m, p.n)[...] = product

    def _matrix(self, address: int, x: Matrix, rows: int, columns: int) -> Any:
        lines = columns if x.transposed else rows
        length = x.batch_stride * (self.problem.batch - 1) + x.ld * (lines - 1) + (rows if x.transposed else columns)
        flat = np.ctypeslib.as_array((ctypes.c_float * length).from_address(address))
        steps = (4 * x.batch_stride, *((4, 4 * x.ld) if x.transposed else (4 * x.ld, 4)))
        return np.lib.stride_tricks.as_strided(flat, (self.problem.batch, rows, columns), steps)


class HostLibraries:
    """Libraries with such products; asked: the problems; refused: a number of rows that they have no plan for."""

    def __init__(self, refused: int = 0) -> None:
        self.asked: list[GemmProblem] = []
        self.refused = refused

    def plan(self, problem: Any, choice: Any = None) -> Any:
        if not isinstance(problem, GemmProblem) or problem.m == self.refused:
            return mgx.No("no plan")
        self.asked.append(problem)
        return HostProduct(problem)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enqueues steps one by one: products of numpy's cannot be recorded."""

    def recorded(self: Any, bound: Any) -> Any:
        return SimpleNamespace(launch=lambda handle: enqueue(bound.steps, handle))

    monkeypatch.setattr(OpenRunner, "_recorded", recorded)


def multiplied(libraries: HostLibraries) -> tuple[mgx.Program, Callable[[Any], Any]]:
    """Returns a compiled program of products whose rows, columns and summed extents change, and its function in numpy."""
    rng = np.random.default_rng(3)
    w, bias = (rng.standard_normal((24, 32)) / 5).astype(np.float32), rng.standard_normal(32).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [2, symbol("t", 0, 999), 24]))
    y = m.add(mgx.op("dot"), x, m.add(mgx.op("multibroadcast", out_lens=[2, 24, 32]), m.add_literal(w)))
    lens = list(y.shape.dims)
    y = m.add(mgx.op("add"), y, m.add(mgx.op("multibroadcast", out_lens=lens), m.add_literal(bias)))
    y = m.add(mgx.op("relu"), y)
    scores = m.add(mgx.op("dot"), y, m.add(mgx.op("transpose", permutation=[0, 2, 1]), y))
    m.add_return([m.add(mgx.op("dot"), m.add(mgx.op("tanh"), scores), y), scores])
    target = GpuTarget("host", 1)
    context = target.get_context()
    context.__dict__ |= {"libraries": libraries, "tuner": None}
    target.get_context = lambda: context  # type: ignore[method-assign]
    program.compile(target)

    def reference(given: Any) -> Any:
        y = np.maximum(given.astype(np.float64) @ w + bias, 0)
        scores = y @ y.swapaxes(1, 2)
        return np.tanh(scores) @ y, scores

    return program, reference


def check(program: mgx.Program, reference: Callable[[Any], Any], length: int) -> None:
    given = np.random.default_rng(length).standard_normal((2, length, 24)).astype(np.float32)
    for one, want in zip(program.run({"x": given}), reference(given), strict=True):
        np.testing.assert_allclose(one.to_numpy(), want, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("one_by_one")
def test_library_products_have_a_plan_for_each_set_of_extents(compiled: list[Any]) -> None:
    libraries = HostLibraries()
    program, reference = multiplied(libraries)
    for length in range(16, 17 + WHOLE):
        check(program, reference, length)
    libraries.asked.clear()
    for length in (40, 33, 40, 8, 100, 33):
        check(program, reference, length)
    assert len(compiled) == WHOLE
    asked = [(p.m, p.n, p.k) for p in libraries.asked]
    assert len(asked) == len(set(asked)) == 3 * 4
    assert {(80, 32, 24), (40, 40, 32), (40, 32, 40)} <= set(asked) or {(40, 32, 24)} <= set(asked)


@pytest.mark.usefixtures("one_by_one")
def test_extents_for_which_a_library_has_no_plan_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = HostLibraries(refused=50)
    program, reference = multiplied(libraries)
    for length in (*range(16, 17 + WHOLE), 51):
        check(program, reference, length)
    (one,) = programs(program)
    assert one.fits({"t": 51}) and not one.fits({"t": 50})
    with monkeypatch.context() as patch:
        patch.setattr(libraries, "plan", lambda problem: pytest.fail("asked again"))
        assert not one.fits({"t": 50})
    check(program, reference, 50)
    assert len(programs(program)) == 2


# random programs


def grown(m: Any, x: Any, rng: Any) -> Any:
    """Returns a random op of a value."""
    dims, axis = x.shape.dims, int(rng.integers(0, x.shape.rank))

    def add(name: str, *args: Any, **attributes: Any) -> Any:
        return m.add(mgx.op(name, **attributes), *args)

    match int(rng.integers(0, 12)):
        case 0:
            return add(str(rng.choice(["tanh", "relu", "abs", "sigmoid"])), x)
        case 1:
            return add(str(rng.choice(["add", "mul", "max", "sub"])), x, add("tanh", x))
        case 2:
            return add("transpose", x, permutation=[int(i) for i in rng.permutation(len(dims))])
        case 3:
            return add("softmax", x, axis=axis)
        case 4:
            total = add(str(rng.choice(["reduce_sum", "reduce_max", "reduce_mean"])), x, axes=[axis])
            return add("sub", x, add("multibroadcast", total, out_lens=list(dims)))
        case 5:
            return add("concat", x, add("tanh", x), axis=axis)
        case 6:
            return add("slice", x, axes=[axis], starts=[1], ends=[1 << 40]) if not isinstance(dims[axis], int) else x
        case 7:
            return add("pad", x, pads=[int(i) for i in rng.integers(0, 3, 2 * len(dims))], value=0.5)
        case 8:
            return add("reverse", x, axes=[axis])
        case 9:
            return add("prefix_scan_sum", x, axis=axis)
        case 10 if len(dims) == 3 and isinstance(dims[-1], int):
            w = m.add_literal((rng.standard_normal((dims[-1], 16)) / 4).astype(np.float32))
            return add("dot", x, add("multibroadcast", w, out_lens=[dims[0], dims[-1], 16]))
        case 11 if len(dims) == 3 and isinstance(dims[-1], int):
            scores = add("dot", x, add("transpose", x, permutation=[0, 2, 1]))
            return add("dot", add("softmax", scores, axis=-1), x)
    return x


def built(seed: int, target: Any) -> tuple[mgx.Program, Sequence[Any]]:
    rng = np.random.default_rng(seed)
    program = mgx.Program()
    m = program.get_main_module()
    b, t = symbol("b", 0, 999), symbol("t", 0, 9999)
    choices: list[list[Any]] = [[b, t, 24], [t, 7, 16], [b, 5, t], [b, t]]
    dims = choices[int(rng.integers(0, 4))]
    x = m.add_parameter("x", mgx.Shape("float32", dims))
    for _ in range(int(rng.integers(2, 6))):
        x = grown(m, x, rng)
    m.add_return([x])
    program.compile(target)
    return program, dims


def cases(seed: int, dims: Sequence[Any]) -> Iterator[Any]:
    """Yields arguments of different extents."""
    rng = np.random.default_rng(seed)
    for _ in range(9):
        known = {"b": int(rng.choice([2, 3, 5, 8, 17])), "t": int(rng.choice([1, 2, 4, 7, 16, 31, 33, 64, 130]))}
        yield rng.standard_normal([d if isinstance(d, int) else known[str(d)] for d in dims]).astype(np.float32)


@pytest.mark.parametrize("seed", range(10))
def test_random_programs_agree_with_the_reference(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_run, "LARGE", 0)  # no room beyond results, where the device notices accesses
    program, dims = built(seed, GpuTarget("host", seed % 2))
    reference, _ = built(seed, mgx.get_target("ref"))
    for given in cases(seed, dims):
        (got,), (want,) = program.run({"x": given}), reference.run({"x": given})
        scale = max(1.0, float(np.abs(want.to_numpy()).max(initial=0.0)))
        np.testing.assert_allclose(got.to_numpy(), want.to_numpy(), rtol=2e-3, atol=2e-4 * scale)
    assert programs(program)


# numbers that lose their extents


@pytest.mark.parametrize(
    ("extent", "opens"),
    [(lambda n: n, True), (int, False), (lambda n: len(range(n)), False), (lambda n: n - len(range(n % 3)), False)],
)
def test_numbers_that_lose_their_extents_are_noticed(
    extent: Callable[[int], int], opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mgx_gpu_hip.codegen import pointwise

    original = pointwise.Number
    monkeypatch.setattr(
        pointwise, "Number", lambda ctype, value: original(ctype, extent(value) if type(value) is not int else value)
    )
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 40]))
    m.add_return([m.add(mgx.op("tanh"), x)])
    program.compile(GpuTarget("host", 1))
    assert (opened(program, n=9) is not None) is opens


@pytest.mark.parametrize("on_device", [False, True], ids=["host arrays", "device arrays"])
def test_branches_of_two_ranks_are_opened(target: GpuTarget, compiled: list[Any], on_device: bool) -> None:
    """What comes before the branch and each branch take the extents, and counts; results may be arguments or the same."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n", 2, 999), 4]))
    y = m.add(mgx.op("exp"), x)
    total = m.add(mgx.op("reduce_sum", axes=[0, 1]), x)
    most = m.add_literal(np.zeros((1, 1), np.float32))
    then, other = program.create_module("then"), program.create_module("other")
    then.add_return([then.add(mgx.op("squeeze", axes=[0]), then.add(mgx.op("reduce_max", axes=[0]), y))])
    places = other.add(mgx.op("nonzero"), other.add(mgx.op("relu"), x))
    found = other.add(mgx.op("gathernd"), y, other.add(mgx.op("transpose", permutation=[1, 0]), places))
    other.add_return([other.add(mgx.op("unsqueeze", axes=[0, 1]), found)])
    above = m.add(mgx.op("squeeze", axes=[0, 1]), m.add(mgx.op("greater"), total, most))
    taken = m.add(mgx.op("get_tuple_elem", index=0), m.add(mgx.op("if"), above, modules=[then, other]))
    m.add_return([taken, y, x, y])
    program.compile(target, offload_copy=not on_device)
    made: Any = program.executable
    runs = []
    for length in range(5, 5 + WHOLE + 12):
        given = np.random.default_rng(length).standard_normal((length, 4)).astype(np.float32)
        runs.append((given, program.run({"x": made.context.upload(given) if on_device else given})))
    assert len(compiled) == WHOLE and programs(program)
    for given, results in runs:
        power = np.exp(given)
        wanted = power.max(0) if given.sum() > 0 else power[given > 0][None, None]
        for got, right in zip(results, (wanted, power, given, power), strict=True):
            np.testing.assert_allclose(got.to_numpy(), right, rtol=1e-5)
    assert {results[0].to_numpy().ndim for _, results in runs} == {1, 3}


def test_convolutions_are_not_those_of_a_library() -> None:
    """Their plans are for fixed extents, and take longer to make than most convolutions to run."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [1, 64, symbol("h", 0, 99), 30]))
    w = np.zeros((64, 64, 3, 3), np.float32)
    m.add_return([m.add(mgx.op("convolution", padding=[1, 1]), x, m.add_literal(w))])
    program.compile(GpuTarget("host", 1))
    made: Any = program.executable
    made.context.__dict__ |= {"libraries": SimpleNamespace(), "tuner": None}
    names = [s.name for s in opened(program, h=9).runner.schedule.steps]
    assert any(name.startswith("convolution_product") for name in names)
