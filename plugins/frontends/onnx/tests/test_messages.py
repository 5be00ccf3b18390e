"""ONNX's protobuf classes and schemas without importing the package onnx: the same ones in either import order."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

OURS = "from mgx_onnx.messages import onnx as ours; ours.ModelProto, ours.defs"
WHOLE = "import onnx"
SAME = """
assert ours.ModelProto is onnx.ModelProto
assert ours.NodeProto is onnx.NodeProto
assert ours.helper is onnx.helper
assert ours.defs.SchemaError is onnx.defs.SchemaError
assert ours.defs.has("Relu", 14, "") and not ours.defs.has("Nothing", 14, "")
assert ours.defs.get_schema("Relu", 14, "").since_version == onnx.defs.get_schema("Relu", 14, "").since_version == 14
node = onnx.helper.make_node("Relu", ["x"], ["y"])
assert isinstance(node, ours.NodeProto)
onnx.checker.check_node(node, onnx.checker.DEFAULT_CONTEXT)
"""


@pytest.mark.parametrize("order", [(OURS, WHOLE), (WHOLE, OURS)], ids=["ours first", "onnx first"])
def test_they_are_the_same(order):
    subprocess.run([sys.executable, "-c", "\n".join([*order, SAME])], check=True)


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_the_implementation_in_python_is_loaded_when_it_is_used(implementation: str) -> None:
    text = """
import sys
from google.protobuf.internal import api_implementation
from mgx_onnx.messages import onnx
model = onnx.ModelProto(ir_version=8)
assert onnx.ModelProto.FromString(model.SerializeToString()).ir_version == 8
print("google.protobuf.internal.decoder" in sys.modules)
from google.protobuf.internal import python_message
assert python_message is sys.modules["google.protobuf.internal.python_message"]
print(python_message.GeneratedProtocolMessageType.__module__, api_implementation.Type())
"""
    given = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True, env=given)
    loaded = implementation == "python"
    assert done.stdout == f"{loaded}\ngoogle.protobuf.internal.python_message {implementation}\n"


def test_parsing_does_not_import_the_package():
    text = """
import sys, mgx_core as mgx
from mgx_onnx.messages import onnx
model = onnx.ModelProto(ir_version=8)
model.opset_import.add(version=17)
model.graph.node.add(op_type="Relu", input=["x"], output=["y"])
for put, name in ((model.graph.input, "x"), (model.graph.output, "y")):
    kind = put.add(name=name).type.tensor_type
    kind.elem_type = 1
    kind.shape.dim.add(dim_value=3)
program = mgx.parse_onnx_buffer(model.SerializeToString())
assert [i.name for i in program.get_main_module()] == ["@param", "relu", "@return"]
assert "onnx" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_operators_that_the_standard_defines_by_others_need_nothing_imported_before():
    text = """
import sys, numpy as np, mgx_core as mgx
from mgx_onnx.messages import onnx
model = onnx.ModelProto(ir_version=8)
model.opset_import.add(version=17)
node = model.graph.node.add
node(op_type="SplitToSequence", input=["x"], output=["rows"])
body = node(op_type="SequenceMap", input=["rows"], output=["mapped"]).attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g
body.node.add(op_type="Neg", input=["row"], output=["negated"])
node(op_type="ConcatFromSequence", input=["mapped"], output=["y"]).attribute.add(name="axis", type=onnx.AttributeProto.INT, i=0)
for put, name, row in ((model.graph.input, "x", 2), (model.graph.output, "y", 2), (body.input, "row", 1), (body.output, "negated", 1)):
    kind = put.add(name=name).type.tensor_type
    kind.elem_type = 1
    for extent in (row, 3):
        kind.shape.dim.add(dim_value=extent)
assert "onnx" not in sys.modules
program = mgx.parse_onnx_buffer(model.SerializeToString())
program.compile(mgx.get_target("ref"))
x = np.arange(6, dtype=np.float32).reshape(2, 3)
assert np.array_equal(program.run({"x": x})[0].to_numpy(), -x)
"""
    subprocess.run([sys.executable, "-c", text], check=True)
