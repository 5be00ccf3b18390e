"""Programs that take changing extents as arguments: what is compiled for new extents, and the results for any of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from growing_decoder import close, decoder, fed

import mgx_core as mgx
from mgx_core.ir.module import Module
from mgx_core.ops.operation import Operation
from mgx_core.run.changing_extents import ATTEMPTS, WHOLE
from mgx_core.run.open_instance import REPEATS, OpenInstance
from mgx_core.targets.open_program import OpenProgram
from mgx_core.types.argument import Array
from mgx_core.types.dim import broadcast, symbol


@mgx.define_op("test.open_exp")
class OpenExp(Operation):
    """exp of a tensor of any rank, like frontends add for ops that need ranks: -> tuple of one result."""

    def infer(self, x: mgx.Shape) -> mgx.TupleShape:
        return mgx.TupleShape([mgx.Shape.unranked(x.dtype)])

    def compute(self, x: Array) -> tuple[Array]:
        return (np.exp(x),)

    def module_for(self, shapes: Sequence[Any], values: Sequence[Any]) -> tuple[mgx.Module, list[int]]:
        body = mgx.Module("body")
        body.add_return([body.add(mgx.op("exp"), body.add_parameter("x", shapes[0]))])
        return body, [0]


def opening(compiled: list[Any]) -> Any:
    """Returns a cpu target that notes the programs that it opens."""
    target = type(mgx.get_target("cpu"))()
    make = target.open_program

    def noting(parameters: Any, known: Any, changing: Any, lower: Any) -> Any:
        compiled.append(dict(known))
        return make(parameters, known, changing, lower)

    target.open_program = noting
    return target


def check(program: mgx.Program, layers: int, length: int) -> None:
    given = fed(layers, length)
    close(layers, program.run(given), given)


def test_new_lengths_compile_nothing(compiled: list[Any]) -> None:
    layers = 4
    program = decoder(layers, opening(compiled))
    for length in range(16, 16 + WHOLE + 1):
        check(program, layers, length)
    assert len(compiled) == WHOLE + 1
    kept = len(program.executable.instances())
    for length in (*range(20, 84), 7, 300, 2, 128, 511, 33):
        check(program, layers, length)
    assert len(compiled) == WHOLE + 1
    placements = program.executable.instances()[-1].placements
    assert sum("attention" in p.op for p in placements) == layers
    assert all(p.place == "target" for p in placements)
    assert len(compiled) == WHOLE + 1
    assert len(program.executable.instances()) == kept


def test_lengths_of_zero_and_one_have_programs_of_their_own() -> None:
    program = decoder(2, mgx.get_target("cpu"))
    for length in (16, 17, 18, 19, 1, 0, 20, 1, 0, 2):
        check(program, 2, length)


def test_threads_run_one_program_for_different_lengths() -> None:
    program, wrong = decoder(3, mgx.get_target("cpu")), []
    for length in range(2, WHOLE + 3):
        check(program, 3, length)

    def work(first: int) -> None:
        try:
            for length in range(first, 400, 7):
                check(program, 3, length)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 4, 5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_extents_change_independently(compiled: list[Any]) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    b, t = symbol("b", 0, 99), symbol("t", 0, 999)
    x = m.add_parameter("x", mgx.Shape("float32", [b, t, 24]))
    w = np.random.default_rng(1).standard_normal((24, 24)).astype(np.float32)
    y = m.add(mgx.op("mul"), x, x)
    total = m.add(mgx.op("reduce_sum", axes=[1]), y)
    turned = m.add(mgx.op("transpose", permutation=[0, 2, 1]), m.add(mgx.op("softmax", axis=1), y))
    m.add_return([m.add(mgx.op("dot"), m.add(mgx.op("squeeze", axes=[1]), total), m.add_literal(w)), turned])
    program.compile(opening(compiled))
    for n, lens in enumerate([(4, 5), (5, 6), (6, 7), (7, 8), (4, 64), (16, 3), (7, 320), (9, 16), (64, 2), (5, 33)]):
        if n == WHOLE + 1:
            before = len(compiled)
        given = np.random.default_rng(n).standard_normal((*lens, 24)).astype(np.float32)
        one, other = (np.asarray(r) for r in program.run({"x": given}))
        square = given.astype(np.float64) ** 2
        np.testing.assert_allclose(one, square.sum(1) @ w, rtol=1e-4, atol=1e-3)
        power = np.exp(square - square.max(1, keepdims=True))
        np.testing.assert_allclose(other, (power / power.sum(1, keepdims=True)).swapaxes(1, 2), rtol=1e-4, atol=1e-6)
    assert len(compiled) == before, compiled[before:]


def test_invalid_extents_are_refused_as_before() -> None:
    program = decoder(2, mgx.get_target("cpu"))
    for length in range(4, WHOLE + 6):
        check(program, 2, length)
    given = fed(2, 30)
    with pytest.raises(mgx.ParameterError, match="seen"):
        program.run({**given, "seen": given["seen"][:-1]})
    with pytest.raises(mgx.ParameterError, match="past1"):
        program.run({**given, "past1": given["past1"].astype(np.float64)})
    with pytest.raises(mgx.ParameterError, match="601"):
        program.run(fed(2, 600))


def test_an_extent_as_a_result_is_that_of_each_run() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("t", 0, 99)]))
    m.add_return([m.add(mgx.op("tanh"), x), m.add(mgx.op("dimensions_of", start=0, end=1), x)])
    program.compile(mgx.get_target("cpu"))
    for length in range(3, 3 + WHOLE + 8):
        assert np.asarray(program.run({"x": np.zeros(length, np.float32)})[1]).tolist() == [length]


def test_an_extent_that_a_value_decides_is_an_argument(compiled: list[Any]) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    n = m.add_parameter("n", mgx.Shape("int64", [1]))
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("t", 0, 999), 8]))
    scaled = m.add(mgx.op("mul"), x, x)
    zeros = m.add(mgx.op("broadcast_with_dims"), m.add_literal(np.int64(0)), n)
    ones = m.add(mgx.op("exp"), m.add(mgx.op("convert", target_type="float32"), zeros))
    m.add_return([m.add(mgx.op("reduce_sum", axes=[0]), scaled), ones])
    program.compile(opening(compiled))
    for step, (rows, count) in enumerate([(5, 3), (6, 4), (7, 5), (8, 6), (9, 7), (90, 300), (3, 31), (400, 2)]):
        if step == WHOLE + 2:
            before = len(compiled)
        given = np.random.default_rng(step).standard_normal((rows, 8)).astype(np.float32)
        total, made = (np.asarray(r) for r in program.run({"n": np.array([count]), "x": given}))
        np.testing.assert_allclose(total[0], (given**2).sum(0), rtol=1e-4)
        assert made.tolist() == [1.0] * count
    assert len(compiled) == before, compiled[before:]


def test_numbers_of_rows_that_products_decide_are_arguments(compiled: list[Any]) -> None:
    """Rows whose sum is positive are selected, then those whose last element is; counts are also 0 and 1."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("t", 0, 999), 4]))

    def selected(rows: Any, by: Any) -> Any:
        zero = m.add(mgx.op("multibroadcast", out_lens=by.shape.dims), m.add_literal(np.float32(0)))
        places = m.add(mgx.op("nonzero"), m.add(mgx.op("greater"), by, zero))
        return m.add(mgx.op("gather", axis=0), rows, m.add(mgx.op("squeeze", axes=[0]), places))

    def last(rows: Any) -> Any:
        return m.add(mgx.op("squeeze", axes=[1]), m.add(mgx.op("slice", axes=[1], starts=[3], ends=[4]), rows))

    sums = m.add(mgx.op("squeeze", axes=[1]), m.add(mgx.op("reduce_sum", axes=[1]), x))
    once = selected(m.add(mgx.op("exp"), x), sums)
    shifted = m.add(mgx.op("log"), once)
    m.add_return([once, selected(shifted, last(shifted))])
    program.compile(opening(compiled))
    rng = np.random.default_rng(0)
    for step, rows in enumerate([*range(5, 5 + WHOLE), 40, 90, 33, 30, 31, 32, 50, 60, 70, 71, 72]):
        given = rng.standard_normal((rows, 4)).astype(np.float32)
        kept = 1 if step % 3 == 1 else 0 if step % 3 == 2 else rows // 2
        given[kept:] = -abs(given[kept:])
        given[:kept] = abs(given[:kept])
        given[: kept // 2, 3] *= -0.01
        if step == WHOLE + 4:
            before = len(compiled)
        one, two = (np.asarray(r) for r in program.run({"x": given}))
        chosen = given[given.sum(1) > 0]
        np.testing.assert_allclose(one, np.exp(chosen), rtol=1e-5)
        np.testing.assert_allclose(two, chosen[chosen[:, 3] > 0], rtol=1e-4, atol=1e-5)
    assert len(compiled) == before, compiled[before:]


def test_attempts_to_open_a_program_end() -> None:
    asked: list[Any] = []
    target: Any = type(mgx.get_target("cpu"))()
    target.open_program = lambda *given: asked.append(given)
    program = decoder(2, target)
    for length in range(3, 3 + WHOLE + 4 * ATTEMPTS):
        check(program, 2, length)
    assert len([parameters for parameters, *_ in asked if "seen" in parameters]) == ATTEMPTS


def test_extents_that_repeat_have_a_program_of_their_own_if_that_has_faster_kernels(compiled: list[Any]) -> None:
    rng = np.random.default_rng(2)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [1, 3, symbol("h", 0, 999), symbol("w", 0, 999)]))
    kernels = rng.standard_normal((8, 3, 3, 3)).astype(np.float32)
    y = m.add(mgx.op("convolution", padding=[1, 1], stride=[2, 2]), x, m.add_literal(kernels))
    m.add_return([m.add(mgx.op("relu"), y)])
    program.compile(opening(compiled))
    program_of = mgx.Program
    exact = program_of()
    n = exact.get_main_module()
    inside = n.add_parameter("x", mgx.Shape("float32", [1, 3, symbol("h", 0, 999), symbol("w", 0, 999)]))
    z = n.add(mgx.op("convolution", padding=[1, 1], stride=[2, 2]), inside, n.add_literal(kernels))
    n.add_return([n.add(mgx.op("relu"), z)])
    exact.compile(mgx.get_target("ref"))

    def run(h: int, w: int) -> None:
        given = {"x": rng.standard_normal((1, 3, h, w)).astype(np.float32)}
        got, known = (np.asarray(p.run(given)[0]) for p in (program, exact))
        np.testing.assert_allclose(got, known, rtol=1e-4, atol=1e-5)

    for size in range(20, 40):
        run(size, 60 - size)
    for h, w in ((31, 50), (47, 22)):
        exact.run({"x": np.zeros((1, 3, h, w), np.float32)})
    opened = len(compiled)
    for _ in range(REPEATS + 3):
        run(31, 50)
    assert len(compiled) == opened + 1
    run(47, 22)
    assert len(compiled) == opened + 1


def test_positions_and_masks_are_computed_from_extents_as_arguments(compiled: list[Any]) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    t = symbol("t", 0, 9999)
    x = m.add_parameter("x", mgx.Shape("float32", [t]))
    count = m.add(mgx.op("dimensions_of", start=0, end=1), x)
    end = m.add(mgx.op("reshape", dims=[]), m.add(mgx.op("mul"), count, m.add_literal(np.array([2]))))
    zero, two = m.add_literal(np.int64(0)), m.add_literal(np.int64(2))
    places = m.add(mgx.op("dynamic_range", length=t), zero, end, two)
    m.add_return([m.add(mgx.op("add"), x, m.add(mgx.op("convert", target_type="float32"), places))])
    program.compile(opening(compiled))
    for step, length in enumerate((9, 8, 7, 6, 5, 44, 300, 2)):
        if step == WHOLE + 1:
            before = len(compiled)
        (got,) = program.run({"x": np.full(length, 0.5, np.float32)})
        np.testing.assert_array_equal(np.asarray(got), 2 * np.arange(length) + 0.5)
    assert len(compiled) == before, compiled[before:]


def test_values_may_not_exceed_the_limit() -> None:
    program = decoder(2, mgx.get_target("cpu"), limit_bytes=1 << 14)
    for length in range(16, 16 + WHOLE + 4):
        check(program, 2, length)
    with pytest.raises(mgx.MgxError, match="allowed"):
        program.run(fed(2, 500))
    check(program, 2, 40)


def test_arguments_are_taken_if_their_extents_have_the_declared_relations() -> None:
    n, k = symbol("a batch; import os", 1, 64), symbol("n1", 0, 9)
    parameters = {
        "x": mgx.Shape("float32", [4, (n + 1) // 2]),
        "y": mgx.Shape("float32", [n, k, n]),
        "z": mgx.Shape("int64", [broadcast(n, k)]),
    }
    program = OpenProgram(None, lambda known: known["n1"] != 3, lambda: (), False)  # type: ignore[arg-type]
    opened = OpenInstance(program, None, parameters)  # type: ignore[arg-type]

    def takes(*lens: tuple[int, ...], last: type = np.int64) -> bool:
        types = [np.dtype(np.float32)] * (len(lens) - 1) + [np.dtype(last)]
        return opened.takes(tuple(zip(types, lens, strict=True)))

    assert takes((4, 3), (5, 1, 5), (5,)) and takes((4, 4), (8, 8, 8), (8,))
    assert not takes((4, 3), (5, 1, 5), (5,), last=np.int32)
    assert not takes((4, 3), (5, 1, 5)) and not takes((4, 3), (5, 1), (5,))
    assert not takes((3, 3), (5, 1, 5), (5,)) and not takes((4, 2), (5, 1, 5), (5,))
    assert not takes((4, 3), (5, 1, 6), (5,)) and not takes((4, 3), (5, 1, 5), (1,))
    assert not takes((4, 33), (65, 1, 65), (65,)) and not takes((4, 3), (5, 3, 5), (5,))


@pytest.mark.parametrize("columns", [1, 5])
def test_ranks_that_extents_decide_are_those_of_all_larger_ones(compiled: list[Any], columns: int) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n", 0, 999), symbol("k", 0, 9), 4]))
    counted = m.add(mgx.op("dimensions_of", start=1, end=2), x)
    product = m.add(mgx.op("mul"), x, x)
    then, other = Module("then"), Module("other")
    then.add_return([then.add(mgx.op("reduce_sum", axes=[0]), then.add(mgx.op("squeeze", axes=[1]), product))])
    other.add_return([other.add(mgx.op("reduce_sum", axes=[0]), product)])
    one = m.add(mgx.op("equal"), counted, m.add_literal(np.ones(1, np.int64)))
    m.add_return([m.add(mgx.op("get_tuple_elem", index=0), m.add(mgx.op("if"), one, modules=[then, other]))])
    program.compile(opening(compiled))
    for step, rows in enumerate([5, 6, 7, 8, 9, 400, 3, 2, 1, 0, 50]):
        if step == WHOLE + 2:
            before = len(compiled)
        given = np.random.default_rng(step).standard_normal((rows, columns, 4)).astype(np.float32)
        found = np.asarray(program.run({"x": given})[0])
        np.testing.assert_allclose(found, (given**2).sum(0).reshape(found.shape), rtol=1e-4, atol=1e-6)
        assert found.shape == ((1, 4) if columns == 1 else (1, 5, 4))
    assert len(compiled) == before + 2  # of 0 rows and of 1


def test_branches_whose_results_differ_in_rank_are_opened(compiled: list[Any]) -> None:
    """Two that stay at the end of the program, and one in each branch of the first."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n", 0, 999), 1, 4]))
    c, d = (m.add_parameter(name, mgx.Shape("bool", [])) for name in ("c", "d"))
    item = mgx.op("get_tuple_elem", index=0)
    product = m.add(mgx.op("mul"), x, x)
    total = m.add(mgx.op("reduce_sum", axes=[2]), product)

    def branches(condition: Any, op: Any, value: Any) -> Any:
        """Returns the op of a value, or the value."""
        then, other = Module("then"), Module("other")
        found = then.add(op, value)
        then.add_return([then.add(item, found) if isinstance(op, OpenExp) else found])
        other.add_return([value])
        return m.add(item, m.add(mgx.op("if"), condition, modules=[then, other]))

    first = m.add(item, m.add(OpenExp(), branches(c, mgx.op("squeeze", axes=[2]), total)))
    m.add_return([branches(d, OpenExp(), first), branches(d, mgx.op("squeeze", axes=[1]), product), total])
    program.compile(opening(compiled))
    for step, rows in enumerate([5, 6, 7, 8, 9, 10, 11, 400, 3, 2, 50, 51]):
        if step == WHOLE + 5:
            before = len(compiled)
        chosen = step % 2 == 0, step % 4 < 2
        given = np.random.default_rng(step).random((rows, 1, 4), np.float32)
        results = program.run({"x": given, "c": np.array(chosen[0]), "d": np.array(chosen[1])})
        summed = (given**2).sum(2, keepdims=True)
        power = np.exp(summed[..., 0] if chosen[0] else summed)
        squares = given**2
        wanted = (np.exp(power) if chosen[1] else power, squares[:, 0] if chosen[1] else squares, summed)
        for found, right in zip(map(np.asarray, results), wanted, strict=True):
            assert found.shape == right.shape
            np.testing.assert_allclose(found, right, rtol=1e-4)
    assert len(compiled) == before, compiled[before:]
