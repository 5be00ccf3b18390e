"""What the tests of the C and C++ interface share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """max(x + [1, -9, 3, -9], 0) with an open batch."""
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
