"""Runs on the addresses of arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from mgx_core import Dim, Instruction, Module, Program, Shape, ShapeError, get_target
from mgx_core import dtype as dt
from mgx_core.ops.index import Gather
from mgx_core.ops.pointwise import Add, Mul
from mgx_core.types.dim import symbol


def compiled(build: Callable[[Module], Sequence[Instruction]], *given: np.ndarray, **options: int) -> Program:
    """Returns a program that has run once, since results are checked then."""
    program = Program()
    main = program.get_main_module()
    main.add_return(build(main))
    program.compile(get_target("cpu"), **options)
    program.run(dict(zip(program.get_parameter_names(), given, strict=True)))
    return program


def vector(main: Module, name: str, extent: Dim = 4, dtype: dt.DType = dt.float32) -> Instruction:
    return main.add_parameter(name, Shape.of(dtype, [extent]))


def call(program: Program) -> Callable[[Sequence[int], Sequence[int]], None] | None:
    assert program.executable is not None
    return program.executable.addressed()


def test_results_are_written_at_the_addresses_for_them() -> None:
    def build(main: Module) -> list[Instruction]:
        x, _, y = (vector(main, n) for n in ("x", "unread", "y"))
        return [main.add(Mul(), x, y), main.add(Add(), x, y)]

    x, unread, y = (np.arange(4, dtype=np.float32) + n for n in range(3))
    run = call(compiled(build, x, unread, y))
    assert run is not None
    product, total = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for _ in range(2):
        x += 1
        run([v.ctypes.data for v in (x, unread, y)], [product.ctypes.data, total.ctypes.data])
        assert np.array_equal(product, x * y)
        assert np.array_equal(total, x + y)


def test_errors_are_those_of_other_runs() -> None:
    def build(main: Module) -> list[Instruction]:
        return [main.add(Gather(), vector(main, "x"), vector(main, "places", dtype=dt.int64))]

    x, places = np.ones(4, np.float32), np.zeros(4, np.int64)
    run = call(compiled(build, x, places))
    assert run is not None
    places[1] = 9
    with pytest.raises(ShapeError, match="9"):
        run([x.ctypes.data, places.ctypes.data], [np.zeros(4, np.float32).ctypes.data])


def test_results_that_are_arguments_or_shared_and_open_extents_have_no_such_run() -> None:
    x = np.ones(4, np.float32)

    def returned(main: Module) -> list[Instruction]:
        return [vector(main, "x")]

    def shared(main: Module) -> list[Instruction]:
        y = main.add(Mul(), *[vector(main, "x")] * 2)
        return [y, y]

    def squared(main: Module) -> list[Instruction]:
        return [main.add(Mul(), *[vector(main, "x", symbol("n", 1, 8))] * 2)]

    for build in (returned, shared, squared):
        assert call(compiled(build, x)) is None
    limited = compiled(lambda main: [main.add(Mul(), *[vector(main, "x")] * 2)], x, limit_bytes=1 << 20)
    assert call(limited) is None
