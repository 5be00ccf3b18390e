"""Small representative networks, as ONNX models with fixed random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

__all__ = ["NETWORKS", "Graph"]


class Graph:
    """An ONNX graph under construction."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.weights: list[Any] = []
        self.rng = np.random.default_rng(seed)

    def input(self, name: str, *dims: int | str, dtype: type = np.float32) -> str:
        import onnx

        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, dims))
        return name

    def constant(self, value: Any) -> str:
        import onnx

        name = f"c{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *dims: int, scale: float | None = None, mean: float = 0.0) -> str:
        size = (1 / np.sqrt(np.prod(dims[1:] or dims))) if scale is None else scale
        return self.constant((mean + self.rng.standard_normal(dims) * size).astype(np.float32))

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        import onnx

        names = [f"{kind.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(onnx.helper.make_node(kind, inputs, names, name=f"{kind}_{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def model(self, *outputs: str) -> bytes:
        import onnx

        results = [onnx.helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = onnx.helper.make_graph(self.nodes, self.name, self.inputs, results, self.weights)
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
        data: bytes = made.SerializeToString()
        return data


def convolutional() -> bytes:
    """Convolutions with batch norm, a residual, pooling and a classifier; the batch is symbolic."""
    g = Graph("convolutional", 1)
    x = g.input("image", "batch", 3, 17, 19)

    def block(y: str, c: int, n: int, stride: int = 1, group: int = 1) -> str:
        y = g.add("Conv", y, g.weight(n, c // group, 3, 3), pads=[1, 1, 1, 1], strides=[stride, stride], group=group)
        stats = [g.weight(n, scale=0.1, mean=1.0), g.weight(n), g.weight(n), g.constant(np.full(n, 0.9, np.float32))]
        return str(g.add("Relu", g.add("BatchNormalization", y, *stats)))

    y = block(x, 3, 8, 2)
    z = block(y, 8, 8, group=8)
    y = g.add("Relu", g.add("Add", y, g.add("Conv", z, g.weight(8, 8, 1, 1))))
    y = g.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = g.add("Flatten", g.add("GlobalAveragePool", y))
    return g.model(g.add("Softmax", g.add("Gemm", y, g.weight(10, 8), g.weight(10), transB=1), axis=-1))


def transformer() -> bytes:
    """Returns one encoder block with attention, GELU and layer norms; batch and length are symbolic."""
    g = Graph("transformer", 2)
    width, heads = 32, 4
    x = g.input("tokens", "batch", "length", dtype=np.int64)
    y = g.add("Gather", g.weight(50, width, scale=0.5), x)
    split = g.constant(np.array([0, 0, heads, width // heads], np.int64))
    merged = g.constant(np.array([0, 0, width], np.int64))

    def norm(v: str) -> str:
        return str(g.add("LayerNormalization", v, g.weight(width, scale=0.1, mean=1.0), g.weight(width, scale=0.1)))

    def dense(v: str, n: int, m: int) -> str:
        return str(g.add("Add", g.add("MatMul", v, g.weight(n, m)), g.weight(m, scale=0.1)))

    def head(v: str, perm: Sequence[int]) -> str:
        return str(g.add("Transpose", g.add("Reshape", dense(v, width, width), split), perm=perm))

    a = norm(y)
    q, k, v = head(a, [0, 2, 1, 3]), head(a, [0, 2, 3, 1]), head(a, [0, 2, 1, 3])
    scores = g.add("Div", g.add("MatMul", q, k), g.constant(np.float32(np.sqrt(width // heads))))
    mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), v)
    mixed = g.add("Reshape", g.add("Transpose", mixed, perm=[0, 2, 1, 3]), merged)
    y = g.add("Add", y, dense(mixed, width, width))
    h = dense(norm(y), width, 4 * width)
    half, one, root = (g.constant(np.float32(c)) for c in (0.5, 1.0, np.sqrt(2)))
    h = g.add("Mul", g.add("Mul", h, g.add("Add", g.add("Erf", g.add("Div", h, root)), one)), half)
    return g.model(norm(g.add("Add", y, dense(h, 4 * width, width))))


def recurrent() -> bytes:
    """Returns a bidirectional LSTM and a classifier over its last state; batch and length are symbolic."""
    g = Graph("recurrent", 3)
    size, hidden = 6, 8
    x = g.input("frames", "length", "batch", size)
    weights = [g.weight(2, 4 * hidden, size), g.weight(2, 4 * hidden, hidden), g.weight(2, 8 * hidden, scale=0.1)]
    _, last, _ = g.add("LSTM", x, *weights, outputs=3, hidden_size=hidden, direction="bidirectional")
    y = g.add("Reshape", g.add("Transpose", last, perm=[1, 0, 2]), g.constant(np.array([0, 2 * hidden], np.int64)))
    return g.model(g.add("Sigmoid", g.add("Gemm", y, g.weight(2 * hidden, 5), g.weight(5))))


def perceptron() -> bytes:
    """Dense layers with several activations and two results, one of them integer."""
    g = Graph("perceptron", 4)
    x = g.input("x", 4, 12)
    y = g.add("Tanh", g.add("Gemm", x, g.weight(12, 32), g.weight(32)))
    y = g.add("Selu", g.add("Gemm", y, g.weight(32, 32), g.weight(32)))
    y = g.add("Gemm", y, g.weight(32, 7), g.weight(7))
    values, places = g.add("TopK", y, g.constant(np.array([3], np.int64)), outputs=2)
    return g.model(g.add("LogSoftmax", values, axis=-1), places)


# name -> (model, sets of inputs' extents by symbol)
NETWORKS: Final[dict[str, tuple[Callable[[], bytes], tuple[dict[str, int], ...]]]] = {
    "convolutional": (convolutional, ({"batch": 1}, {"batch": 3})),
    "transformer": (transformer, ({"batch": 1, "length": 7}, {"batch": 2, "length": 16})),
    "recurrent": (recurrent, ({"batch": 1, "length": 5}, {"batch": 3, "length": 2})),
    "perceptron": (perceptron, ({},)),
}
