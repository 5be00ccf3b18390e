"""The option exhaustive_tune: plans are timed once, the choice is stored and reused, and invalid cache entries do no harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.store.literals import LiteralWriter
from mgx_cpu_dnnl.context import CpuContext
from mgx_cpu_dnnl.target import CpuTarget
from mgx_cpu_dnnl.tuning import Tuning

rng = np.random.default_rng(2)
WEIGHTS = rng.standard_normal((64, 48)).astype(np.float32)
GIVEN = rng.standard_normal((8, 64)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    return tmp_path / "tuning"


@pytest.fixture
def context(folder: Path) -> CpuContext:
    return CpuTarget().get_context()


def compiled(context: CpuContext, relu: bool = False, rows: Any = 8) -> mgx.Program:
    program = mgx.Program()
    m = program.get_main_module()
    y = m.add(mgx.op("dot"), m.add_parameter("x", mgx.Shape("float32", [rows, 64])), m.add_literal(WEIGHTS))
    m.add_return([m.add(mgx.op("relu"), y) if relu else y])
    program.compile(context, exhaustive_tune=True)
    return program


def check(program: mgx.Program, relu: bool = False) -> dict[str, str]:
    """Returns the choices of a program's last instance, after checking its results."""
    wanted = GIVEN.astype(np.float64) @ WEIGHTS
    got = program.run({"x": GIVEN})[0].to_numpy()
    np.testing.assert_allclose(got, np.maximum(wanted, 0) if relu else wanted, rtol=1e-4, atol=1e-4)
    choices: dict[str, str] = program.executable.instances()[-1].runner.schedule.choices
    return choices


def test_a_choice_is_kept_and_reused(context: CpuContext, folder: Path) -> None:
    choices = check(compiled(context))
    assert len(choices) == 1
    assert all(name.endswith(" dot") for name in choices.values())
    assert context.tuning.timed == 1
    assert check(compiled(context)) == choices
    assert context.tuning.timed == 1
    later = Tuning(context.tuning.machine, folder)  # as another process finds it
    assert later.choices == choices


def test_the_choice_is_what_runs(context: CpuContext, folder: Path) -> None:
    (key,) = check(compiled(context))
    steps = {}
    for name in ("product dot", "loop dot"):
        context.tuning.choices[key] = name
        program = compiled(context)
        assert check(program) == {key: name}
        steps[name] = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert steps["loop dot"] == ["product"]
    assert steps["product dot"] != steps["loop dot"]


def test_a_group_may_run_as_its_members(context: CpuContext, folder: Path) -> None:
    choices = check(compiled(context, relu=True), relu=True)
    key = next(k for k in choices if k.startswith("group"))
    context.tuning.choices[key] = "apart"
    program = compiled(context, relu=True)
    assert check(program, relu=True)[key] == "apart"
    assert [s.name.split()[0] for s in program.executable.instances()[0].runner.schedule.steps][-1] == "loop"


def test_a_damaged_file_is_ignored_and_replaced(context: CpuContext, folder: Path) -> None:
    check(compiled(context))
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    later = Tuning(context.tuning.machine, folder)
    assert later.choices == {}
    later.keep("problem", "kernel")
    later.save()
    assert Tuning(context.tuning.machine, folder).choices == {"problem": "kernel"}
    assert Tuning("another machine", folder).choices == {}


def test_a_choice_without_a_plan_is_made_again(context: CpuContext, folder: Path) -> None:
    (key,) = check(compiled(context))
    context.tuning.choices[key] = "a kernel of another version"
    (name,) = check(compiled(context)).values()
    assert name != "a kernel of another version"
    assert context.tuning.timed == 2


def test_another_number_of_rows_is_another_problem(context: CpuContext, folder: Path) -> None:
    program = compiled(context, rows=mgx.dim.symbol("n", 1, 64))
    for n in (3, 8):
        program.run({"x": np.zeros((n, 64), np.float32)})
    assert context.tuning.timed == 2


def test_program_files_carry_the_choices(context: CpuContext, folder: Path, tmp_path: Path) -> None:
    program = compiled(context)
    choices = check(program)
    kept = program.executable.instances()[0].runner.saved(LiteralWriter())
    assert kept["tuning"] == choices
    program.save(tmp_path / "tuned.mxr")
    next(folder.iterdir()).unlink()
    context.tuning.choices.clear()
    loaded = mgx.load(tmp_path / "tuned.mxr")
    np.testing.assert_array_equal(loaded.run({"x": GIVEN})[0].to_numpy(), program.run({"x": GIVEN})[0].to_numpy())
    assert loaded.executable.context.tuning.choices == choices
    assert loaded.executable.context.tuning.timed == 0


def test_without_the_option_nothing_is_timed(context: CpuContext, folder: Path) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [8, 64]))
    m.add_return([m.add(mgx.op("dot"), x, m.add_literal(WEIGHTS))])
    program.compile(CpuTarget())
    check(program)
    assert not folder.exists()
