"""The option exhaustive_tune: kernels are timed on the (emulated) device, and the fastest is used, also after loading."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Kernels, No
from mgx_core.ops.control import PointwiseGroup
from mgx_gpu_hip import kernel_tuning
from mgx_gpu_hip.context import GpuContext
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.plans import PLANS
from mgx_gpu_hip.plans.loops import write_pointwise
from mgx_gpu_hip.plans.narrow_products import TILE_RANKS
from mgx_gpu_hip.plans.offer import emit_generated, offer
from mgx_gpu_hip.runtime import open_device
from mgx_gpu_hip.target import GpuTarget
from mgx_gpu_hip.tuning import Tuner

GIVEN = np.linspace(-3, 3, 1 << 14, dtype=np.float32)
SLOW = Kernels("gpu")


@offer(SLOW, PointwiseGroup, name="slow")
def emit_slow(e: GpuEmitter, op: Any, modules: Sequence[Any], args: Sequence[Any]) -> Any:
    """Emits the same steps forty times."""
    for _ in range(39):
        emit_generated(e, write_pointwise, op, modules, args)
    return emit_generated(e, write_pointwise, op, modules, args)


class Planted(GpuTarget):
    def kernels(self, context: Any) -> Kernels:
        return SLOW + PLANS


@pytest.fixture
def folder(tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tuning results for this test only; compiled code is shared by the session."""
    for name in ("kernels", "emulator"):
        if (cache_folder / name).exists():
            (tmp_path / name).symlink_to(cache_folder / name)
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    return tmp_path / "tuning"


def compiled(target: GpuTarget, **options: Any) -> tuple[mgx.Program, Any]:
    """Returns a program, after comparing it with the reference, and its schedule."""
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("tanh"), m.add_parameter("x", mgx.Shape("float32", GIVEN.shape)))])
    program.compile(target, **options)
    np.testing.assert_allclose(program.run({"x": GIVEN})[0].to_numpy(), np.tanh(GIVEN), rtol=1e-5, atol=1e-6)
    assert program.executable is not None
    return program, program.executable.instances()[0].runner.schedule


def test_the_first_plan_runs_where_nothing_is_timed(folder: Path) -> None:
    _, schedule = compiled(Planted("host", 1))
    assert len(schedule.steps) == 40
    assert not folder.exists()


def test_the_fastest_kernel_runs_and_is_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, schedule = compiled(Planted("host", 1), exhaustive_tune=True)
    assert [s.kernel for s in schedule.steps] == ["generated pointwise"]
    (problem,) = schedule.choices
    assert schedule.choices == {problem: "generated pointwise"}
    assert "16384" in problem

    def timed(*_: Any) -> float:
        raise AssertionError("this problem was timed before")

    monkeypatch.setattr(kernel_tuning.GpuTuning, "seconds", timed)
    _, again = compiled(Planted("host", 1), exhaustive_tune=True)
    assert again.choices == schedule.choices


def test_the_choice_decides_and_not_the_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        kernel_tuning.GpuTuning, "seconds", lambda self, trial, schedule, arrays: 1 / len(schedule.steps)
    )
    _, schedule = compiled(Planted("host", 1), exhaustive_tune=True)
    assert {s.kernel for s in schedule.steps} == {"slow pointwise"}


def test_program_files_carry_the_choices(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, schedule = compiled(Planted("host", 1), exhaustive_tune=True)
    program.save(tmp_path / "tuned.mxr")
    for file in folder.iterdir():
        file.unlink()
    learned: list[Any] = []
    monkeypatch.setattr(kernel_tuning.GpuTuning, "learn", lambda self, choices: learned.append(choices))
    monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
    loaded = mgx.load(tmp_path / "tuned.mxr")
    np.testing.assert_allclose(loaded.run({"x": GIVEN})[0].to_numpy(), np.tanh(GIVEN), rtol=1e-5, atol=1e-6)
    assert learned == [schedule.choices]


def test_kernels_that_cannot_run_are_not_chosen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> float:
        raise mgx.DeviceError("no memory")

    monkeypatch.setattr(kernel_tuning.GpuTuning, "seconds", refused)
    _, schedule = compiled(Planted("host", 1), exhaustive_tune=True)
    assert {s.kernel for s in schedule.steps} == {"slow pointwise"}  # none could be timed: the order of plans decides


def test_groups_and_layouts_are_timed_in_place(folder: Path) -> None:
    """A model with groups, views and constants: with any choice, results equal the reference."""
    program = mgx.Program()
    m = program.get_main_module()
    w = np.linspace(-1, 1, 24 * 16, dtype=np.float32).reshape(24, 16)
    x = m.add_parameter("x", mgx.Shape("float32", [5, 24]))
    y = m.add(mgx.op("relu"), m.add(mgx.op("dot"), x, m.add_literal(w)))
    m.add_return([m.add(mgx.op("softmax", axis=1), m.add(mgx.op("transpose", permutation=[1, 0]), y))])
    program.compile(GpuTarget("host", 1), exhaustive_tune=True)
    given = np.linspace(-1, 1, 120, dtype=np.float32).reshape(5, 24)
    y = np.maximum(given @ w, 0).T
    wanted = np.exp(y - y.max(1, keepdims=True))
    np.testing.assert_allclose(
        program.run({"x": given})[0].to_numpy(), wanted / wanted.sum(1, keepdims=True), rtol=1e-4
    )


def bytes_and_floats(**options: Any) -> Any:
    """Returns the schedule of a product of bytes and of one of floats."""
    program = mgx.Program()
    m = program.get_main_module()
    a = m.add_parameter("a", mgx.Shape("int8", [40, 64]))
    x = m.add_parameter("x", mgx.Shape("float32", [40, 64]))
    weights = m.add_literal(np.ones((64, 48), np.int8)), m.add_literal(np.ones((64, 48), np.float32))
    m.add_return([m.add(mgx.op("quant_dot"), a, weights[0]), m.add(mgx.op("dot"), x, weights[1])])
    target = GpuTarget("host", 1)
    program.compile(target, **options)
    given = {"a": np.ones((40, 64), np.int8), "x": np.ones((40, 64), np.float32)}
    np.testing.assert_array_equal(program.run(given)[0].to_numpy(), np.full((40, 48), 64))
    assert program.executable is not None
    return program.executable.instances()[0].runner.schedule


def test_products_of_bytes_try_several_tiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[str] = []

    def seconds(self: Any, trial: Any, schedule: Any, arrays: Any) -> float:
        times.extend(s.name for s in schedule.steps)
        return 1 / len(times)

    monkeypatch.setattr(kernel_tuning.GpuTuning, "seconds", seconds)
    schedule = bytes_and_floats(exhaustive_tune=True)
    assert len({name for name in times if name.startswith("narrow_product")}) == TILE_RANKS
    assert f"matrix units, tile {TILE_RANKS} quant_dot" in {s.kernel for s in schedule.steps}


def test_products_of_bytes_are_timed_where_library_plans_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cost model compares cuDNN's product of bytes with our tiles; the kernels of other ops keep their order."""
    timed: list[str] = []

    def choice(self: Any, e: Any, kernels: Any, op: Any, modules: Any, args: Any) -> None:
        timed.append(op.name)

    monkeypatch.setattr(kernel_tuning.GpuTuning, "choice", choice)
    bytes_and_floats()
    assert timed == []  # the emulated device times nothing
    monkeypatch.setattr(GpuContext, "tuner", Untimed(16))
    bytes_and_floats()
    assert timed == ["quant_dot"]
    timed.clear()
    monkeypatch.setattr(GpuContext, "tuner", Untimed(0))
    bytes_and_floats()
    assert timed == []  # the program's shapes keep changing


class Refusing:
    """Libraries without plans."""

    def another(self) -> Refusing:
        return self

    def versions(self, problem: Any) -> str:
        return "1"

    def plan(self, problem: Any, choice: Any = None) -> No:
        return No("no plan")

    def plans(self, problem: Any, count: int, compiled: bool = True, share: tuple[int, int] = (0, 1)) -> No:
        return No("no plan")


def quantized_layers() -> mgx.Program:
    """Returns two products of bytes of different extents, with an epilogue each."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("int8", [40, 64]))
    for columns in (48, 32):
        w = m.add_literal(np.ones((x.shape.dims[1], columns), np.int8))
        wide = m.add(mgx.op("convert", target_type="float32"), m.add(mgx.op("quant_dot"), x, w))
        x = m.add(mgx.op("quantizelinear", out_type="int8"), wide, m.add_literal(np.float32(32)))
    m.add_return([x])
    return program


def test_kernels_are_compiled_before_the_first_is_timed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling 150 candidates of resnet50 one after the other takes 30 seconds."""
    built: list[list[str]] = []
    timed: list[tuple[int, list[str]]] = []

    def build(sources: Any, *args: Any, **more: Any) -> list[Any]:
        built.append([s.text for s in sources])
        return []

    def seconds(self: Any, args: Any, *more: Any) -> float:
        timed.append((len(built), [s.source.text for s in self.schedule.steps]))
        return 1.0 / len(timed)

    tuner = Tuner(open_device("host", 1), Refusing(), folder)  # type: ignore[arg-type]
    monkeypatch.setattr(GpuContext, "tuner", tuner)
    monkeypatch.setattr(kernel_tuning, "build", build)
    monkeypatch.setattr(kernel_tuning.GpuRunner, "least_seconds", seconds)
    program = quantized_layers()
    program.compile(GpuTarget("host", 1))
    assert len(timed) == 2 * TILE_RANKS  # no members of the groups
    assert {before for before, _ in timed} == {1}  # in parallel with others
    assert {text for _, texts in timed for text in texts} <= set(built[0])
    x = np.ones((40, 64), np.int8)
    np.testing.assert_array_equal(program.run({"x": x})[0].to_numpy(), np.full((40, 32), 3))


def test_a_kernel_that_cannot_be_compiled_does_not_keep_others_from_being_timed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*args: Any, **more: Any) -> list[Any]:
        raise mgx.DeviceError("syntax error")

    monkeypatch.setattr(kernel_tuning, "build", build)
    monkeypatch.setattr(GpuContext, "tuner", Tuner(open_device("host", 1), Refusing(), folder))  # type: ignore[arg-type]
    program = quantized_layers()
    program.compile(GpuTarget("host", 1))
    assert program.executable is not None
    schedule = program.executable.instances()[0].runner.schedule
    assert len(schedule.choices) == 2


class Untimed:
    """The tuner of a device whose libraries offer nothing."""

    measures = True

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def prefetching(self, dry_run: Any) -> Any:
        return contextlib.nullcontext()

    def narrow(self, problem: Any, exhaustive: bool) -> No:
        return No("nothing")

    def done(self, open_extents: bool = False) -> None:
        pass

    def choices_made(self) -> dict[str, Any]:
        return {}
