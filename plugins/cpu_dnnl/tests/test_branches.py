"""Branches within a native program: which steps run, which memory they share, and their representation in reports and files."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from run_programs import compare, runner_of

import mgx_core as mgx
from mgx_core import Instruction, Module, Program, Shape
from mgx_core.errors import ParameterError
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.native_library import native

rng = np.random.default_rng(3)
WIDTH = 6


def branch(main: Module, condition: Instruction, then: Module, other: Module, item: int = 0) -> Instruction:
    return main.add(mgx.op("get_tuple_elem", index=item), main.add(mgx.op("if"), condition, modules=[then, other]))


def two_layers() -> Program:
    """A product with different weights in each branch, of a value that both read and that is read again after the branch."""
    program = Program()
    main = program.get_main_module()
    c = main.add_parameter("c", Shape("bool", [1]))
    x = main.add(mgx.op("exp"), main.add_parameter("x", Shape("float32", [2, WIDTH])))
    sides = []
    for name in ("then", "other"):
        side = Module(name)
        weights = side.add_literal(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32))
        y = side.add(mgx.op("tanh"), side.add(mgx.op("dot"), x, weights))
        side.add_return([side.add(mgx.op("reduce_max", axes=[1]), y), x])
        sides.append(side)
    chosen = main.add(mgx.op("if"), c, modules=sides)
    items = [main.add(mgx.op("get_tuple_elem", index=n), chosen) for n in range(2)]
    main.add_return([*items, main.add(mgx.op("add"), x, items[1])])
    return program


def values(chosen: bool) -> dict[str, Any]:
    return {"c": np.array([chosen]), "x": rng.random((2, WIDTH), np.float32)}


def test_one_program_runs_the_side_that_the_condition_selects():
    program = two_layers()
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    for chosen in (True, False, False, True):
        compare(program, values(chosen), compiled)
    runner = runner_of(compiled)
    assert not runner.rest
    kinds = runner.program.program.step_kinds
    assert kinds.count("jump") == 3
    times = runner.program.time([np.array([False]), rng.random((2, WIDTH), np.float32)], 3, 1)
    first, second, _ = (n for n, kind in enumerate(kinds) if kind == "jump")
    assert not any(times[first + 1 : second]) and all(times[second + 1 : second + 3])


def test_every_launch_of_both_sides_has_a_placement():
    program = two_layers()
    program.compile(mgx.get_target("cpu"))
    placed = [p for p in runner_of(program).schedule.placements if "dot" in p.op]
    assert [p.place for p in placed] == ["target", "target"]


def test_a_file_keeps_both_sides(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))
    program = two_layers()
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    compiled.run(values(True))
    mgx.save(compiled, tmp_path / "kept.mxr")
    again = mgx.load(tmp_path / "kept.mxr")
    for chosen in (True, False):
        compare(program, values(chosen), again)
    assert type(again.executable.instances()[-1].runner).__name__ == "RestoredRunner"
    kept = runner_of(compiled).owners
    given = [np.array([True]), rng.random((2, WIDTH), np.float32)]
    timed = again.executable.instances()[-1].runner.time(given, 2, 1)
    assert len(timed) == len({i for i in kept if i is not None})


def test_branches_of_other_extents_stay_separate():
    program = Program()
    main = program.get_main_module()
    c = main.add_parameter("c", Shape("bool", []))
    x = main.add_parameter("x", Shape("float32", [4]))
    then, other = Module("then"), Module("other")
    then.add_return([then.add(mgx.op("slice", axes=[0], starts=[0], ends=[2]), x)])
    other.add_return([other.add(mgx.op("exp"), x)])
    main.add_return([branch(main, c, then, other)])
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    for chosen in (True, False):
        compare(program, {"c": np.bool_(chosen), "x": rng.random(4, np.float32)}, compiled)
    assert runner_of(compiled).rest


def test_an_index_out_of_bounds_is_reported_by_the_side_that_runs_alone():
    program = Program()
    main = program.get_main_module()
    c = main.add_parameter("c", Shape("bool", []))
    x = main.add_parameter("x", Shape("float32", [4]))
    at = main.add_parameter("at", Shape("int64", [2]))
    then, other = Module("then"), Module("other")
    then.add_return([then.add(mgx.op("gather", axis=0), x, at)])
    other.add_return([other.add(mgx.op("slice", axes=[0], starts=[0], ends=[2]), x)])
    main.add_return([branch(main, c, then, other)])
    program.compile(mgx.get_target("cpu"))
    given = {"x": rng.random(4, np.float32), "at": np.array([1, 9])}
    np.testing.assert_array_equal(np.asarray(program.run({**given, "c": np.bool_(False)})[0]), given["x"][:2])
    with pytest.raises(mgx.ShapeError, match="out of bounds"):
        program.run({**given, "c": np.bool_(True)})


class Drawn:
    """A random program: pointwise ops, products and views, and nested branches that read outer values."""

    def __init__(self, seed: int, batch: Any = 3) -> None:
        self.draw = random.Random(seed)
        self.program = Program()
        main = self.program.get_main_module()
        self.batch = batch
        self.conditions = [main.add_parameter(f"c{n}", Shape("bool", [])) for n in range(4)]
        self.shape = Shape("float32", [batch, WIDTH])
        first = [main.add_parameter(f"x{n}", self.shape) for n in range(2)]
        made = self.ops(main, first, 3)
        main.add_return(self.draw.sample(made, min(len(made), 3)))

    def ops(self, m: Module, around: list[Instruction], depth: int) -> list[Instruction]:
        made: list[Instruction] = []
        for _ in range(self.draw.randint(2, 5)):
            made += self.step(m, around + made, depth)
        return made

    def step(self, m: Module, there: list[Instruction], depth: int) -> list[Instruction]:
        kind = self.draw.randrange(6 if depth else 4)
        x = self.draw.choice(there)
        if kind == 0:
            return [m.add(mgx.op(self.draw.choice(["tanh", "neg", "sin", "relu"])), x)]
        if kind == 1:
            return [m.add(mgx.op(self.draw.choice(["add", "mul", "max"])), x, self.draw.choice(there))]
        if kind == 2:
            weights = m.add_literal((rng.standard_normal((WIDTH, WIDTH)) * 0.4).astype(np.float32))
            return [m.add(mgx.op("dot"), x, weights)]
        if kind == 3:
            parts = [(0, 2), (2, WIDTH)]
            sliced = [m.add(mgx.op("slice", axes=[1], starts=[a], ends=[b]), x) for a, b in reversed(parts)]
            return [m.add(mgx.op("concat", axis=1), *sliced)]
        sides = []
        for name in ("then", "other"):
            side = Module(f"{name}{self.draw.random()}")
            own = self.ops(side, there, depth - 1)
            side.add_return([self.draw.choice(own), self.draw.choice([*own, *there])])
            sides.append(side)
        chosen = m.add(mgx.op("if"), self.draw.choice(self.conditions), modules=sides)
        return [m.add(mgx.op("get_tuple_elem", index=n), chosen) for n in range(2)]


@pytest.mark.parametrize("seed", range(6))
def test_random_branches_in_each_other(seed):
    drawn = Drawn(seed)
    compiled = drawn.program.clone()
    compiled.compile(mgx.get_target("cpu"), validate=True)
    for n in range(16):
        given: dict[str, Any] = {f"c{b}": np.bool_(n >> b & 1) for b in range(4)}
        given |= {f"x{k}": rng.standard_normal((3, WIDTH)).astype(np.float32) for k in range(2)}
        compare(drawn.program, given, compiled)
    assert not runner_of(compiled).rest


def test_open_extents_are_planned_once_they_are_known():
    drawn = Drawn(8, symbol("batch", 1, 8))
    compiled = drawn.program.clone()
    compiled.compile(mgx.get_target("cpu"))
    for batch in (2, 5):
        given: dict[str, Any] = {f"c{b}": np.bool_(b % 2) for b in range(4)}
        given |= {f"x{k}": rng.standard_normal((batch, WIDTH)).astype(np.float32) for k in range(2)}
        compare(drawn.program, given, compiled)
        assert not runner_of(compiled).rest


def building(program: Any, condition: int, calls: list[str]) -> None:
    for call in calls:
        getattr(program, call)("x", *([(condition, 0)] if call == "begin_branch" else []))
    program.finish()


def test_native_branches_must_have_two_sides_and_an_end():
    for calls, wrong in (
        (["begin_branch"], "not ended"),
        (["begin_branch", "end_branch"], "both sides"),
        (["begin_other"], "no branch has begun"),
        (["begin_branch", "begin_other", "begin_other"], "no branch has begun"),
    ):
        program = native().NativeProgram("main", 64)
        condition = program.input(np.dtype(np.bool_), [])
        with pytest.raises(ParameterError, match=wrong):
            building(program, condition, calls)
