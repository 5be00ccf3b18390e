"""Costs: reported, never asserted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgx_conformance.networks import NETWORKS
from mgx_conformance.programs import layers, make, symbolic, values
from mgx_core import Program, Shape, parse_onnx_buffer


def best(work: Callable[[], Any], seconds: float = 0.2) -> float:
    """Returns the shortest time of one call."""
    work()
    found, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - start)
    return found


def chain(length: int) -> Program:
    """Returns a chain of `length` ops that nothing fuses, on almost no data."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", (1, 4)))
    w = main.add_literal(np.eye(4, dtype=np.float32))
    y = x
    for n in range(length):
        y = main.add(make("softmax", axis=-1), y) if n % 2 else main.add(make("dot"), y, w)
    main.add_return([y])
    return program


def test_launch(mgx_target: Any, record_property: Any) -> None:
    """The time of one additional launch, from chains of two lengths."""
    times = []
    for length in (2, 102):
        program = chain(length)
        program.compile(mgx_target)
        feed = values(program, 0)
        times.append(best(lambda p=program, f=feed: p.run(f)))  # type: ignore[misc]
    each = (times[1] - times[0]) / 100
    record_property("launch_seconds", each)
    record_property("cost", f"{each * 1e6:.2f} us a launch, {times[0] * 1e6:.0f} us a run of two")


def test_small_run(mgx_target: Any, record_property: Any) -> None:
    program = layers()
    program.compile(mgx_target)
    feed = values(program, 0)
    seconds = best(lambda: program.run(feed))
    record_property("run_seconds", seconds)
    record_property("cost", f"{seconds * 1e6:.0f} us a run of two dense layers")


def test_new_shape(mgx_target: Any, record_property: Any) -> None:
    """The time of the first run with a new extent, relative to a later one."""
    program = symbolic()
    program.compile(mgx_target)
    program.run(values(program, 0, 1))
    start = time.perf_counter()
    program.run(values(program, 0, 33))
    seconds = time.perf_counter() - start
    record_property("instance_seconds", seconds)
    record_property("cost", f"{seconds * 1e3:.2f} ms the first run of a new shape")


def test_compile(mgx_target: Any, record_property: Any) -> None:
    words = []
    for name, (build, _) in NETWORKS.items():
        program = parse_onnx_buffer(build())
        start = time.perf_counter()
        program.compile(mgx_target)
        words.append(f"{name} {(time.perf_counter() - start) * 1e3:.1f} ms")
    record_property("cost", "compiling " + ", ".join(words))


def test_load(mgx_target: Any, record_property: Any) -> None:
    """The time of a new process until the target has compiled its first program."""
    module, name = type(mgx_target).__module__, type(mgx_target).__qualname__
    script = (
        "import time; s = time.perf_counter()\nimport importlib, mgx_core as m\n"
        f"t = importlib.import_module({module!r}).{name}()\np = m.Program(); g = p.get_main_module()\n"
        "x = g.add_parameter('x', m.Shape('float32', (2, 2))); g.add_return([g.add(m.op('tanh'), x)])\np.compile(t)\n"
        "print(time.perf_counter() - s)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        record_property("cost", f"{float(done.stdout.split()[-1]):.2f} s from start to the first compiled program")
