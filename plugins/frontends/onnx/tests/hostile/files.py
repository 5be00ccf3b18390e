"""Corrupt files, and invalid graph structures."""

from __future__ import annotations

import random

import onnx
from case import Trial, add, array, info, model
from onnx import TensorProto as T
from onnx import helper as h

n = h.make_node
GOOD = model(
    [n("Add", ["x", "w"], ["a"]), n("Relu", ["a"], ["y"])], [info("x")], ["y"], [array("w", [[1.0, 2, 3]], "float32")]
)
DATA = GOOD.SerializeToString()

# bytes
add("bytes", "good", GOOD, "run")
add("bytes", "empty", b"")
add("bytes", "one byte", b"\x08")
add("bytes", "zeros", bytes(1000))
add("bytes", "ones", b"\xff" * 1000)
add("bytes", "ten megabytes of ones", b"\xff" * 10_000_000)
add("bytes", "text", b"import os; os.system('true')\n" * 10)
add("bytes", "html", b"<html><body>404</body></html>")
add("bytes", "zip", b"PK\x03\x04" + bytes(200))
add("bytes", "random", random.Random(1).randbytes(5000))
add("bytes", "huge length", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
add("bytes", "length beyond the end", b"\x3a\xff\xff\x7f" + DATA)
add("bytes", "endless varint", b"\x08" + b"\x80" * 100)
add("bytes", "open groups", b"\x0b" * 20_000)
add("bytes", "nested messages", b"".join(b"\x3a" + bytes([0xFF, 0xFF, 0x01]) for _ in range(5000)))
add("bytes", "no graph", onnx.ModelProto(ir_version=8).SerializeToString())
add("bytes", "two graphs", DATA + GOOD.SerializeToString(), "either")
add("bytes", "trailing garbage", DATA + b"\xff\xfe\xfd")
add("bytes", "trailing unknown field", DATA + b"\xf8\x3f\x01", "run")
for cut in range(1, 10):
    add("bytes", f"cut at {cut}0 %", DATA[: len(DATA) * cut // 10], "either" if cut > 7 else "refuse")
for flip in range(20):
    wrong = bytearray(DATA)
    at = random.Random(flip).randrange(len(DATA) * 8)
    wrong[at // 8] ^= 1 << at % 8
    add("bytes", f"bit {at} flipped", bytes(wrong), "either")
for wrap in (h.make_sequence_type_proto, h.make_optional_type_proto, lambda t: h.make_map_type_proto(T.INT64, t)):
    kind = wrap(h.make_tensor_type_proto(T.FLOAT, ["extent"]))
    named = model([n("Identity", ["x"], ["y"])], [onnx.ValueInfoProto(name="x", type=kind)]).SerializeToString()
    which = kind.WhichOneof("value")
    add("bytes", f"an extent's name in a {which} that is not UTF-8", named.replace(b"extent", b"ext\xfft\xfe"))
add("bytes", "no such file", lambda folder: Trial(folder / "none.onnx"))
add("bytes", "a folder", lambda folder: Trial(folder))

# structure
x = info("x")
add("structure", "cycle", model([n("Add", ["x", "b"], ["a"]), n("Relu", ["a"], ["b"])], [x], ["b"]))
add("structure", "node reads itself", model([n("Add", ["x", "a"], ["a"])], [x], ["a"]))
add("structure", "output defined twice", model([n("Relu", ["x"], ["y"]), n("Neg", ["x"], ["y"])], [x]))
add("structure", "output shadows an input", model([n("Relu", ["x"], ["x"])], [x], ["x"]))
add("structure", "output twice in a node", model([n("Split", ["x"], ["y", "y"], axis=0, num_outputs=2)], [x]))
add("structure", "two inputs of a name", model([n("Relu", ["x"], ["y"])], [x, info("x", (4,))]))
add(
    "structure",
    "two initializers of a name",
    model([n("Relu", ["w"], ["y"])], [], ["y"], [array("w", 1.0), array("w", 2.0)]),
)
add("structure", "initializer without a name", model([n("Relu", ["x"], ["y"])], [x], ["y"], [array("", 1.0)]))
add("structure", "nobody defines an input", model([n("Relu", ["z"], ["y"])], [x]))
add("structure", "nobody defines an output", model([n("Relu", ["x"], ["y"])], [x], ["z"]))
add("structure", "empty output name", model([n("Relu", ["x"], ["y"])], [x], [""]))
add("structure", "unknown operator", model([n("Frobnicate", ["x"], ["y"])], [x]))
add("structure", "unknown domain", model([n("Relu", ["x"], ["y"], domain="nowhere.at.all")], [x]))
add("structure", "no operator", model([n("", ["x"], ["y"])], [x]))
add("structure", "undeclared domain", model([n("Relu", ["x"], ["y"], domain="other")], [x]))
for opset in (0, -1, 29, 1000, 1 << 40, -(1 << 63)):
    add("structure", f"opset {opset}", model([n("Relu", ["x"], ["y"])], [x], opset=opset))
twice = model([n("Relu", ["x"], ["y"])], [x])
twice.opset_import.append(h.make_opsetid("", 13))
add("structure", "two opsets", twice)
bare = model([n("Relu", ["x"], ["y"])], [x])
del bare.opset_import[:]
add("structure", "no opset", bare, "either")
add("structure", "too few inputs", model([n("Add", ["x"], ["y"])], [x]))
add("structure", "no inputs", model([n("Conv", [], ["y"])], [x]))
add("structure", "too many inputs", model([n("Relu", ["x", "x", "x"], ["y"])], [x]))
add("structure", "required input absent", model([n("MatMul", ["x", ""], ["y"])], [x]))
add("structure", "too many outputs", model([n("Relu", ["x"], ["y", "z"])], [x], ["y", "z"]))
add("structure", "node without outputs", model([n("Relu", ["x"], []), n("Neg", ["x"], ["y"])], [x]), "either")
add("structure", "nodes out of order", model([n("Neg", ["a"], ["y"]), n("Relu", ["x"], ["a"])], [x]), "run")
add("structure", "an output twice", model([n("Relu", ["x"], ["y"])], [x], ["y", "y"]), "run")
add("structure", "an input as output", model([n("Relu", ["x"], ["y"])], [x], ["x"]), "run")
add("structure", "an initializer as output", model([], [], ["w"], [array("w", [1.0])]), "run")
add("structure", "no outputs", model([n("Relu", ["x"], ["y"])], [x], []), "either")
add("structure", "empty graph", model([], [], []), "either")
add("structure", "input without a type", model([n("Relu", ["x"], ["y"])], [onnx.ValueInfoProto(name="x")]))
add("structure", "unknown element type", model([n("Relu", ["x"], ["y"])], [info("x", (2,), 77)]))
add("structure", "type zero", model([n("Relu", ["x"], ["y"])], [info("x", (2,), 0)]))
add("structure", "declared output type is false", h.make_model(
    h.make_graph([n("Relu", ["x"], ["y"])], "g", [x], [info("y", (9,), T.INT8)]), opset_imports=[h.make_opsetid("", 13)]), "either")  # fmt: skip
