"""Programs whose shapes keep changing: what is compiled for a new shape, and that results equal those of the whole program."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from growing_decoder import WIDTH, close, decoder, fed, weights

import mgx_core as mgx
from mgx_core.run import executable
from mgx_core.run.changing_extents import WHOLE
from mgx_core.run.pieces import RUNS, PiecesRunner
from mgx_core.types.dim import symbol


def check(program: mgx.Program, layers: int, length: int) -> list[Any]:
    given = fed(layers, length)
    results = program.run(given)
    close(layers, results, given)
    return [np.asarray(r) for r in results]


def target_of(name: str) -> Any:
    """Returns a target that compiles no programs for all extents, so that programs run in pieces."""
    target = type(mgx.get_target(name))()
    target.opens_programs = False
    return target


def runner(program: mgx.Program) -> Any:
    return program.executable.instances()[-1].runner


@pytest.mark.parametrize("layers", [2, 6])
@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_a_new_length_compiles_what_depends_on_it_once_for_all_layers(
    target: str, layers: int, compiled: list[Any]
) -> None:
    program = decoder(layers, target_of(target))
    for length in range(1, WHOLE + 1):
        check(program, layers, length)
    assert len(compiled) == WHOLE and not isinstance(runner(program), PiecesRunner)
    check(program, layers, 20)
    assert isinstance(runner(program), PiecesRunner)
    for length in (31, 5, 100):
        before = len(compiled)
        check(program, layers, length)
        assert len(compiled) == before + 1
        check(program, layers, length)
        assert len(compiled) == before + 1
    check(program, layers, 0)
    check(program, layers, 17)
    placements = program.executable.instances()[-1].placements
    assert sum("softmax" in p.op or "attention" in p.op for p in placements) == layers


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_a_frequent_length_is_compiled_as_a_whole(target: str, compiled: list[Any]) -> None:
    program = decoder(3, target_of(target))
    for length in range(1, WHOLE + 2):
        check(program, 3, length)
    first = check(program, 3, 9)
    count = len(compiled)
    for _ in range(RUNS - 2):
        check(program, 3, 9)
    assert len(compiled) == count and runner(program).ran
    check(program, 3, 9)
    assert len(compiled) == count + 1 and not runner(program).ran
    for one, other in zip(check(program, 3, 9), first, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_times_are_those_of_the_whole_program() -> None:
    program = decoder(2, target_of("cpu"))
    for length in range(1, WHOLE + 2):
        check(program, 2, length)
    assert isinstance(runner(program), PiecesRunner)
    assert sum(len(t.seconds) for t in program.executable.time(fed(2, WHOLE + 1), 2)) > 8


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_constants_of_the_whole_program_stay_its_own(target: str) -> None:
    """An extent is a constant of a program compiled for one length: callers receive a copy of it."""
    program = mgx.Program()
    m = program.get_main_module()
    ids = m.add_parameter("ids", mgx.Shape("int64", [symbol("t", 1, 99)]))
    x = m.add_parameter("x", mgx.Shape("float32", [1, WIDTH]))
    for w, *_ in weights(6):
        x = m.add(mgx.op("tanh"), m.add(mgx.op("dot"), x, m.add_literal(w)))
    m.add_return([x, m.add(mgx.op("dimensions_of", start=0, end=1), ids)])
    program.compile(target_of(target))
    for length in (1, 2, 3, *[8] * (RUNS + 4)):
        given = {"x": np.ones((1, WIDTH), np.float32), "ids": np.zeros(length, np.int64)}
        told = np.asarray(program.run(given)[1])
        assert told.tolist() == [length]
        told += 100
    assert isinstance(runner(program), PiecesRunner) and not runner(program).ran


def test_pieces_are_not_cut_again() -> None:
    program = decoder(2, target_of("cpu"))
    names = set()
    for length in range(1, 40):
        check(program, 2, 300 + length)  # from here on, the mask has too many elements for numpy
        names.add(len(program.executable.instances()))
        for instance in runner(program).ran if isinstance(runner(program), PiecesRunner) else ():
            assert not isinstance(getattr(instance, "runner", None), PiecesRunner)
    assert len(names) > WHOLE


def test_without_memory_for_the_whole_program_pieces_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    program = decoder(2, target_of("cpu"))
    for length in range(1, WHOLE + 2):
        check(program, 2, length)

    def full(*given: Any) -> Any:
        raise MemoryError

    check(program, 2, 9)
    monkeypatch.setattr(executable, "instantiated", full)
    for _ in range(RUNS + 2):
        check(program, 2, 9)
    assert runner(program).ran


def test_threads_run_pieces_of_one_program() -> None:
    program, wrong = decoder(3, target_of("cpu")), []
    for length in range(1, WHOLE + 2):
        check(program, 3, length)

    def work(start: int) -> None:
        try:
            for length in range(start, 40, 4):
                check(program, 3, length)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_pieces_are_no_news_for_kept_programs_and_results_own_their_memory() -> None:
    program, told = decoder(2, target_of("cpu")), []
    for length in range(1, WHOLE + 1):
        check(program, 2, length)
    program.executable.on_instance = told.append
    given = fed(2, 30)
    results = [np.asarray(r) for r in program.run(given)]
    assert isinstance(runner(program), PiecesRunner) and not told
    copies = [r.copy() for r in results]
    for value in given.values():
        value[...] = 0
    check(program, 2, 30)
    for result, copy in zip(results, copies, strict=True):
        np.testing.assert_array_equal(result, copy)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_program_that_depends_on_its_length_everywhere_stays_whole(layers: int) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("t", 1, 99), WIDTH]))
    for w, *_ in weights(layers):
        x = m.add(mgx.op("tanh"), m.add(mgx.op("dot"), x, m.add_literal(w)))
    m.add_return([x])
    program.compile(target_of("cpu"))
    for length in range(1, WHOLE + 4):
        program.run({"x": np.ones((length, WIDTH), np.float32)})
        assert not isinstance(runner(program), PiecesRunner)


def test_an_extent_that_a_value_decides_splits_a_program(compiled: list[Any]) -> None:
    """The piece that reads the value is interpreted; those with its extent are compiled for each, the others once."""
    program, w = mgx.Program(), np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) / 2
    m = program.get_main_module()
    length = m.add_parameter("length", mgx.Shape("int64", [1]))
    last = m.add_parameter("last", mgx.Shape("int64", [1]))
    x = m.add_parameter("x", mgx.Shape("float32", [1, 1, 1, 4]))
    past = m.add_parameter("past", mgx.Shape("float32", [1, 1, symbol("p"), 4]))
    weights = m.add_literal(w.reshape(1, 1, 4, 4))
    n = m.add(mgx.op("broadcast_with_dims"), m.add_literal(np.array(0)), length).shape.dims[0]
    for _ in range(2):
        for _ in range(6):
            x = m.add(mgx.op("dot"), x, weights)
        cache = m.add(mgx.op("concat_past_present", length=n), x, last, past)
        x = m.add(mgx.op("reduce_max", axes=(2,)), cache)
    m.add_return([x])
    program.compile(target_of("cpu"))
    given = np.ones((1, 1, 1, 4), np.float32)

    def run(tokens: int) -> None:
        rows, wanted = np.random.default_rng(tokens).standard_normal((1, 1, tokens, 4)).astype(np.float32), given
        for _ in range(2):
            wanted = np.maximum(wanted @ np.linalg.matrix_power(w, 6), rows.max(2, keepdims=True, initial=-np.inf))
        feeds = {"length": np.array([tokens + 1]), "last": np.array([tokens]), "x": given, "past": rows}
        np.testing.assert_allclose(program.run(feeds)[0], wanted, rtol=1e-4, atol=1e-5)

    for tokens in range(1, WHOLE + 2):
        run(tokens)
    assert isinstance(runner(program), PiecesRunner)
    for tokens in (20, 7):
        before = len(compiled)
        run(tokens)
        assert len(compiled) == before + 1


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_a_branch_runs_after_the_value_that_decides_its_extents(target: str) -> None:
    """It reads no other value with that extent, and a piece of its kind could start before the extent is known."""
    program, w = mgx.Program(), np.eye(4, dtype=np.float32)[::-1].copy()
    m = program.get_main_module()
    chosen = m.add_parameter("chosen", mgx.Shape("bool", [1]))
    length = m.add_parameter("length", mgx.Shape("int64", [1]))
    x = m.add_parameter("x", mgx.Shape("float32", [1, 4]))
    most = m.add(mgx.op("reduce_max", axes=(0,)), m.add_parameter("past", mgx.Shape("float32", [symbol("p"), 4])))
    y = x
    for _ in range(12):
        y = m.add(mgx.op("relu"), m.add(mgx.op("dot"), y, m.add_literal(w)))
    n = m.add(mgx.op("broadcast_with_dims"), m.add_literal(np.array(0)), length).shape.dims[0]
    then, other = program.create_module("then"), program.create_module("other")
    rows = then.add(mgx.op("multibroadcast", out_lens=(n, 4)), x)
    then.add_return([then.add(mgx.op("reduce_sum", axes=(0,)), rows)])
    other.add_return([other.add(mgx.op("mul"), x, x)])
    total = m.add(mgx.op("get_tuple_elem", index=0), m.add(mgx.op("if"), chosen, modules=[then, other]))
    m.add_return([total, most, m.add(mgx.op("multibroadcast", out_lens=(n, 4)), y)])
    program.compile(target_of(target))
    given = np.full((1, 4), 3, np.float32)
    for tokens in range(1, WHOLE + 5):
        past = np.full((tokens, 4), tokens, np.float32)
        feeds = {"chosen": np.array([tokens % 2 == 0]), "length": np.array([tokens + 1]), "x": given, "past": past}
        total, most, rows = map(np.asarray, program.run(feeds))
        np.testing.assert_array_equal(total, given * (3 if tokens % 2 else tokens + 1))
        np.testing.assert_array_equal(most, past[:1])
        np.testing.assert_array_equal(rows, np.full((tokens + 1, 4), 3))
    assert isinstance(runner(program), PiecesRunner)


def test_the_tokens_of_a_mask_are_counted_without_compiling(compiled: list[Any]) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    mask = m.add_parameter("mask", mgx.Shape("int64", [2, symbol("t")]))
    x = m.add_parameter("x", mgx.Shape("float32", [2, 4]))
    table = m.add_literal(np.arange(16, dtype=np.float32))
    tokens = m.add(mgx.op("gather", axis=0), table, m.add(mgx.op("reduce_sum", axes=(1,)), mask))
    for _ in range(4):
        x = m.add(mgx.op("relu"), m.add(mgx.op("dot"), x, m.add_literal(np.eye(4, dtype=np.float32)[::-1].copy())))
    m.add_return([m.add(mgx.op("mul"), x, m.add(mgx.op("multibroadcast", out_lens=(2, 4)), tokens))])
    program.compile(target_of("cpu"))
    for t in range(1, WHOLE + 6):
        feeds = {"mask": np.tril(np.ones((2, t), np.int64), t - 2), "x": np.ones((2, 4), np.float32)}
        before = len(compiled)
        np.testing.assert_array_equal(program.run(feeds)[0], np.repeat([[t - 1], [t]], 4, 1))
        if t > WHOLE + 1:
            assert isinstance(runner(program), PiecesRunner) and len(compiled) == before


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_the_length_of_a_prompt_does_not_count_as_changing(target: str, compiled: list[Any]) -> None:
    """Everything depends on the number of new tokens, which stays the same after a prompt; a second prompt changes nothing."""
    program, width = mgx.Program(), 4
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("s"), width]))
    past = m.add_parameter("past", mgx.Shape("float32", [symbol("p"), width]))
    w = np.eye(width, dtype=np.float32)[::-1].copy()
    for _ in range(8):
        x = m.add(mgx.op("relu"), m.add(mgx.op("dot"), x, m.add_literal(w)))
    m.add_return([m.add(mgx.op("concat", axis=0), past, x)])
    program.compile(target_of(target))

    def run(new: int, old: int) -> None:
        x, past = np.full((new, width), 2, np.float32), np.full((old, width), 3, np.float32)
        np.testing.assert_array_equal(program.run({"x": x, "past": past})[0], np.concatenate([past, x]))

    for prompt in (5, 6):
        run(prompt, 0)
        for old in range(WHOLE + 1):
            run(1, 10 * prompt + old)
        run(1, 40 * prompt)
        assert isinstance(runner(program), PiecesRunner)
        before = len(compiled)
        run(1, 40 * prompt + 1)
        assert len(compiled) <= before + 1
