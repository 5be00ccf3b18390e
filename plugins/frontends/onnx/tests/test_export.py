"""Programs as ONNX models for viewers: the exported graph matches the program."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

import mgx_core as mgx
from mgx_onnx.export import exported
from mgx_onnx.frontend import OnnxFrontend, parse_model
from mgx_onnx.options import OnnxOptions


def sample() -> onnx.ModelProto:
    """y = relu(x w + b) split in two, and an If that takes one of the halves."""
    w = helper.make_tensor("w", TensorProto.FLOAT, [16, 64], np.ones((16, 64), np.float32).tobytes(), raw=True)
    b = helper.make_tensor("b", TensorProto.FLOAT, [64], np.arange(64, dtype=np.float32).tobytes(), raw=True)
    branches = [
        helper.make_graph(
            [helper.make_node("Tanh" if n else "Exp", [half], [f"o{n}"])],
            f"b{n}",
            [],
            [helper.make_empty_tensor_value_info(f"o{n}")],
        )
        for n, half in enumerate(("left", "right"))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
        helper.make_node("Add", ["xw", "b"], ["s"], name="bias"),
        helper.make_node("Relu", ["s"], ["r"], name="act"),
        helper.make_node("Split", ["r"], ["left", "right"], axis=1, num_outputs=2, name="halves"),
        helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1], name="choice"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], [w, b])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def program() -> mgx.Program:
    return parse_model(sample(), OnnxOptions.of())


def walk(graph, outer=frozenset()):
    """Checks that every node reads defined names and that names are defined once; returns all nodes."""
    known = set(outer) | {i.name for i in graph.input} | {t.name for t in graph.initializer}
    found = []
    for node in graph.node:
        assert node.domain == "mgx"
        assert {i for i in node.input if i} <= known
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                found += walk(a.g, known)
        assert not set(node.output) & known
        known |= set(node.output)
        found.append(node)
    assert {o.name for o in graph.output} <= known
    return found


def test_as_it_was_read(tmp_path):
    OnnxFrontend().export(program(), tmp_path / "view.onnx")
    model = onnx.load(tmp_path / "view.onnx")
    nodes = walk(model.graph)
    assert {o.domain: o.version for o in model.opset_import}["mgx"] == 1
    assert [i.name for i in model.graph.input] == ["x", "c"]
    assert [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == ["n", 16]
    assert [o.name for o in model.graph.output] == ["y"]
    assert {"dot", "add", "relu", "if", "exp", "tanh"} <= {n.op_type for n in nodes}
    choice = next(n for n in nodes if n.op_type == "if")
    assert [a.name for a in choice.attribute] == ["then_branch", "else_branch"]
    assert next(n for n in nodes if n.op_type == "relu").doc_string == "from act"
    assert len({n.name for n in nodes}) == len(nodes)


def test_constants():
    tensors = {tuple(t.dims): t for t in exported(program()).graph.initializer}
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensors[64,]), np.arange(64, dtype=np.float32))
    assert not tensors[16, 64].raw_data  # 4 KiB: type and extents only
    whole = {tuple(t.dims): t for t in exported(program(), small=1 << 20).graph.initializer}
    assert onnx.numpy_helper.to_array(whole[16, 64]).sum() == 1024


def test_value_types():
    graph = exported(program()).graph
    types = {v.name: v.type.tensor_type for v in graph.value_info}
    dot = next(n for n in graph.node if n.op_type == "dot")
    assert types[dot.output[0]].elem_type == TensorProto.FLOAT
    assert [d.dim_param or d.dim_value for d in types[dot.output[0]].shape.dim] == ["n", 64]


def test_optimized_and_compiled():
    made = program()
    optimized = exported(mgx.optimize(made))
    nodes = walk(optimized.graph)
    groups = [n for n in nodes if any(a.name == "body" for a in n.attribute)]
    assert groups
    made.compile(mgx.get_target("ref"))
    model = exported(made)
    walk(model.graph)
    assert {p.key: p.value for p in model.metadata_props} == {"target": "ref"}


def test_a_lowered_module_names_its_kernels():
    made = parse_model(sample(), OnnxOptions.of(map_input_dims={"x": [4, 16]}))
    made.compile(mgx.get_target("ref"))
    (instance,) = made.executable.instances()
    made.executable.module = instance.module
    launches = [n for n in walk(exported(made).graph) if any(a.name == "launch_kernel" for a in n.attribute)]
    assert launches
    for node in launches:
        kernel = next(a.s.decode() for a in node.attribute if a.name == "launch_kernel")
        assert kernel.startswith("reference ")


def test_attributes():
    from mgx_onnx.export import attribute

    assert attribute("none", None) is None
    assert list(attribute("axes", ()).ints) == []
    assert list(attribute("axes", (1, -1)).ints) == [1, -1]
    assert list(attribute("scales", (1.5, 2.0)).floats) == [1.5, 2.0]
    assert attribute("flag", True).i == 1
    assert attribute("dims", (mgx.dim.symbol("n"), 3)).s == b'["n", 3]'
    assert attribute("type", mgx.dtype.float16).s.decode() == str(mgx.dtype.float16)
