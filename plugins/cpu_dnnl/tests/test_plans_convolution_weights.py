"""Gradients of convolutions' weights by oneDNN, compared with the definition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.runner import CpuRunner
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(5)

CASES: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    ((3, 8, 9, 7), 12, {"lengths": [3, 3], "padding": [1, 1]}),
    ((2, 3, 16, 17), 8, {"lengths": [7, 7], "padding": [3, 3], "stride": [2, 2]}),
    ((2, 8, 9, 7), 12, {"lengths": [3, 2], "padding": [2, 0, 1, 1], "stride": [2, 1], "dilation": [1, 2]}),
    ((2, 8, 9, 9), 16, {"lengths": [3, 3], "padding": [1, 1], "group": 4}),
    ((2, 16, 9, 9), 16, {"lengths": [3, 3], "padding": [1, 1], "stride": [2, 2], "group": 16}),
    ((2, 16, 9), 16, {"lengths": [3], "padding": [1], "group": 16}),
    ((2, 6, 9), 5, {"lengths": [4], "stride": [3], "dilation": [2]}),
    ((1, 4, 5, 6, 7), 6, {"lengths": [3, 3, 3], "padding": [1, 1, 1]}),
]


def gradient(
    dims: tuple[int, ...], outputs: int, attributes: dict[str, Any], kind: mgx.DType = dt.float32
) -> tuple[mgx.Program, Any, Any]:
    """Returns a compiled program of one gradient, its arguments and the result by definition."""
    op = mgx.op("convolution_weights", **attributes)
    x = rng.uniform(-1, 1, dims).astype(kind.numpy)
    counts = op.sliding(len(dims) - 2).counts(dims[2:], op.lengths)
    grad = rng.uniform(-1, 1, (dims[0], outputs, *counts)).astype(kind.numpy)
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(op, *(m.add_parameter(n, mgx.Shape(kind, v.shape)) for n, v in (("x", x), ("g", grad))))])
    program.compile(CpuTarget())
    return program, {"x": x, "g": grad}, op.evaluate([x.astype(np.float64), grad.astype(np.float64)])


@pytest.mark.parametrize(("dims", "outputs", "attributes"), CASES)
def test_float32(dims: tuple[int, ...], outputs: int, attributes: dict[str, Any]) -> None:
    program, given, wanted = gradient(dims, outputs, attributes)
    (found,) = (np.asarray(v) for v in program.run(given))
    np.testing.assert_allclose(found, wanted, atol=2e-6 * np.abs(wanted).max())
    assert program.executable is not None
    runner = program.executable.instances()[0].runner
    assert isinstance(runner, CpuRunner)
    assert any(step.name.startswith("conv weights ") for step in runner.schedule.steps)


@pytest.mark.parametrize("kind", [dt.bfloat16, dt.float16])
def test_groups_of_narrow_floats_are_computed_at_once(kind: mgx.DType) -> None:
    """Sums are float32, and rounded once."""
    attributes = {"lengths": [3, 3], "padding": [1, 1], "stride": [2, 2], "group": 8}
    program, given, wanted = gradient((2, 16, 9, 9), 16, attributes, kind)
    (found,) = (np.asarray(v).astype(np.float32) for v in program.run(given))
    np.testing.assert_allclose(found, wanted, rtol=2**-8 if kind is dt.bfloat16 else 2**-11, atol=1e-5)
    assert program.executable is not None
    runner = program.executable.instances()[0].runner
    assert isinstance(runner, CpuRunner)
    assert sum(step.name.startswith("conv") for step in runner.schedule.steps) == 1


def test_volumes_per_channel_are_computed_in_parts() -> None:
    """OneDNN has only a reference implementation."""
    program, given, wanted = gradient((2, 8, 5, 5, 5), 8, {"lengths": [3, 3, 3], "group": 8})
    (found,) = (np.asarray(v) for v in program.run(given))
    np.testing.assert_allclose(found, wanted, atol=2e-6 * np.abs(wanted).max())


def test_threads_run_it_at_once() -> None:
    """Threads of the team are then missing, for which the primitive must not wait."""
    program, given, wanted = gradient((4, 16, 9, 9), 16, {"lengths": [3, 3], "padding": [1, 1], "group": 16})

    def run(_: int) -> float:
        (found,) = (np.asarray(v) for v in program.run(given))
        return float(np.abs(found - wanted).max())

    with ThreadPoolExecutor(4) as threads:
        assert max(threads.map(run, range(200))) < 2e-6 * np.abs(wanted).max()
