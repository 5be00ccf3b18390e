"""Bound steps: which kernels may start before the previous one has ended."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import mgx_core as mgx
from mgx_core import Shape
from mgx_gpu_hip.bound_steps import bound_steps
from mgx_gpu_hip.codegen.source import Chained
from mgx_gpu_hip.steps import HostStep, KernelStep, LibraryStep
from mgx_gpu_hip.target import GpuTarget


class Recorded:
    """A launch that records the arguments that were changed."""

    def __init__(self, early: bool) -> None:
        self.early = early
        self.changed: dict[int, int] = {}

    def set(self, index: int, value: int) -> None:
        self.changed[index] = value


def kernel_steps() -> list[Any]:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [6, 40]))
    for _ in range(4):
        x = m.add(mgx.op("softmax", axis=1), m.add(mgx.op("transpose", permutation=[1, 0]), x))
    m.add_return([x])
    program.compile(GpuTarget("host", 1))
    return [s for s in program.executable.instances()[0].runner.schedule.steps if isinstance(s, KernelStep)]


def library() -> LibraryStep:
    plan = SimpleNamespace(launch=lambda *args, **operands: None)
    return LibraryStep("vendor", [], [], plan=plan, operands={}, aligns={}, workspace=None)


def on_host() -> HostStep:
    return HostStep("host", [], [], function=lambda arrays: arrays, inputs=[], outputs=[])


def bound(steps: list[Any], overlap: bool = True) -> list[list[Recorded]]:
    made: dict[int, list[Recorded]] = defaultdict(list)

    def function(step: Any) -> Any:
        def bind(*args: Any, overlap: bool) -> Recorded:
            made[id(step)].append(Recorded(overlap))
            return made[id(step)][-1]

        return defaultdict(lambda: SimpleNamespace(bind=bind))

    functions: Any = {id(s): function(s) for s in steps}
    bound_steps(steps, defaultdict(int), functions, overlap)
    return [made[id(s)] for s in steps if isinstance(s, KernelStep)]


def test_every_kernel_accepts_the_keyword() -> None:
    for step in kernel_steps():
        for launch in step.source.launches:
            assert [isinstance(a, Chained) for a in launch.args].count(True) == 1


def test_only_kernels_that_wait_are_let_start_early() -> None:
    first, second, third, fourth, *_ = kernel_steps()
    a, b, c, d = bound([first, second, library(), third, on_host(), fourth])
    assert [x[-1].early for x in (a, b, c, d)] == [False, True, True, False]
    assert list(a[-1].changed.values()) == [1]  # its successor waits for it
    assert not b[-1].changed  # a library's kernel need not
    assert not c[-1].changed and not d[-1].changed  # a host step, and the end
    assert not any(x.changed for launches in bound([first, second], overlap=False) for x in launches)
