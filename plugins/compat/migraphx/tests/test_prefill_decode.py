"""Models with a module for one token and one for the longest prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import migraphx
from mgx_core.errors import ParameterError, ShapeError

F32 = np.float32
LONGEST = 6
RANGE = migraphx.shape.dynamic_dimension(1, LONGEST)
WEIGHT = np.arange(6, dtype=F32).reshape(2, 3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Returns x W and the number of tokens, with a symbolic batch."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence_length", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "sequence_length", 3])
    count = helper.make_tensor_value_info("count", TensorProto.INT64, [3])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Shape", ["x"], ["count"])]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y, count], [numpy_helper.from_array(WEIGHT, "w")]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def parsed(model: Path, option: str = "unify_prefill_decode", buffer: bool = False, **options: Any) -> migraphx.program:
    given: dict[str, Any] = {option: True, "use_symbolic_shapes": True, "dim_params": {"sequence_length": RANGE}}
    if buffer:
        return migraphx.parse_onnx_buffer(model.read_bytes(), **given | options)
    return migraphx.parse_onnx(model, **given | options)


@pytest.mark.parametrize("buffer", [False, True])
@pytest.mark.parametrize("option", ["unify_prefill_decode", "split_prefill_decode"])
def test_a_module_for_each_length(option: str, buffer: bool, model: Path) -> None:
    p = parsed(model, option, buffer)
    names = [i.name() for i in p.get_main_module()]
    assert names.count("select_module") == 1 and names.count("@literal") == 1  # the weight is stored once
    length = p.get_parameter_shapes()["x"].dyn_dims()[1]
    assert length.is_symbolic() and (length.min, length.max) == (1, LONGEST)
    text = str(p)
    assert "main:phase:decode" in text and "main:phase:prefill" in text


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_both_lengths_run_and_others_are_refused(target: str, model: Path) -> None:
    p = migraphx.load_buffer(migraphx.save_buffer(parsed(model)))
    p.compile(migraphx.get_target(target))
    for tokens in (1, LONGEST):
        x = np.linspace(-1, 1, 2 * tokens, dtype=F32).reshape(1, tokens, 2)
        found, count = p.run({"x": x})
        np.testing.assert_allclose(np.array(found), x @ WEIGHT, rtol=1e-6)
        assert count.tolist() == [1, tokens, 2]
    with pytest.raises(ShapeError, match="none of 2 modules takes"):
        p.run({"x": np.ones((1, 3, 2), F32)})


def test_other_extents_stay_open(model: Path) -> None:
    given = {"sequence_length": RANGE, "batch": migraphx.shape.dynamic_dimension(1, 4)}
    p = parsed(model, dim_params=given)
    p.compile(migraphx.get_target("ref"))
    for rows in (1, 3):
        assert p.run({"x": np.ones((rows, 1, 2), F32)})[0].tolist() == [3, 5, 7] * rows


@pytest.mark.parametrize(
    "given", [{}, {"sequence_length": 6}, {"sequence_length": migraphx.shape.dynamic_dimension(2, 6)}]
)
def test_a_range_from_one_token_is_needed(given: dict[str, Any], model: Path) -> None:
    with pytest.raises(ParameterError, match="requires dim_params\\['sequence_length'\\] with a range from 1"):
        parsed(model, dim_params=given)


@pytest.mark.parametrize("said", ["abc", {"min": 1}, [1, 2, 3, 4, 5]])
def test_invalid_extents_are_rejected_as_elsewhere(said: Any, model: Path) -> None:
    with pytest.raises(ParameterError, match="must be an int or a range"):
        parsed(model, dim_params={"sequence_length": said})


def test_a_model_without_the_axis_is_refused(model: Path) -> None:
    with pytest.raises(ParameterError, match="requires an input with an open extent 'sequence_length'"):
        parsed(model, map_input_dims={"x": [1, 4, 2]})


def test_the_option_off_changes_nothing(model: Path) -> None:
    assert parsed(model, unify_prefill_decode=False) == migraphx.parse_onnx(
        model, use_symbolic_shapes=True, dim_params={"sequence_length": RANGE}
    )
