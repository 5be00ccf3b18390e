"""Interpreted loops are bitwise equal to compiled ones: every opcode, random chains and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from run_loops import run_numpy

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit import pointwise, reduce
from mgx_cpu_dnnl.jit.compile_deferred import compile_deferred
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.graph import Graph, Node
from mgx_cpu_dnnl.jit.kernel import JitKernel
from mgx_cpu_dnnl.jit.opcode_handlers import write
from mgx_cpu_dnnl.jit.opcodes import KEY, Operation, operations

Engines = tuple[Engine, Engine]
MADE: dict[str | None, Engines] = {}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, 1.0, -1.0, 88.5]
ONE = ("neg", "abs", "sqrt", "rsqrt", "exp", "log1p", "erf", "tanh", "sigmoid", "sin", "floor", "round", "sign")
TWO = ("add", "sub", "mul", "div", "max", "min", "add", "mul", "sub")


@pytest.fixture(params=[None, "x86-64-v3"], ids=["host", "avx2"])
def engines(request: pytest.FixtureRequest) -> Engines:
    """Returns an engine that compiles and one that interprets."""
    cpu = request.param
    if cpu not in MADE:
        compiling, other = Engine(cpu, cache=None), Engine(cpu, cache=None)
        vars(other)["interpreter"] = other.function(KEY, write)
        MADE[cpu] = compiling, other
    return MADE[cpu]


def drawn(r: np.random.Generator, dtype: DType, n: int) -> np.ndarray:
    if dtype is dt.bool_:
        return r.integers(0, 2, n).astype(bool)
    if not dtype.is_float:
        return r.integers(0 if dtype.kind == "u" else -99, 99, n).astype(dtype.numpy)
    x = r.standard_normal(n) * r.choice([1, 1, 30], n)
    at = r.integers(0, max(n, 1), n // 8)
    x[at] = r.choice(SPECIAL, len(at))
    with np.errstate(over="ignore"):
        return x.astype(np.float32).astype(dtype.numpy)


def compared(engines: Engines, builder: Any, graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> bool:
    """Returns True if the loop was interpreted; checks its results, and those of its deferred loop, against the compiled loop."""
    compiling, other = engines
    compiled, kernel = (builder.build(graph, inputs, outputs, e, "loop") for e in (compiling, other))
    if isinstance(compiled, No):
        return False
    ran = kernel.code is other.interpreter
    assert (kernel.deferred is not None) == ran
    r = np.random.default_rng(7)
    arrays = [drawn(r, s.dtype, s.element_space()) for s in inputs]
    expected = results(compiled, arrays, outputs)
    again = [compile_deferred(kernel.deferred, compiling)] if ran else []
    for one in (kernel, *again):
        for made, right in zip(results(one, arrays, outputs), expected, strict=True):
            np.testing.assert_array_equal(made, right)
    return ran


def results(kernel: JitKernel, arrays: Sequence[np.ndarray], outputs: Sequence[Shape]) -> list[np.ndarray]:
    """Returns results as bits, with NaNs canonicalized."""
    made = [np.full(o.element_space(), 1, o.dtype.numpy) for o in outputs]
    run_numpy(kernel, [*(a.copy() for a in arrays), *made], 3)
    for x in made:
        if x.dtype.kind == "f":
            x[np.isnan(x)] = np.nan
    return [x.view(np.uint8) for x in made]


def strides_of(lens: Sequence[int], order: Sequence[int]) -> list[int]:
    found, step = [0] * len(lens), 1
    for axis in reversed(order):
        found[axis] = step
        step *= lens[axis]
    return found


def read(graph: Graph, inputs: list[Shape], dtype: DType, lens: Sequence[int], order: Sequence[int] = ()) -> Node:
    """Adds a new operand to a graph."""
    inputs.append(Shape(dtype, lens, strides_of(lens, order or range(len(lens)))))
    steps = [0 if n == 1 else s for n, s in zip(lens, inputs[-1].strides(), strict=True)]
    return graph.load(len(inputs) - 1, dtype, steps)


@pytest.mark.parametrize(
    "operation",
    [o for o in operations() if not o.scalar and o.name != "divisor_scale"],
    ids=lambda o: f"{o.name} {o.operands[-1]} {o.result}",
)
def test_operations(engines: Engines, operation: Operation) -> None:
    """Along rows of several lengths, and for one number per row, which has another encoding."""
    ran = []
    for lens, operand in (((3, 131), (3, 131)), ((2, 1030), (2, 1030)), ((3, 70), (3, 1))):
        graph, inputs = Graph(lens, frozenset()), list[Shape]()
        args = tuple(read(graph, inputs, t, operand) for t in operation.operands)
        if operation.name == "convert":
            node = graph.convert(*args, operation.result)
        else:
            node = graph.node("prim", operation.result, args, operation.name, frozenset({0, 1}), 0)
        if operand != lens:
            last = read(graph, inputs, dt.bool_, lens)
            node = graph.prim("where", node.dtype, (last, node, node))
        graph.outputs = [node]
        ran.append(compared(engines, pointwise, graph, inputs, [Shape(operation.result, lens)]))
    assert any(ran)


def grown(r: np.random.Generator, graph: Graph, nodes: list[Node], count: int) -> None:
    """Adds random operations to a graph."""

    def some() -> Node:
        return nodes[int(r.integers(len(nodes)))]

    single = dt.float32
    for _ in range(count):
        kind = r.random()
        if kind < 0.3:
            made = graph.prim(str(r.choice(ONE)), single, (some(),))
        elif kind < 0.7:
            made = graph.prim(str(r.choice(TWO)), single, (some(), some()))
        elif kind < 0.9:
            pair = (some(), graph.const(float(r.choice([0.5, 2.0, 3.0, 0.1, 1.0, -1.5, 0.0])), single))
            made = graph.prim(str(r.choice(TWO)), single, pair if r.random() < 0.7 else pair[::-1])
        else:
            condition = graph.prim(str(r.choice(["lt", "ge", "eq"])), dt.bool_, (some(), some()))
            made = graph.prim("where", single, (condition, some(), some()))
        nodes.append(made)


def operands(r: np.random.Generator, graph: Graph) -> tuple[list[Shape], list[Node]]:
    """Returns operands with broadcast axes, permuted axes and narrow floats."""
    inputs: list[Shape] = []
    nodes = []
    rank = len(graph.dims)
    for _ in range(int(r.integers(1, 4))):
        lens = [n if r.random() < 0.75 else 1 for n in graph.dims]
        order = [int(a) for a in r.permutation(rank)] if r.random() < 0.25 else list(range(rank))
        narrow = dt.float16 if r.random() < 0.15 else dt.float32
        nodes.append(graph.convert(read(graph, inputs, narrow, lens, order), dt.float32))
    return inputs, nodes


def dims_of(r: np.random.Generator, ranks: tuple[int, int]) -> list[int]:
    dims = [int(r.choice([1, 3, 7, 16, 40, 64, 100, 130, 600, 1100])) for _ in range(int(r.integers(*ranks)))]
    while np.prod(dims) > 100_000:
        dims[int(np.argmax(dims))] = 16
    return dims


def test_chains(engines: Engines) -> None:
    ran = []
    for seed in range(60):
        r = np.random.default_rng(seed)
        graph = Graph([20000] if seed % 10 == 0 else dims_of(r, (1, 4)), frozenset())
        inputs, nodes = operands(r, graph)
        grown(r, graph, nodes, int(r.integers(1, 9)))
        graph.outputs = [nodes[-1], *([nodes[0]] if r.random() < 0.3 else [])]
        outputs = [Shape(dt.float16 if r.random() < 0.1 else dt.float32, graph.dims) for _ in graph.outputs]
        ran.append(compared(engines, pointwise, graph, inputs, outputs))
    assert sum(ran) > 45


def test_reductions(engines: Engines) -> None:
    """Rows and columns, reductions that depend on one another, results with and without the reduced axes, softmax."""
    ran = []
    for seed in range(70):
        r = np.random.default_rng(seed)
        dims = dims_of(r, (2, 4))
        reduced = {int(a) for a in r.choice(len(dims), int(r.integers(1, len(dims))), replace=False)}
        graph = Graph(dims, frozenset(reduced))
        inputs, nodes = operands(r, graph)
        grown(r, graph, nodes, int(r.integers(0, 4)))
        for _ in range(int(r.integers(1, 3))):
            nodes.append(graph.reduce(str(r.choice(["sum", "mean", "max", "min", "prod"])), nodes[-1], dt.float32))
            last = nodes[-1]
            grown(r, graph, nodes, int(r.integers(0, 4)))
        if seed % 5 == 0:
            top = graph.reduce("max", nodes[0], dt.float32)
            e = graph.prim("exp", dt.float32, (graph.prim("sub", dt.float32, (nodes[0], top)),))
            nodes.append(graph.prim("div", dt.float32, (e, graph.reduce("sum", e, dt.float32))))
        graph.outputs = [nodes[-1], last]
        reduce.simplify(graph)
        small = [1 if i in reduced else n for i, n in enumerate(dims)]
        outputs = [Shape(dt.float32, dims if n.axes & graph.reduced else small) for n in graph.outputs]
        ran.append(compared(engines, reduce, graph, inputs, outputs))
    assert sum(ran) > 60


def test_sums_of_integers(engines: Engines) -> None:
    for lens, axis in (((9, 700), 1), ((130, 70), 0)):
        graph, inputs = Graph(lens, frozenset({axis})), list[Shape]()
        x = read(graph, inputs, dt.int64, lens)
        graph.outputs = [graph.reduce("sum", graph.prim("mul", dt.int64, (x, x)), dt.int64)]
        out = Shape(dt.int64, [1 if i == axis else n for i, n in enumerate(lens)])
        assert compared(engines, reduce, graph, inputs, [out])


def test_results_overwrite_operands(engines: Engines) -> None:
    """Two results in the memory of two operands."""
    lens = (5, 1300)
    graph, inputs = Graph(lens, frozenset()), list[Shape]()
    a, b = (read(graph, inputs, dt.float32, lens) for _ in range(2))
    graph.outputs = [graph.prim("add", dt.float32, (a, b)), graph.prim("sub", dt.float32, (a, b))]
    outputs = [Shape(dt.float32, lens)] * 2
    kernel = pointwise.build(graph, inputs, outputs, engines[1], "loop")
    assert kernel.deferred
    assert kernel.inplace == {0, 1}
    x, y = (drawn(np.random.default_rng(i), dt.float32, 6500) for i in range(2))
    with np.errstate(invalid="ignore", over="ignore"):
        expected = [x + y, x - y]
    run_numpy(kernel, [x, y, x, y])
    np.testing.assert_array_equal([x, y], expected)


@pytest.mark.parametrize("name", ["sinh", "acosh"])
def test_operations_that_the_machine_lacks_are_compiled(engines: Engines, name: str) -> None:
    graph, inputs = Graph((300,), frozenset()), list[Shape]()
    graph.outputs = [graph.prim(name, dt.float32, (read(graph, inputs, dt.float32, (300,)),))]
    assert not compared(engines, pointwise, graph, inputs, [Shape(dt.float32, (300,))])
