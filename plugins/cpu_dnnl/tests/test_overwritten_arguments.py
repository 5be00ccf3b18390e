"""Results in the memory of arguments that the caller releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mgx_core import Instruction, Module, Program, Shape, get_target
from mgx_core import dtype as dt
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Add, Mul
from mgx_core.ops.scatter import ScatterndNone

ROWS, WIDTH = 6, 4


def compiled(build: Callable[[Module], Sequence[Instruction]], overwritten: Mapping[str, int]) -> Program:
    program = Program()
    main = program.get_main_module()
    main.add_return(build(main))
    program.compile(get_target("cpu"), overwritten=overwritten)
    return program


def matrix(main: Module, name: str) -> Instruction:
    return main.add_parameter(name, Shape.of(dt.float32, [ROWS, WIDTH]))


def runs(program: Program, *values: np.ndarray) -> list[np.ndarray]:
    """Returns the results of a second run, since those of the first are checked and copied."""
    assert program.executable is not None
    program.executable.run_values([v.copy() for v in values])
    return [np.asarray(r) for r in program.executable.run_values(list(values))]


def ramp(start: float) -> np.ndarray:
    return np.arange(start, start + ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)


def test_columns_are_written_to_the_cache_in_place() -> None:
    def build(main: Module) -> list[Instruction]:
        cache = matrix(main, "cache")
        places = main.add_parameter("places", Shape.of(dt.int64, [2, 1]))
        columns = main.add_parameter("columns", Shape.of(dt.float32, [2, ROWS]))
        turned = main.add(Transpose(permutation=(1, 0)), cache)
        written = main.add(Transpose(permutation=(1, 0)), main.add(ScatterndNone(), turned, places, columns))
        return [written, main.add(Mul(), written, written)]

    program = compiled(build, {"cache": 0})
    cache, columns = ramp(0), np.full((2, ROWS), -1, np.float32)
    want = cache.copy()
    want[:, [3, 1]] = -1
    written, squares = runs(program, cache, np.array([[3], [1]]), columns)
    assert np.shares_memory(written, cache)
    assert not np.shares_memory(squares, cache)
    assert np.array_equal(cache, want)
    assert np.array_equal(squares, want * want)


def test_arguments_that_exchange_their_places_are_both_right() -> None:
    def build(main: Module) -> list[Instruction]:
        a, b = matrix(main, "a"), matrix(main, "b")
        return [main.add(Add(), b, b), main.add(Add(), a, a)]

    program = compiled(build, {"a": 0, "b": 1})
    a, b = ramp(0), ramp(100)
    for_a, for_b = runs(program, a, b)
    assert np.array_equal(for_a, ramp(100) * 2)
    assert np.array_equal(for_b, ramp(0) * 2)


def test_values_that_are_read_later_are_kept() -> None:
    def build(main: Module) -> list[Instruction]:
        a, b = matrix(main, "a"), matrix(main, "b")
        added = main.add(Add(), a, b)
        return [
            added,
            main.add(Mul(), main.add(Transpose(permutation=(1, 0)), added), main.add(Transpose(permutation=(1, 0)), a)),
            a,
        ]

    program = compiled(build, {"a": 0})
    a = ramp(0)
    added, product, old = runs(program, a, ramp(1))
    assert np.array_equal(old, ramp(0))
    assert np.array_equal(a, ramp(0))
    assert np.array_equal(added, ramp(0) + ramp(1))
    assert np.array_equal(product, ((ramp(0) + ramp(1)) * ramp(0)).T)


def test_results_own_their_memory_by_default() -> None:
    def build(main: Module) -> list[Instruction]:
        return [main.add(Add(), matrix(main, "a"), matrix(main, "b"))]

    a = ramp(0)
    (added,) = runs(compiled(build, {}), a, ramp(1))
    assert not np.shares_memory(added, a)
    assert np.array_equal(a, ramp(0))


def test_arguments_that_cannot_be_written_to_are_copied() -> None:
    def build(main: Module) -> list[Instruction]:
        return [main.add(Add(), matrix(main, "a"), matrix(main, "b"))]

    program = compiled(build, {"a": 0})
    fixed, turned = ramp(0), np.asfortranarray(ramp(0))
    fixed.flags.writeable = False
    for a in (fixed, turned):
        (added,) = runs(program, a, ramp(1))
        assert np.array_equal(added, ramp(0) + ramp(1))
        assert np.array_equal(a, ramp(0))
