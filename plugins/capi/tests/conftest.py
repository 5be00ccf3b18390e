"""Fixtures of the tests of the C and C++ interface."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mgx_tf.wire.messages import message


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file of max(x + [1, -9, 3, -9], 0) with a symbolic batch."""
    weight = numpy_helper.from_array(np.array([1, -9, 3, -9], np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [weight]), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(made, path)
    return path


def saved(
    path: Path, nodes: list, inputs: dict[str, tuple], outputs: list[str], weights: dict | None = None
) -> onnx.ModelProto:
    """Saves an ONNX model of float inputs with these extents; outputs whose names begin with n are counts."""
    kinds = {name: TensorProto.INT64 if name.startswith("n") else TensorProto.FLOAT for name in outputs}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in inputs.items()],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in kinds.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return made


def frozen(path: Path, *nodes: tuple[str, str, list[str]], dims: tuple[int, ...]) -> None:
    """Saves a TensorFlow graph whose placeholders have the extents `dims`."""
    graph = message("GraphDef")()
    for name, op, inputs in nodes:
        node = graph.node.add(name=name, op=op, input=inputs)
        node.attr["dtype" if op == "Placeholder" else "T"].type = 1
        if op == "Placeholder":
            for extent in dims:
                node.attr["shape"].shape.dim.add(size=extent)
    path.write_bytes(graph.SerializeToString())


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of models, one for each subject of programs/models.cpp."""
    folder, node = tmp_path_factory.mktemp("models"), helper.make_node
    saved(folder / "constant.onnx", [node("Constant", [], ["y"], value_floats=[1.0, 2.0, 3.0])], {}, ["y"])
    saved(folder / "broadcast.onnx", [node("Add", ["x", "b"], ["y"])], {"x": (2, 3, 4), "b": (3, 1)}, ["y"])
    saved(folder / "product.onnx", [node("MatMul", ["x", "b"], ["y"])], {"x": (4, 8), "b": (8, 4)}, ["y"])
    saved(folder / "unknown.onnx", [node("Nonesuch", ["x"], ["y"])], {"x": (2,)}, ["y"])
    body = helper.make_graph(
        [
            node("Add", ["state", "x"], ["next"]),
            node("Identity", ["next"], ["row"]),
            node("Identity", ["more"], ["go"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("more", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1]),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, [1]),
        ],
    )
    loop = [node("Loop", ["", "yes", "x"], ["last", "rows"], body=body)]
    saved(folder / "loop.onnx", loop, {"x": (1,)}, ["last", "rows"], {"yes": np.array(True)})
    (folder / "weights").mkdir()
    weights = {"w": np.arange(64, dtype=np.float32)}
    made = saved(folder / "plain.onnx", [node("Add", ["x", "w"], ["y"])], {"x": (64,)}, ["y"], weights)
    onnx.save(
        made, folder / "weights" / "apart.onnx", save_as_external_data=True, location="apart.bin", size_threshold=0
    )
    both = [("a", "Placeholder", []), ("b", "Placeholder", [])]
    frozen(folder / "add.pb", *both, ("sum", "AddV2", ["a", "b"]), dims=(2, 3))
    frozen(folder / "image.pb", ("x", "Placeholder", []), ("y", "Relu", ["x"]), dims=(1, 4, 6, 3))
    results = [("relu", "Relu", ["sum"]), ("tanh", "Tanh", ["sum"])]
    frozen(folder / "two.pb", *both, ("sum", "AddV2", ["a", "b"]), *results, dims=(-1, 3))
    return folder
