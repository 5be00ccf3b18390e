"""Loops within a native program: trips, states, rows, outer values read by the body, and their representation in reports and
files.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from run_programs import compare, runner_of

import mgx_core as mgx
from mgx_core import Instruction, Module, Program, Shape
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.open_program import open_program

rng = np.random.default_rng(5)
WIDTH = 6


def body_of(shapes: list[Shape]) -> tuple[Module, list[Instruction]]:
    body = Module("body")
    scalars = [("i", Shape("int64", [])), ("going", Shape("bool", []))]
    names = [*scalars, *((f"s{n}", s) for n, s in enumerate(shapes))]
    return body, [body.add_parameter(name, shape) for name, shape in names]


def looped(main: Module, operands: list[Instruction], body: Module, count: int, **attributes: Any) -> list[Instruction]:
    made = main.add(mgx.op("loop", **attributes), *operands, modules=[body])
    return [main.add(mgx.op("get_tuple_elem", index=n), made) for n in range(count)]


def stepping(batch: Any = 2) -> Program:
    """h = tanh(h w + x i) while a sum is below a limit, for up to a given number of trips; x and h are read after the loop."""
    program = Program()
    main = program.get_main_module()
    trips, going = main.add_parameter("trips", Shape("int64", [])), main.add_parameter("going", Shape("bool", []))
    limit = main.add_parameter("limit", Shape("float32", []))
    x = main.add(mgx.op("exp"), main.add_parameter("x", Shape("float32", [batch, WIDTH])))
    weights = main.add_literal((rng.standard_normal((WIDTH, WIDTH)) * 0.4).astype(np.float32))
    h = main.add(mgx.op("neg"), x)
    body, (i, _, state, total) = body_of([Shape("float32", [batch, WIDTH]), Shape("float32", [])])
    scale = body.add(mgx.op("multibroadcast"), body.add(mgx.op("convert", target_type="float32"), i), x)
    after = body.add(mgx.op("dot"), state, weights)
    after = body.add(mgx.op("tanh"), body.add(mgx.op("add"), after, body.add(mgx.op("mul"), x, scale)))
    largest = body.add(mgx.op("reduce_max", axes=[0, 1]), after)
    total = body.add(mgx.op("add"), total, body.add(mgx.op("reshape", dims=[]), largest))
    body.add_return([body.add(mgx.op("less"), total, limit), after, total])
    zero = main.add_literal(np.float32(0))
    found = looped(main, [trips, going, h, zero], body, 2, max_iterations=50)
    main.add_return([*found, main.add(mgx.op("add"), main.add(mgx.op("add"), x, h), found[0])])
    return program


def values(trips: int, going: bool = True, limit: float = 1e9, batch: int = 2) -> dict[str, Any]:
    x = rng.standard_normal((batch, WIDTH)).astype(np.float32)
    return {"trips": np.int64(trips), "going": np.bool_(going), "limit": np.float32(limit), "x": x}


def test_one_program_runs_any_number_of_trips():
    program = stepping()
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    for given in (values(3), values(0), values(50), values(5, going=False), values(40, limit=2.5), values(1)):
        compare(program, given, compiled)
    runner = runner_of(compiled)
    assert not runner.rest
    assert [runner.program.program.step_kinds.count(kind) for kind in ("trip", "again")] == [1, 1]


def test_trips_beyond_the_most_are_refused_when_they_come():
    program = stepping()
    program.compile(mgx.get_target("cpu"))
    program.run(values(70, limit=2.5))  # its condition ends it
    with pytest.raises(ShapeError, match=r"more than 50 trips.*limit_max_iterations"):
        program.run(values(70))


def test_open_extents_are_planned_once_they_are_known():
    program = stepping(symbol("batch", 1, 8))
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    for batch in (2, 5):
        compare(program, values(4, batch=batch), compiled)
        assert not runner_of(compiled).rest


def test_a_file_keeps_the_loop(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))
    program = stepping()
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    compiled.run(values(2))
    mgx.save(compiled, tmp_path / "kept.mxr")
    again = mgx.load(tmp_path / "kept.mxr")
    for given in (values(3), values(0), values(40, limit=2.5)):
        compare(program, given, again)
    assert type(again.executable.instances()[-1].runner).__name__ == "RestoredRunner"
    timed = again.executable.instances()[-1].runner.time([*map(np.asarray, values(3).values())], 2, 1)
    assert len(timed) == len({i for i in runner_of(compiled).owners if i is not None})


def test_placements_name_what_the_body_launches():
    program = stepping()
    program.compile(mgx.get_target("cpu"))
    assert any("dot" in p.op and p.place == "target" for p in runner_of(program).schedule.placements)


@pytest.mark.parametrize("sure", [True, False])
def test_states_that_change_places(sure):
    """Each trip swaps two states and transposes a third: none may be overwritten before it is read."""
    program = Program()
    main = program.get_main_module()
    trips = main.add_parameter("trips", Shape("int64", []))
    shapes = [Shape("float32", [3, 3])] * 3
    first = [main.add_parameter(f"x{n}", s) for n, s in enumerate(shapes)]
    body, (_, going, a, b, c) = body_of(shapes)
    turned = body.add(mgx.op("transpose", permutation=[1, 0]), c)
    ends = going if sure else body.add(mgx.op("logical_or"), going, going)
    body.add_return([ends, b, a, turned])
    found = looped(main, [trips, main.add_literal(np.bool_(True)), *first], body, 3)
    main.add_return([*found, main.add(mgx.op("add"), found[0], found[2])])
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    for count in (0, 1, 2, 5):
        given = {f"x{n}": rng.random((3, 3), np.float32) for n in range(3)}
        compare(program, {"trips": np.int64(count), **given}, compiled)
    assert not runner_of(compiled).rest


@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(("axis_in", "axis_out"), [(0, 0), (1, 0), (0, 2), (-1, 1)])
def test_scans_along_any_axis_both_ways(directions, axis_in, axis_out):
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [4, 5]))
    start = main.add_parameter("h", Shape("float32", [3, 1]))
    body = Module("body")
    h = body.add_parameter("h", Shape("float32", [3, 1]))
    row = body.add_parameter("row", Shape("float32", [5 if axis_in == 0 else 4]))
    wide = body.add(mgx.op("multibroadcast", out_lens=[3, 5 if axis_in == 0 else 4]), h)
    both = body.add(mgx.op("add"), wide, body.add(mgx.op("multibroadcast"), row, wide))
    body.add_return([body.add(mgx.op("reduce_sum", axes=[1]), both), both])
    op = mgx.op(
        "scan",
        states=1,
        input_axes=[axis_in],
        input_directions=[directions[0]],
        output_axes=[axis_out],
        output_directions=[directions[1]],
    )
    made = main.add(op, start, x, modules=[body])
    items = [main.add(mgx.op("get_tuple_elem", index=n), made) for n in range(2)]
    main.add_return([*items, main.add(mgx.op("exp"), main.add(mgx.op("neg"), items[1]))])
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    given = {"x": rng.random((4, 5), np.float32), "h": rng.random((3, 1), np.float32)}
    compare(program, given, compiled)
    assert not runner_of(compiled).rest


@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_scans_of_any_length(directions):
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [symbol("t", 0, 999), 5]))
    body = Module("body")
    h, row = (body.add_parameter(name, Shape("float32", [5])) for name in ("h", "row"))
    both = body.add(mgx.op("tanh"), body.add(mgx.op("add"), h, row))
    body.add_return([both, body.add(mgx.op("mul"), both, row)])
    op = mgx.op("scan", states=1, input_axes=[0], input_directions=[directions[0]], output_directions=[directions[1]])
    made = main.add(op, main.add_literal(np.zeros(5, np.float32)), x, modules=[body])
    main.add_return([main.add(mgx.op("get_tuple_elem", index=n), made) for n in range(2)])
    exact = program.clone()
    program.compile(mgx.get_target("cpu"))
    exact.compile(mgx.get_target("ref"))
    executable = program.executable
    opened = open_program(executable.parameters, {"t": 9}, frozenset("t"), executable._lowered)
    assert opened is not None
    for length in (9, 2, 31, 400):
        given = rng.standard_normal((length, 5)).astype(np.float32)
        assert opened.fits({"t": length})
        for got, wanted in zip(opened.runner.run([given]), exact.run({"x": given}), strict=True):
            np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-4, atol=1e-5)


class Drawn:
    """A random program: pointwise ops, products and views, and nested loops and branches that read outer values."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.program = Program()
        main = self.program.get_main_module()
        self.counts = [main.add_parameter(f"n{n}", Shape("int64", [])) for n in range(2)]
        self.conditions = [main.add_parameter(f"c{n}", Shape("bool", [])) for n in range(2)]
        self.shape = Shape("float32", [3, WIDTH])
        made = self.ops(main, [main.add_parameter(f"x{n}", self.shape) for n in range(2)], 3)
        main.add_return(self.draw.sample(made, min(len(made), 3)))

    def ops(self, m: Module, around: list[Instruction], depth: int) -> list[Instruction]:
        made: list[Instruction] = []
        for _ in range(self.draw.randint(2, 5)):
            made += self.step(m, around + made, depth)
        return made

    def step(self, m: Module, there: list[Instruction], depth: int) -> list[Instruction]:
        kind = self.draw.randrange(7 if depth else 4)
        x = self.draw.choice(there)
        if kind == 0:
            return [m.add(mgx.op(self.draw.choice(["tanh", "neg", "sin", "relu"])), x)]
        if kind == 1:
            y = m.add(mgx.op(self.draw.choice(["add", "mul", "max"])), x, self.draw.choice(there))
            return [m.add(mgx.op("tanh"), y)]
        if kind == 2:
            weights = m.add_literal((rng.standard_normal((WIDTH, WIDTH)) * 0.4).astype(np.float32))
            return [m.add(mgx.op("dot"), x, weights)]
        if kind == 3:
            parts = [(0, 2), (2, WIDTH)]
            sliced = [m.add(mgx.op("slice", axes=[1], starts=[a], ends=[b]), x) for a, b in reversed(parts)]
            return [m.add(mgx.op("concat", axis=1), *sliced)]
        return self.branch(m, there, depth) if kind == 4 else self.loop(m, there, depth)

    def branch(self, m: Module, there: list[Instruction], depth: int) -> list[Instruction]:
        sides = []
        for name in ("then", "other"):
            side = Module(f"{name}{self.draw.random()}")
            side.add_return([self.draw.choice([*self.ops(side, there, depth - 1), *there])])
            sides.append(side)
        chosen = m.add(mgx.op("if"), self.draw.choice(self.conditions), modules=sides)
        return [m.add(mgx.op("get_tuple_elem", index=0), chosen)]

    def loop(self, m: Module, there: list[Instruction], depth: int) -> list[Instruction]:
        count = self.draw.randint(1, 3)
        body, (_, going, *states) = body_of([self.shape] * count)
        body.name = f"body{self.draw.random()}"
        own = [*states, *self.ops(body, [*there, *states], depth - 1)]
        ends = self.draw.choice([going, body.add(mgx.op("logical_and"), going, self.draw.choice(self.conditions))])
        body.add_return([ends, *(self.draw.choice(own) for _ in states)])
        first = [self.draw.choice(there) for _ in states]
        return looped(m, [self.draw.choice(self.counts), self.draw.choice(self.conditions), *first], body, count)


@pytest.mark.parametrize("seed", range(8))
def test_random_loops_and_branches_in_each_other(seed):
    drawn = Drawn(seed)
    compiled = drawn.program.clone()
    compiled.compile(mgx.get_target("cpu"), validate=True)
    for n in range(8):
        given: dict[str, Any] = {f"c{b}": np.bool_(n >> b & 1) for b in range(2)}
        given |= {f"n{b}": np.int64((n >> 1) + b) for b in range(2)}
        given |= {f"x{k}": rng.standard_normal((3, WIDTH)).astype(np.float32) for k in range(2)}
        compare(drawn.program, given, compiled)
    assert not runner_of(compiled).rest


def test_states_that_grow_are_decided_at_run_time():
    program = Program()
    main = program.get_main_module()
    trips = main.add_parameter("trips", Shape("int64", []))
    x = main.add_parameter("x", Shape("float32", [1]))
    body, (_, going, state) = body_of([Shape("float32", [symbol("n?", 1, 64)])])
    body.add_return([going, body.add(mgx.op("concat", axis=0), state, x)])
    main.add_return(looped(main, [trips, main.add_literal(np.bool_(True)), x], body, 1))
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    compare(program, {"trips": np.int64(3), "x": np.float32([2])}, compiled)
    assert runner_of(compiled).rest


def building(program: Any, place: int, calls: list[str]) -> None:
    for call in calls:
        more = {"begin_loop": [(place, 0), None, None, True, 9], "begin_branch": [(place, 0)]}
        getattr(program, call)("x", *more.get(call, []))
    program.finish()


def collecting(bound: int | None, limit: bool = True, most: int = 50, width: int = WIDTH) -> Program:
    """h = tanh(h + x) while its sum is below a limit, for up to a number of trips; returns the last h and two rows per trip."""
    program = Program()
    main = program.get_main_module()
    trips = main.add_parameter("trips", Shape("int64", [])) if bound is None else main.add_literal(np.int64(bound))
    below = main.add_parameter("limit", Shape("float32", []))
    x = main.add_parameter("x", Shape("float32", [width]))
    body, (i, going, state) = body_of([Shape("float32", [width])])
    after = body.add(mgx.op("tanh"), body.add(mgx.op("add"), state, x))
    total = body.add(mgx.op("reshape", dims=[]), body.add(mgx.op("reduce_sum", axes=[0]), after))
    ends = body.add(mgx.op("less"), total, below) if limit else going
    body.add_return([ends, after, after, i])
    h, rows, numbers = looped(main, [trips, main.add_literal(np.bool_(True)), x], body, 3, max_iterations=most)
    main.add_return([h, rows, numbers, main.add(mgx.op("reduce_sum", axes=[0]), rows)])
    return program


def collected(program: Program, trips: int | None, limit: float, width: int = WIDTH) -> dict[str, Any]:
    given = {
        "trips": np.int64(trips or 0),
        "limit": np.float32(limit),
        "x": np.linspace(0.1, 0.2, width, dtype=np.float32),
    }
    return {name: given[name] for name in program.get_main_module().parameters}


@pytest.mark.parametrize("bound", [None, 7, 0])
@pytest.mark.parametrize("limited", [True, False])
def test_rows_whose_number_depends_on_data(bound: int | None, limited: bool):
    program = collecting(bound, limited)
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    for trips, limit in ((3, 9.0), (0, 9.0), (50, 9.0), (40, 2.0), (5, 0.0)):
        compare(program, collected(program, trips, limit), compiled)
    runner = runner_of(compiled)
    assert [ins.op.name for ins in runner.counted] == ["loop"]
    assert runner.program.program.step_kinds.count("trip") == 1
    assert not any(ins.op.control for ins in runner.rest)


@pytest.mark.parametrize("results", [[1], [0, 1, 2], [2, 1, 1, 0]])
def test_rows_that_are_returned_at_once(results: list[int]):
    program = collecting(None)
    main = program.get_main_module()
    items = list(main.outputs)
    main.replace_return([*(items[n] for n in results), main.parameters["x"], main.add_literal(np.arange(3.0))])
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    for trips, limit in ((3, 9.0), (0, 9.0), (40, 2.0)):
        given = collected(program, trips, limit)
        compare(program, given, compiled)
        found = [np.asarray(r) for r in compiled.run(given)]
        assert not any(np.shares_memory(a, b) for n, a in enumerate(found) for b in found[:n])
    assert not runner_of(compiled)._items


def test_a_file_keeps_rows_whose_number_depends_on_data(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))
    program = collecting(None)
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    compiled.run(collected(program, 2, 9.0))
    mgx.save(compiled, tmp_path / "kept.mxr")
    again = mgx.load(tmp_path / "kept.mxr")
    for trips, limit in ((3, 9.0), (0, 9.0), (40, 2.0)):
        compare(program, collected(program, trips, limit), again)
    assert type(again.executable.instances()[-1].runner).__name__ == "RestoredSegments"


def test_rows_beyond_the_most_trips():
    program = collecting(None)
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    compare(program, collected(program, 70, 2.0), compiled)  # its condition ends it
    with pytest.raises(ShapeError, match=r"more than 50 trips.*limit_max_iterations"):
        compiled.run(collected(program, 70, 99.0))


@pytest.mark.parametrize(("width", "planned"), [(60, True), (100, False)])
def test_rows_are_allocated_for_the_most_trips_up_to_a_size(width: int, planned: bool):
    program = collecting(None, most=65535, width=width)
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    compare(program, collected(program, 4, 99.0, width), compiled)
    assert bool(runner_of(compiled).counted) is planned


def test_native_loops_must_have_an_end():
    for calls, wrong in (
        (["begin_loop"], "not ended"),
        (["end_loop"], "no loop is open"),
        (["begin_loop", "begin_branch", "end_loop"], "no loop is open"),
    ):
        program = native().NativeProgram("main", 64)
        place = program.input(np.dtype(np.int64), [])
        with pytest.raises(ParameterError, match=wrong):
            building(program, place, calls)
