"""Programs for values of operands that determine extents, once they have occurred in many runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Module, Program, Shape
from mgx_cpu_dnnl import repeated_values
from mgx_cpu_dnnl.repeated_values import RepeatedValues
from mgx_cpu_dnnl.runner import CpuRunner

X = np.random.default_rng(6).standard_normal((12, 5)).astype(np.float32)


def compiled(program: Program) -> tuple[Program, CpuRunner]:
    """Returns the program and its runner, after it has run once."""
    program.compile(mgx.get_target("cpu"))
    assert program.executable is not None
    runner = program.executable.instance_of([p.result for p in program.get_main_module().parameters.values()]).runner
    assert isinstance(runner, CpuRunner)
    return program, runner


def repeated(runner: CpuRunner) -> RepeatedValues:
    assert runner.value_programs is not None
    return runner.value_programs


def cropping() -> Program:
    """Sums of x[:n] after relu, its rows in reverse order, and n + 1."""
    program = Program()
    main = program.get_main_module()
    x, n = main.add_parameter("x", Shape("float32", [12, 5])), main.add_parameter("n", Shape("int64", [1]))
    zero, one = (main.add_literal(np.array([i])) for i in (0, 1))
    part = main.add(mgx.op("relu"), main.add(mgx.op("slice", axes=[0]), x, zero, n))
    total = main.add(mgx.op("reduce_sum", axes=[0]), part)
    more = main.add(mgx.op("add"), n, one)
    main.add_return([total, main.add(mgx.op("reverse", axes=[0]), part), more])
    return program


def check_cropped(program: Program, n: int) -> list[np.ndarray[Any, Any]]:
    found = [np.asarray(r) for r in program.run({"x": X, "n": np.array([n])})]
    part = np.maximum(X[:n], 0)
    for a, b in zip(found, (part.sum(0, keepdims=True), part[::-1], np.array([n + 1])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return found


def test_a_program_after_enough_runs() -> None:
    program, runner = compiled(cropping())
    for _ in range(repeated(runner).enough - 1):
        check_cropped(program, 7)
    assert repeated(runner).programs == []
    first = check_cropped(program, 7)
    (made,) = repeated(runner).programs
    assert isinstance(made, CpuRunner) and not made.rest
    second = check_cropped(program, 7)
    for a, b in zip(first, second, strict=True):
        assert not np.shares_memory(a, b) and not np.shares_memory(a, X)
    check_cropped(program, 3)  # other values run in segments
    check_cropped(program, 0)
    assert repeated(runner).programs == [made]


def test_values_that_keep_changing_have_no_program() -> None:
    program, runner = compiled(cropping())
    for _ in range(repeated(runner).enough // 2):
        check_cropped(program, 4)
        check_cropped(program, 5)
    assert repeated(runner).programs == []


def test_two_values_have_two_programs() -> None:
    program, runner = compiled(cropping())
    for _ in range(repeated(runner).enough):
        check_cropped(program, 9)
        check_cropped(program, 30)
    assert len(repeated(runner).programs) == 2


def test_displaced_programs_have_to_pay_off_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_values, "KEPT", 1)
    program, runner = compiled(cropping())
    made = []
    for _ in range(3 * repeated(runner).enough - 3):  # twice as often after the first was displaced
        for n in (9, 4):
            check_cropped(program, n)
            made.append(repeated(runner).programs)
    assert len({id(p) for programs in made for p in programs}) == 2


def test_small_operands_that_determine_no_extents_may_change() -> None:
    program = Program()
    main = program.get_main_module()
    x, n = main.add_parameter("x", Shape("float32", [12, 5])), main.add_parameter("n", Shape("int64", [1]))
    row, at = main.add_parameter("row", Shape("float32", [1, 5])), main.add_parameter("at", Shape("int64", [2]))
    part = main.add(mgx.op("slice", axes=[0]), x, main.add_literal(np.array([0])), n)
    longer = main.add(mgx.op("concat", axis=0), part, row)
    main.add_return([main.add(mgx.op("gather", axis=0), longer, at), main.add(mgx.op("neg"), longer)])
    program, runner = compiled(program)
    for k in range(repeated(runner).enough + 2):
        given = {"x": X, "n": np.array([6]), "row": np.full((1, 5), k, np.float32), "at": np.array([k % 7, 6])}
        first, second = (np.asarray(r) for r in program.run(given))
        wanted = np.concatenate([X[:6], given["row"]])
        np.testing.assert_array_equal(first, wanted[given["at"]])
        np.testing.assert_array_equal(second, -wanted)
    assert len(repeated(runner).programs) == 1


def test_branches_of_different_ranks_or_extents() -> None:
    program = Program()
    main, then, other = program.get_main_module(), Module("then"), Module("other")
    x, past = main.add_parameter("x", Shape("float32", [2, 5])), main.add_parameter("past", Shape("float32", [4, 5]))
    which = main.add_parameter("which", Shape("bool", []))
    then.add_return([then.add(mgx.op("concat", axis=0), past, x)])
    other.add_return([x])
    branch = main.add(mgx.op("if"), which, modules=[then, other])
    main.add_return([main.add(mgx.op("exp"), main.add(mgx.op("get_tuple_elem", index=0), branch))])
    program, runner = compiled(program)
    for _ in range(repeated(runner).enough + 2):
        for taken in (True, False):
            (found,) = program.run({"x": X[:2], "past": X[2:6], "which": np.array(taken)})
            wanted = np.exp(np.concatenate([X[2:6], X[:2]]) if taken else X[:2])
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)
    assert len(repeated(runner).programs) == 2


def test_values_from_the_static_part() -> None:
    """The length is the sum of a mask, as in pooling of the valid tokens; the second slice depends on the first."""
    program = Program()
    main = program.get_main_module()
    x, mask = main.add_parameter("x", Shape("float32", [12, 5])), main.add_parameter("mask", Shape("int64", [12]))
    zero, two = (main.add_literal(np.array([i])) for i in (0, 2))
    n = main.add(mgx.op("reduce_sum", axes=[0]), mask)
    part = main.add(mgx.op("slice", axes=[0]), x, zero, n)
    inner = main.add(mgx.op("slice", axes=[0]), part, two, n)
    main.add_return([main.add(mgx.op("reduce_max", axes=[0]), inner)])
    program, runner = compiled(program)
    for _ in range(repeated(runner).enough + 2):
        (found,) = program.run({"x": X, "mask": (np.arange(12) < 8).astype(np.int64)})
        np.testing.assert_array_equal(np.asarray(found), X[2:8].max(0, keepdims=True))
    (made,) = repeated(runner).programs
    assert isinstance(made, CpuRunner) and not made.rest


def test_errors_of_repeated_values() -> None:
    program = Program()
    main = program.get_main_module()
    x, dims = main.add_parameter("x", Shape("float32", [12, 5])), main.add_parameter("dims", Shape("int64", [2]))
    main.add_return([main.add(mgx.op("neg"), main.add(mgx.op("reshape"), x, dims))])
    program, runner = compiled(program)
    for _ in range(repeated(runner).enough + 2):
        with pytest.raises(mgx.MgxError, match="7"):
            program.run({"x": X, "dims": np.array([7, 9])})
    (found,) = program.run({"x": X, "dims": np.array([6, 10])})
    np.testing.assert_array_equal(np.asarray(found), -X.reshape(6, 10))
