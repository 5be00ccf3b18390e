"""Infinite control flow, extreme depth and length, exponentially expanding functions, names that contain code."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from case import Trial, add, array, chain, graph, i64, info, model
from onnx import TensorProto as T
from onnx import helper as h

n = h.make_node
X = np.arange(6, dtype=np.float32).reshape(2, 3)
x, c, k, i = info("x"), info("c", (), T.BOOL), info("k", (), T.BOOL), info("i", (), T.INT64)
TRUE = array("t", True)


def loop(
    step: list, trips: Any = None, cond: str = "t", inputs: Any = None, outputs: Any = ("k2", "s2"), state: Any = (2, 3)
) -> onnx.ModelProto:
    body = graph(step, [i, k, info("s", state)] if inputs is None else inputs, outputs, name="body")
    weights = [TRUE] if trips is None else [TRUE, array("m", trips)]
    return model([n("Loop", ["" if trips is None else "m", cond, "x"], ["y"], body=body)], [x], ["y"], weights)


keep, same = n("Identity", ["k"], ["k2"]), n("Relu", ["s"], ["s2"])
add("control", "loop without end", loop([keep, same]))
add("control", "loop of 2^62 trips", loop([keep, same], 1 << 62, ""))
add("control", "loop of -2^62 trips", loop([keep, same], -(1 << 62)), "run")
add("control", "loop of no trips", loop([keep, same], 0), "run")
add("control", "loop of words", loop([keep, n("Cast", ["s"], ["s2"], to=T.STRING)], 3))
add("control", "loop whose state changes type", loop([keep, n("Cast", ["s"], ["s2"], to=T.INT32)], 3))
add("control", "loop whose condition is a number", loop([n("Cast", ["k"], ["k2"], to=T.FLOAT), same], 3), "either")
add(
    "control",
    "loop whose condition is a tensor",
    loop(
        [
            n("Concat", ["k1", "k1"], ["k2"], axis=0),
            n("Unsqueeze", ["k", "z"], ["k1"]),
            n("Constant", [], ["z"], value_ints=[0]),
            same,
        ],
        3,
    ),
)
add(
    "control",
    "loop body takes too little",
    loop([n("Identity", ["t"], ["k2"]), n("Relu", ["x"], ["s2"])], 3, inputs=[i]),
)
add("control", "loop body takes too much", loop([keep, same], 3, inputs=[i, k, info("s"), info("q")]))
add("control", "loop body gives too little", loop([keep], 3, outputs=["k2"]))
add("control", "loop body reads what nobody defines", loop([keep, n("Add", ["s", "nobody"], ["s2"])], 3))
inner = graph(
    [n("Identity", ["k_"], ["k2_"]), n("Relu", ["s_"], ["s2_"])],
    [info("i_", (), T.INT64), info("k_", (), T.BOOL), info("s_")],
    ["k2_", "s2_"],
    name="inner",
)
add("control", "loop without end in a loop without end", loop([keep, n("Loop", ["", "k", "s"], ["s2"], body=inner)]))
add(
    "control",
    "Scan of different lengths",
    model(
        [
            n(
                "Scan",
                ["x", "x2"],
                ["y"],
                body=graph([n("Add", ["a", "b"], ["z"])], [info("a", (3,)), info("b", (3,))], ["z"]),
                num_scan_inputs=2,
            )
        ],
        [x, info("x2", (5, 3))],
    ),
)
for scan in (
    {"num_scan_inputs": 0},
    {"num_scan_inputs": 9},
    {"num_scan_inputs": -1},
    {"num_scan_inputs": 1, "scan_input_axes": [7]},
    {"num_scan_inputs": 1, "scan_input_directions": [2]},
    {"num_scan_inputs": 1, "scan_output_axes": [9]},
    {"num_scan_inputs": 1, "scan_input_axes": [0, 0]},
):
    add(
        "control",
        f"Scan {scan}",
        model([n("Scan", ["x"], ["y"], body=graph([n("Relu", ["a"], ["z"])], [info("a", (3,))], ["z"]), **scan)], [x]),
    )


def either(then: Any, other: Any, inputs: Any = (x, c)) -> onnx.ModelProto:
    return model([n("If", ["c"], ["y"], then_branch=then, else_branch=other)], inputs)


good = graph([n("Relu", ["x"], ["z"])], [], ["z"], name="good")
add("control", "If", either(good, good), "run")
add(
    "control",
    "If with branches of other lengths",
    either(good, graph([n("Split", ["x"], ["a", "b"], axis=0, num_outputs=2)], [], ["a", "b"])),
)
add("control", "If with branches of other types", either(good, graph([n("Cast", ["x"], ["a"], to=T.INT8)], [], ["a"])))
add("control", "If on a float", either(good, good, [x, info("c", ())]))
add("control", "If on two values", either(good, good, [x, info("c", (2,), T.BOOL)]))
add("control", "If branch with inputs", either(good, graph([n("Relu", ["q"], ["z"])], [info("q")], ["z"])))
add("control", "If branch reads what nobody defines", either(good, graph([n("Relu", ["nobody"], ["z"])], [], ["z"])))
add("control", "If branch reads its own result", either(good, graph([n("Relu", ["y"], ["z"])], [], ["z"])))
add("control", "If branch without outputs", either(graph([n("Relu", ["x"], ["z"])], [], []), graph([], [], [])))
add("control", "sub-graph shadows a name", either(good, graph([n("Relu", ["x"], ["x"])], [], ["x"])), "either")


def nested(depth: int, step: Any) -> onnx.ModelProto:
    at = graph([n("Relu", ["x"], ["z"])], [], ["z"])
    for level in range(depth):
        at = graph([step(at, level)], [], ["z"])
    return either(at, good)


add(
    "depth",
    "If 10 deep",
    nested(10, lambda g, d: n("If", ["c"], ["z"], then_branch=g, else_branch=g if d < 3 else good)),
    "run",
)
add("depth", "If 30 deep", nested(30, lambda g, d: n("If", ["c"], ["z"], then_branch=g, else_branch=good)), "run")
add("depth", "If 2^25", nested(25, lambda g, d: n("If", ["c"], ["z"], then_branch=g, else_branch=good)), "run")


def wire(number: int, payload: bytes) -> bytes:
    return head(number, len(payload)) + payload


def head(number: int, size: int) -> bytes:
    """Returns the bytes before a field's payload of a given size."""
    out = bytearray([number << 3 | 2])
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(out) + bytes([size])


def deep(levels: int) -> bytes:
    """Returns a model whose subgraphs nest `levels` deep, written without protobuf, which would reject it, in linear time."""
    around: list[bytes] = []  # before each graph, the innermost first: its node, up to the graph in its attribute
    size = 0
    for _ in range(levels):
        attribute = wire(1, b"then_branch") + head(6, size)
        node = wire(4, b"If") + head(5, len(attribute) + size) + attribute
        around.append(head(1, len(node) + size) + node)
        size += len(around[-1])
    return b"\x08\x0a" + head(7, size) + b"".join(reversed(around)) + wire(8, b"\x10\x14")


add("depth", "If 20,000 deep", lambda folder: deep(20_000))
add("depth", "If 60 deep, by hand", lambda folder: deep(60))


def looped(depth: int) -> onnx.ModelProto:
    """Returns nested loops whose states grow, so that each body is parsed more than once."""
    at = [n("Concat", [f"s{depth}", f"s{depth}"], [f"r{depth}"], axis=0)]
    for d in range(depth, 0, -1):
        body = graph(
            [*at, n("Identity", [f"k{d}"], [f"kk{d}"])],
            [info(f"i{d}", (), T.INT64), info(f"k{d}", (), T.BOOL), info(f"s{d}", ["n"])],
            [f"kk{d}", f"r{d}"],
        )
        at = [n("Loop", ["m", "", f"s{d - 1}"], [f"r{d - 1}"], body=body)]
    return model(at, [info("s0", (1,))], ["r0"], [array("m", 1)])


add("depth", "loops 6 deep that grow", looped(6), "run")
# 2^20 bodies: the limit on nodes is an option, and a small limit stops them like the default
add(
    "depth",
    "loops 20 deep that grow",
    lambda folder: Trial(looped(20).SerializeToString(), None, {"limit_nodes": 10_000}),
)
LONG = 20_000
steps: dict[str, Any] = {
    "Relu": lambda a, b, m: n("Relu", [a], [b]), "Identity": lambda a, b, m: n("Identity", [a], [b]),
    "Neg": lambda a, b, m: n("Neg", [a], [b]), "Transpose": lambda a, b, m: n("Transpose", [a], [b], perm=[1, 0]),
    "Add": lambda a, b, m: n("Add", [a, "w"], [b]), "Reshape": lambda a, b, m: n("Reshape", [a, "to"], [b]),
    "Unsqueeze and Squeeze": lambda a, b, m: n("Squeeze" if m % 2 else "Unsqueeze", [a, "zero"], [b]),
    "Cast": lambda a, b, m: n("Cast", [a], [b], to=T.FLOAT if m % 2 else T.DOUBLE), "Dropout": lambda a, b, m: n("Dropout", [a], [b]),
    "MatMul": lambda a, b, m: n("MatMul", [a, "square"], [b]), "Softmax": lambda a, b, m: n("Softmax", [a], [b]),
}  # fmt: skip
for word, step in steps.items():
    weights = [array("w", 1.0, np.float32), i64("to", 2, 3), i64("zero", 0), array("square", np.eye(3), np.float32)]
    add("length", f"{LONG // 10} of {word}", lambda folder, s=step, w=weights: chain(LONG // 10, s, weights=w), "run")
    add("length", f"{LONG} of {word}", lambda folder, s=step, w=weights: chain(LONG, s, weights=w), "run", slow=True)


def extents(count: int) -> onnx.ModelProto:
    """Arithmetic on an extent that only the last node needs."""
    nodes = (
        [n("Shape", ["x"], ["t0"])]
        + [n("Add", [f"t{m}", "zero"], [f"t{m + 1}"]) for m in range(count)]
        + [n("Reshape", ["x", f"t{count}"], ["y"])]
    )
    return model(nodes, [info("x", ["n", 3])], ["y"], [i64("zero", 0)])


def constants(count: int) -> onnx.ModelProto:
    nodes = [n("Add", [f"t{m}" if m else "x0", "zero"], [f"t{m + 1}"]) for m in range(count)] + [
        n("Reshape", ["x", f"t{count}"], ["y"])
    ]
    return model(nodes, [x], ["y"], [i64("zero", 0), i64("x0", 3, 2)])


for count in (2000, LONG):
    add("length", f"{count} steps of extents", lambda folder, m=count: extents(m), "run", slow=count == LONG)
    add("length", f"{count} steps of constants", lambda folder, m=count: constants(m), "run", slow=count == LONG)
    add(
        "length",
        f"{count} inputs",
        lambda folder, m=count: model([n("Relu", ["x0"], ["y"])], [info(f"x{a}", (1,)) for a in range(m)]),
        "run",
        slow=count == LONG,
    )
    add(
        "length",
        f"{count} outputs",
        lambda folder, m=count: model(
            [n("Relu", ["x"], [f"y{a}"]) for a in range(m)], [x], [f"y{a}" for a in range(m)]
        ),
        "run",
        slow=count == LONG,
    )
    add(
        "length",
        f"{count} initializers",
        lambda folder, m=count: model(
            [n("Sum", [f"w{a}" for a in range(m)], ["y"])], [], ["y"], [array(f"w{a}", [1.0]) for a in range(m)]
        ),
        "run",
        slow=count == LONG,
    )
    add(
        "length",
        f"{count} operands",
        lambda folder, m=count: model([n("Concat", ["x"] * m, ["y"], axis=0)], [x]),
        "run",
        slow=count == LONG,
    )
    add(
        "length",
        f"{count} nodes backwards",
        lambda folder, m=count: model(
            [n("Relu", [f"t{a}"], [f"t{a + 1}"]) for a in reversed(range(m))], [info("t0")], [f"t{m}"]
        ),
        "run",
        slow=count == LONG,
    )
wide = onnx.TypeProto()
wide.tensor_type.elem_type = 1
for _ in range(40):
    outer = onnx.TypeProto()
    outer.sequence_type.elem_type.CopyFrom(wide)
    wide = outer
add(
    "depth",
    "sequences of sequences, 40 deep",
    model([n("Identity", ["x"], ["y"])], [onnx.ValueInfoProto(name="x", type=wide)]),
    "either",
)


def function(
    name: str, nodes: Any, inputs: Any = ("a",), outputs: Any = ("b",), attributes: Any = (), domain: str = "own"
) -> onnx.FunctionProto:
    return h.make_function(
        domain,
        name,
        list(inputs),
        list(outputs),
        list(nodes),
        [h.make_opsetid("", 20), h.make_opsetid("own", 1)],
        list(attributes),
    )


def call(name: str, a: str = "x", b: str = "y", **more: Any) -> onnx.NodeProto:
    return n(name, [a], [b], domain="own", **more)


def calling(*functions: Any, node: Any = None) -> onnx.ModelProto:
    return model([node or call("F")], [x], functions=functions)


add("functions", "good", calling(function("F", [n("Relu", ["a"], ["b"])])), "run")
add("functions", "calls itself", calling(function("F", [call("F", "a", "b")])))
add("functions", "call each other", calling(function("F", [call("G", "a", "b")]), function("G", [call("F", "a", "b")])))
add(
    "functions",
    "calls itself in a branch",
    calling(
        function(
            "F",
            [
                n(
                    "If",
                    ["t"],
                    ["b"],
                    then_branch=graph([call("F", "a", "z")], [], ["z"]),
                    else_branch=graph([n("Relu", ["a"], ["z"])], [], ["z"]),
                ),
                n("Constant", [], ["t"], value=array("v", False)),
            ],
        )
    ),
)
doubling = [function(f"F{m or ''}", [call(f"F{m + 1}", "a", "c"), call(f"F{m + 1}", "c", "b")]) for m in range(35)] + [
    function("F35", [n("Relu", ["a"], ["b"])])
]
add("functions", "2^35 nodes", calling(*doubling))
wider = [
    function(
        f"F{m or ''}", [call(f"F{m + 1}", f"c{a}" if a else "a", f"c{a + 1}" if a < 99 else "b") for a in range(100)]
    )
    for m in range(5)
] + [function("F5", [n("Relu", ["a"], ["b"])])]
add("functions", "100^5 nodes", calling(*wider))
add(
    "functions",
    "2,000 deep",
    calling(
        *[function(f"F{m or ''}", [call(f"F{m + 1}", "a", "b")]) for m in range(2000)],
        function("F2000", [n("Relu", ["a"], ["b"])]),
    ),
)
add("functions", "of an unknown operator", calling(function("F", [n("Frob", ["a"], ["b"])])))
add(
    "functions",
    "too many arguments",
    calling(function("F", [n("Relu", ["a"], ["b"])]), node=n("F", ["x", "x"], ["y"], domain="own")),
)
add(
    "functions",
    "too many results",
    calling(function("F", [n("Relu", ["a"], ["b"])]), node=n("F", ["x"], ["y", "z"], domain="own")),
)
add("functions", "too few arguments", calling(function("F", [n("Add", ["a", "q"], ["b"])], ["a", "q"])))
add("functions", "result that nobody defines", calling(function("F", [n("Relu", ["a"], ["c"])])))
add("functions", "reads its caller's names", calling(function("F", [n("Add", ["a", "x"], ["b"])])))
add(
    "functions",
    "two of a name",
    calling(function("F", [n("Relu", ["a"], ["b"])]), function("F", [n("Neg", ["a"], ["b"])])),
)
add("functions", "a cycle inside", calling(function("F", [n("Add", ["a", "c"], ["b"]), n("Relu", ["b"], ["c"])])))
referring = n("LeakyRelu", ["a"], ["b"])
referring.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1))
add("functions", "attribute that is not given", calling(function("F", [referring], attributes=["slope"])), "either")
add(
    "functions",
    "attribute of another type",
    calling(function("F", [referring], attributes=["slope"]), node=call("F", slope="steep")),
)
add(
    "functions",
    "in place of an operator",
    model([n("Relu", ["x"], ["y"])], [x], functions=[function("Relu", [n("Neg", ["a"], ["b"])], domain="")]),
    "run",
)
add(
    "functions",
    "without opsets",
    calling(onnx.FunctionProto(name="F", domain="own", input=["a"], output=["b"], node=[n("Relu", ["a"], ["b"])])),
    "either",
)
add(
    "functions",
    "of opset 10^9",
    calling(
        onnx.FunctionProto(
            name="F",
            domain="own",
            input=["a"],
            output=["b"],
            node=[n("Relu", ["a"], ["b"])],
            opset_import=[h.make_opsetid("", 10**9)],
        )
    ),
    "either",
)

for number, word in enumerate([
    "__import__('os').system('touch /tmp/was_run')", "'; import os; os.abort() #", '"""', "a\nb", "a\x00b", "$(reboot)", "`id`", "{0.__class__}", "%s%n%x",
    "a" * 100_000, "\u202e\u200b", "main", "@return", "%1", "]) -> float32[1]", "-1", "../../x", "null", "None", "\\", "a b", "\U0001f600",
]):  # fmt: skip
    add(
        "names",
        f"tensor {number}",
        model([n("Relu", [word], [word + "!"], name=word)], [info(word)], [word + "!"]),
        "run",
    )
    add(
        "names",
        f"dimension {number}",
        lambda folder, w=word: Trial(
            model([n("Relu", ["x"], ["y"])], [info("x", [w, 3])]).SerializeToString(), {"x": X}
        ),
        "run",
    )
    add("names", f"operator {number}", model([n(word, ["x"], ["y"])], [x]))
    add("names", f"attribute {number}", model([n("Relu", ["x"], ["y"], **{word: 1})], [x]), "either")
add("names", "tensor without a name", model([n("Relu", [""], ["y"])], [info("")]), "refuse")
