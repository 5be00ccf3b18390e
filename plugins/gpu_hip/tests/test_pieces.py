"""Programs with many data-dependent extents: cut into parts that pass values in device memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from growing_decoder import WIDTH, close, decoder, fed

import mgx_core as mgx
from mgx_core.run.changing_extents import WHOLE
from mgx_core.run.pieces import RUNS, PiecesRunner
from mgx_core.types.dim import symbol
from mgx_gpu_hip import graph_cache
from mgx_gpu_hip.guarded import GuardedTarget
from mgx_gpu_hip.runner import GpuRunner
from mgx_gpu_hip.runtime import DeviceArray
from mgx_gpu_hip.target import GpuTarget

LAYERS = 4


class PiecesTarget(GpuTarget):
    """The gpu target without programs that take changing extents as arguments."""

    opens_programs = False


@pytest.fixture
def target(driver_and_device: tuple[Any, ...]) -> GpuTarget:
    return PiecesTarget(*driver_and_device)


def runner(program: mgx.Program) -> Any:
    return program.executable.instances()[-1].runner  # type: ignore[union-attr]


@pytest.mark.parametrize("on_device", [False, True], ids=["host arrays", "device arrays"])
def test_results_of_changing_lengths_are_right_and_stay_as_they_are(target: GpuTarget, on_device: bool) -> None:
    program = decoder(LAYERS, target, offload_copy=not on_device)
    context = program.executable.context  # type: ignore[union-attr]
    earlier: list[tuple[Any, dict[str, Any]]] = []
    for length in [*range(1, WHOLE + 2), 30, 7, 7, 7, 0, 44, *[12] * (RUNS + 2), 50]:
        given = fed(LAYERS, length)
        results = program.run({n: context.upload(v) for n, v in given.items()} if on_device else given)
        assert on_device == isinstance(results[0].value, DeviceArray)
        earlier.append((results, given))
    for results, given in earlier:  # nothing has been written since
        close(LAYERS, results, given)
    assert isinstance(runner(program), PiecesRunner)


def test_a_repeated_length_records_only_length_independent_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are recorded only for parts that do not depend on the length, at fixed addresses; not for the attention to a
    cache.
    """
    program, recorded = decoder(LAYERS, PiecesTarget("host", 1)), []
    record = graph_cache.GraphCache._capture

    def noting(self: Any, *given: Any) -> Any:
        recorded.append(self)
        return record(self, *given)

    for length in range(1, WHOLE + 1):
        program.run(fed(LAYERS, length))
    monkeypatch.setattr(graph_cache.GraphCache, "_capture", noting)
    program.run(fed(LAYERS, 20))
    assert isinstance(runner(program), PiecesRunner) and not recorded
    program.run(fed(LAYERS, 21))
    assert recorded and len(set(map(id, recorded))) == len(recorded)
    before = len(recorded)
    for length in range(22, 30):
        close(LAYERS, program.run(fed(LAYERS, length)), fed(LAYERS, length))
    assert len(recorded) == before


def test_a_new_length_makes_one_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    program, made = decoder(LAYERS, PiecesTarget("host", 1)), []
    allocate = GpuRunner._allocate

    def noting(self: Any) -> None:
        made.append(self)
        allocate(self)

    for length in range(1, WHOLE + 2):
        program.run(fed(LAYERS, length))
    monkeypatch.setattr(GpuRunner, "_allocate", noting)
    for number, length in enumerate((33, 5, 60), 1):
        program.run(fed(LAYERS, length))
        assert len(made) == number


def test_pieces_write_their_results_and_read_nothing_else() -> None:
    program = decoder(LAYERS, GuardedTarget(1))
    for length in [*range(1, WHOLE + 3), 30]:
        close(LAYERS, program.run(fed(LAYERS, length)), fed(LAYERS, length))
    assert isinstance(runner(program), PiecesRunner)


def test_threads_run_one_program_in_pieces() -> None:
    program, wrong = decoder(LAYERS, PiecesTarget("host", 1)), []
    for length in range(1, WHOLE + 2):
        program.run(fed(LAYERS, length))

    def work(start: int) -> None:
        try:
            for length in range(start, start + 16, 4):
                close(LAYERS, program.run(fed(LAYERS, length)), fed(LAYERS, length))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_runs_that_are_enqueued_are_those_of_the_whole_program(target: GpuTarget) -> None:
    """A caller's stream may be capturing, or may still be writing the arguments: parts, which wait on the host, are
    unsuitable.
    """
    program = decoder(LAYERS, target, offload_copy=False)
    context = program.executable.context  # type: ignore[union-attr]

    def given(length: int) -> dict[str, Any]:
        return {n: context.upload(v) for n, v in fed(LAYERS, length).items()}

    for length in range(1, WHOLE + 2):
        program.run(given(length))
    stream = context.device.stream()
    for length in (9, 9, 21):
        results = program.run_async(given(length), stream.handle, "ihipStream_t")
        assert not runner(program).ran
        stream.wait()
        close(LAYERS, results, fed(LAYERS, length))
        close(LAYERS, program.run(given(length)), fed(LAYERS, length))


@pytest.mark.parametrize("offload_copy", [True, False])
def test_device_arrays_whose_extents_contradict_each_other_are_refused(offload_copy: bool) -> None:
    program = decoder(LAYERS, PiecesTarget("host", 1), offload_copy=offload_copy)
    context = program.executable.context  # type: ignore[union-attr]
    given = {n: context.upload(v) for n, v in fed(LAYERS, 5).items()}
    given["past1"] = context.upload(fed(LAYERS, 6)["past1"])
    with pytest.raises(mgx.ParameterError, match=r"parameter 'past1': axis 0 \(t\) must be 5 as elsewhere, got 6"):
        program.run(given)


def fixed_work(m: Any, y: Any) -> Any:
    """Twelve layers that do not depend on the changing extent."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        w = m.add_literal((rng.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32))
        y = m.add(mgx.op("tanh"), m.add(mgx.op("dot"), y, w))
    return y


@pytest.mark.parametrize("offload_copy", [True, False])
def test_rows_counted_between_pieces_have_the_layout_that_the_next_piece_reads(offload_copy: bool) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("t", 1, 512), WIDTH]))
    y = m.add_parameter("y", mgx.Shape("float32", [4, WIDTH]))
    flat = mgx.op("reshape", dims=[4 * WIDTH])
    places = m.add(mgx.op("transpose", permutation=[1, 0]), m.add(mgx.op("nonzero"), m.add(flat, y)))
    worked = m.add(flat, fixed_work(m, y))
    m.add_return([m.add(mgx.op("gathernd"), worked, places), worked, m.add(mgx.op("neg"), x)])
    program.compile(PiecesTarget("host", 1), offload_copy=offload_copy)
    for length in range(1, WHOLE + 5):
        chosen = np.random.default_rng(length).random((4, WIDTH)) > 0.5
        given = {"x": np.ones((length, WIDTH), np.float32), "y": chosen.astype(np.float32)}
        found, all_of_them, negated = (r.to_numpy() for r in program.run(given))
        np.testing.assert_array_equal(found, all_of_them[chosen.ravel()])
        np.testing.assert_array_equal(negated, -given["x"])
    assert isinstance(runner(program), PiecesRunner)


@pytest.mark.parametrize("offload_copy", [True, False])
def test_programs_that_return_non_tensors_stay_whole(offload_copy: bool) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("t", 1, 512), WIDTH]))
    y = m.add_parameter("y", mgx.Shape("float32", [4, WIDTH]))
    listed = m.add_parameter("listed", mgx.SequenceShape(mgx.Shape("float32", [2])))
    m.add_return([fixed_work(m, y), m.add(mgx.op("neg"), x), listed])
    program.compile(PiecesTarget("host", 1), offload_copy=offload_copy)
    for length in range(1, WHOLE + 3):
        given = {"x": np.ones((length, WIDTH), np.float32), "y": np.zeros((4, WIDTH), np.float32)}
        *_, found = program.run({**given, "listed": [np.ones(2, np.float32)]})
        assert len(found.value) == 1
    assert not isinstance(runner(program), PiecesRunner)


def test_no_run_waits_while_another_length_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    program = decoder(LAYERS, PiecesTarget("host", 1))
    for length in range(1, WHOLE + 3):
        program.run(fed(LAYERS, length))
    compiling, go_on = threading.Event(), threading.Event()
    allocate = GpuRunner._allocate

    def slow(self: Any) -> None:
        compiling.set()
        assert go_on.wait(60)
        allocate(self)

    monkeypatch.setattr(GpuRunner, "_allocate", slow)
    other = threading.Thread(target=lambda: program.run(fed(LAYERS, 50)))
    other.start()
    assert compiling.wait(60)
    try:
        close(LAYERS, program.run(fed(LAYERS, WHOLE + 2)), fed(LAYERS, WHOLE + 2))
    finally:
        go_on.set()
        other.join()
