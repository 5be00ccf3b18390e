"""Seeds for mutations: built-in small models, or the .onnx files of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

__all__ = ["seeds"]


def seeds(folder: str = "") -> list[bytes]:
    """Returns serialized models: those of a folder (at most 64 KB each), or the built-in ones."""
    if folder:
        files = sorted(f for f in Path(folder).glob("*.onnx") if f.stat().st_size <= 1 << 16)
        return [f.read_bytes() for f in files]
    return [m.SerializeToString() for m in built_in()]


def info(name: str, dims: Any, kind: int = T.FLOAT) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, kind, dims)


def weight(name: str, *dims: int) -> onnx.TensorProto:
    return numpy_helper.from_array((np.arange(int(np.prod(dims))) % 7 / 7).astype(np.float32).reshape(dims), name)


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[str], weights: Sequence[Any] = (), **more: Any
) -> onnx.ModelProto:
    graph = h.make_graph(nodes, "g", inputs, [h.make_empty_tensor_value_info(o) for o in outputs], weights)
    imports = [h.make_opsetid("", 20), h.make_opsetid("com.microsoft", 1), h.make_opsetid("own", 1)]
    return h.make_model(graph, opset_imports=imports, ir_version=10, **more)


def built_in() -> list[onnx.ModelProto]:
    n = h.make_node
    x4, x2 = info("x", ["n", 3, 8, 8]), info("x", ["n", 6])
    flag, count = info("f", [], T.BOOL), info("c", [], T.INT64)
    then = h.make_graph([n("Relu", ["x"], ["t"])], "then", [], [info("t", None)])
    other = h.make_graph([n("Concat", ["x", "x"], ["o"], axis=0)], "other", [], [info("o", None)])
    body = h.make_graph(
        [n("Add", ["s", "x"], ["s2"]), n("Identity", ["k"], ["k2"]), n("ReduceSum", ["s2"], ["row"], keepdims=0)],
        "body", [info("i", [], T.INT64), info("k", [], T.BOOL), info("s", ["n", 6])],
        [info("k2", [], T.BOOL), info("s2", None), info("row", None)],
    )  # fmt: skip
    step = h.make_graph(
        [n("Add", ["a", "b"], ["a2"]), n("Mul", ["a2", "b"], ["y"])], "step", [info("a", [6]), info("b", [6])],
        [info("a2", [6]), info("y", [6])],
    )  # fmt: skip
    function = h.make_function(
        "own", "Twice", ["u"], ["v"], [n("Mul", ["u", "u"], ["w"]), n("LeakyRelu", ["w"], ["v"])],
        [h.make_opsetid("", 19)], [],
    )  # fmt: skip
    function.node[1].attribute.append(
        onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha")
    )
    function.attribute.append("alpha")
    return [
        model(
            [n("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), n("Relu", ["c"], ["r"]),
             n("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), n("GlobalAveragePool", ["p"], ["g"]),
             n("Flatten", ["g"], ["y"])],
            [x4], ["y"], [weight("w", 4, 3, 3, 3), weight("b", 4)],
        ),
        model(
            [n("Gemm", ["x", "w", "b"], ["a"], transB=1, alpha=0.5), n("Softmax", ["a"], ["s"], axis=-1),
             n("TopK", ["s", "k"], ["v", "at"]), n("Cast", ["at"], ["y"], to=T.FLOAT)],
            [x2], ["y", "v"], [weight("w", 5, 6), weight("b", 5), ints("k", 2)],
        ),
        model(
            [n("Shape", ["x"], ["d"]), n("Gather", ["d", "zero"], ["d0"]), n("Unsqueeze", ["d0", "zero1"], ["d1"]),
             n("Concat", ["d1", "rest"], ["to"], axis=0), n("Reshape", ["x", "to"], ["r"]), n("Slice", ["r", "one", "two", "ax"], ["y"]),
             n("Tile", ["y", "reps"], ["z"]), n("Pad", ["z", "pads"], ["q"], mode="reflect")],
            [x2], ["q"],
            [numpy_helper.from_array(np.array(0), "zero"), ints("zero1", 0), ints("rest", 2, 3), ints("one", 1), ints("two", 2),
             ints("ax", -1), ints("reps", 1, 2, 3), ints("pads", 0, 1, 1, 0, 0, 1)],
        ),
        model([n("If", ["f"], ["y"], then_branch=then, else_branch=other)], [x2, flag], ["y"]),
        model([n("Loop", ["c", "f", "x"], ["z", "rows"], body=body)], [x2, flag, count], ["z", "rows"]),
        model([n("Scan", ["init", "x"], ["last", "ys"], body=step, num_scan_inputs=1)], [x2], ["last", "ys"], [weight("init", 6)]),
        model([n("Twice", ["x"], ["y"], domain="own", alpha=0.25)], [x2], ["y"], functions=[function]),
        model(
            [n("LSTM", ["x", "w", "r", "b", "", "h"], ["y", "yh", "yc"], hidden_size=2, direction="forward", clip=1.5)],
            [info("x", [3, 2, 4])], ["y", "yh", "yc"], [weight("w", 1, 8, 4), weight("r", 1, 8, 2), weight("b", 1, 16), weight("h", 1, 2, 2)],
        ),
        model(
            [n("QuantizeLinear", ["x", "s", "z"], ["q"]), n("DequantizeLinear", ["q", "s", "z"], ["d"]),
             n("LayerNormalization", ["d", "w"], ["l"], axis=-1), n("Einsum", ["l", "l"], ["y"], equation="ij,kj->ik")],
            [x2], ["y"],
            [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(3), "z"), weight("w", 6)],
        ),
        model(
            [n("Resize", ["x", "", "scales"], ["r"], mode="linear"), n("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
             n("Split", ["t"], ["a", "b"], axis=3, num_outputs=2), n("ReduceMean", ["a", "axes"], ["m"]),
             n("NonZero", ["m"], ["nz"]), n("Where", ["mask", "m", "half"], ["y"]), n("OneHot", ["at", "depth", "values"], ["o"])],
            [x4], ["y", "nz", "o", "b"],
            [numpy_helper.from_array(np.array([1, 1, 2, 0.5], np.float32), "scales"), ints("axes", 1, 2),
             numpy_helper.from_array(np.array([True, False]), "mask"), numpy_helper.from_array(np.float32(0.5), "half"),
             ints("at", 0, 2, -1), ints("depth", 4), numpy_helper.from_array(np.array([0, 1], np.float32), "values")],
        ),
        model(
            [n("SequenceConstruct", ["x", "x"], ["s"]), n("SequenceInsert", ["s", "x"], ["s2"]),
             n("ConcatFromSequence", ["s2"], ["c"], axis=1), n("SplitToSequence", ["c", "parts"], ["p"], axis=1),
             n("SequenceAt", ["p", "one"], ["y"]), n("SequenceLength", ["p"], ["len"]), n("Optional", ["y"], ["opt"]),
             n("OptionalGetElement", ["opt"], ["z"])],
            [x2], ["z", "len"], [ints("parts", 3), numpy_helper.from_array(np.array(1), "one")],
        ),
        model(
            [n("StringSplit", ["t"], ["parts", "many"], delimiter=" "), n("RegexFullMatch", ["t"], ["is"], pattern="a+ b*"),
             n("StringNormalizer", ["t"], ["up"], case_change_action="UPPER")],
            [info("t", ["n"], T.STRING)], ["parts", "many", "is", "up"],
        ),
        model(
            [n("MultiHeadAttention", ["x", "x", "x"], ["y"], num_heads=2, domain="com.microsoft"),
             n("SkipLayerNormalization", ["y", "x", "w"], ["z"], domain="com.microsoft")],
            [info("x", [2, 3, 6])], ["z"], [weight("w", 6)],
        ),
        model(
            [n("ConstantOfShape", ["d"], ["a"]), n("Range", ["lo", "hi", "by"], ["b"]), n("CumSum", ["b", "zero"], ["c"]),
             n("ScatterND", ["a", "at", "up"], ["s"]), n("GatherND", ["s", "at"], ["y"]), n("Expand", ["y", "d"], ["z"])],
            [info("d", [2], T.INT64)], ["s", "z", "c"],
            [numpy_helper.from_array(np.array(0), "lo"), numpy_helper.from_array(np.array(9), "hi"),
             numpy_helper.from_array(np.array(2), "by"), numpy_helper.from_array(np.array(0), "zero"),
             numpy_helper.from_array(np.zeros((2, 2), np.int64), "at"), weight("up", 2)],
        ),
    ]  # fmt: skip
