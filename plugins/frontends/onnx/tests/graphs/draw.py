"""Generates a graph node by node; every value is known, since onnxruntime runs each node alone when it is added."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

__all__ = ["EXTENTS", "LARGEST", "Graph", "NotDrawn", "captured", "model_of", "ran_alone", "typed"]

EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 33, 64)
LARGEST = 20_000  # elements of one value
# operators that copy or select numbers: exact if their inputs are
MOVES = frozenset(
    [
        "Identity",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Slice",
        "Pad",
        "Gather",
        "GatherElements",
        "GatherND",
        "ScatterND",
        "Concat",
        "Split",
        "Tile",
        "Expand",
        "Where",
        "TopK",
        "Max",
        "Min",
        "Relu",
        "Neg",
        "Abs",
        "Sign",
        "Floor",
        "Ceil",
        "Round",
        "Clip",
        "MaxPool",
        "ReduceMax",
        "ReduceMin",
        "ArgMax",
        "ArgMin",
        "Shape",
        "Equal",
        "Less",
        "Greater",
        "Not",
        "And",
        "Or",
        "Xor",
        "QuantizeLinear",
        "DequantizeLinear",
    ]
)
# exact if all numbers are small multiples of 1/64, for any order of summation
SUMS = frozenset(
    [
        "Add",
        "Sub",
        "Mul",
        "Sum",
        "ReduceSum",
        "MatMul",
        "Gemm",
        "CumSum",
        "Conv",
        "ConvTranspose",
        "Cast",
        "Einsum",
        "If",
        "Loop",
    ]
)


class NotDrawn(Exception):
    """The node is invalid here; another one is drawn."""


def session_of(model: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def ran_alone(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """Returns onnxruntime's results without optimizations."""
    found: list[Any] = session_of(model.SerializeToString()).run(None, dict(feeds))
    return found


def typed(name: str, value: Any, shape: bool = True) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, list(value.shape) if shape else None)


def captured(node: onnx.NodeProto) -> list[str]:
    """Returns the values that a node reads, including those captured by its subgraphs."""
    found = [i for i in node.input if i]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            graph = attribute.g
            own = {v.name for v in (*graph.input, *graph.initializer)}
            for inner in graph.node:
                found += [i for i in captured(inner) if i not in own]
                own.update(inner.output)
            found += [o.name for o in graph.output if o.name not in own]
    return list(dict.fromkeys(found))


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    constants: Mapping[str, Any],
    outputs: Mapping[str, Any],
    opset: int,
) -> onnx.ModelProto:
    made = helper.make_graph(
        nodes,
        "graph",
        [typed(name, value) for name, value in inputs.items()],
        [typed(name, value, shape=False) for name, value in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def on_the_grid(value: Any) -> bool:
    if value.dtype.kind != "f":
        return True
    scaled = value.astype(np.float64) * 64
    return bool((scaled == np.rint(scaled)).all() and (np.abs(value) < 4000).all())


class Graph:
    """Nodes, inputs, constants and values by name; those in `exact` do not depend on the order of sums.

    special: whether values include NaN, infinities and subnormal numbers.
    """

    def __init__(
        self, rng: np.random.Generator, opset: int, special: bool = False, parent: Graph | None = None
    ) -> None:
        self.rng, self.opset, self.special, self.parent = rng, opset, special, parent
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self.values: dict[str, Any] = {} if parent is None else dict(parent.values)
        self.exact: set[str] = set() if parent is None else set(parent.exact)
        self.count: itertools.count[int] = itertools.count() if parent is None else parent.count
        self.rounds = False  # whether inexact numbers were quantized

    # chance

    def odds(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def extent(self) -> int:
        return 0 if self.odds(0.01) else int(self.one(EXTENTS[:9] if self.odds(0.8) else EXTENTS))

    def shape(self, rank: int | None = None) -> list[int]:
        rank = self.between(0, 4) if rank is None else rank
        while True:
            lens = [self.extent() for _ in range(rank)]
            if math.prod(lens) <= 2000:
                return lens

    def axis(self, rank: int) -> int:
        if not rank:
            raise NotDrawn("a scalar")
        axis = self.between(0, rank - 1)
        return axis - rank if self.odds(0.4) else axis

    def axes(self, rank: int, count: int) -> list[int]:
        return [int(a) - (rank if self.odds(0.4) else 0) for a in self.rng.permutation(rank)[:count]]

    def numbers(self, shape: Sequence[int], dtype: Any = np.float32, kind: str = "") -> Any:
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.6
        if dtype.kind in "iu":
            low = max(int(np.iinfo(dtype).min), -9)
            return np.asarray(self.rng.integers(low, 10, shape)).astype(dtype)
        match kind or self.one(["grid", "grid", "normal"]):
            case "grid":
                made = self.rng.integers(-24, 25, shape) / 8
            case "small":
                made = self.rng.standard_normal(shape) * 0.2
            case "positive":
                made = self.rng.random(shape) + 0.25
            case _:
                made = self.rng.standard_normal(shape)
        value = np.array(made, dtype)
        if self.special and not kind and value.size:
            at = self.between(0, value.size - 1)
            value.reshape(-1)[at] = self.one([np.nan, np.inf, -np.inf, -0.0, 1e-40])
        return value

    # values

    def name(self) -> str:
        return f"v{next(self.count)}"

    def give(self, value: Any, kind: str = "") -> str:
        """Adds a known value as a constant, the result of a Constant or an input."""
        value, name = np.asarray(value), self.name()
        match kind or self.one(["constant", "constant", "node", "input"]):
            case "input" if self.parent is None:
                self.inputs[name] = value
            case "node":
                made = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))
                self.nodes.append(made)
            case _:
                self.constants[name] = value
        self.values[name] = value
        self.exact.add(name)
        return name

    def new(self, shape: Sequence[int], dtype: Any = np.float32, kind: str = "") -> str:
        return self.give(self.numbers(shape, dtype, kind))

    def fixed(self, value: Any) -> str:
        return self.give(value, self.one(["constant", "node"]))

    def ints(self, *values: int) -> str:
        return self.fixed(np.array(values, np.int64))

    def pick(self, wanted: Callable[[Any], bool], exact: bool = False) -> str:
        """Returns the name of a value, preferring late ones.  Errors: NotDrawn if there is none."""
        names = [n for n, v in self.values.items() if wanted(v) and (not exact or n in self.exact)]
        if not names:
            raise NotDrawn("no such value")
        return str(self.one(names[-4:] if self.odds(0.7) else names))

    def any(self, least: int = 0, most: int = 5, exact: bool = False) -> str:
        return self.pick(lambda v: least <= v.ndim <= most and v.size > 0, exact)

    def real(self, least: int = 0, most: int = 5, exact: bool = False) -> str:
        """Returns a float32 value, a new one if there is none."""
        try:
            return self.pick(lambda v: v.dtype == np.float32 and least <= v.ndim <= most and v.size > 0, exact)
        except NotDrawn:
            return self.new([max(1, n) for n in self.shape(self.between(least, max(least, min(most, 4))))])

    def fitting(self, x: str, kind: str = "", exact: bool = False) -> str:
        """Returns a value that broadcasts with another."""
        value = self.values[x]
        if not kind and self.odds(0.45):

            def fits(other: Any) -> bool:
                try:
                    lens = np.broadcast_shapes(other.shape, value.shape)
                except ValueError:
                    return False
                return other.dtype == value.dtype and other.ndim <= 5 and math.prod(lens) <= LARGEST // 2

            return self.pick(fits, exact)
        lens = [n if self.odds(0.65) else 1 for n in value.shape]
        return self.new(lens[self.between(0, len(lens)) :] if self.odds(0.35) else lens, value.dtype, kind)

    # nodes

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """Returns the name of the result, or of the results."""
        names = [self.name() for _ in range(outputs)]
        self.add_node(helper.make_node(op, inputs, names, name=f"{op}_{names[0]}", **attributes))
        return names[0] if outputs == 1 else names

    def add_node(self, node: onnx.NodeProto) -> None:
        """Errors: NotDrawn if onnxruntime rejects the node or its results are too large."""
        given = {name: self.values[name] for name in captured(node)}
        alone = helper.make_graph(
            [node],
            "alone",
            [typed(name, value) for name, value in given.items()],
            [helper.make_empty_tensor_value_info(name) for name in node.output],
        )
        model = helper.make_model(alone, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        try:
            found = ran_alone(model, given)
        except Exception as error:
            raise NotDrawn(str(error)) from error
        for value in found:
            if value.size > LARGEST or value.ndim > 7:
                raise NotDrawn("too large")
            if value.dtype.kind == "f" and not self.special and not (np.abs(value) < 3e4).all():
                raise NotDrawn("too large a number")
        self.nodes.append(node)
        self.values.update(zip(node.output, found, strict=True))
        if all(name in self.exact for name in given):
            whole = all(on_the_grid(v) for v in (*found, *given.values()))
            if node.op_type in MOVES or (node.op_type in SUMS and whole) or all(v.dtype.kind != "f" for v in found):
                self.exact.update(node.output)
