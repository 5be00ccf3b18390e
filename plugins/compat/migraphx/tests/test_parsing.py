"""`migraphx.parse_onnx` with MIGraphX's defaults."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import migraphx
from mgx_core.errors import ParameterError, UnsupportedError


def saved(tmp_path, nodes, inputs, outputs, name="model.onnx"):
    values = lambda given: [helper.make_tensor_value_info(n, t, s) for n, t, s in given]  # noqa: E731
    model = helper.make_model(
        helper.make_graph(nodes, "g", values(inputs), values(outputs)),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    path = tmp_path / name
    onnx.save(model, path)
    return str(path)


def open_softmax(tmp_path) -> str:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    return saved(tmp_path, [node], [("x", TensorProto.FLOAT, ["n", 4])], [("y", TensorProto.FLOAT, ["n", 4])])


def test_symbolic_dimensions_default_to_1(tmp_path) -> None:
    path = open_softmax(tmp_path)
    given = migraphx.shape.dynamic_dimension(1, 8)
    for options, wanted in (
        ({}, [1, 4]),
        ({"default_dim_value": 3}, [3, 4]),
        ({"default_dyn_dim_value": migraphx.shape.dynamic_dimension(2, 2)}, [2, 4]),
        ({"default_dyn_dim_value": migraphx.shape.dynamic_dimension(0, 0)}, [0, 4]),
        ({"dim_params": {"n": 5}}, [5, 4]),
        ({"map_input_dims": {"x": [6, 4]}}, [6, 4]),
    ):
        assert migraphx.parse_onnx(path, **options).get_parameter_shapes()["x"].lens() == wanted
    assert migraphx.parse_onnx(path, 0, given).get_parameter_shapes()["x"].dyn_dims()[0].max == 8
    ranged = migraphx.parse_onnx(
        filename=path, map_dyn_input_dims={"x": [given, migraphx.shape.dynamic_dimension(4, 4)]}
    )
    assert ranged.get_parameter_shapes()["x"].dyn_dims()[0].max == 8
    with pytest.raises(ParameterError, match="mutually exclusive"):
        migraphx.parse_onnx(path, default_dim_value=2, default_dyn_dim_value=given)
    with open(path, "rb") as file:
        assert migraphx.parse_onnx_buffer(filename=file.read()).get_output_shapes()[0].lens() == [1, 4]


def test_extents_of_inputs_that_are_expressions(tmp_path) -> None:
    dim = migraphx.shape.dynamic_dimension
    doubled = dim("2 * k", {"k": dim(1, 8)})
    for options in ({"map_dyn_input_dims": {"x": [doubled, dim(4, 4)]}}, {"dim_params": {"n": doubled}}):
        p = migraphx.parse_onnx(open_softmax(tmp_path), **options)
        assert p.get_parameter_shapes()["x"].dyn_dims()[0] == doubled
        p.compile(migraphx.get_target("ref"))
        assert p.run({"x": np.ones((6, 4), np.float32)})[0].get_shape().lens() == [6, 4]
        with pytest.raises(ParameterError, match=r"axis 0 \(2\*k\) is 5 for no k from 1 to 8"):
            p.run({"x": np.ones((5, 4), np.float32)})


def test_signatures() -> None:
    """Compares names, order and defaults of parameters with MIGraphX's."""
    assert list(inspect.signature(migraphx.parse_onnx).parameters) == [
        "filename", "default_dim_value", "default_dyn_dim_value", "dim_params", "map_input_dims", "map_dyn_input_dims",
        "skip_unknown_operators", "print_program_on_error", "max_loop_iterations", "limit_max_iterations", "use_debug_symbols",
        "use_symbolic_shapes", "others",
    ]  # fmt: skip
    assert list(inspect.signature(migraphx.parse_tf).parameters) == [
        "filename", "is_nhwc", "batch_size", "map_input_dims", "output_names",
    ]  # fmt: skip
    assert list(inspect.signature(migraphx.program.compile).parameters)[1:5] == [
        "t", "offload_copy", "fast_math", "exhaustive_tune",
    ]  # fmt: skip


def test_scalars_have_one_axis(tmp_path) -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    path = saved(tmp_path, nodes, [("x", TensorProto.FLOAT, [])], [("y", TensorProto.FLOAT, [])])
    p = migraphx.parse_onnx(path)
    assert p.get_parameter_shapes()["x"].lens() == p.get_output_shapes()[0].lens() == [1]
    assert p.get_parameter_shapes()["x"].strides() == [0]
    for compiled in (False, True):
        if compiled:
            p.compile(migraphx.get_target("ref"))
        for given in (np.array([2], np.float32), np.array(2, np.float32), migraphx.argument(np.array([2], np.float32))):
            (result,) = p.run({"x": given})
            assert np.array(result).tolist() == [4]


def test_rows_that_depend_on_data_are_filled_up(tmp_path) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    path = saved(tmp_path, nodes, [("x", TensorProto.FLOAT, [2, 2])], [("y", TensorProto.INT64, [2, None])])
    p = migraphx.parse_onnx(path)
    assert p.get_output_shapes()[0].lens() == [2, 4]
    p.compile(migraphx.get_target("ref"))
    x = np.array([[1, 0], [1, 1]], np.float32)
    assert np.array(p.run({"x": x})[0]).tolist() == [[0, 1, 1, 0], [0, 0, 1, 0]]


def counting_loop(tmp_path, trips) -> str:
    """Returns a model with y = 0, 1, ... for a trip count that is an input or a constant."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c1"]),
            helper.make_node("Identity", ["i"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("c1", TensorProto.BOOL, []),
            helper.make_tensor_value_info("row", TensorProto.INT64, []),
        ],
    )
    nodes = [helper.make_node("Loop", ["m", ""], ["y"], body=body)]
    inputs = [("m", TensorProto.INT64, [])]
    if trips is not None:
        value = helper.make_tensor("v", TensorProto.INT64, [], [trips])
        nodes.insert(0, helper.make_node("Constant", [], ["m"], value=value))
        inputs = []
    return saved(tmp_path, nodes, inputs, [("y", TensorProto.INT64, [None])])


def test_loops_have_a_static_number_of_rows(tmp_path) -> None:
    p = migraphx.parse_onnx(counting_loop(tmp_path, None), max_loop_iterations=5)
    assert p.get_output_shapes()[0].lens() == [5, 1]
    p.compile(migraphx.get_target("ref"))
    assert p.run({"m": np.array([3])})[0].tolist() == [0, 1, 2, 0, 0]
    assert p.run({"m": np.array([9])})[0].tolist() == [0, 1, 2, 3, 4]
    q = migraphx.parse_onnx(counting_loop(tmp_path, 12))
    assert q.get_output_shapes()[0].lens() == [12, 1]


def test_operators_and_unused_values(tmp_path) -> None:
    assert {"Conv", "Gemm"} <= set(migraphx.get_onnx_operators())
    node = helper.make_node("NoSuchThing", ["x"], ["y"])
    path = saved(tmp_path, [node], [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
    with pytest.raises(UnsupportedError, match="NoSuchThing"):
        migraphx.parse_onnx(path)
    assert migraphx.parse_onnx(path, skip_unknown_operators=True).get_parameter_names() == ["x"]


def named_extents(path: str, **options) -> list:
    return migraphx.parse_onnx(path, use_symbolic_shapes=True, **options).get_parameter_shapes()["x"].dyn_dims()


def test_extents_shown_by_their_names(tmp_path) -> None:
    dim, path = migraphx.shape.dynamic_dimension, open_softmax(tmp_path)
    given, named = dim(1, 8, {2}), dim("n", {"n": dim(1, 8, {2})})
    assert named_extents(path, dim_params={"n": given})[0] == named
    assert named_extents(path, default_dyn_dim_value=given)[0] == named
    assert migraphx.parse_onnx(path, use_symbolic_shapes=True).get_parameter_shapes()["x"].lens() == [1, 4]
    read = migraphx.parse_onnx_buffer(Path(path).read_bytes(), dim_params={"n": given}, use_symbolic_shapes=True)
    assert read.get_parameter_shapes()["x"].dyn_dims()[0] == named
    assert read.get_output_shapes()[0].dyn_dims()[0] == named
    assert migraphx.parse_onnx(path, dim_params={"n": given}).get_parameter_shapes()["x"].dyn_dims()[0] == given


def test_unknown_options_are_refused(tmp_path) -> None:
    for parse, given in ((migraphx.parse_onnx, open_softmax(tmp_path)), (migraphx.parse_onnx_buffer, b"")):
        with pytest.raises(TypeError, match="unexpected keyword argument 'unify'"):
            parse(given, unify=True)


def test_images_of_tensorflow_graphs_are_nchw(tmp_path) -> None:
    """As in MIGraphX, this includes 4-D parameters, results and given extents; graphs in another layout are unchanged."""
    graph = pytest.importorskip("mgx_tf.wire.messages").message("GraphDef")()
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = 1
    for extent in (-1, 4, 6, 3):
        x.attr["shape"].shape.dim.add(size=extent)
    graph.node.add(name="y", op="Relu", input=["x"]).attr["T"].type = 1
    path = tmp_path / "image.pb"
    path.write_bytes(graph.SerializeToString())
    for options, lens in (
        ({}, [1, 3, 4, 6]),
        ({"batch_size": 2}, [2, 3, 4, 6]),
        ({"map_input_dims": {"x": [2, 3, 5, 7]}}, [2, 3, 5, 7]),
        ({"is_nhwc": False}, [1, 4, 6, 3]),
    ):
        p = migraphx.parse_tf(str(path), **options)
        assert p.get_parameter_shapes()["x"].lens() == p.get_output_shapes()[0].lens() == lens
