"""`program.verify`: a target's results compared with the reference."""

from __future__ import annotations

import numpy as np
import pytest

import migraphx
from mgx_core import ParameterError

MODES = migraphx.program_verify_mode


def small() -> migraphx.program:
    """relu(x + 1) @ x."""
    p = migraphx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", migraphx.shape(type="float", lens=[2, 2]))
    one = main.add_literal(np.ones((2, 2), np.float32))
    positive = main.add_instruction(migraphx.op("relu"), [main.add_instruction(migraphx.op("add"), [x, one])])
    main.add_return([main.add_instruction(migraphx.op("dot"), [positive, x])])
    return p


def test_results_that_agree() -> None:
    p = small()
    result = p.verify(migraphx.get_target("cpu"))
    assert result.passed() and result.mode is MODES.outputs and result.failure_step is None and result.failures() == []
    (whole,) = result.results
    assert (whole.name, whole.operator, whole.message, whole.index) == ("", "@return", "", 0)
    assert whole.passed and not whole.exception and whole.rms_error < 1e-6
    assert not p.is_compiled()


@pytest.mark.parametrize(
    ("mode", "steps"), [("instructions", [0, 1, 2]), ("reduce", [2, 1, 0]), ("bisect", [2]), ("layerwise", [0, 1, 2])]
)
def test_steps_that_agree(mode, steps) -> None:
    result = small().verify(migraphx.get_target("cpu"), MODES[mode])
    assert result.passed() and result.failure_step is None
    assert [r.index for r in result.results] == steps
    assert [r.operator for r in result.results] == [["add", "relu", "dot"][n] for n in steps]


def failing(mode: str) -> tuple[migraphx.program, object]:
    """Verifies products whose factors are equal in float16, with tolerances that float16 cannot meet."""
    options = migraphx.program_verify_options(rms_tol=1e-7, atol=1e-7, rtol=1e-7, name="narrow")
    options.precision = migraphx.program_verify_precision.fp16
    x = np.array([[1.0001, 2.0003], [3.0007, 4.0009]], np.float32)
    return small().verify(migraphx.get_target("ref"), MODES[mode], {"x": x}, options)


@pytest.mark.parametrize("mode", ["instructions", "reduce", "bisect", "layerwise"])
def test_the_first_step_that_differs(mode) -> None:
    result = failing(mode)
    assert not result.passed() and result.failure_step == 0
    assert "elements differ" in result.failures()[0].message and not result.failures()[0].exception


def test_results_that_differ() -> None:
    result = failing("outputs")
    assert not result.passed() and result.failure_step is None and result.results[0].name == "narrow"
    assert result.failures() == result.results and result.results[0].rms_error > 1e-6


def test_a_saved_program_and_options(tmp_path) -> None:
    other = migraphx.program()
    main = other.get_main_module()
    x = main.add_parameter("x", migraphx.shape(type="float", lens=[2, 2]))
    main.add_return([main.add_instruction(migraphx.op("neg"), [x])])
    options = migraphx.program_verify_options(compiled_model=str(tmp_path / "other.mxr"))
    migraphx.save(other, options.compiled_model)
    uncompiled = small().verify(migraphx.get_target("ref"), options=options).results[0]
    assert uncompiled.exception and "not compiled" in uncompiled.message
    other.compile(migraphx.get_target("ref"))
    migraphx.save(other, options.compiled_model)
    assert not small().verify(migraphx.get_target("ref"), options=options).passed()
    assert other.verify(migraphx.get_target("ref"), options=options).passed()
    plain = migraphx.program_verify_options()
    plain.set_backend_option("no_such_option", True)
    assert "no_such_option" in small().verify(migraphx.get_target("ref"), options=plain).results[0].message
    with pytest.raises(ParameterError, match="'x'"):
        small().verify(migraphx.get_target("ref"), params={"x": np.ones(3, np.float32)})
