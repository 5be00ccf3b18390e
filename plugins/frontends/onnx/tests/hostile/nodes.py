"""Invalid attributes, extents, indices and integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from case import Trial, add, array, given, graph, i64, info, model, one
from onnx import TensorProto as T
from onnx import helper as h

n = h.make_node
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = np.ones((1, 2, 4, 4), np.float32)
W = np.ones((2, 2, 2, 2), np.float32)
BIG, LOW = 1 << 62, -(1 << 63)


def both(kind: str, name: str, op: str, *inputs: Any, expect: str = "refuse", **more: Any) -> None:
    """Adds a case with constant operands, and one with operands as inputs."""
    early, late = given(op, *inputs, **more)
    add(kind, f"{name}, known", early, expect)
    add(kind, f"{name}, late", late, expect)


def attribute(name: str, expect: str, op: str, *inputs: Any, **more: Any) -> None:
    add("attributes", name, lambda folder: one(op, *inputs, **more), expect)


for axis in (2, -3, BIG, LOW, 1 << 31):
    for op in ("Softmax", "ArgMax", "Concat", "Flatten", "Hardmax"):
        attribute(f"{op} axis {axis}", "either" if op == "Flatten" and axis == 2 else "refuse", op, X, axis=axis)
attribute(
    "RoiAlign of many points",
    "refuse",
    "RoiAlign",
    IMAGE,
    np.ones((1, 4), np.float32),
    np.array([0]),
    sampling_ratio=BIG,
)
attribute("axis is a word", "refuse", "Softmax", X, axis="one")
attribute("axis is a number with a point", "refuse", "Softmax", X, axis=0.5)
attribute("axis is a list", "refuse", "Softmax", X, axis=[0, 1])
attribute("axis is a tensor", "refuse", "Softmax", X, axis=array("t", 1))
attribute("axis is missing", "refuse", "Concat", X, X)
attribute("perm names an axis twice", "refuse", "Transpose", X, perm=[0, 0])
attribute("perm is short", "refuse", "Transpose", X, perm=[0])
attribute("perm has a million entries", "refuse", "Transpose", X, perm=list(range(1_000_000)))
attribute("perm is negative", "either", "Transpose", X, perm=[-1, 0])
for name, values in {
    "kernel_shape": [[0, 0], [-1, 1], [BIG, BIG], [1 << 31, 1], [5, 5], [1]], "strides": [[0, 0], [-1, -1], [BIG, 1]],
    "dilations": [[0, 1], [-2, 1], [BIG, BIG]], "pads": [[0], [-9, 0, 0, 0], [1 << 40] * 4, [BIG] * 4, [LOW] * 4],
    "group": [0, -1, 3, BIG], "auto_pad": ["SOME", "\x00", "a" * 100_000],
}.items():  # fmt: skip
    for value in values:
        word = str(value)[:40]
        attribute(
            f"Conv {name} {word}",
            "either" if value == [] or word.startswith("[" + str(BIG) + ", 1") else "refuse",
            "Conv",
            IMAGE,
            W,
            **{name: value},
        )
        if name != "group":
            more = {name: value} if name == "kernel_shape" else {name: value, "kernel_shape": [2, 2]}
            early = "either" if word.startswith("[" + str(BIG) + ", 1") else "refuse"
            if value:
                attribute(f"MaxPool {name} {word}", early, "MaxPool", IMAGE, **more)
for to in (0, 99, -1, BIG):
    attribute(f"Cast to {to}", "refuse", "Cast", X, to=to)
attribute("Cast to nothing", "refuse", "Cast", X)
for text in (
    "",
    "ij",
    "ij->",
    "ij,jk",
    "iij->k",
    "i.j->i",
    "ij->ijk",
    "->->",
    "é->é",
    "%s",
    "ij->i" * 1000,
    "a" * 100_000 + "->",
    "...i...->i",
):
    attribute(
        f"Einsum {text[:20]!r} {len(text)}",
        "either" if text in ("ij", "ij->", "") else "refuse",
        "Einsum",
        X,
        equation=text,
    )
attribute("DepthToSpace by 0", "refuse", "DepthToSpace", IMAGE, blocksize=0)
attribute("DepthToSpace by too much", "refuse", "DepthToSpace", IMAGE, blocksize=1 << 40)
for parts in (0, -1, (1 << 31) - 1, BIG):
    attribute(f"Split in {parts}", "refuse", "Split", X, num_outputs=parts)
attribute("LRN of size 0", "refuse", "LRN", IMAGE, size=0)
attribute("LRN of negative size", "refuse", "LRN", IMAGE, size=-3)
attribute("epsilon is not a number", "either", "LayerNormalization", X, X[0], epsilon=float("nan"))
attribute("alpha is infinite", "run", "LeakyRelu", X, alpha=float("inf"))
attribute("Resize mode", "refuse", "Resize", IMAGE, None, np.ones(4, np.float32), mode="sharp")
attribute(
    "Resize transformation",
    "refuse",
    "Resize",
    IMAGE,
    None,
    np.ones(4, np.float32),
    coordinate_transformation_mode="sideways",
)
for hidden in (-1, 0, 3, 1 << 40):
    attribute(
        f"LSTM of {hidden}",
        "either" if hidden == 0 else "refuse",
        "LSTM",
        np.ones((2, 1, 2), np.float32),
        np.ones((1, 4, 2), np.float32),
        np.ones((1, 4, 1), np.float32),
        hidden_size=hidden,
    )
attribute(
    "LSTM activations",
    "refuse",
    "LSTM",
    np.ones((2, 1, 2), np.float32),
    np.ones((1, 4, 2), np.float32),
    np.ones((1, 4, 1), np.float32),
    hidden_size=1,
    activations=["tanh", "frob", "tanh"],
)
attribute("no UTF-8", "refuse", "Softmax", X, axis=b"\xff\xfe")
for name, field in (
    ("no type", {}),
    ("type of a graph", {"type": 5}),
    ("type of nothing", {"type": 14}),
    ("reference outside a function", {"ref_attr_name": "a", "type": 2}),
):
    node = n("Softmax", ["x"], ["y"])
    node.attribute.append(onnx.AttributeProto(name="axis", **field))
    add("attributes", name, model([node], [info("x")]), "either")
node = n("Softmax", ["x"], ["y"], axis=0)
node.attribute.append(h.make_attribute("axis", 1))
add("attributes", "given twice", model([node], [info("x")]), "either")
add(
    "attributes",
    "20,000 of them",
    model([n("Relu", ["x"], ["y"], **{f"a{k}": k for k in range(20_000)})], [info("x")]),
    "either",
)
add("attributes", "If without branches", model([n("If", ["c"], ["y"])], [info("c", (), T.BOOL)]))
add(
    "attributes", "If of numbers", model([n("If", ["c"], ["y"], then_branch=1, else_branch=2)], [info("c", (), T.BOOL)])
)
add("attributes", "Constant without a value", model([n("Constant", [], ["y"])]))
add("attributes", "Constant with two values", model([n("Constant", [], ["y"], value_int=1, value_float=2.0)]), "either")

# extents
for dims in ([-1, 3], [BIG, BIG], [1 << 31, 1 << 31], [1 << 40], [2] * 65, [1] * 1000, [0, BIG]):
    add("shapes", f"input {str(dims)[:30]}", model([n("Relu", ["x"], ["y"])], [info("x", dims)]), "either")
for to in ([-1, -1], [4, 2], [BIG], [BIG, BIG], [-2, 3], [LOW], [1] * 65, [0, 0, 6], []):
    both("shapes", f"Reshape to {str(to)[:30]}", "Reshape", X, np.array(to, np.int64))
both("shapes", "Reshape to words", "Reshape", X, np.array([2.0, 3.0], np.float32))
add("shapes", "MatMul", lambda folder: one("MatMul", X, X))
add("shapes", "Add", lambda folder: one("Add", X, X[:, :2]))
add("shapes", "Concat", lambda folder: one("Concat", X, X[:, :2], axis=0))
add("shapes", "Gemm", lambda folder: one("Gemm", X, X))
add(
    "shapes",
    "fed with other extents",
    lambda folder: Trial(
        model([n("Relu", ["x"], ["y"])], [info("x")]).SerializeToString(), {"x": np.ones((3, 2), np.float32)}
    ),
)
add(
    "shapes",
    "fed with another type",
    lambda folder: Trial(
        model([n("Relu", ["x"], ["y"])], [info("x")]).SerializeToString(), {"x": np.ones((2, 3), np.float64)}
    ),
)
add(
    "shapes",
    "fed with another name",
    lambda folder: Trial(model([n("Relu", ["x"], ["y"])], [info("x")]).SerializeToString(), {"z": X}),
)
add(
    "shapes",
    "fed with nothing",
    lambda folder: Trial(model([n("Relu", ["x"], ["y"])], [info("x")]).SerializeToString(), {}),
)
add(
    "shapes",
    "one symbol, two extents",
    lambda folder: Trial(
        model([n("Add", ["a", "b"], ["y"])], [info("a", ["n"]), info("b", ["n"])]).SerializeToString(),
        {"a": X[0], "b": X[0, :2]},
    ),
)
both("shapes", "Unsqueeze to rank 70", "Unsqueeze", X, np.arange(68))
both("shapes", "Unsqueeze twice the same", "Unsqueeze", X, np.array([0, 0]))
both("shapes", "Squeeze what is not 1", "Squeeze", X, np.array([0]))

# indices
for at in (2, -3, BIG, LOW):
    both("indices", f"Gather {at}", "Gather", X, np.array([at]))
    both("indices", f"GatherElements {at}", "GatherElements", X, np.array([[at, 0, 0]]))
    both("indices", f"GatherND {at}", "GatherND", X, np.array([[at]]))
    both("indices", f"ScatterND {at}", "ScatterND", X, np.array([[at]]), X[:1])
    both("indices", f"ScatterElements {at}", "ScatterElements", X, np.array([[at]]), X[:1, :1])
    both("indices", f"CumSum axis {at}", "CumSum", X, np.array(at))
    both("indices", f"Slice from {at}", "Slice", X, np.array([at]), np.array([BIG]), expect="run")
    both("indices", f"OneHot of {at}", "OneHot", np.array([at]), np.array([2]), np.array([0.0, 1.0]), expect="run")
both("indices", "Slice on axis 7", "Slice", X, np.array([0]), np.array([1]), np.array([7]))
both("indices", "Slice by 0", "Slice", X, np.array([0]), np.array([1]), np.array([0]), np.array([0]))
for k in (-1, 4, BIG):
    both("indices", f"TopK {k}", "TopK", X, np.array([k]), outputs=2)
both("indices", "Split too little", "Split", X, np.array([1, 1]), outputs=2, axis=1)
both("indices", "Split negative", "Split", X, np.array([-1, 4]), outputs=2, axis=1)
both("indices", "ReverseSequence", "ReverseSequence", X, np.array([9, 1, 1]), batch_axis=1, time_axis=0)
both("indices", "loss of class 9", "NegativeLogLikelihoodLoss", X, np.array([9, 0]))
both("indices", "loss of class -1", "NegativeLogLikelihoodLoss", X, np.array([-1, 0]))
both("indices", "MaxUnpool", "MaxUnpool", IMAGE[:, :, :1, :1], np.array([[[[99]], [[-1]]]]), kernel_shape=[2, 2])
both("indices", "RoiAlign batch", "RoiAlign", IMAGE, np.array([[0, 0, 1, 1]], np.float32), np.array([5]))
both("indices", "GatherND too deep", "GatherND", X, np.zeros((1, 5), np.int64))
both("indices", "Compress more", "Compress", X, np.ones(9, bool), axis=0, expect="either")
both(
    "indices",
    "LSTM lengths",
    "LSTM",
    np.ones((2, 1, 2), np.float32),
    np.ones((1, 4, 2), np.float32),
    np.ones((1, 4, 1), np.float32),
    np.ones((1, 8), np.float32),
    np.array([9], np.int32),
    hidden_size=1,
)
both("indices", "DFT axis", "DFT", np.ones((1, 4, 1), np.float32), np.array(4), np.array(9))
sequence = [n("SequenceConstruct", ["x", "x"], ["s"]), n("SequenceAt", ["s", "k"], ["y"])]
for at in (2, -3, BIG):
    add("indices", f"SequenceAt {at}", model(sequence, [info("x")], ["y"], [array("k", at)]))
add(
    "indices",
    "SequenceErase",
    model(
        [sequence[0], n("SequenceErase", ["s", "k"], ["t"]), n("SequenceLength", ["t"], ["y"])],
        [info("x")],
        ["y"],
        [array("k", 5)],
    ),
)
both("indices", "nothing to gather from", "Gather", np.zeros((0, 3), np.float32), np.array([0]))

# integers
for dtype in (np.int8, np.int16, np.int32, np.int64):
    lowest = np.array([np.iinfo(dtype).min, 5], dtype)
    for op in ("Div", "Mod"):
        both("integers", f"{op} {dtype.__name__} lowest by -1", op, lowest, np.array([-1, -1], dtype), expect="run")
        both("integers", f"{op} {dtype.__name__} by 0", op, lowest, np.array([0, 0], dtype), expect="either")
    for op in ("Abs", "Neg"):
        add("integers", f"{op} {dtype.__name__} lowest", lambda folder, o=op, v=lowest: one(o, v), "run")
    both(
        "integers",
        f"Pow {dtype.__name__}",
        "Pow",
        np.array([2, 0, -1], dtype),
        np.array([100, -1, -100], dtype),
        expect="either",
    )
both("integers", "Mod by 0, floats", "Mod", X, np.zeros((2, 3), np.float32), fmod=1, expect="run")
for bits in (8, 31, 32, 64, 200):
    for way in ("LEFT", "RIGHT"):
        both(
            "integers",
            f"shift {way} {bits}",
            "BitShift",
            np.array([255], np.uint8),
            np.array([bits], np.uint8),
            direction=way,
            expect="run",
        )
for a, b, s in ((0, 5, 0), (0, BIG, 1), (LOW, BIG, 1), (BIG, LOW, -1), (0, 10, -1)):
    both(
        "integers",
        f"Range {a} {b} {s}",
        "Range",
        np.array(a),
        np.array(b),
        np.array(s),
        expect="run" if b == 10 else "refuse",
    )
both("integers", "Range of no numbers", "Range", np.float32("nan"), np.float32(5), np.float32(1))
both("integers", "Range to infinity", "Range", np.float32(0), np.float32("inf"), np.float32(1))
both("integers", "Range by next to nothing", "Range", np.float32(0), np.float32(1), np.float32(1e-30))
for to in (T.INT8, T.INT32, T.INT64, T.UINT8, T.BOOL, T.FLOAT16, T.FLOAT8E4M3FN, T.INT4):
    add(
        "integers",
        f"what is not a number to {to}",
        lambda folder, t=to: one("Cast", np.array([np.nan, np.inf, -np.inf, 1e30], np.float32), to=t),
        "run",
    )
add("integers", "words to numbers", lambda folder: one("Cast", np.array(["1", "x", "", "1e999"], object), to=T.INT32))
both("integers", "ReduceProd overflows", "ReduceProd", np.full(100, BIG), expect="run")
add(
    "integers",
    "extents overflow",
    model(
        [
            n("Shape", ["x"], ["d"]),
            n("Mul", ["d", "k"], ["e"]),
            n("Mul", ["e", "e"], ["f"]),
            n("Expand", ["x", "f"], ["y"]),
        ],
        [info("x", ["n", "m"])],
        ["y"],
        [i64("k", BIG, 3)],
    ),
)

# no elements
E = np.zeros((0, 3), np.float32)
for op, inputs, more, expect in [
    ("Add", [E, E], {}, "run"), ("MatMul", [E, E.T.copy()], {}, "run"), ("MatMul", [E.T.copy(), E], {}, "run"),
    ("Gemm", [E.T.copy(), E], {}, "run"), ("ReduceSum", [E], {}, "run"), ("ReduceMean", [E], {}, "either"), ("ReduceMax", [E], {}, "either"),
    ("Softmax", [E], {}, "run"), ("Concat", [E, X], {"axis": 0}, "run"), ("ArgMax", [E], {"axis": 0}, "either"), ("NonZero", [E], {}, "run"),
    ("TopK", [E, np.array([0])], {"axis": 0, "outputs": 2}, "run"), ("Unique", [E], {}, "run"), ("LayerNormalization", [E, X[0]], {}, "run"),
    ("Conv", [np.zeros((0, 2, 4, 4), np.float32), W], {}, "run"), ("MaxPool", [np.zeros((0, 2, 4, 4), np.float32)], {"kernel_shape": [2, 2]}, "run"),
    ("Conv", [np.zeros((1, 2, 0, 4), np.float32), W], {}, "either"), ("Resize", [np.zeros((1, 1, 0, 2), np.float32), None, None, np.array([1, 1, 2, 2])], {}, "refuse"),
    ("Tile", [E, np.array([5, 5])], {}, "run"), ("Tile", [X, np.array([0, 5])], {}, "run"), ("Pad", [E, np.array([1, 0, 1, 0])], {}, "run"),
    ("Reshape", [E, np.array([3, 0])], {"allowzero": 1}, "run"), ("Reshape", [E, np.array([-1, 0])], {"allowzero": 1}, "refuse"),
    ("Einsum", [E, E], {"equation": "ij,ij->"}, "run"), ("CumSum", [E, np.array(0)], {}, "run"), ("Transpose", [E], {}, "run"),
    ("Pad", [E, np.array([1, 0, 1, 0])], {"mode": "edge"}, "refuse"), ("Expand", [E, np.array([4, 1, 1])], {}, "run"),
    ("DequantizeLinear", [E.astype(np.int8), np.float32(2)], {}, "run"), ("LSTM", [np.zeros((0, 1, 2), np.float32), np.ones((1, 4, 2), np.float32), np.ones((1, 4, 1), np.float32)], {"hidden_size": 1}, "run"),
]:  # fmt: skip
    both(
        "empty",
        f"{op} {[np.shape(i) if np.ndim(i) > 1 else str(i) for i in inputs]} {more}",
        op,
        *inputs,
        expect=expect,
        **more,
    )
body = graph([n("Identity", ["a"], ["b"])], [info("a", (0,))], ["b"], name="body")
long = model(
    [n("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)],
    [],
    ["y"],
    [onnx.TensorProto(name="x", data_type=1, dims=[1 << 40, 0], raw_data=b"")],
)
add("empty", "Scan over 2^40 slices of nothing", long)
