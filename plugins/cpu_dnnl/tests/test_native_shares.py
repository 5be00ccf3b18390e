"""Runs of many threads at once: each gets its own results and errors, in its turn, with few threads working."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mgx_core.errors import ShapeError
from mgx_cpu_dnnl.native_library import native

n = native()
ROWS, WIDTH, PICKED = 64, 4096, 48


def gather() -> tuple[Any, np.ndarray]:
    """Rows picked from a table: long enough that runs meet, and it refuses rows outside."""
    table = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    program = n.NativeProgram("gather", 0)
    rows, out = program.input(np.int64, (PICKED,)), program.output(np.float32, (PICKED, WIDTH))
    weights = program.literal(table.ctypes.data, table.nbytes, table)
    program.add_gather("embedding", weights, rows, out, length=ROWS, row_bytes=4 * WIDTH, count=PICKED)
    program.finish()
    return program, table


def together(count: int, work: Callable[[int], None]) -> None:
    """Calls work(0) to work(count - 1) from as many threads; fails as they do."""
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
    assert not any(t.is_alive() for t in threads), "locked up"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_and_errors_go_to_who_asked(threads: int) -> None:
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
    assert program.frames <= max(threads, before)  # no more runs at a time than threads


def test_host_steps_stay_on_the_thread_that_asked() -> None:
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
