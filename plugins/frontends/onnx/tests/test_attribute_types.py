"""Tabulated attribute types agree with every schema of the installed ONNX, and typical attributes do not load any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from mgx_onnx.attribute_types import TENSORS, USUAL, attribute_type

PARSED = """
import sys
import mgx_core as mgx
print(mgx.parse_onnx(sys.argv[1]).get_output_names())
assert "onnx.onnx_cpp2py_export" not in sys.modules
"""

IN_THREADS = """
import threading
from mgx_onnx.messages import onnx
ready = threading.Barrier(8)
def use():
    ready.wait()
    found.append((onnx.ModelProto().HasField("graph"), onnx.defs.get_schema("Pad", 1, "").name))
found = []
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert found == [(False, "Pad")] * 8, found
"""


def test_no_schema_has_another_type_for_a_name() -> None:
    schemas: list[Any] = onnx.defs.get_all_schemas_with_history()
    wrong = [
        (s.name, s.since_version, name)
        for s in schemas
        for name, a in s.attributes.items()
        if USUAL.get(name, a.type.value) != a.type.value
    ]
    assert not wrong
    assert {s.attributes["value"].type.name for s in schemas if s.name in TENSORS and "value" in s.attributes} == {
        "TENSOR"
    }


def test_a_type_that_is_not_the_usual_one_is_looked_up() -> None:
    kind = onnx.AttributeProto
    assert attribute_type("Concat", 13, "", "axis", kind.INT) == kind.INT
    assert attribute_type("Concat", 13, "", "axis", kind.FLOAT) == kind.INT
    assert attribute_type("Pad", 1, "", "value", kind.TENSOR) == kind.FLOAT
    assert attribute_type("Upsample", 7, "", "scales", kind.FLOAT) == kind.FLOATS
    assert attribute_type("Concat", 13, "", "invented", kind.FLOAT) is None
    assert attribute_type("Invented", 1, "some.where", "axis", kind.FLOAT) is None


def test_a_usual_model_is_parsed_without_schemas(tmp_path: Path) -> None:
    value = helper.make_tensor("c", onnx.TensorProto.FLOAT, [], [2.0])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[1, 1], pads=[0, 0, 0, 0], auto_pad="NOTSET"),
        helper.make_node("Constant", [], ["two"], value=value),
        helper.make_node("Clip", ["a", "two"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0, 2, 3, 1]),
        helper.make_node("Concat", ["c", "c"], ["d"], axis=-1),
        helper.make_node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], storage_order=0),
        helper.make_node("ReduceMean", ["e"], ["y"], keepdims=0, axes=[2]),
    ]
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 4, 4])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    weights = helper.make_tensor("w", onnx.TensorProto.FLOAT, [2, 3, 1, 1], [0.5] * 6)
    graph = helper.make_graph(nodes, "g", [image], [result], [weights])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    done = subprocess.run([sys.executable, "-c", PARSED, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['y']\n"


def test_threads_that_parse_first_load_the_schemas_once() -> None:
    subprocess.run([sys.executable, "-c", IN_THREADS], check=True, timeout=60)
