"""Concurrent runs of many threads: each gets its own results and errors, in turn, with few threads working."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mgx_core.errors import ShapeError
from mgx_cpu_dnnl.native_library import native

n = native()
ROWS, WIDTH, PICKED = 64, 4096, 48


def gather(steps: int = 1) -> tuple[Any, np.ndarray]:
    """Rows picked from a table: long enough that runs meet, and it refuses rows outside."""
    table = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    program = n.NativeProgram("gather", 0)
    rows, out = program.input(np.int64, (PICKED,)), program.output(np.float32, (PICKED, WIDTH))
    weights = program.literal(table.ctypes.data, table.nbytes, table)
    loop = n.native_loop("gather_rows_int64")
    for _ in range(steps):
        program.add_loop("embedding", loop, None, [weights, rows, out], [ROWS, PICKED, 4 * WIDTH], PICKED, 2)
    program.finish()
    return program, table


def together(count: int, work: Callable[[int], None]) -> None:
    """Calls work(0) to work(count - 1) from as many threads; raises their first error."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def call(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads), "deadlocked"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_and_errors_go_to_the_caller(threads: int) -> None:
    program, table = gather()

    def work(number: int) -> None:
        picked = (np.arange(PICKED) * (number + 1)) % ROWS
        bad = np.full(PICKED, ROWS + number)
        for _ in range(40):
            np.testing.assert_array_equal(program.run_arrays([picked])[0], table[picked])
            with pytest.raises(ShapeError, match=f"index {ROWS + number} is out of bounds"):
                program.run_arrays([bad])

    before = n.thread_count()
    n.set_threads(threads)
    try:
        together(8, work)
    finally:
        n.set_threads(before)
    assert program.frames <= max(threads, before)  # at most as many concurrent runs as threads


@pytest.mark.parametrize(
    ("work", "grain", "threads"),
    [(1000, 1, 3), (1000, 1, 2), (7, 2, 4), (96, 32, 2), (1 << 31, 1 << 20, 2), (70, 1, 70)],
)
def test_a_loop_runs_once_with_work_stealing(work: int, grain: int, threads: int) -> None:
    """The caller that starts at 0 waits until the others have finished everything that can be stolen from it."""
    done: list[tuple[int, int]] = []
    helped = work <= 1000 and threads < 64  # above that, each thread keeps its own part

    def items(parts: list[tuple[int, int]]) -> int:
        return sum(end - begin for begin, end in parts)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    def loop(_buffers: Any, _args: Any, begin: int, end: int, _scratch: Any) -> None:
        patience = time.monotonic() + 30
        while helped and begin == 0 and items(done) < work - end and time.monotonic() < patience:
            time.sleep(0.001)
        done.append((begin, end))

    program = n.NativeProgram("loop", 0)
    out = program.output(np.float32, (1,))
    program.add_loop("loop", ctypes.cast(loop, ctypes.c_void_p).value, loop, [(out, 0)], (), work, grain, 0)
    program.result(out)
    program.finish()
    before = n.thread_count()
    n.set_threads(threads)
    try:
        program.run_arrays([])
    finally:
        n.set_threads(before)
    assert [begin for begin, _ in sorted(done)] == [0, *(end for _, end in sorted(done)[:-1])]
    assert items(done) == sorted(done)[-1][1] == work
    assert all(end - begin >= grain for begin, end in done)
    if helped and work >= 4 * grain:
        assert done[-1][0] == 0  # so that the others ran the rest of its part
        assert done[-1][1] < work // threads


def test_host_steps_run_on_the_calling_thread() -> None:
    program = n.NativeProgram("host", 0)
    x, out = program.input(np.float32, (4,)), program.output(np.float32, (4,))
    own = threading.local()
    spec = (0, np.float32, (4,))

    def marked(given: list[np.ndarray]) -> list[np.ndarray]:
        return [given[0] + own.mark]

    program.add_host("marked", marked, [(x, *spec)], [(out, *spec)])
    program.finish()

    def work(number: int) -> None:
        own.mark = number
        for _ in range(50):
            np.testing.assert_array_equal(program.run_arrays([np.zeros(4, np.float32)])[0], np.full(4, number))

    together(8, work)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_forked_after_runs_have_waited_still_runs() -> None:
    program, table = gather()
    picked = np.arange(PICKED)
    together(8, lambda number: program.run_arrays([picked]))
    child = os.fork()
    if child == 0:
        try:
            together(4, lambda number: np.testing.assert_array_equal(program.run_arrays([picked])[0], table[picked]))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
