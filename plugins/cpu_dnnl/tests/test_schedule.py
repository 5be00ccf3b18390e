"""The plan is what runs: bytes, steps and placements of schedules equal those of the native programs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.run.instance import Instance
from mgx_core.targets.kernel import Launch
from mgx_core.targets.schedule import Schedule
from mgx_cpu_dnnl.runner import CpuRunner
from mgx_cpu_dnnl.target import CpuTarget

MODELS = Path(os.environ.get("MGX_MODELS", ""))  # a folder with models and their inputs (NAME.onnx, NAME.in.npz)
rng = np.random.default_rng(5)


def convolutions(m: mgx.Module) -> list[mgx.Instruction]:
    x = m.add_parameter("x", mgx.Shape("float32", [1, 8, 12, 12]))
    window = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}
    a = x
    for _ in range(4):
        w = m.add_literal(rng.standard_normal((8, 8, 3, 3)).astype(np.float32))
        a = m.add(mgx.op("relu"), m.add(mgx.op("convolution", **window), a, w))
    pooled = m.add(mgx.op("reduce_mean", axes=[2, 3]), m.add(mgx.op("concat", axis=1), x, a))
    return [m.add(mgx.op("softmax", axis=1), pooled)]


def attention(m: mgx.Module) -> list[mgx.Instruction]:
    x = m.add_parameter("x", mgx.Shape("float32", [2, 16, 32]))
    for _ in range(3):
        q, k, v = (m.add(mgx.op("dot"), x, weights(m, 2, 32, 32)) for _ in range(3))
        scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=[0, 2, 1]), k))
        x = m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=2), scores), v)
    return [x, m.add(mgx.op("transpose", permutation=[0, 2, 1]), x)]


def declined(m: mgx.Module) -> list[mgx.Instruction]:
    """A program with an op in the middle that no plan accepts."""
    x = m.add_parameter("x", mgx.Shape("float32", [6, 6]))
    y = m.add(mgx.op("matrix_exp"), m.add(mgx.op("tanh"), x))
    return [m.add(mgx.op("mul"), x, y)]


def counted(m: mgx.Module) -> list[mgx.Instruction]:
    """A program with data-dependent extents, and ops after them."""
    x = m.add_parameter("x", mgx.Shape("float32", [5, 7]))
    places = m.add(mgx.op("nonzero"), m.add(mgx.op("relu"), m.add(mgx.op("sin"), x)))
    return [m.add(mgx.op("add"), places, places)]


GRAPHS = {f.__name__: f for f in (convolutions, attention, declined, counted)}


def weights(m: mgx.Module, *lens: int) -> mgx.Instruction:
    return m.add_literal((rng.standard_normal(lens) / np.sqrt(lens[-1])).astype(np.float32))


def compiled(build: Callable[[mgx.Module], list[mgx.Instruction]], **options: Any) -> tuple[mgx.Program, Instance]:
    global rng
    rng = np.random.default_rng(5)
    program = mgx.Program()
    main = program.get_main_module()
    main.add_return(build(main))
    program.compile(CpuTarget(), **options)
    assert program.executable is not None
    return program, program.executable.instances()[0]


def check(instance: Instance) -> Schedule:
    """Checks that the plan agrees with the native program."""
    plan, runner = instance.plan, instance.runner
    assert isinstance(plan, Schedule)
    assert isinstance(runner, CpuRunner)
    assert runner.program is not None
    native = runner.program.program
    # every run allocates an arena of the plan's peak size, and the buffers are inside it
    assert native.arena_bytes == plan.peak
    assert max((b.offset + b.bytes for b in plan.buffers), default=0) == plan.peak
    assert plan.lower_bound <= plan.peak
    # the steps are those that run, in order, and host steps are marked as such
    assert native.step_names == [s.name for s in plan.steps]
    assert [kind == "host" for kind in native.step_kinds] == [bool(s.host) for s in plan.steps]
    # each launch's placement is that of its steps, with the name of their kernel
    placed = Counter((p.sources, p.op, p.kernel, p.place) for p in instance.placements)
    launches = {i: i.op for i in instance.module if isinstance(i.op, Launch)}
    assert all(s.instruction in launches for s in plan.steps)
    for ins, op in launches.items():
        calls = {
            (s.sources, repr(s.call.op), s.kernel, "host" if s.host else "target")
            for s in plan.steps
            if s.instruction is ins and s.call
        }
        if not calls:  # a view, or decided at run time
            assert (ins.sources, op.text, op.kernel.name) in {key[:3] for key in placed} or ins in plan.split.rest
        assert all(placed[call] for call in calls), (ins, calls, placed)
    hosted = [s for s in plan.steps if s.host]
    assert len(hosted) <= sum(p.place == "host" for p in instance.placements)
    return plan


@pytest.mark.parametrize("name", GRAPHS)
def test_planned_steps_run(name: str) -> None:
    _, instance = compiled(GRAPHS[name])
    check(instance)


@pytest.mark.parametrize("name", ["convolutions", "attention"])
def test_memory_reuse_changes_what_is_allocated(name: str) -> None:
    """Without it every value has its own memory: no two buffers overlap, and no step overwrites its operands."""
    program, instance = compiled(GRAPHS[name])
    other, separate = compiled(GRAPHS[name], memory_reuse=False)
    shared, apart = check(instance), check(separate)
    assert apart.peak == sum(b.bytes for b in apart.buffers) > shared.peak
    assert not any(set(s.reads) & set(s.writes) for s in apart.steps)
    assert separate.runner.program.program.arena_bytes > instance.runner.program.program.arena_bytes  # type: ignore[attr-defined]
    (shape,) = program.get_main_module().parameters.values()
    given = {"x": np.random.default_rng(1).standard_normal(shape.shape.lens()).astype(np.float32)}
    for a, b in zip(program.run(given), other.run(given), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("read_later", [False, True])
def test_a_loop_overwrites_operands_without_other_readers(read_later: bool) -> None:
    a, b, c = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(3))

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x, y, z = (m.add_parameter(name, mgx.Shape("float32", [40, 40])) for name in "xyz")
        product = m.add(mgx.op("dot"), x, y)
        mean = m.add(mgx.op("reduce_mean", axes=[1]), product)
        centered = m.add(mgx.op("sub"), product, m.add(mgx.op("multibroadcast", out_lens=[40, 40]), mean))
        return [m.add(mgx.op("dot"), centered, z), *([m.add(mgx.op("dot"), z, product)] if read_later else [])]

    program, instance = compiled(build)
    loops = [s for s in check(instance).steps if s.name.startswith("reduce")]
    assert len(loops) == 1 and (loops[0].reads[0] is loops[0].writes[0]) is not read_later
    results = [np.asarray(r) for r in program.run({"x": a, "y": b, "z": c})]
    product = a.astype(np.float64) @ b
    wanted = [(product - product.mean(1, keepdims=True)) @ c, c @ product]
    for got, exact in zip(results, wanted, strict=False):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["transposed", "both", "first row", "product"])
@pytest.mark.parametrize("n", [3, 40])
def test_operands_read_at_other_positions_are_not_overwritten(kind: str, n: int) -> None:
    """A pointwise op on a matrix and on a view of it."""
    a, b, c = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(3))

    def build(m: mgx.Module) -> list[mgx.Instruction]:
        x, y, z = (m.add_parameter(name, mgx.Shape("float32", [n, n])) for name in "xyz")
        product = m.add(mgx.op("dot"), x, y)
        if kind == "first row":
            row = m.add(mgx.op("slice", axes=[0], starts=[0], ends=[1]), product)
            seen = m.add(mgx.op("multibroadcast", out_lens=[n, n]), row)
        else:
            seen = m.add(mgx.op("transpose", permutation=[1, 0]), product)
        other = m.add(mgx.op("dot"), z, m.add_literal(c)) if kind == "product" else product
        made = m.add(mgx.op("tanh"), m.add(mgx.op("add"), other, seen) if kind != "transposed" else seen)
        return [m.add(mgx.op("dot"), m.add(mgx.op("add"), made, made), z)]

    program, instance = compiled(build)
    check(instance)
    (got,) = program.run({"x": a, "y": b, "z": b})
    product = a.astype(np.float64) @ b
    seen = product[:1] if kind == "first row" else product.T
    other = b.astype(np.float64) @ c if kind == "product" else product
    wanted = 2 * np.tanh(seen + (other if kind != "transposed" else 0)) @ b
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-4 * n)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("kind", ["plain", "transposed", "first row"])
def test_a_ready_group_does_not_overwrite_operands_read_through_views(kind: str, n: int) -> None:
    """z c - x y, with the second product read through a view after other ops: in a group that no pass has split."""
    a, b, c = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(3))
    program, shape = mgx.Program(), mgx.Shape("float32", [n, n])
    main, tail, group = program.get_main_module(), program.create_module("tail"), program.create_module("group")
    summed, seen = (tail.add_parameter(name, shape) for name in ("summed", "seen"))
    seen = tail.add(mgx.op("neg"), seen)
    if kind == "transposed":
        seen = tail.add(mgx.op("transpose", permutation=[1, 0]), seen)
    elif kind == "first row":
        row = tail.add(mgx.op("slice", axes=[0], starts=[0], ends=[1]), seen)
        seen = tail.add(mgx.op("multibroadcast", out_lens=[n, n]), row)
    tail.add_return([tail.add(mgx.op("add"), summed, seen)])
    rows, weight, other = (group.add_parameter(name, shape) for name in ("rows", "weight", "other"))
    product = group.add(mgx.op("dot"), rows, weight)
    group.add_return([group.add(PointwiseGroup(), product, other, modules=[tail])])
    x, y = main.add_parameter("x", shape), main.add_parameter("y", shape)
    first = main.add(mgx.op("dot"), x, y)
    made = main.add(Group(tag="dot"), y, main.add_literal(c), first, modules=[group])
    main.add_return([main.add(mgx.op("dot"), made, y)])
    program.compile(CpuTarget(), optimize=False)
    assert program.executable is not None
    (step,) = (s for s in check(program.executable.instances()[0]).steps if s.name == "gemm")
    assert any(r is w for r in step.reads for w in step.writes) is (kind == "plain")
    (got,) = program.run({"x": a, "y": b})
    first_product = a.astype(np.float64) @ b
    read = {"plain": first_product, "transposed": first_product.T, "first row": first_product[:1]}[kind]
    np.testing.assert_allclose(np.asarray(got), (b.astype(np.float64) @ c - read) @ b, rtol=1e-4, atol=1e-4 * n)


@pytest.mark.parametrize(("asked", "says"), [(True, "as use_nhwc requires"), (False, "always on this target")])
def test_the_report_says_that_convolutions_are_channels_last(asked: bool, says: str) -> None:
    program, instance = compiled(convolutions, use_nhwc=asked)
    assert f"<b>channels last</b><i>{says}</i>" in program.report()
    check(instance)


def test_declined_ops_are_placed_on_the_host_with_the_reasons() -> None:
    _, instance = compiled(declined)
    (placement,) = [p for p in instance.placements if p.place == "host"]
    assert placement.op.startswith("matrix_exp")
    assert placement.kernel == "reference matrix_exp"
    assert placement.refused


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")) if MODELS.name else [], ids=lambda p: p.stem)
@pytest.mark.slow
def test_models(path: Path) -> None:
    pytest.importorskip("mgx_onnx")
    program = mgx.parse_onnx(path)
    program.compile(CpuTarget())
    executable = program.executable
    assert executable is not None
    values = executable.bind(dict(np.load(path.with_suffix(".in.npz"))))
    plan = check(executable.instance(values))
    separate = mgx.parse_onnx(path)
    separate.compile(CpuTarget(), memory_reuse=False)
    assert separate.executable is not None
    apart = check(separate.executable.instance(values))
    assert apart.peak == sum(b.bytes for b in apart.buffers) > plan.peak


def test_parts_that_are_results_are_copied_while_their_source_is_new() -> None:
    """Otherwise all sources would be alive until the end."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [64, 64]))
    parts = []
    for _ in range(8):
        w = m.add_literal(rng.standard_normal((64, 64)).astype(np.float32))
        x = m.add(mgx.op("dot"), x, w)
        parts.append(m.add(mgx.op("slice", axes=[0, 1], starts=[0, 0], ends=[4, 4]), x))
    m.add_return(parts)
    right = program.clone()
    program.compile(CpuTarget())
    right.compile(mgx.get_target("ref"))
    assert program.executable is not None
    runner = program.executable.instances()[-1].runner
    assert isinstance(runner, CpuRunner)
    assert runner.schedule.peak <= 3 * 64 * 64 * 4
    feed = {"x": rng.standard_normal((64, 64)).astype(np.float32)}
    for got, wanted in zip(program.run(feed), right.run(feed), strict=True):
        np.testing.assert_allclose(got.to_numpy(), wanted.to_numpy(), rtol=1e-3, atol=1e-2 * np.abs(wanted).max())


def test_parts_of_parameters_are_copied_once() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [4, 6]))
    parts = [m.add(mgx.op("slice", axes=[1], starts=[k], ends=[k + 2]), x) for k in (1, 3)]
    m.add_return([m.add(mgx.op("exp"), x), *parts])
    program.compile(CpuTarget())
    assert program.executable is not None
    runner = program.executable.instances()[-1].runner
    assert isinstance(runner, CpuRunner)
    assert sum(s.name.startswith("copy") for s in runner.schedule.steps) == 2
    given = rng.standard_normal((4, 6)).astype(np.float32)
    for got, k in zip(program.run({"x": given})[1:], (1, 3), strict=True):
        np.testing.assert_array_equal(got.to_numpy(), given[:, k : k + 2])
