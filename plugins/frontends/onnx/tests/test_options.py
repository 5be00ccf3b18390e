"""Parse options: their effect on a model's inputs, and invalid ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mgx_core as mgx


def model(*dims, nodes=None) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes or [helper.make_node("Relu", ["x"], ["y"], name="act")], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def dims(data: bytes, **options) -> list:
    return list(mgx.parse_onnx_buffer(data, **options).get_parameter_shapes()[0])


def test_open_dimensions_stay_symbols():
    assert [str(d) for d in dims(model("n", 4, "m"))] == ["n", "4", "m"]


@pytest.mark.parametrize("given", [mgx.DynamicDimension(1, 8, {4}), {"min": 1, "max": 8, "optimals": [4]}])
def test_symbols_get_values_and_ranges(given):
    assert dims(model("n", 4), dim_params={"n": 3}) == [3, 4]
    (x,) = mgx.parse_onnx_buffer(model("n", 4), dim_params={"n": given}).get_parameter_shapes().values()
    assert (x.dyn_dims()[0].min, x.dyn_dims()[0].max, set(x.dyn_dims()[0].optimals)) == (1, 8, {4})
    assert str(x[0]) == "n"


def test_defaults_for_open_dimensions():
    assert dims(model("n", 4), default_dim_value=2) == [2, 4]
    (x,) = mgx.parse_onnx_buffer(model("n", 4), default_dyn_dim_value=[1, 6]).get_parameter_shapes().values()
    assert [(d.min, d.max) for d in x.dyn_dims()] == [(1, 6), (4, 4)]


def test_whole_inputs():
    assert dims(model("n", 4), map_input_dims={"x": [5, 6]}) == [5, 6]
    (x,) = mgx.parse_onnx_buffer(model("n", 4), map_dyn_input_dims={"x": [[1, 2], 4]}).get_parameter_shapes().values()
    assert [(d.min, d.max) for d in x.dyn_dims()] == [(1, 2), (4, 4)]


def test_an_input_with_an_initializer_is_a_constant_unless_overridden():
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xwy"]
    w = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", infos[:2], infos[2:], [w])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    feeds = {"x": np.float32([3, 4])}
    for options, given, wanted in (({}, {}, [4, 6]), ({"override": ["w"]}, {"w": np.float32([10, 20])}, [13, 24])):
        program = mgx.parse_onnx_buffer(data, **options)
        assert list(program.get_parameter_shapes()) == ["x", *given]
        program.compile(mgx.get_target("ref"))
        np.testing.assert_array_equal(program.run({**feeds, **given})[0], np.float32(wanted))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map_input_dim": {}}, "frontend 'onnx' takes no option 'map_input_dim'; did you mean 'map_input_dims'"),
        ({"map_input_dims": {"z": [1]}}, "map_input_dims: there is no input 'z'; known are 'x'"),
        ({"map_dyn_input_dims": {"z": [1]}}, "map_dyn_input_dims: there is no input 'z'"),
        ({"override": ["z"]}, "override: there is no input 'z'; known are 'x'"),
        ({"override": "x"}, "override must be a list of strings, got .x."),
        ({"map_input_dims": 3}, "map_input_dims must be a mapping by name, got 3"),
        ({"dim_params": ["n"]}, "dim_params must be a mapping by name"),
        ({"dim_params": {"n": "a"}}, r"dim_params\['n'\] must be an int or a range, got 'a'"),
        ({"map_input_dims": {"x": [1]}, "map_dyn_input_dims": {"x": [1]}}, "'x' is in both"),
        ({"default_dim_value": 1, "default_dyn_dim_value": [1, 2]}, "exclude each other"),
        ({"default_dim_value": "text"}, "frontend 'onnx': default_dim_value must be an int, got 'text'"),
        ({"default_dyn_dim_value": [1]}, r"default_dyn_dim_value must be an int or a range, got \[1\]"),
        ({"map_dyn_input_dims": {"x": ["a", 4]}}, r"map_dyn_input_dims\['x'\] must be an int or a range, got 'a'"),
        ({"limit_nodes": "text"}, "frontend 'onnx': limit_nodes must be an int, got 'text'"),
        ({"max_loop_iterations": None}, "max_loop_iterations must be an int, got None"),
        ({"strict": "no"}, "strict must be true or false, got 'no'"),
        ({"map_input_dims": {"x": [-2]}}, "input 'x': an extent must not be negative, got -2"),
    ],
)
def test_refused_options(options, message):
    with pytest.raises(mgx.MgxError, match=message):
        mgx.parse_onnx_buffer(model("n", 4), **options)


def test_unknown_operators():
    data = model(2, nodes=[helper.make_node("Nope", ["x"], ["y"], name="odd")])
    with pytest.raises(
        mgx.UnsupportedError, match=r"node 'odd' .*operator ai.onnx::Nope \(opset 18\); a package adds one"
    ):
        mgx.parse_onnx_buffer(data)
    kept = mgx.parse_onnx_buffer(data, skip_unknown_operators=True)
    assert [i.name for i in kept.get_main_module()] == ["@param", "unknown", "@return"]


def test_misspelled_operators():
    data = model(2, nodes=[helper.make_node("Sofmax", ["x"], ["y"], name="odd")])
    with pytest.raises(mgx.UnsupportedError, match=r"operator ai.onnx::Sofmax .*; did you mean 'Softmax'\?$"):
        mgx.parse_onnx_buffer(data)


def test_a_cycle_is_named():
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    with pytest.raises(mgx.ParseError, match="the graph has a cycle through node 'first'"):
        mgx.parse_onnx_buffer(model(2, nodes=[*nodes, helper.make_node("Relu", ["b"], ["y"])]))


def test_names_inside_a_branch_may_repeat_those_outside():
    def branch(op_type: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node(op_type, ["x"], ["y"])], op_type, [], [helper.make_empty_tensor_value_info("y")]
        )

    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch("Abs"), else_branch=branch("Neg"))],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    program = mgx.parse_onnx_buffer(made.SerializeToString())
    program.compile(mgx.get_target("ref"))
    x = np.float32([-1, 2])
    for taken, expected in ((True, [1, 2]), (False, [1, -2])):
        assert program.run({"x": x, "c": np.array(taken)})[0].tolist() == expected


def test_symbols_that_the_model_lacks_are_refused():
    with pytest.raises(mgx.ParameterError, match=r"dim_params: no extent .* is called 'batch'; known are n"):
        dims(model("n", 4), dim_params={"batch": 3})


def test_extents_that_the_model_states_are_not_changed_in_silence(caplog):
    assert dims(model("n", 4), map_input_dims={"x": [3, 4]}) == [3, 4]
    assert not caplog.records
    assert dims(model("n", 4), map_input_dims={"x": [3, 5]}) == [3, 5]
    assert "input 'x': the extents [?, 4] of the model are overridden by [3, 5]" in caplog.text


def of_attributes(op: str, domain: str = "", **attributes) -> bytes:
    node = helper.make_node(op, ["x"], ["y"], name="act", domain=domain, **attributes)
    return model(2, 4, nodes=[node, helper.make_node(op, ["y"], ["z"], name="more", domain=domain, **attributes)])


@pytest.mark.parametrize(
    ("given", "operator"),
    [
        (of_attributes("Relu", slope=0.5), "Relu, opset 18"),
        (of_attributes("QuickGelu", "com.microsoft", slope=0.5), "com.microsoft::QuickGelu, opset 1"),
    ],
)
def test_attributes_that_an_operator_does_not_have(given, operator, caplog):
    mgx.parse_onnx_buffer(given)
    (told,) = (r.getMessage() for r in caplog.records)
    assert (
        told
        == f"node 'act' ({operator}) has an attribute 'slope', which the operator does not define; it has no effect"
    )
    with pytest.raises(
        mgx.ParseError, match=r"node 'act' .*the operator does not define the attribute 'slope' \(option strict\)"
    ):
        mgx.parse_onnx_buffer(given, strict=True)


def test_attributes_that_have_an_effect_or_that_the_standard_knows(caplog):
    mgx.parse_onnx_buffer(of_attributes("LeakyRelu", alpha=0.5, consumed_inputs=[0]), strict=False)
    assert len(caplog.records) == 1  # consumed_inputs was removed in opset 6
    caplog.clear()
    mgx.parse_onnx_buffer(of_attributes("QuickGelu", "com.microsoft", alpha=0.5), strict=True)
    mgx.parse_onnx_buffer(of_attributes("Dropout", seed=3), strict=True)
    assert not caplog.records
