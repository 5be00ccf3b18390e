"""Random graphs with quantize and dequantize around their operators return what onnxruntime returns without optimization.

They differ by at most the rounding of the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx

ort = pytest.importorskip("onnxruntime")


F = np.float32
BYTES = (np.uint8, np.int8)


class Graph:
    """A model under construction: nodes, constants, and the quantized tensors that later operators may read."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.feeds: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def input(self, *dims: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        self.feeds[name] = self.rng.normal(size=dims).astype(F)
        return name

    def quantized(self, x: str, spread: float = 4.0, kind: Any = None) -> tuple[str, list[str]]:
        """Quantizes x to bytes over about -spread to spread; returns the names of the result and of scale and zero point."""
        kind = kind or BYTES[self.rng.integers(2)]
        scale = F(spread / 128 * self.rng.uniform(0.8, 1.2))
        zero = {0: np.iinfo(kind).min + 128, 1: np.iinfo(kind).min, 2: np.iinfo(kind).min + 100}[
            int(self.rng.integers(3))
        ]
        parameters = [self.constant(scale), self.constant(kind(zero))]
        return self.node("QuantizeLinear", x, *parameters), parameters

    def pair(self, x: str, spread: float = 4.0, kind: Any = None) -> str:
        q, parameters = self.quantized(x, spread, kind)
        return self.node("DequantizeLinear", q, *parameters)

    def weights(self, dims: tuple[int, ...], axis: int | None, depth: int) -> str:
        """Returns weights such that sums over `depth` of them have about the magnitude of their operand."""
        kind = BYTES[self.rng.integers(2)] if axis is None else np.int8
        info = np.iinfo(kind)
        w = self.rng.integers(info.min, info.max + 1, dims).astype(kind)
        count = () if axis is None else (dims[axis],)
        scale = (self.rng.uniform(0.5, 1.0, count) / 64 / np.sqrt(depth)).astype(F)
        point = kind(128 if kind is np.uint8 and self.rng.random() < 0.5 else self.rng.integers(-3, 4) % 120)
        zero = np.full(count, point if axis is None else 0, kind)
        extra = {} if axis is None else {"axis": axis}
        return self.node("DequantizeLinear", self.constant(w), self.constant(scale), self.constant(zero), **extra)

    def bias(self, count: int) -> str:
        return self.constant(self.rng.normal(size=count).astype(F))

    def model(self, *outputs: str) -> bytes:
        infos = [helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = helper.make_graph(self.nodes, "graph", self.inputs, infos, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        data: bytes = made.SerializeToString()
        return data


def convolution(g: Graph) -> str:
    channels, group = int(g.rng.choice([4, 6, 16])), 1
    kernels, k = int(g.rng.choice([4, 5, 16])), int(g.rng.choice([1, 3]))
    if g.rng.random() < 0.3:
        group = kernels = channels
    side = int(g.rng.integers(4, 9))
    x = g.pair(g.input(int(g.rng.integers(1, 3)), channels, side, side))
    inner = channels // group
    w = g.weights((kernels, inner, k, k), 0 if g.rng.random() < 0.7 else None, inner * k * k)
    pads = [int(p) for p in g.rng.integers(0, 2, 4)] if k > 1 else [0] * 4
    more = [g.bias(kernels)] if g.rng.random() < 0.7 else []
    return g.node("Conv", x, w, *more, pads=pads, strides=[int(g.rng.integers(1, 3))] * 2, group=group)


def product(g: Graph) -> str:
    m, k, n = (int(v) for v in g.rng.integers(1, 33, 3))
    batch = [(), (2,), (2, 3)][g.rng.integers(3)]
    x = g.pair(g.input(*batch, m, k))
    if g.rng.random() < 0.3:
        return g.node("MatMul", x, g.pair(g.input(*batch, k, n)))
    y = g.node("MatMul", x, g.weights((k, n), 1 if g.rng.random() < 0.7 else None, k))
    return g.node("Add", y, g.bias(n)) if g.rng.random() < 0.7 else y


def gemm(g: Graph) -> str:
    m, k, n = (int(v) for v in g.rng.integers(1, 33, 3))
    x = g.pair(g.input(m, k))
    return g.node("Gemm", x, g.weights((n, k), 0 if g.rng.random() < 0.7 else None, k), g.bias(n), transB=1)


def two_convolutions(g: Graph) -> str:
    x = g.pair(g.input(1, 8, 6, 6))
    one, other = (g.pair(g.node("Conv", x, g.weights((8, 8, 1, 1), 0, 8), g.bias(8))) for _ in range(2))
    return g.node("Add", one, other)


def residual(g: Graph) -> str:
    x = g.pair(g.input(1, 8, 6, 6))
    return g.node("Add", g.pair(g.node("Conv", x, g.weights((8, 8, 3, 3), 0, 72), pads=[1] * 4)), x)


def moved(g: Graph) -> str:
    q, parameters = g.quantized(g.input(2, 4, 6))
    x = g.node("Transpose", g.node("DequantizeLinear", q, *parameters), perm=[0, 2, 1])
    x = g.node("Reshape", x, g.constant(np.array([4, 12])))
    x = g.node("DequantizeLinear", g.node("QuantizeLinear", x, *parameters), *parameters)
    return g.node("MatMul", x, g.weights((12, 5), 1, 12))


def pooled(g: Graph) -> str:
    x = g.pair(g.input(1, 4, 6, 6))
    kind = "MaxPool" if g.rng.random() < 0.6 else "AveragePool"
    return g.node(kind, x, kernel_shape=[2, 2], strides=[2, 2])


def joined(g: Graph) -> str:
    q, parameters = g.quantized(g.input(1, 4, 3, 3))
    p = g.node("QuantizeLinear", g.input(1, 2, 3, 3), *parameters)
    return g.node("Concat", *(g.node("DequantizeLinear", v, *parameters) for v in (q, p)), axis=1)


SHAPES: tuple[Callable[[Graph], str], ...] = (
    convolution, convolution, product, product, gemm, two_convolutions, residual, moved, pooled, joined,
)  # fmt: skip
AFTER = ("Relu", "Sigmoid", "Tanh", "HardSwish", "Identity", "Identity")


def random_graph(seed: int) -> tuple[bytes, dict[str, Any]]:
    """Returns a model with one quantized result, and values for its parameters."""
    rng = np.random.default_rng(seed)
    g = Graph(rng)
    y = SHAPES[seed % len(SHAPES)](g)
    y = g.node(AFTER[rng.integers(len(AFTER))], y)
    return g.model(g.quantized(y)[0]), g.feeds


def witness(model: bytes, feeds: dict[str, Any]) -> Any:
    """Evaluates the graph operator by operator, in float, as written."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def check(seed: int, target: str) -> None:
    model, feeds = random_graph(seed)
    program = mgx.parse_onnx_buffer(model)
    program.compile(mgx.get_target(target))
    got, expected = np.asarray(program.run(feeds)[0]), witness(model, feeds)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    steps = np.abs(got.astype(int) - expected.astype(int))
    assert steps.max(initial=0) <= 1, f"seed {seed}: off by {steps.max()} steps"


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("seed", range(40))
def test_random_graph(seed: int, target: str) -> None:
    check(seed, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("start", range(0, 2000, 100))
def test_many_random_graphs(start: int, target: str) -> None:
    for seed in range(start, start + 100):
        check(seed, target)
