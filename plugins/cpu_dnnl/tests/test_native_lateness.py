"""The team when its threads are not scheduled: steps run on one thread only if waiting costs more than the team saves."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mgx_cpu_dnnl.native_library import native

n = native()
Loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
BLOCK = bytes(1 << 21)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = n.thread_count()
    n.set_threads(2)
    yield
    n.set_threads(before)


def two_parts(first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """A program of one step in two parts; the caller runs the first."""
    function = Loop(lambda _p, _a, begin, _end, _s: (first, second)[begin]() and None)
    program = n.NativeProgram("parts", 0)
    program.add_loop("parts", ctypes.cast(function, ctypes.c_void_p).value, function, [], work=2, grain=1)
    program.finish()
    return program


def helped(second: Callable[[], Any]) -> Any:
    """A program whose second part is started by a team thread, unless none arrives within a second; the caller waits for it."""
    begun, caller = threading.Event(), threading.get_ident()

    def other() -> None:
        if threading.get_ident() != caller:
            begun.set()
            second()

    return two_parts(lambda: (begun.wait(1), begun.clear()), other)


def short() -> Any:
    """A program whose step is short, after it has been measured."""
    program = two_parts(lambda: None, lambda: None)
    for _ in range(20):
        program.run_arrays([])
    return program


def test_a_thread_that_works_longer_than_the_caller_is_no_reason_to_stay_alone() -> None:
    """As in a process's first runs, in which one thread has more page faults and cold caches than the other."""
    program = helped(lambda: hashlib.sha256(BLOCK).digest())

    def absent() -> int:
        before, *_ = n.team_counts()
        program.run_arrays([])
        return int(n.team_counts()[0] - before)

    assert any(not absent() for _ in range(100))  # other processes may in fact keep a thread from running


def test_short_steps_stay_alone_after_a_thread_did_not_run_and_are_shared_again() -> None:
    program, quick = helped(lambda: time.sleep(0.02)), short()
    before = n.team_counts()
    for _ in range(5):  # earlier savings of the team cover the first delay
        program.run_arrays([])
    quick.run_arrays([])
    after = n.team_counts()
    assert after[0] > before[0] and after[1] > before[1]
    end, seen = time.monotonic() + 10, after[1]
    while time.monotonic() < end:
        time.sleep(0.1)
        quick.run_arrays([])
        if n.team_counts()[1] == seen:
            break
        seen = n.team_counts()[1]
    else:
        pytest.fail("short steps never return to the team")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_a_thread_leaves_the_processor_of_the_caller() -> None:
    """The kernel leaves it there if every other processor runs a spinning thread."""
    code = """
        import ctypes, os, subprocess, sys, threading, time
        here, there = sorted(os.sched_getaffinity(0))[:2]
        os.sched_setaffinity(0, {here, there})
        before = set(os.listdir("/proc/self/task"))
        from mgx_cpu_dnnl.native_library import native
        n = native()
        n.set_threads(2)
        processor = ctypes.CDLL(None).sched_getcpu
        Loop = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)
        begun, caller, seen, helper = threading.Event(), threading.get_ident(), [], []

        @Loop
        def part(pointers, args, begin, end, scratch):
            if begin == 0:
                begun.wait(1)
            elif threading.get_ident() != caller:
                helper[:] = [threading.get_native_id()]
                seen.append(processor())
            begun.set()

        program = n.NativeProgram("parts", 0)
        program.add_loop("parts", ctypes.cast(part, ctypes.c_void_p).value, part, [], work=2, grain=1)
        program.finish()
        while not seen:
            program.run_arrays([])
        os.sched_setaffinity(0, {here})
        spinning = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{there}}})\\nwhile 1: pass"])
        try:
            del seen[:]
            for _ in range(20):
                time.sleep(0.003)
                os.sched_setaffinity(helper[0], {here})
                os.sched_setaffinity(helper[0], {here, there})
                begun.clear()
                program.run_arrays([])
            assert os.sched_getaffinity(helper[0]) == {here, there}
        finally:
            spinning.kill()
            spinning.wait()
        print(len(seen), seen.count(here))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    parts, beside = map(int, done.stdout.split())
    assert parts and beside <= parts // 4
