"""The device allocates and launches exactly what the schedule states."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_core.types.memory_limit import ALIGNMENT
from mgx_gpu_hip import bound_steps, graph_cache
from mgx_gpu_hip import runner as running
from mgx_gpu_hip.emitter import DEVICE_ALIGNMENT
from mgx_gpu_hip.guarded import BackwardsTarget, GuardedTarget
from mgx_gpu_hip.steps import HostStep
from mgx_gpu_hip.target import GpuTarget

rng = np.random.default_rng(2)


def literal(m: mgx.Module, *shape: int) -> mgx.Instruction:
    return m.add_literal((rng.standard_normal(shape) * 0.3).astype(np.float32))


def convolutions(m: mgx.Module) -> list[mgx.Instruction]:
    """Two convolutions whose operands are alive at the same time, a pooling, and a product."""
    x = m.add_parameter("x", mgx.Shape("float32", [2, 4, 9, 9]))
    op = mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y = m.add(mgx.op("relu"), m.add(op, x, literal(m, 8, 4, 3, 3)))
    z = m.add(mgx.op("add"), m.add(op, y, literal(m, 8, 8, 3, 3)), y)
    z = m.add(mgx.op("pooling", mode="max", padding=[0, 0], stride=[2, 2], lengths=[2, 2]), z)
    z = m.add(mgx.op("reshape", dims=[2, 128]), z)
    return [m.add(mgx.op("softmax", axis=1), m.add(mgx.op("dot"), z, literal(m, 128, 10)))]


def sorted_rows(m: mgx.Module) -> list[mgx.Instruction]:
    """An op with two results, one without a kernel, scratch memory, and a result that is also an operand."""
    x = m.add_parameter("x", mgx.Shape("float32", [6, 300]))
    y = m.add(mgx.op("tanh"), x)
    top = m.add(mgx.op("topk", k=3, axis=1), y)
    values, places = (m.add(mgx.op("get_tuple_elem", index=n), top) for n in (0, 1))
    inverse = m.add(mgx.op("slice", axes=[1], starts=[0], ends=[6]), y)
    for _ in range(3):
        inverse = m.add(mgx.op("inverse"), inverse)
    return [y, values, places, m.add(mgx.op("dot"), inverse, values)]


def perceptron(m: mgx.Module) -> list[mgx.Instruction]:
    x = m.add_parameter("x", mgx.Shape("float32", [5, 32]))
    for _ in range(4):
        y = m.add(mgx.op("dot"), x, literal(m, 32, 32))
        x = m.add(mgx.op("add"), m.add(mgx.op("gelu_erf"), y), x)
    return [m.add(mgx.op("reduce_mean", axes=[1]), x)]


Build = Callable[[mgx.Module], list[mgx.Instruction]]
GRAPHS: list[Build] = [convolutions, sorted_rows, perceptron]


def program_of(
    build: Build, target: GpuTarget | None = None, **options: Any
) -> tuple[mgx.Program, dict[str, Any], list[Any]]:
    program = mgx.Program()
    m = program.get_main_module()
    global rng
    rng = np.random.default_rng(2)
    m.add_return(build(m))
    given = {n: mgx.generate_argument(i.shape, seed=k).to_numpy() for k, (n, i) in enumerate(m.parameters.items())}
    wanted = list(Interpreter().run(m, list(given.values())))
    program.compile(target or GpuTarget("host", 1), **options)
    return program, given, wanted


def allocated(runner: Any) -> int:
    """Returns the bytes of device memory that a runner holds for intermediate values."""
    return int(runner.arena.size)


@pytest.mark.parametrize("build", GRAPHS)
def test_the_peak_is_what_is_allocated(build: Build) -> None:
    program, given, wanted = program_of(build)
    (instance,) = program.executable.instances()
    plan, runner = instance.plan, instance.runner
    assert plan is runner.schedule and allocated(runner) == max(plan.peak, ALIGNMENT)
    assert plan.peak >= plan.lower_bound > 0
    ends = [b.offset + b.bytes for b in plan.buffers]
    assert max(ends) == plan.peak and all(b.offset % DEVICE_ALIGNMENT == 0 for b in plan.buffers)
    for got, value in zip(program.run(given), wanted, strict=True):
        np.testing.assert_allclose(got.to_numpy(), value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("build", GRAPHS)
def test_without_reuse_every_value_has_memory_of_its_own(build: Build) -> None:
    shared, given, wanted = program_of(build)
    program, _, _ = program_of(build, memory_reuse=False)
    plan, less = program.executable.instances()[0].plan, shared.executable.instances()[0].plan
    assert plan.peak == sum(b.bytes for b in plan.buffers) == allocated(program.executable.instances()[0].runner)
    assert plan.peak > less.peak
    for got, value in zip(program.run(given), wanted, strict=True):
        np.testing.assert_allclose(got.to_numpy(), value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", [GuardedTarget, BackwardsTarget])
@pytest.mark.parametrize("build", GRAPHS)
def test_steps_access_the_memory_in_the_schedule(build: Build, target: type[GuardedTarget]) -> None:
    program, given, wanted = program_of(build, target())
    for got, value in zip(program.run(given), wanted, strict=True):
        np.testing.assert_allclose(got.to_numpy(), value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("build", GRAPHS)
def test_the_placement_names_what_is_called(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    program, given, _ = program_of(build)
    (instance,) = program.executable.instances()
    called: list[tuple[str, str]] = []
    kernels, on_host = bound_steps._kernel_calls, graph_cache.GraphCache._on_host

    def bound(step: Any, *args: Any) -> Any:
        called.append((step.kernel, "target"))
        return kernels(step, *args)

    def hosted(self: Any, step: Any, *args: Any) -> None:
        called.append((step.kernel, "host"))
        on_host(self, step, *args)

    monkeypatch.setattr(bound_steps, "_kernel_calls", bound)
    monkeypatch.setattr(graph_cache.GraphCache, "_on_host", hosted)
    program.run(given)
    steps = instance.plan.steps
    assert Counter(called) == Counter((s.kernel, "host" if isinstance(s, HostStep) else "target") for s in steps)
    views = {"view", "item"}  # launch nothing
    placed = Counter((p.kernel, p.place) for p in instance.placements if p.kernel.partition(" ")[0] not in views)
    assert placed == Counter((c.kernel, "host" if c.host else "target") for c in instance.plan.calls())
    assert {kernel for kernel, _ in called} == {kernel for kernel, _ in placed}


@pytest.mark.parametrize(
    "path", sorted(Path(os.environ.get("MGX_TEST_MODELS", "/nowhere")).glob("*.onnx")), ids=lambda p: p.stem
)
@pytest.mark.slow
def test_public_models_allocate_what_is_planned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$MGX_TEST_MODELS contains NAME.onnx and NAME.in.npz; nothing is compiled."""

    def nothing(self: Any, kept: Any) -> None:
        self.step_sources, self.codes, self.functions = [], [], {}

    monkeypatch.setattr(running.GpuRunner, "_load", nothing)
    monkeypatch.setattr("mgx_gpu_hip.offline.build", lambda *args, **options: [])
    peaks = []
    for reuse in (True, False):
        program = mgx.parse_onnx(path)
        program.compile(GpuTarget("host", 1), memory_reuse=reuse)
        executable: Any = program.executable
        if not executable.instances():
            executable.instance(executable.bind(dict(np.load(path.with_suffix(".in.npz")))))
        instance = executable.instances()[-1]
        plan = instance.plan
        assert allocated(instance.runner) == max(plan.peak, ALIGNMENT)
        peaks.append(plan.peak)
        called = Counter((c.kernel, "host" if c.host else "target") for c in plan.calls())
        placed = Counter((p.kernel, p.place) for p in instance.placements)
        assert called <= placed
    assert peaks[0] < peaks[1]


def test_the_graph_used_longest_ago_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[int, int]] = []

    def capture(self: Any, inputs: dict[int, int], outputs: dict[int, int], after: Any) -> Any:
        made.append(inputs)
        return graph_cache.CapturedGraph(None, [], [])

    monkeypatch.setattr(graph_cache.GraphCache, "_capture", capture)
    program, given, _ = program_of(convolutions)
    program.run(given)
    graphs = program.executable.instances()[0].runner.graphs
    made.clear()
    addresses = [{0: n} for n in range(1, graph_cache.GRAPHS + 2)]
    for inputs in (*addresses[:-1], addresses[0], addresses[-1], addresses[0]):
        graphs.execute(inputs, {}, None)
    assert made == addresses
    graphs.execute(addresses[1], {}, None)
    assert made == [*addresses, addresses[1]]


@pytest.mark.parametrize("first", [False, True])
def test_results_have_the_memory_order_of_an_image_not_of_its_gate(first: bool) -> None:
    """A gate of one value per channel has no order of pixels: its results were copied to channels last, 16 in efficientnet_b0."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float16", [2, 8, 8, 16]))
    x = m.add(mgx.op("transpose", permutation=[0, 3, 1, 2]), x)
    gate = m.add_parameter("g", mgx.Shape("float16", [2, 16, 1, 1]))
    spread = m.add(mgx.op("multibroadcast", out_lens=[2, 16, 8, 8]), gate)
    y = m.add(mgx.op("mul"), *((spread, x) if first else (x, spread)))
    m.add_return([m.add(mgx.op("convolution"), y, m.add_literal(np.ones((8, 16, 1, 1), np.float16)))])
    program.compile(GpuTarget("host", 1), offload_copy=False)
    steps = program.executable.instances()[0].runner.schedule.steps
    product = next(s for s in steps if s.name.startswith("pointwise_mul"))
    assert product.outputs[0].strides == [1024, 1, 128, 16]


@pytest.mark.parametrize("turned", [False, True])
def test_pointwise_results_of_the_program_are_written_in_row_major_order(turned: bool) -> None:
    """Images were computed with their channels innermost, and copied to the caller's order."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float16", [2, 8, 8, 16]))
    image = m.add(mgx.op("transpose", permutation=[0, 3, 1, 2]), x)
    y = m.add(mgx.op("convert", target_type="float"), image)
    m.add_return([m.add(mgx.op("transpose", permutation=[0, 3, 2, 1]), y) if turned else y])
    program.compile(GpuTarget("host", 1))
    given = np.random.default_rng(0).standard_normal((2, 8, 8, 16)).astype(np.float16)
    (got,) = program.run({"x": given})
    right = given.transpose(0, 3, 1, 2).astype(np.float32)
    np.testing.assert_array_equal(got.to_numpy(), right.transpose(0, 3, 2, 1) if turned else right)
    (step,) = program.executable.instances()[0].runner.schedule.steps
    assert step.name.startswith("pointwise_convert")
