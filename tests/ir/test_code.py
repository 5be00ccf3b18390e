"""Programs as Python code that rebuilds them, including extents read by attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Program, Shape, UnsupportedError
from mgx_core.ir.text.cpp import cpp
from mgx_core.types.dim import Dim, symbol
from mgx_core.types.dtype import float32 as FLOAT


def repeated(*dims: Dim) -> Program:
    """Returns a program that repeats x + [1, 2, 3] to the extents of x."""
    made = Program()
    main = made.get_main_module()
    x = main.add_parameter("x", Shape.of(FLOAT, dims))
    row = main.add_literal(np.array([1, 2, 3], np.float32))
    main.add_return([main.add(mgx.op("add"), x, main.add(mgx.op("multibroadcast", out_lens=dims), row))])
    return made


@pytest.mark.parametrize("name", ["batch", "x_0", "Dynamic.Dimension.0", "2 rows", "a-b", "batch?"])
def test_a_script_keeps_the_names_that_attributes_read(name: str) -> None:
    scope: dict[str, Program] = {}
    exec(repeated(symbol(name, 1, 8), 3).to_py(), scope)
    built = scope["p"]
    (result,) = built.get_output_shapes()
    assert result == built.get_parameter_shapes()["x"] and result.dyn_dims()[0].max == 8
    built.compile(mgx.get_target("ref"))
    for rows in (2, 5):
        (found,) = built.run({"x": np.zeros((rows, 3), np.float32)})
        assert found.tolist() == [1, 2, 3] * rows
    with pytest.raises(mgx.ParameterError):
        built.run({"x": np.zeros((9, 3), np.float32)})


def test_rewritten_names_stay_distinct() -> None:
    made = Program()
    main = made.get_main_module()
    rows = [symbol(name, 1, 8) for name in ("a.b", "a_b", "a b")]
    x = [main.add_parameter(f"x{n}", Shape.of(FLOAT, (d,))) for n, d in enumerate(rows)]
    main.add_return([main.add(mgx.op("reshape", dims=[d, 1]), i) for d, i in zip(rows, x, strict=True)])
    scope: dict[str, Program] = {}
    exec(made.to_py(), scope)
    found = scope["p"].get_output_shapes()
    assert len({str(s.dims[0]) for s in found}) == 3 and "a_b" in str(found[1])


def test_a_cpp_program_keeps_them_too() -> None:
    text = cpp(repeated(symbol("batch", 1, 8), 3).get_main_module())
    assert 'migraphx::dynamic_dimension("batch", {{"batch", migraphx::dynamic_dimension(1, 8)}})' in text
    assert r"{\"out_lens\": [\"batch\", 3]}" in text
    alone = Program()
    main = alone.get_main_module()
    main.add_return([main.add(mgx.op("neg"), main.add_parameter("x", Shape.of(FLOAT, (symbol("n", 1, 8),))))])
    # a range evaluates it
    assert "dynamic_dimensions(migraphx::dynamic_dimension(1, 8))" in cpp(alone.get_main_module())


@pytest.mark.parametrize("write", [lambda p: p.to_py(), lambda p: cpp(p.get_main_module())])
def test_extents_that_no_code_can_state(write: Any) -> None:
    program = repeated(3, 3)
    main = program.get_main_module()
    found = main.add(mgx.op("nonzero"), main.parameters["x"])
    rows = found.shape.dims[1]
    one = main.add_literal(np.ones(1, np.float32))
    main.replace_return([main.add(mgx.op("multibroadcast", out_lens=(rows,)), one)])
    with pytest.raises(UnsupportedError, match=r"nonzero\?\d+ is known only at run time"):
        write(program)
    unranked = Program()
    main = unranked.get_main_module()
    x = main.add_parameter("x", Shape.unranked(FLOAT))
    main.add_return([x])
    with pytest.raises(UnsupportedError, match="rank a run finds out; fix the extents of the model's inputs"):
        write(unranked)


def test_attributes_that_are_not_finite() -> None:
    made = Program()
    main = made.get_main_module()
    x = main.add_parameter("x", Shape.of(FLOAT, (2,)))
    main.add_return([main.add(mgx.op("pad", pads=[1, 0], value=float("-inf")), x)])
    assert r"\"value\": -Infinity" in cpp(main)
    scope: dict[str, Program] = {}
    exec(made.to_py(), scope)
    assert scope["p"] == made
