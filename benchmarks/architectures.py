"""Architectures missing from the model folders, written node by node like exporters do, with random weights.

python benchmarks/architectures.py OUT_DIR [NAME ...]

Writes NAME.onnx and NAME.in.npz for efficientnet (swish, squeeze and excite), mobilenet_v3 (hard swish), shufflenet (channel
shuffle), convnext (layer norm over channels, layer scale), swin (shifted windows, relative bias), distilbert (masked attention
in primitive ops, Erf), whisper (encoder and decoder with cross attention), llama (RMS norm, rotary, grouped queries, cache), t5
(relative position buckets, shared bias), seq2seq (GRU, Loop), detector (feature pyramid, TopK, GatherND, NonMaxSuppression).
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Graph:
    """Nodes in order, with random weights seeded by name."""

    def __init__(self, name: str, opset: int = 17) -> None:
        self.name, self.opset = name, opset
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.feed: dict[str, np.ndarray] = {}
        self.count = 0

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def input(self, name: str, value: np.ndarray, dims: Sequence[Any] | None = None) -> str:
        self.feed[name] = value
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(dims or value.shape)))
        return name

    def output(self, value: str, name: str = "", kind: int = FLOAT, dims: Sequence[Any] | None = None) -> None:
        """dims: if shape inference cannot determine them."""
        name = name or f"out{len(self.outputs)}"
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, dims))

    def const(self, value: Any, dtype: Any = None) -> str:
        name = self.fresh("const")
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.const(np.float32(value))

    def weight(self, *dims: int, scale: float | None = None, mean: float = 0.0) -> str:
        fan = max(1, int(np.prod(dims[1:])) if len(dims) > 1 else 1)
        values = self.random.standard_normal(dims, np.float32) * np.float32(
            (1 / fan) ** 0.5 if scale is None else scale
        ) + np.float32(mean)
        name = self.fresh("weight")
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def __call__(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [self.fresh(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"/{names[0]}", **attributes))
        return names[0] if outputs == 1 else names

    def save(self, folder: Path) -> None:
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        model = onnx.shape_inference.infer_shapes(model)  # also of the results
        onnx.checker.check_model(model)
        onnx.save(model, folder / f"{self.name}.onnx")
        np.savez(folder / f"{self.name}.in.npz", **self.feed)

    # layers shared by several architectures

    def conv(
        self, x: str, into: int, out: int, kernel: int, stride: int = 1, groups: int = 1, bias: bool = True
    ) -> str:
        given = [self.weight(out, into // groups, kernel, kernel), *([self.weight(out, scale=0.1)] if bias else [])]
        pad = [kernel // 2] * 4
        return self("Conv", x, *given, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pad, group=groups)

    def batch_norm(self, x: str, size: int) -> str:
        stats = [self.weight(size, scale=0.1, mean=1), self.weight(size, scale=0.1), self.weight(size, scale=0.1)]
        variance = self.const(self.random.uniform(0.5, 1.5, size).astype(np.float32))
        return self("BatchNormalization", x, *stats, variance, epsilon=1e-3)

    def linear(self, x: str, into: int, out: int, bias: bool = True) -> str:
        y = self("MatMul", x, self.weight(into, out, scale=into**-0.5))
        return self("Add", self.weight(out, scale=0.1), y) if bias else y

    def layer_norm(self, x: str, size: int) -> str:
        """As written by exporters before opset 17."""
        mean = self("ReduceMean", x, axes=[-1])
        centered = self("Sub", x, mean)
        variance = self("ReduceMean", self("Pow", centered, self.number(2)), axes=[-1])
        normal = self("Div", centered, self("Sqrt", self("Add", variance, self.number(1e-5))))
        scaled = self("Mul", normal, self.weight(size, scale=0.1, mean=1))
        return self("Add", scaled, self.weight(size, scale=0.1))

    def gelu(self, x: str) -> str:
        erf = self("Erf", self("Div", x, self.number(2**0.5)))
        return self("Mul", self("Mul", x, self("Add", erf, self.number(1))), self.number(0.5))

    def swish(self, x: str) -> str:
        return self("Mul", x, self("Sigmoid", x))

    def shape_of(self, x: str, axis: int) -> str:
        return self("Gather", self("Shape", x), self.ints(axis), axis=0)


def efficientnet() -> Graph:
    g = Graph("efficientnet")
    x = g.input("x", g.random.standard_normal((1, 3, 128, 128), np.float32))

    def block(x: str, into: int, out: int, expand: int, kernel: int, stride: int) -> str:
        wide = into * expand
        y = x
        if expand > 1:
            y = g.swish(g.batch_norm(g.conv(y, into, wide, 1, bias=False), wide))
        y = g.swish(g.batch_norm(g.conv(y, wide, wide, kernel, stride, wide, bias=False), wide))
        s = g("GlobalAveragePool", y)
        s = g.swish(g.conv(s, wide, max(1, into // 4), 1))
        y = g("Mul", g("Sigmoid", g.conv(s, max(1, into // 4), wide, 1)), y)
        y = g.batch_norm(g.conv(y, wide, out, 1, bias=False), out)
        return g("Add", y, x) if stride == 1 and into == out else y

    x = g.swish(g.batch_norm(g.conv(x, 3, 32, 3, 2, bias=False), 32))
    size = 32
    for expand, out, repeats, stride, kernel in [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
    ]:
        for n in range(repeats):
            x = block(x, size, out, expand, kernel, stride if n == 0 else 1)
            size = out
    x = g("Flatten", g("GlobalAveragePool", x))
    g.output(g("Gemm", x, g.weight(100, size), g.weight(100), transB=1))
    return g


def mobilenet_v3() -> Graph:
    g = Graph("mobilenet_v3")
    x = g.input("x", g.random.standard_normal((2, 3, 96, 96), np.float32), ["batch", 3, 96, 96])

    def hard_swish(x: str) -> str:
        """Decomposed, as in opset 11."""
        gate = g("Clip", g("Add", x, g.number(3)), g.number(0), g.number(6))
        return g("Div", g("Mul", x, gate), g.number(6))

    x = hard_swish(g.batch_norm(g.conv(x, 3, 16, 3, 2, bias=False), 16))
    for into, wide, out, kernel, stride in [
        (16, 64, 24, 3, 2),
        (24, 72, 24, 3, 1),
        (24, 72, 40, 5, 2),
        (40, 120, 40, 5, 1),
    ]:
        y = hard_swish(g.batch_norm(g.conv(x, into, wide, 1, bias=False), wide))
        y = hard_swish(g.batch_norm(g.conv(y, wide, wide, kernel, stride, wide, bias=False), wide))
        s = g("Relu", g.conv(g("ReduceMean", y, axes=[2, 3]), wide, wide // 4, 1))
        y = g("Mul", y, g("HardSigmoid", g.conv(s, wide // 4, wide, 1), alpha=1 / 6, beta=0.5))
        y = g.batch_norm(g.conv(y, wide, out, 1, bias=False), out)
        x = g("Add", x, y) if stride == 1 and into == out else y
    x = g("ReduceMean", x, axes=[2, 3], keepdims=0)
    g.output(g.linear(g("HardSwish", g.linear(x, 40, 64)), 64, 10))
    return g


def shufflenet() -> Graph:
    g = Graph("shufflenet")
    x = g.input("x", g.random.standard_normal((2, 3, 64, 64), np.float32), ["n", 3, 64, 64])
    x = g("Relu", g.batch_norm(g.conv(x, 3, 24, 3, 2), 24))
    x = g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = g("Relu", g.conv(x, 24, 32, 1))
    for _ in range(3):
        left, right = g("Split", x, g.ints(16, 16), outputs=2, axis=1)
        right = g("Relu", g.batch_norm(g.conv(right, 16, 16, 1), 16))
        right = g.batch_norm(g.conv(right, 16, 16, 3, groups=16), 16)
        right = g("Relu", g.batch_norm(g.conv(right, 16, 16, 1), 16))
        x = g("Concat", left, right, axis=1)
        dims = [g.shape_of(x, n) for n in range(4)]
        x = g("Reshape", x, g("Concat", dims[0], g.ints(2), g.ints(16), dims[2], dims[3], axis=0))
        x = g("Reshape", g("Transpose", x, perm=[0, 2, 1, 3, 4]), g("Concat", dims[0], g.ints(-1), *dims[2:], axis=0))
    x = g("ReduceMean", x, axes=[2, 3], keepdims=0)
    g.output(g("Softmax", g.linear(x, 32, 10), axis=-1))
    return g


def convnext() -> Graph:
    g = Graph("convnext")
    x = g.input("x", g.random.standard_normal((1, 3, 64, 64), np.float32))
    x = g("Conv", x, g.weight(48, 3, 4, 4), g.weight(48), kernel_shape=[4, 4], strides=[4, 4])
    for size, out in [(48, 96), (96, 192)]:
        for _ in range(2):
            y = g("Transpose", g.conv(x, size, size, 7, groups=size), perm=[0, 2, 3, 1])
            y = g.linear(g.gelu(g.linear(g.layer_norm(y, size), size, 4 * size)), 4 * size, size)
            y = g("Mul", y, g.weight(size, scale=0.1, mean=0.5))
            x = g("Add", x, g("Transpose", y, perm=[0, 3, 1, 2]))
        y = g("Transpose", g.layer_norm(g("Transpose", x, perm=[0, 2, 3, 1]), size), perm=[0, 3, 1, 2])
        x = g("Conv", y, g.weight(out, size, 2, 2), g.weight(out), kernel_shape=[2, 2], strides=[2, 2])
    x = g.layer_norm(g("ReduceMean", x, axes=[2, 3], keepdims=0), 192)
    g.output(g.linear(x, 192, 10))
    return g


def swin() -> Graph:
    g = Graph("swin")
    side, window, size, heads = 16, 4, 48, 3
    x = g.input("x", g.random.standard_normal((2, 3, 64, 64), np.float32))
    x = g("Conv", x, g.weight(size, 3, 4, 4), g.weight(size), kernel_shape=[4, 4], strides=[4, 4])
    x = g("Transpose", g("Reshape", x, g.ints(2, size, -1)), perm=[0, 2, 1])

    def roll(x: str, by: int) -> str:
        for axis in (1, 2):
            a = g("Slice", x, g.ints(by), g.ints(1 << 60), g.ints(axis))
            b = g("Slice", x, g.ints(0), g.ints(by), g.ints(axis))
            x = g("Concat", a, b, axis=axis)
        return x

    tokens, count = window * window, (side // window) ** 2
    for shift in (0, 2):
        y = g("Reshape", g.layer_norm(x, size), g.ints(2, side, side, size))
        y = roll(y, shift) if shift else y
        y = g("Reshape", y, g.ints(2, side // window, window, side // window, window, size))
        y = g("Reshape", g("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), g.ints(-1, tokens, size))
        qkv = g("Reshape", g.linear(y, size, 3 * size), g.ints(-1, tokens, 3, heads, size // heads))
        qkv = g("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (g("Gather", qkv, g.const(np.int64(n)), axis=0) for n in range(3))
        q = g("Mul", q, g.number((size // heads) ** -0.5))
        scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
        table = g.weight((2 * window - 1) ** 2, heads, scale=1.0)
        index = g.const(g.random.integers(0, (2 * window - 1) ** 2, tokens * tokens))
        bias = g("Reshape", g("Gather", table, index, axis=0), g.ints(tokens, tokens, heads))
        scores = g("Add", scores, g("Unsqueeze", g("Transpose", bias, perm=[2, 0, 1]), g.ints(0)))
        if shift:
            mask = g.const(np.where(g.random.random((count, tokens, tokens)) < 0.2, -100, 0).astype(np.float32))
            scores = g("Reshape", scores, g.ints(-1, count, heads, tokens, tokens))
            scores = g("Add", scores, g("Unsqueeze", g("Unsqueeze", mask, g.ints(1)), g.ints(0)))
            scores = g("Reshape", scores, g.ints(-1, heads, tokens, tokens))
        y = g("MatMul", g("Softmax", scores, axis=-1), v)
        y = g.linear(g("Reshape", g("Transpose", y, perm=[0, 2, 1, 3]), g.ints(-1, tokens, size)), size, size)
        y = g("Reshape", y, g.ints(2, side // window, side // window, window, window, size))
        y = g("Reshape", g("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), g.ints(2, side, side, size))
        y = roll(y, side - shift) if shift else y
        x = g("Add", x, g("Reshape", y, g.ints(2, side * side, size)))
        x = g("Add", x, g.linear(g.gelu(g.linear(g.layer_norm(x, size), size, 4 * size)), 4 * size, size))
    x = g("Reshape", x, g.ints(2, side, side, size))
    parts = [
        g("Slice", x, g.ints(a, b), g.ints(1 << 60, 1 << 60), g.ints(1, 2), g.ints(2, 2))
        for b in (0, 1)
        for a in (0, 1)
    ]
    x = g("Reshape", g("Concat", *parts, axis=-1), g.ints(2, -1, 4 * size))
    x = g.linear(g.layer_norm(x, 4 * size), 4 * size, 2 * size, bias=False)
    g.output(g.linear(g("ReduceMean", x, axes=[1], keepdims=0), 2 * size, 10))
    return g


def distilbert() -> Graph:
    g = Graph("distilbert")
    size, heads, layers, batch, length = 96, 4, 2, 2, 24
    ids = g.input("input_ids", g.random.integers(0, 500, (batch, length)), ["batch", "sequence"])
    mask = g.input("attention_mask", (np.arange(length) < [[24], [17]]).astype(np.int64), ["batch", "sequence"])
    steps = g("Shape", ids, start=1, end=2)
    positions = g("Slice", g.const(np.arange(64)[None]), g.ints(0), steps, g.ints(1))
    x = g(
        "Add", g("Gather", g.weight(500, size, scale=1.0), ids), g("Gather", g.weight(64, size, scale=1.0), positions)
    )
    x = g.layer_norm(x, size)
    for _ in range(layers):
        b, s = g.shape_of(x, 0), g.shape_of(x, 1)
        split = g("Concat", b, g.ints(-1), g.ints(heads), g.ints(size // heads), axis=0)
        q, k, v = (g("Transpose", g("Reshape", g.linear(x, size, size), split), perm=[0, 2, 1, 3]) for _ in range(3))
        q = g("Div", q, g.number((size // heads) ** 0.5))
        scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
        hidden = g("Equal", mask, g.const(np.int64(0)))
        hidden = g("Reshape", hidden, g("Concat", b, g.ints(1), g.ints(1), s, axis=0))
        hidden = g("Expand", hidden, g("Shape", scores))
        scores = g("Where", hidden, g.number(float(np.finfo(np.float32).min)), scores)
        y = g("MatMul", g("Softmax", scores, axis=3), v)
        y = g("Reshape", g("Transpose", y, perm=[0, 2, 1, 3]), g("Concat", b, g.ints(-1), g.ints(size), axis=0))
        x = g.layer_norm(g("Add", g.linear(y, size, size), x), size)
        x = g.layer_norm(g("Add", g.linear(g.gelu(g.linear(x, size, 4 * size)), 4 * size, size), x), size)
    first = g("Gather", x, g.const(np.int64(0)), axis=1)
    g.output(g.linear(g("Relu", g.linear(first, size, size)), size, 2))
    return g


def whisper() -> Graph:
    g = Graph("whisper")
    size, heads = 64, 4
    mel = g.input("mel", g.random.standard_normal((1, 20, 100), np.float32))
    tokens = g.input("tokens", g.random.integers(0, 300, (1, 7)), [1, "tokens"])

    def heads_of(x: str) -> str:
        return g("Transpose", g("Reshape", x, g.ints(1, -1, heads, size // heads)), perm=[0, 2, 1, 3])

    def attend(x: str, memory: str, causal: str = "") -> str:
        scale = g.number((size // heads) ** -0.25)
        q = g("Mul", heads_of(g.linear(x, size, size)), scale)
        k = g("Mul", heads_of(g.linear(memory, size, size, bias=False)), scale)
        v = heads_of(g.linear(memory, size, size))
        scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g("Add", scores, causal) if causal else scores
        y = g("MatMul", g("Softmax", scores, axis=-1), v)
        return g.linear(g("Reshape", g("Transpose", y, perm=[0, 2, 1, 3]), g.ints(1, -1, size)), size, size)

    def feed_forward(x: str) -> str:
        return g("Add", x, g.linear(g.gelu(g.linear(g.layer_norm(x, size), size, 4 * size)), 4 * size, size))

    x = g.gelu(g("Conv", mel, g.weight(size, 20, 3), g.weight(size), kernel_shape=[3], pads=[1, 1]))
    x = g.gelu(g("Conv", x, g.weight(size, size, 3), g.weight(size), kernel_shape=[3], pads=[1, 1], strides=[2]))
    x = g("Add", g("Transpose", x, perm=[0, 2, 1]), g.weight(50, size, scale=0.1))
    for _ in range(2):
        normal = g.layer_norm(x, size)
        x = feed_forward(g("Add", x, attend(normal, normal)))
    memory = g.layer_norm(x, size)
    steps = g("Shape", tokens, start=1, end=2)
    table = g.weight(300, size, scale=0.3)
    y = g("Add", g("Gather", table, tokens), g("Slice", g.weight(32, size, scale=0.1), g.ints(0), steps, g.ints(0)))
    infinite = g.const(np.triu(np.full((32, 32), -np.inf, np.float32), 1))
    causal = g("Slice", g("Slice", infinite, g.ints(0), steps, g.ints(0)), g.ints(0), steps, g.ints(1))
    for _ in range(2):
        normal = g.layer_norm(y, size)
        y = g("Add", y, attend(normal, normal, causal))
        y = feed_forward(g("Add", y, attend(g.layer_norm(y, size), memory)))
    g.output(g("MatMul", g.layer_norm(y, size), g("Transpose", table, perm=[1, 0])))
    return g


def llama() -> Graph:
    g = Graph("llama")
    size, heads, groups, head, past = 96, 6, 2, 16, 13
    ids = g.input("ids", g.random.integers(0, 300, (2, 1)), ["batch", "new"])
    positions = g.input("positions", np.full((2, 1), past), ["batch", "new"])
    x = g("Gather", g.weight(300, size, scale=1.0), ids)
    half = head // 2
    angles = g("Unsqueeze", g("Cast", positions, to=FLOAT), g.ints(2))
    angles = g("Mul", angles, g.const((10000.0 ** -(np.arange(half) / half)).astype(np.float32)))
    angles = g("Concat", angles, angles, axis=-1)
    cosine, sine = (g("Unsqueeze", g(kind, angles), g.ints(1)) for kind in ("Cos", "Sin"))

    def norm(x: str) -> str:
        mean = g("ReduceMean", g("Pow", x, g.number(2)), axes=[-1])
        root = g("Sqrt", g("Add", mean, g.number(1e-6)))
        return g("Mul", g.weight(size, scale=0.1, mean=1), g("Mul", x, g("Div", g.number(1), root)))

    def rotated(x: str) -> str:
        low = g("Slice", x, g.ints(0), g.ints(half), g.ints(3))
        high = g("Slice", x, g.ints(half), g.ints(1 << 60), g.ints(3))
        turned = g("Concat", g("Neg", high), low, axis=-1)
        return g("Add", g("Mul", x, cosine), g("Mul", turned, sine))

    def split(x: str, count: int) -> str:
        return g("Transpose", g("Reshape", x, g.ints(0, 0, count, head)), perm=[0, 2, 1, 3])

    def repeated(x: str) -> str:
        dims = g("Shape", x)
        b, s = g("Gather", dims, g.ints(0)), g("Gather", dims, g.ints(2))
        wide = g("Concat", b, g.ints(groups), g.ints(heads // groups), s, g.ints(head), axis=0)
        x = g("Expand", g("Unsqueeze", x, g.ints(2)), wide)
        return g("Reshape", x, g("Concat", b, g.ints(heads), s, g.ints(head), axis=0))

    for n in range(2):
        kept = [
            g.input(f"past_{kind}_{n}", g.random.standard_normal((2, groups, past, head), np.float32),
                    ["batch", groups, "past", head])
            for kind in "kv"
        ]  # fmt: skip
        y = norm(x)
        q = rotated(split(g.linear(y, size, heads * head, bias=False), heads))
        k = rotated(split(g.linear(y, size, groups * head, bias=False), groups))
        v = split(g.linear(y, size, groups * head, bias=False), groups)
        k, v = g("Concat", kept[0], k, axis=2), g("Concat", kept[1], v, axis=2)
        g.output(k, f"present_k_{n}")
        g.output(v, f"present_v_{n}")
        scores = g("MatMul", q, g("Transpose", repeated(k), perm=[0, 1, 3, 2]))
        scores = g("Div", scores, g.number(head**0.5))
        y = g("MatMul", g("Softmax", scores, axis=-1), repeated(v))
        y = g("Reshape", g("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, 0, heads * head))
        x = g("Add", x, g.linear(y, heads * head, size, bias=False))
        y = norm(x)
        gate = g.swish(g.linear(y, size, 256, bias=False))
        x = g("Add", x, g.linear(g("Mul", gate, g.linear(y, size, 256, bias=False)), 256, size, bias=False))
    g.output(g.linear(norm(x), size, 300, bias=False), "logits")
    return g


def t5() -> Graph:
    g = Graph("t5")
    size, heads = 64, 4
    ids = g.input("ids", g.random.integers(0, 200, (2, 11)), ["batch", "steps"])
    x = g("Gather", g.weight(200, size, scale=1.0), ids)
    steps = g("Gather", g("Shape", ids), g.const(np.int64(1)))
    line = g("Range", g.const(np.int64(0)), steps, g.const(np.int64(1)))
    distance = g("Sub", g("Unsqueeze", line, g.ints(0)), g("Unsqueeze", line, g.ints(1)))
    side = g("Mul", g("Cast", g("Greater", distance, g.const(np.int64(0))), to=INT64), g.const(np.int64(8)))
    far = g("Abs", distance)
    log = g("Log", g("Div", g("Cast", g("Max", far, g.ints(1)), to=FLOAT), g.number(4)))
    large = g("Cast", g("Mul", g("Div", log, g.number(2.7726)), g.number(4)), to=INT64)
    large = g("Min", g("Add", large, g.const(np.int64(4))), g.ints(7))
    bucket = g("Add", side, g("Where", g("Less", far, g.const(np.int64(4))), far, large))
    bias = g("Transpose", g("Gather", g.weight(16, heads, scale=1.0), bucket), perm=[2, 0, 1])
    bias = g("Unsqueeze", bias, g.ints(0))

    def norm(x: str) -> str:
        mean = g("ReduceMean", g("Mul", x, x), axes=[-1])
        return g("Mul", g("Div", x, g("Sqrt", g("Add", mean, g.number(1e-6)))), g.weight(size, scale=0.1, mean=1))

    for _ in range(2):
        y = norm(x)
        q, k, v = (
            g(
                "Transpose",
                g("Reshape", g.linear(y, size, size, bias=False), g.ints(0, -1, heads, 16)),
                perm=[0, 2, 1, 3],
            )
            for _ in range(3)
        )
        scores = g("Add", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), bias)
        y = g("MatMul", g("Softmax", scores, axis=-1), v)
        y = g("Reshape", g("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, -1, size))
        x = g("Add", x, g.linear(y, size, size, bias=False))
        x = g("Add", x, g.linear(g("Relu", g.linear(norm(x), size, 256, bias=False)), 256, size, bias=False))
    g.output(norm(x))
    return g


def seq2seq() -> Graph:
    g = Graph("seq2seq")
    size = 32
    x = g.input("x", g.random.standard_normal((9, 2, 16), np.float32), ["steps", "batch", 16])
    encoder = [g.weight(2, 3 * size, 16), g.weight(2, 3 * size, size), g.weight(2, 6 * size, scale=0.1)]
    states, last = g("GRU", x, *encoder, outputs=2, hidden_size=size, direction="bidirectional")
    states = g("Transpose", states, perm=[2, 0, 1, 3])
    memory = g("Reshape", states, g.ints(0, 0, 2 * size))
    start = g.linear(g("Reshape", g("Transpose", last, perm=[1, 0, 2]), g.ints(-1, 2 * size)), 2 * size, size)
    body = Graph("body")
    body.count = 1000  # names are unique across nested graphs
    body.random = g.random
    hidden = helper.make_tensor_value_info("hidden", FLOAT, ["batch", size])
    step = helper.make_tensor_value_info("step", INT64, [])
    going = helper.make_tensor_value_info("going", BOOL, [])
    scores = body("MatMul", memory, body("Unsqueeze", body.linear("hidden", size, 2 * size), body.ints(2)))
    context = body("ReduceSum", body("Mul", memory, body("Softmax", scores, axis=1)), body.ints(1), keepdims=0)
    after = body("Tanh", body("Add", body.linear(context, 2 * size, size), "hidden"))
    body.nodes.append(helper.make_node("Identity", ["going"], ["still"]))
    body.nodes.append(helper.make_node("Identity", [after], ["next"]))
    body.nodes.append(helper.make_node("Identity", [body.linear(after, size, 20)], ["logits"]))
    outs = [
        helper.make_tensor_value_info("still", BOOL, []),
        helper.make_tensor_value_info("next", FLOAT, ["batch", size]),
        helper.make_tensor_value_info("logits", FLOAT, ["batch", 20]),
    ]
    graph = helper.make_graph(body.nodes, "body", [step, going, hidden], outs, body.weights)
    found = g("Loop", g.const(np.int64(5)), g.const(np.bool_(True)), start, outputs=2, body=graph)
    g.output(found[0], dims=["batch", size])
    g.output(g("Softmax", found[1], axis=-1), dims=[5, "batch", 20])
    return g


def detector() -> Graph:
    g = Graph("detector")
    x = g.input("image", g.random.standard_normal((1, 3, 64, 64), np.float32))
    levels, size = [], 3
    for out in (16, 24, 32):
        x = g("LeakyRelu", g.batch_norm(g.conv(x, size, out, 3, 2, bias=False), out), alpha=0.1)
        levels.append((x, out))
        size = out
    top = g.conv(levels[2][0], 32, 16, 1)
    merged = [top]
    for feature, width in (levels[1], levels[0]):
        lateral = g.conv(feature, width, 16, 1)
        dims = g("Slice", g("Shape", lateral), g.ints(2), g.ints(4), g.ints(0))
        sizes = g("Concat", g("Slice", g("Shape", top), g.ints(0), g.ints(2), g.ints(0)), dims, axis=0)
        top = g("Add", lateral, g("Resize", top, "", "", sizes, mode="nearest", nearest_mode="floor",
                                  coordinate_transformation_mode="asymmetric"))  # fmt: skip
        merged.append(top)
    boxes, scores = [], []
    for feature in merged:
        found = g("Transpose", g.conv(feature, 16, 3 * 7, 3), perm=[0, 2, 3, 1])
        found = g("Reshape", found, g.ints(1, -1, 7))
        center, extent, objects = g("Split", found, g.ints(2, 2, 3), outputs=3, axis=2)
        center = g("Mul", g("Sigmoid", center), g.number(64))
        extent = g("Mul", g("Exp", g("Tanh", extent)), g.number(8))
        boxes.append(g("Concat", g("Sub", center, extent), g("Add", center, extent), axis=2))
        scores.append(g("Sigmoid", objects))
    box, score = g("Concat", *boxes, axis=1), g("Concat", *scores, axis=1)
    best = g("ReduceMax", score, axes=[2], keepdims=0)
    values, order = g("TopK", best, g.ints(100), outputs=2, axis=1)
    box = g("GatherND", box, g("Unsqueeze", order, g.ints(2)), batch_dims=1)
    score = g("GatherElements", score, g("Tile", g("Unsqueeze", order, g.ints(2)), g.ints(1, 1, 3)), axis=1)
    kept = g("NonMaxSuppression", box, g("Transpose", score, perm=[0, 2, 1]), g.ints(20),
             g.const(np.float32([0.5])), g.const(np.float32([0.3])))  # fmt: skip
    rows = g("Squeeze", g("Slice", kept, g.ints(2), g.ints(3), g.ints(1)), g.ints(1))
    g.output(g("Gather", g("Squeeze", box, g.ints(0)), rows, axis=0), "boxes", dims=["found", 4])
    g.output(kept, "kept", INT64, ["found", 3])
    g.output(values, "scores", dims=[1, 100])
    return g


ARCHITECTURES: dict[str, Callable[[], Graph]] = {
    f.__name__: f
    for f in (efficientnet, mobilenet_v3, shufflenet, convnext, swin, distilbert, whisper, llama, t5, seq2seq, detector)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where models and inputs are written")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="networks, all by default: " + ", ".join(ARCHITECTURES)
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(ARCHITECTURES):
        parser.error(f"unknown networks: {', '.join(sorted(unknown))}")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or ARCHITECTURES:
        graph = ARCHITECTURES[name]()
        graph.save(options.folder)
        print(name, len(graph.nodes), "nodes", flush=True)


if __name__ == "__main__":
    main()
