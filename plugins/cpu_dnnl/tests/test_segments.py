"""Control flow, and code after it or after data-dependent extents."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Instruction, Module, Operation, Program, Shape
from mgx_core.targets.op_programs import ONCE, OpPrograms
from mgx_core.targets.segment import KEEPING, Segment
from mgx_core.targets.segment_interpreter import SegmentInterpreter
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.runner import CpuRunner

rng = np.random.default_rng(5)


def both(program: Program, given: dict[str, Any], tolerance: float = 2e-6) -> tuple[list[Any], CpuRunner]:
    """Returns results on cpu, after comparing them with the reference, and the runner."""
    program = program.clone()
    expected = evaluated(program, given)
    program.compile(mgx.get_target("cpu"))
    found = [np.asarray(r) for r in program.run(given)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert program.executable is not None
    runner = program.executable.instances()[-1].runner
    assert isinstance(runner, CpuRunner)
    return found, runner


def evaluated(program: Program, given: dict[str, Any]) -> list[Any]:
    from mgx_core.ir.interpreter import Interpreter

    module = program.get_main_module()
    return Interpreter().run(module, [given[name] for name in module.parameters])


def accumulating(main: Module, weights: Instruction, width: int) -> Module:
    """(n, going, state) -> (going, tanh(state x weights), its sum)"""
    body = Module("body")
    body.add_parameter("n", Shape("int64", []))
    going = body.add_parameter("going", Shape("bool", []))
    state = body.add_parameter("state", Shape("float32", [1, width]))
    new = body.add(mgx.op("tanh"), body.add(mgx.op("dot"), state, weights))
    total = body.add(mgx.op("reduce_sum", axes=[0, 1]), new)
    body.add_return([going, new, total])
    return body


def looping(trips: int = 7, width: int = 8, **attributes: Any) -> tuple[Program, dict[str, Any]]:
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [1, width]))
    weights = main.add(mgx.op("neg"), main.add_parameter("w", Shape("float32", [width, width])))
    count = main.add_literal(np.int64(trips))
    yes = main.add_literal(np.bool_(True))
    loop = main.add(mgx.op("loop", **attributes), count, yes, x, modules=[accumulating(main, weights, width)])
    state, rows = (main.add(mgx.op("get_tuple_elem", index=n), loop) for n in range(2))
    after = main.add(mgx.op("exp"), main.add(mgx.op("dot"), state, weights))
    main.add_return([after, rows])
    given = {"x": rng.random((1, width), np.float32), "w": rng.random((width, width), np.float32)}
    return program, given


def name_of(what: Segment | Instruction) -> str:
    return "part" if isinstance(what, Segment) else str(getattr(what.op, "of", what.op).name)


def test_a_body_runs_as_one_program_and_so_does_the_rest():
    program, given = looping(scan_output_directions=[1])  # the executor does not collect rows backwards
    _, runner = both(program, given)
    kinds = [name_of(item.what) for item in runner._items]
    assert kinds == ["loop", "get_tuple_elem", "get_tuple_elem", "part"]
    assert len(runner.inner) == 2  # the body and the part after the loop, prepared before the first run
    assert not any(inner.rest for inner in runner.inner)
    assert not [p for p in runner.schedule.placements if p.place == "host"]


def test_no_trip_at_all():
    program, given = looping(trips=0)
    found, _ = both(program, given)
    assert found[1].shape[0] == 0


def test_from_many_threads():
    program, given = looping(trips=20)
    found, _ = both(program, given)
    program.compile(mgx.get_target("cpu"))
    same: list[bool] = []

    def work() -> None:
        for _ in range(20):
            again = [np.asarray(r) for r in program.run(given)]
            same.append(all(np.array_equal(a, b) for a, b in zip(again, found, strict=True)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert same == [True] * 120


@pytest.mark.parametrize("chosen", [True, False])
def test_branches_read_values_around_them(chosen: bool):
    program = Program()
    main = program.get_main_module()
    c = main.add_parameter("c", Shape("bool", []))
    x = main.add(mgx.op("abs"), main.add_parameter("x", Shape("float32", [3, 4])))
    then, other = Module("then"), Module("other")
    then.add_return([then.add(mgx.op("sqrt"), x)])
    other.add_return([other.add(mgx.op("add"), other.add(mgx.op("neg"), x), x)])
    branch = main.add(mgx.op("if"), c, modules=[then, other])
    main.add_return([main.add(mgx.op("exp"), main.add(mgx.op("get_tuple_elem", index=0), branch))])
    _, runner = both(program, {"c": np.bool_(chosen), "x": rng.random((3, 4), np.float32)})
    assert not runner.rest and not runner.inner  # one native program


def test_a_loop_whose_state_grows():
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [1, 3]))
    body = Module("body")
    body.add_parameter("n", Shape("int64", []))
    going = body.add_parameter("going", Shape("bool", []))
    rows = symbol("rows", 1, 1 << 20)
    state = body.add_parameter("state", Shape("float32", [rows, 3]))
    body.add_return([going, body.add(mgx.op("concat", axis=0), state, body.add(mgx.op("exp"), x))])
    count, yes = main.add_literal(np.int64(5)), main.add_literal(np.bool_(True))
    loop = main.add(mgx.op("loop"), count, yes, x, modules=[body])
    main.add_return([main.add(mgx.op("neg"), main.add(mgx.op("get_tuple_elem", index=0), loop))])
    found, _ = both(program, {"x": rng.random((1, 3), np.float32)})
    assert found[0].shape == (6, 3)


def test_extents_that_depend_on_data_then_a_part_for_each_count():
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [40]))
    places = main.add(mgx.op("nonzero"), x)  # [1, count]
    scaled = main.add(mgx.op("convert", target_type="float32"), places)
    one = main.add(mgx.op("exp"), main.add(mgx.op("neg"), scaled))
    total = main.add(mgx.op("reduce_sum", axes=[0, 1]), one)
    main.add_return([one, total])
    for count in (0, 1, 17, 40, 17):
        values = np.zeros(40, np.float32)
        values[:count] = 1
        found, runner = both(program, {"x": rng.permutation(values)})
        assert found[0].shape == (1, count)
        assert any(isinstance(item.what, Segment) for item in runner._items)


def selecting(returned: Sequence[str]) -> Program:
    """x [40] -> the results of these names: the static one, the positions that are not 0, and two of the only segment after them."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [40]))
    named = {"negated": main.add(mgx.op("neg"), x), "places": main.add(mgx.op("nonzero"), x)}
    named["scaled"] = main.add(mgx.op("convert", target_type="float32"), named["places"])
    named["power"] = main.add(mgx.op("exp"), main.add(mgx.op("neg"), named["scaled"]))
    named["total"] = main.add(mgx.op("reduce_sum", axes=[0, 1]), named["power"])
    main.add_return([named[name] for name in returned])
    return program


@pytest.mark.parametrize(
    ("returned", "alone"),
    [
        (["power", "total"], True),
        (["total"], True),
        (["total", "negated", "power"], True),  # in another order than the segment's own results, beside a static one
        (["power", "places"], False),  # part of the memory for the largest count
        (["power", "power"], False),
    ],
)
def test_the_only_segment_runs_without_a_table_of_values(monkeypatch: Any, returned: list[str], alone: bool) -> None:
    program = selecting(returned)
    program.compile(mgx.get_target("cpu"))
    asked: list[Any] = []
    finish = SegmentInterpreter.finish
    monkeypatch.setattr(SegmentInterpreter, "finish", lambda *args: asked.append(args) or finish(*args))
    for count in (0, 3, 40, 3):
        values = np.zeros(40, np.float32)
        values[:count] = 1
        values = rng.permutation(values)
        found = [r.to_numpy() for r in program.run({"x": values})]
        for a, b in zip(found, evaluated(program.clone(), {"x": values}), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
        kept = [r.copy() for r in found]
        for r in found:
            r += 1  # nothing else refers to the memory
        assert all(np.array_equal(a, b + 1) for a, b in zip(found, kept, strict=True))
    assert bool(asked) is not alone


def test_a_symbol_that_no_operand_has():
    """As many rows of zeros as were found: the part's operands are the same for all counts."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [30]))
    y = main.add_parameter("y", Shape("float32", [1]))
    places = main.add(mgx.op("nonzero"), x)
    count = places.shape.dims[1]
    spread = main.add(mgx.op("multibroadcast", out_lens=[count]), y)
    main.add_return([main.add(mgx.op("exp"), main.add(mgx.op("neg"), spread)), places])
    program.compile(mgx.get_target("cpu"))
    for many in (4, 9, 0, 4):
        values = np.zeros(30, np.float32)
        values[:many] = 1
        one, found = program.run({"x": values, "y": np.ones(1, np.float32)})
        assert np.asarray(found).shape == (1, many)
        np.testing.assert_allclose(np.asarray(one), np.full(many, np.exp(-1), np.float32), rtol=1e-6)


def test_times_of_the_following_ops():
    program, given = looping(trips=3)
    program.compile(mgx.get_target("cpu"))
    timings = program.executable.time(given, 3, 1)
    names = [name_of(t.instruction) for t in timings]
    assert names.count("loop") == 1
    assert names.count("dot") + names.count("group") >= 1  # of the part after the loop
    assert all(t.seconds and min(t.seconds) > 0 for t in timings)


def test_counts_of_one_body_are_each_their_own():
    """Two ops of the same type on operands of the same shape find different numbers of rows."""
    program = Program()
    main = program.get_main_module()
    c = main.add_parameter("c", Shape("bool", []))
    a, b = (main.add_parameter(n, Shape("float32", [6])) for n in "ab")
    then, other = Module("then"), Module("other")
    found = [then.add(mgx.op("nonzero"), x) for x in (a, b)]
    scaled = [then.add(mgx.op("neg"), f) for f in found]
    then.add_return([then.add(mgx.op("concat", axis=1), *scaled)])
    other.add_return([other.add(mgx.op("neg"), other.add(mgx.op("nonzero"), a))])
    branch = main.add(mgx.op("if"), c, modules=[then, other])
    main.add_return([main.add(mgx.op("get_tuple_elem", index=0), branch)])
    few, many = np.array([0, 1, 0, 0, 1, 0], np.float32), np.array([1, 1, 0, 1, 1, 1], np.float32)
    for first, second in ((few, many), (many, few)):
        (result,), _ = both(program, {"c": np.bool_(True), "a": first, "b": second})
        assert result.shape == (1, 7)


def test_programs_are_made_no_more_often_than_shapes_come_again():
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [1, 3]))
    trips = main.add_parameter("trips", Shape("int64", []))
    body = Module("body")
    body.add_parameter("n", Shape("int64", []))
    going = body.add_parameter("going", Shape("bool", []))
    state = body.add_parameter("state", Shape("float32", [symbol("rows", 1, 1 << 20), 3]))
    body.add_return([going, body.add(mgx.op("concat", axis=0), body.add(mgx.op("abs"), state), x)])
    yes = main.add_literal(np.bool_(True))
    loop = main.add(mgx.op("loop"), trips, yes, x, modules=[body])
    main.add_return([main.add(mgx.op("get_tuple_elem", index=0), loop)])
    program.compile(mgx.get_target("cpu"))
    for _ in range(3):
        (found,) = program.run({"x": np.ones((1, 3), np.float32), "trips": np.int64(KEEPING.runners + 40)})
        assert np.asarray(found).shape == (KEEPING.runners + 41, 3)
    (bodies,) = [p for p, _ in program.executable.instances()[0].runner._segments._bodies.values()]
    assert len(bodies._made) == KEEPING.runners
    assert bodies._made.dropped <= 2 * KEEPING.runners // 8


@pytest.mark.parametrize("opened", [False, True])
def test_results_that_have_no_memory_of_their_own(opened: bool) -> None:
    """Tuples returned or read by control flow; an absent result; arguments and constants; next to data-dependent extents."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [4, 2]))
    top = m.add(mgx.op("topk", axis=0, k=2), x)
    branches = [mgx.Module("then"), mgx.Module("else")]
    for branch, op in zip(branches, ("neg", "relu"), strict=True):
        branch.add_return([branch.add(mgx.op(op), branch.add(mgx.op("get_tuple_elem", index=0), top))])
    chosen = m.add(mgx.op("if"), m.add_parameter("c", mgx.Shape("bool", [])), modules=branches)
    first = m.add(mgx.op("get_tuple_elem", index=0), chosen)
    found = [m.add(mgx.op("nonzero"), x)] if opened else []
    m.add_return([top, first, x, m.add_absent(), m.add_literal(np.float32([5])), m.add(mgx.op("neg"), x), *found])
    program.compile(mgx.get_target("cpu"))
    given = np.arange(8, dtype=np.float32).reshape(4, 2)
    (values, places), negated, same, absent, five, less, *rest = [
        r.value for r in program.run({"x": given, "c": np.array(True)})
    ]
    assert values.tolist() == [[6, 7], [4, 5]] and places.tolist() == [[3, 3], [2, 2]]
    assert negated.tolist() == [[-6, -7], [-4, -5]] and less.tolist() == (-given).tolist()
    assert absent is None and five.tolist() == [5] and same.tolist() == given.tolist() and same is not given
    assert [r.tolist() for r in rest] == [np.stack(np.nonzero(given)).tolist()] * opened


@pytest.mark.parametrize(
    ("op", "operand"),
    [(mgx.op("concat", axis=1), (4, 2)), (mgx.op("dot"), (2, 4)), (mgx.op("add"), (4, 2))],
    ids=["concat", "dot", "add"],
)
def test_operands_that_do_not_fit_once_rows_are_counted_are_not_read(op: Any, operand: tuple[int, int]) -> None:
    """Four rows fit; for other counts, memory after an operand would be read."""
    program = Program()
    m = program.get_main_module()
    found = m.add(mgx.op("nonzero"), m.add_parameter("x", Shape("float32", [3, 3])))
    rows = m.add(mgx.op("transpose", permutation=[1, 0]), found)
    other = m.add_literal(np.ones(operand, np.int64))
    m.add_return([m.add(op, other, rows)])
    program.compile(mgx.get_target("cpu"))
    for count in (4, 2, 9, 4):
        x = np.zeros(9, np.float32)
        x[:count] = 1
        if count == 4:
            program.run({"x": x.reshape(3, 3)})
        else:
            with pytest.raises(mgx.ShapeError, match=r"equal|fit"):
                program.run({"x": x.reshape(3, 3)})


def test_ops_with_several_results_are_part_of_the_code_after_a_count():
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [9, 5]))
    mask = main.add(
        mgx.op("greater"), main.add_parameter("m", Shape("float32", [9])), main.add_literal(np.zeros(9, "f"))
    )
    rows = main.add(mgx.op("reshape", dims=[-1]), main.add(mgx.op("nonzero"), mask))
    best = main.add(mgx.op("topk", k=2, axis=1), main.add(mgx.op("exp"), main.add(mgx.op("gather"), x, rows)))
    values, places = (main.add(mgx.op("get_tuple_elem", index=n), best) for n in range(2))
    main.add_return([main.add(mgx.op("neg"), values), places])
    given = {"x": rng.standard_normal((9, 5)).astype(np.float32), "m": rng.standard_normal(9).astype(np.float32)}
    _, runner = both(program, given)
    assert [name_of(item.what) for item in runner._items] == ["part"]
    part = runner._items[0].what
    assert isinstance(part, Segment) and part._last is not None
    inner = part._last[1]
    assert isinstance(inner, CpuRunner) and not inner.rest


def counting() -> Program:
    """Positive numbers of an argument and of a computed value: rows by their positions, the positions themselves, selected
    boxes.
    """
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [9, 4]))
    m = main.add_parameter("m", Shape("float32", [9]))
    given = main.add(mgx.op("nonzero"), m)
    made = main.add(mgx.op("nonzero"), main.add(mgx.op("relu"), m))
    rows = main.add(mgx.op("gather"), x, main.add(mgx.op("reshape", dims=[-1]), made))
    boxes = main.add(mgx.op("reshape", dims=[1, 9, 4]), main.add(mgx.op("exp"), x))
    scores = main.add(mgx.op("reshape", dims=[1, 1, 9]), main.add(mgx.op("abs"), m))
    limits = [main.add_literal(np.int64(4)), main.add_literal(np.float32(0.5)), main.add_literal(np.float32(0.2))]
    picked = main.add(mgx.op("nonmaxsuppression"), boxes, scores, *limits)
    main.add_return([given, made, main.add(mgx.op("reduce_sum", axes=[0]), rows), picked])
    return program


@pytest.mark.parametrize("most", [9, 3, 0])
def test_ops_that_count_are_part_of_the_native_program(most: int) -> None:
    given = {"x": rng.random((9, 4)).astype(np.float32), "m": rng.standard_normal(9).astype(np.float32)}
    given["m"][most:] = 0
    found, runner = both(counting(), given)
    assert [name_of(i) for i in runner.counted] == ["nonzero", "nonzero", "nonmaxsuppression"]
    assert [name_of(item.what) for item in runner._items] == ["part"]
    assert found[0].shape == (1, np.count_nonzero(given["m"]))
    names = [p.op.split("[")[0] for p in runner.schedule.placements if p.place == "target"]
    assert names.count("nonzero") == 2 and names.count("nonmaxsuppression") == 1


def test_a_file_keeps_ops_that_count(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))
    program = counting()
    compiled = program.clone()
    compiled.compile(mgx.get_target("cpu"))
    given = {"x": rng.random((9, 4)).astype(np.float32), "m": rng.standard_normal(9).astype(np.float32)}
    compiled.run(given)
    mgx.save(compiled, tmp_path / "kept.mxr")
    again = mgx.load(tmp_path / "kept.mxr")
    for value, wanted in zip(again.run(given), evaluated(program, given), strict=True):
        np.testing.assert_allclose(np.asarray(value), wanted, rtol=2e-6, atol=2e-6)
    runner = again.executable.instances()[-1].runner
    assert type(runner).__name__ == "RestoredSegments" and len(runner.counted) == 3
    assert len(runner.time([given["x"], given["m"]], 2, 1)) >= 4


def test_a_computed_number_bounds_each_count_separately():
    """If an operand gives the maximum number of boxes, memory for the largest possible number is not allocated."""
    program = Program()
    main = program.get_main_module()
    boxes = main.add_parameter("x", Shape("float32", [1, 9, 4]))
    scores = main.add_parameter("s", Shape("float32", [1, 1, 9]))
    most = main.add_parameter("n", Shape("int64", []))
    limits = [main.add_literal(np.float32(0.5)), main.add_literal(np.float32(0.2))]
    main.add_return([main.add(mgx.op("nonmaxsuppression"), boxes, scores, most, *limits)])
    given = {"x": rng.random((1, 9, 4)).astype(np.float32), "s": rng.random((1, 1, 9)).astype(np.float32)}
    found, runner = both(program, {**given, "n": np.int64(2)})
    assert not runner.counted and len(found[0]) <= 2


def with_operand(op: Operation, x: Shape, operand: Any, results: int = 0) -> Program:
    """(x, a small vector) -> the results of an op whose extents the vector determines."""
    program = Program()
    m = program.get_main_module()
    given = m.add_parameter("x", x), m.add_parameter("n", Shape(str(operand.dtype), list(operand.shape)))
    inputs = (given[0], m.add_absent(), given[1]) if op.name == "resize" else given
    made = m.add(op, *inputs)
    m.add_return([m.add(mgx.op("get_tuple_elem", index=k), made) for k in range(results)] or [made])
    return program


SETTLED = {
    "resize": (mgx.op("resize", mode="linear"), [[1, 2, 9, 5], [1, 2, 3, 8]], 0),
    "reduce_sum": (mgx.op("reduce_sum"), [[1], [3]], 0),
    "pad": (mgx.op("pad", mode="reflect"), [[0, 0, 1, 2, 0, 0, 2, 1], [0, 0, 0, 1, 0, 0, 0, 0]], 0),
    "tile": (mgx.op("tile"), [[1, 2, 1, 3], [2, 1, 1, 1]], 0),
    "split": (mgx.op("split", axis=2, count=2), [[1, 3], [0, 4]], 2),
}


@pytest.mark.parametrize("name", SETTLED)
def test_ops_whose_operands_determine_extents_have_their_own_programs(monkeypatch: Any, name: str) -> None:
    op, operands, results = SETTLED[name]
    x = rng.standard_normal((1, 2, 4, 4)).astype(np.float32)
    calls = []
    evaluate = type(op).compute
    monkeypatch.setattr(type(op), "compute", lambda *args: calls.append(args) or evaluate(*args))
    program = with_operand(op, Shape("float32", list(x.shape)), np.array(operands[0], np.int64), results)
    for chosen in operands:
        n = np.array(chosen, np.int64)
        expected = evaluated(program, {"x": x, "n": n})
        compiled = program.clone()
        compiled.compile(mgx.get_target("cpu"))
        found = []
        for _ in range(4):
            calls.clear()
            found.append([np.array(r) for r in compiled.run({"x": x, "n": n})])
        assert not calls
        for a, b in zip(found[0], expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
        assert all(np.array_equal(a, b) for more in found[1:] for a, b in zip(more, found[0], strict=True))


def test_sizes_that_keep_changing_run_by_definition_and_those_that_come_again_do_not(monkeypatch: Any) -> None:
    op, operands, _ = SETTLED["resize"]
    program = with_operand(op, Shape("float32", [1, 2, 4, 4]), np.array(operands[0], np.int64))
    program.compile(mgx.get_target("cpu"))
    built: list[Any] = []
    build = OpPrograms._program_of_constants
    monkeypatch.setattr(OpPrograms, "_program_of_constants", lambda *args: built.append(args) or build(*args))
    x = rng.standard_normal((1, 2, 4, 4)).astype(np.float32)

    def size(n: int) -> int:
        (made,) = program.run({"x": x, "n": np.array([1, 2, n, n])})
        return int(np.asarray(made).shape[2])

    assert [size(n) for n in range(5, 30)] == [*range(5, 30)]
    assert len(built) == ONCE
    assert [size(n) for n in (5, 40, 5, 41)] == [5, 40, 5, 41]  # 5 is used again, then others
    assert len(built) == ONCE + 2


def test_operands_that_no_program_fits_are_refused_in_each_run() -> None:
    program = with_operand(mgx.op("split", axis=2, count=2), Shape("float32", [1, 2, 4, 4]), np.array([1, 3]), 2)
    program.compile(mgx.get_target("cpu"))
    x = np.zeros((1, 2, 4, 4), np.float32)
    for _ in range(4):
        with pytest.raises(mgx.ShapeError, match="add up to 4"):
            program.run({"x": x, "n": np.array([1, 4])})
    assert [np.asarray(r).shape[2] for r in program.run({"x": x, "n": np.array([2, 2])})] == [2, 2]


def test_bodies_with_lists_run_the_ops_between_as_programs() -> None:
    """Slices of different lengths in each trip, inserted into a list that is concatenated after the loop."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [12, 3]))
    ends = m.add_parameter("ends", Shape("int64", [5]))
    trips = m.add_parameter("trips", Shape("int64", []))
    empty = m.add(mgx.op("sequence_empty", dtype="float32"))
    body = Module("body")
    number, going = body.add_parameter("n", Shape("int64", [])), body.add_parameter("going", Shape("bool", []))
    done = body.add_parameter("done", empty.result)
    first = body.add(mgx.op("reshape", dims=(1,)), number)
    start = body.add(mgx.op("gather", axis=0), ends, first)
    after = body.add(mgx.op("add"), first, body.add_literal(np.array([1])))
    rows = body.add(mgx.op("slice", axes=(0,)), x, start, body.add(mgx.op("gather", axis=0), ends, after))
    part = body.add(mgx.op("tanh"), body.add(mgx.op("neg"), rows))
    body.add_return([going, body.add(mgx.op("sequence_insert"), done, part)])
    loop = m.add(mgx.op("loop"), trips, m.add_absent(), empty, modules=[body])
    listed = m.add(mgx.op("get_tuple_elem", index=0), loop)
    m.add_return([m.add(mgx.op("concat_from_sequence", axis=0), listed)])
    values = rng.standard_normal((12, 3)).astype(np.float32)
    given = {"x": values, "ends": np.array([0, 3, 3, 6, 12]), "trips": np.array(4)}
    _, runner = both(program, given)
    (items,) = runner._segments._cuts.values()
    segments = [i.what for i in items if isinstance(i.what, Segment)]
    assert {ins.op.of.name for s in segments for ins in s.members} >= {"gather", "pointwise"}
    assert any(len(s._made) == 3 for s in segments)  # one for each length


def test_kernels_with_several_results_after_data_dependent_extents_are_not_reported_as_host_ops() -> None:
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [4, 16]))
    found = main.add(
        mgx.op("gathernd"), x, main.add(mgx.op("transpose", permutation=[1, 0]), main.add(mgx.op("nonzero"), x))
    )
    total = main.add(mgx.op("reduce_sum", axes=[0]), found)
    moved = main.add(mgx.op("add"), x, main.add(mgx.op("multibroadcast", out_lens=[4, 16]), total))
    mean = main.add(mgx.op("reduce_mean", axes=[1]), moved)
    main.add_return([moved, main.add(mgx.op("sub"), moved, main.add(mgx.op("multibroadcast", out_lens=[4, 16]), mean))])
    _, runner = both(program, {"x": np.round(rng.standard_normal((4, 16))).astype(np.float32)})
    fused = [p for p in runner.schedule.placements if p.op.startswith("fused_reduce") and "axes=[1]" in p.op]
    assert [p.place for p in fused] == ["target"]


def test_a_copy_of_a_tuple_is_returned():
    """The tuple is no result of the static part, which has memory for tensors only."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [5]))
    pair = main.add(mgx.op("topk", k=2, axis=0), x)
    main.add_return([main.add(mgx.op("identity"), pair)])
    program.compile(mgx.get_target("cpu"))
    (found,) = program.run({"x": np.array([3, 1, 4, 1, 5], np.float32)})
    values, places = (np.asarray(part) for part in found.get_sub_objects())
    np.testing.assert_array_equal(values, [5, 4])
    np.testing.assert_array_equal(places, [4, 2])
