"""What compiling is asked for beforehand: `migraphx.compile_modes`, and sizes whose kernels are made at once."""

from __future__ import annotations

import numpy as np
import pytest

import migraphx
from mgx_core.errors import ParameterError


@pytest.mark.parametrize(
    ("name", "number", "tunes"), [("eager", 0, False), ("balanced", 50, False), ("max", 100, True)]
)
def test_a_mode_chooses_how_much_is_tuned(name, number, tunes) -> None:
    mode = migraphx.compile_modes[name]
    assert mode.value == number
    p = migraphx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", migraphx.shape(lens=[2]))
    main.add_return([main.add_instruction(migraphx.op("neg"), [x])])
    p.compile(migraphx.get_target("ref"), compile_mode=mode)
    assert p.core.executable.options.exhaustive_tune == tunes
    assert p.run({"x": np.ones(2, np.float32)})[0].tolist() == [-1, -1]


def doubled(*extents: str) -> migraphx.program:
    p = migraphx.program()
    main = p.get_main_module()
    names = {"n": migraphx.shape.dynamic_dimension(1, 4), "m": migraphx.shape.dynamic_dimension(1, 4)}
    x = main.add_parameter("x", migraphx.shape(dyn_dims=list(extents), symbols=names))
    main.add_return([main.add_instruction(migraphx.op("add"), [x, x])])
    return p


def test_sizes_whose_kernels_are_made_at_once() -> None:
    p = doubled("2*n", "3")
    p.compile(migraphx.get_target("cpu"), split_sizes=[1, 4])
    made = p.core.executable.instances()
    assert len(made) == 2
    for rows in (2, 8):
        assert p.run({"x": np.ones((rows, 3), np.float32)})[0].tolist() == [2] * rows * 3
    assert p.core.executable.instances() == made
    p.run({"x": np.ones((4, 3), np.float32)})  # others when they come
    assert len(p.core.executable.instances()) == 3


@pytest.mark.parametrize(
    ("extents", "target", "sizes", "message"),
    [
        (("n", "3"), "ref", [1, 4], "split_sizes is not supported by"),
        (("n", "3"), "cpu", [1, 5], r"split_sizes: n is \[1, 4, \{\}\], got 5"),
        (("n", "m"), "cpu", [1], "open extents are made of one name, got m, n"),
        (("2", "3"), "cpu", [1], "open extents are made of one name, got none"),
    ],
)
def test_sizes_that_cannot_be_chosen(extents, target, sizes, message) -> None:
    with pytest.raises(ParameterError, match=message):
        doubled(*extents).compile(migraphx.get_target(target), split_sizes=sizes)
