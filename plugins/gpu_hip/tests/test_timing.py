"""Ranges around the launches of each instruction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mgx_core import Program, Shape, op
from mgx_core.errors import DeviceError
from mgx_core.report.launches import launch_rows
from mgx_core.targets.schedule import Call, Step
from mgx_gpu_hip.bound_steps import BoundStep
from mgx_gpu_hip.target import GpuTarget
from mgx_gpu_hip.timing import enqueue_marked


def ranges(*steps: BoundStep) -> tuple[list[str], Any]:
    """Returns the calls in order, and the count of ranges or the error."""
    said: list[str] = []
    stream: Any = SimpleNamespace(handle=0)
    try:
        return said, enqueue_marked(steps, stream, lambda text: said.append("begin"), lambda: said.append("end"))
    except DeviceError as error:
        return said, error


@pytest.fixture
def instructions() -> list[Any]:
    main = Program().get_main_module()
    x = main.add_parameter("x", Shape("float32", (4,)))
    return [main.add(op("neg"), x), main.add(op("abs"), x)]


def bound(instruction: Any, *calls: Any) -> BoundStep:
    return BoundStep(Step("step", [], [], call=Call(op("neg"), "kernel", instruction=instruction)), list(calls))


def test_launches_of_one_instruction_share_a_range(instructions) -> None:
    first, second = instructions
    said, count = ranges(bound(first), bound(first), bound(second), bound(None))
    assert (said, count) == (["begin", "end"] * 3, 3)


def test_a_launch_that_fails_ends_its_range(instructions) -> None:
    def fails(stream: int) -> None:
        raise DeviceError("no launch")

    said, error = ranges(bound(instructions[0]), bound(instructions[1], fails))
    assert said == ["begin", "end"] * 2
    assert isinstance(error, DeviceError)


def test_times_and_rows_name_the_kernels_that_ran() -> None:
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float16", (1, 16, 6, 6)))
    weights = main.add_literal(np.ones((16, 16, 1, 1), np.float16))
    main.add_return([main.add(op("relu"), main.add(op("convolution"), x, weights))])
    program.compile(GpuTarget("host", 1))
    executable: Any = program.executable
    (instance,) = executable.instances()
    (timing,) = executable.time({"x": np.ones((1, 16, 6, 6), np.float16)}, 1, 0)
    # the first kernel of the group is queried first, and refuses: the emulated device has no warpgroup instructions
    assert timing.instruction.op.kernel.name == "matrix units group"
    assert (
        timing.kernels
        == tuple(p.kernel for p in instance.placements)
        == ("generated convolution", "generated pointwise")
    )
    assert timing.text.startswith("launch[generated convolution, generated pointwise](")
    rows = launch_rows(instance.module, instance.placements, "gpu")
    assert [r.kernel for r in rows] == ["those of its members", *timing.kernels]
