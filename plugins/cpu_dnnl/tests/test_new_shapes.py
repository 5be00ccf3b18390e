"""Programs with symbolic extents, run for successive sets of shapes: each result equals that of a program compiled for the
shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

import mgx_core as mgx
from mgx_cpu_dnnl.jit import body, gemm_epilogue, pointwise, reduce
from mgx_cpu_dnnl.jit.graph import Graph, text_of
from mgx_cpu_dnnl.shared import KernelCache
from mgx_cpu_dnnl.shared import shared as shared_caches
from mgx_cpu_dnnl.target import CpuTarget

IMAGES = """
    a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0, b0)
    b = HardSwish (a)
    c = Conv <group = 8, pads = [1, 1, 1, 1]> (b, w1)
    d = Relu (c)
    e = GlobalAveragePool (d)
    f = Conv (e, w2, b2)
    g = HardSigmoid (f)
    h = Mul (d, g)
    i = Conv (h, w3, b3)
    j = Conv (i, w2, b2)
    k = Sigmoid (j)
    l = Mul (j, k)
    m = Add (l, b)
    n = Conv <pads = [1, 1, 1, 1]> (m, w4, b0)
    o = Add (n, m)
    p = Relu (o)
    q = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p)
    r = GlobalAveragePool (q)
    s = Flatten (r)
    y = Gemm (s, w5, b5)
"""
TEXTS = """
    a = Gather (w0, x)
    b = LayerNormalization (a, g, b0)
    q = MatMul (b, w1)
    k = MatMul (b, w2)
    v = MatMul (b, w3)
    q4 = Reshape (q, heads)
    k4 = Reshape (k, heads)
    v4 = Reshape (v, heads)
    qt = Transpose <perm = [0, 2, 1, 3]> (q4)
    kt = Transpose <perm = [0, 2, 3, 1]> (k4)
    vt = Transpose <perm = [0, 2, 1, 3]> (v4)
    s = MatMul (qt, kt)
    p = Softmax (s)
    o = MatMul (p, vt)
    ot = Transpose <perm = [0, 2, 1, 3]> (o)
    oc = Reshape (ot, joined)
    d = MatMul (oc, w1)
    e = Add (d, b)
    f = LayerNormalization (e, g, b0)
    h = MatMul (f, w4)
    i = Add (h, b4)
    j = Erf (i)
    l = Mul (j, i)
    m = MatMul (l, w5)
    n = Add (m, f)
    r = ReduceMax <axes = [1], keepdims = 0> (n)
    y = Tanh (r)
"""
SEQUENCES = """
    a, b, c = LSTM <hidden_size = 6> (x, w0, w1)
    d = Squeeze (a, one)
    e = Softmax <axis = 0> (d)
    f = CumSum (e, zero)
    g = ReduceSum <keepdims = 1> (f, zero)
    h = Div (f, g)
    y = Concat <axis = 0> (h, g)
"""


def floats(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(7)
    return [(rng.standard_normal(s) / np.sqrt(s[-1] * s[0])).astype(np.float32) for s in shapes]


def weights_of(*shapes: tuple[int, ...]) -> dict[str, Any]:
    return {f"w{n}": w for n, w in enumerate(floats(*shapes))}


def texts_weights() -> dict[str, Any]:
    found = weights_of((32, 16), (16, 16), (16, 16), (16, 16), (16, 24), (24, 16))
    (g, b0), (b4,) = floats((16,), (16,)), floats((24,))
    whole = {"heads": np.array([0, 0, 4, 4]), "joined": np.array([0, 0, 16])}
    return {**found, "g": g + 1, "b0": b0, "b4": b4, **whole}


def images_weights() -> dict[str, Any]:
    found = weights_of((8, 3, 3, 3), (8, 1, 3, 3), (8, 8, 1, 1), (8, 8, 1, 1), (8, 8, 3, 3), (5, 8))
    biases = dict(zip(("b0", "b2", "b3", "b5"), floats((8,), (8,), (8,), (5,)), strict=True))
    return {**found, "w5": np.ascontiguousarray(found["w5"].T), **biases}


def sequences_weights() -> dict[str, Any]:
    return {**weights_of((1, 24, 5), (1, 24, 6)), "one": np.array([1]), "zero": np.array(0), "zeros": np.array([0])}


def parsed(nodes: str, given: str, weights: Mapping[str, Any]) -> mgx.Program:
    """Parses an ONNX graph with a result y, from the text of its nodes and its input x, and its constants."""
    text = f"<ir_version: 8, opset_import: ['' : 17]> net ({given} x) => (float[R] y) {{ {nodes} }}".replace("'", '"')
    model = parser.parse_model(text)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items())
    return mgx.parse_onnx_buffer(model.SerializeToString())


def image(rng: np.random.Generator) -> Any:
    """One or two images; some extents equal those of channels."""
    n, h, w = rng.choice([1, 1, 1, 2]), *rng.choice([4, 5, 8, 16, 17, 32, 40, 64, 65], 2)
    return rng.standard_normal((n, 3, h, w)).astype(np.float32)


def text(rng: np.random.Generator) -> Any:
    return rng.integers(0, 32, (rng.integers(1, 5), rng.choice([1, 2, 3, 4, 7, 16, 24, 33, 70])))


def sequence(rng: np.random.Generator) -> Any:
    return rng.standard_normal((rng.integers(1, 20), rng.choice([1, 2, 6]), 5)).astype(np.float32)


NETS: dict[str, tuple[str, str, Callable[[], dict[str, Any]], Callable[[np.random.Generator], Any]]] = {
    "images": (IMAGES, "float[N, 3, H, W]", images_weights, image),
    "texts": (TEXTS, "int64[N, L]", texts_weights, text),
    "sequences": (SEQUENCES, "float[L, N, 5]", sequences_weights, sequence),
}


def closed() -> CpuTarget:
    """Returns a target that compiles a program for each set of shapes."""
    target = CpuTarget()
    target.opens_programs = False
    return target


@pytest.mark.parametrize("fast_math", [True, False])
@pytest.mark.parametrize("name", list(NETS))
def test_each_new_set_of_shapes_runs_as_if_compiled_alone(name: str, fast_math: bool) -> None:
    nodes, given, weights, draw = NETS[name]
    rng = np.random.default_rng(3)
    exact, one = (parsed(nodes, given, weights()) for _ in range(2))
    exact.compile(mgx.get_target("ref"))
    one.compile(closed(), fast_math=fast_math)
    for _ in range(25):
        x = draw(rng)
        alone = parsed(nodes, given, weights())
        alone.compile(CpuTarget(), fast_math=fast_math)
        got, wanted, known = (np.asarray(p.run({"x": x})[0]) for p in (one, alone, exact))
        np.testing.assert_array_equal(got, wanted, err_msg=str(x.shape))
        np.testing.assert_allclose(got, known, rtol=1e-4, atol=1e-5, err_msg=str(x.shape))


@pytest.mark.parametrize("fast_math", [True, False])
@pytest.mark.parametrize("name", list(NETS))
def test_programs_that_take_extents_as_arguments_compute_the_same(name: str, fast_math: bool) -> None:
    nodes, given, weights, draw = NETS[name]
    rng = np.random.default_rng(5)
    exact, one = (parsed(nodes, given, weights()) for _ in range(2))
    exact.compile(mgx.get_target("ref"))
    one.compile(CpuTarget(), fast_math=fast_math)
    for _ in range(40):
        x = draw(rng)
        got, known = (np.asarray(p.run({"x": x})[0]) for p in (one, exact))
        np.testing.assert_allclose(got, known, rtol=1e-4, atol=1e-5, err_msg=str(x.shape))


def test_ops_with_unchanged_extents_are_not_planned_again(planned: list[str]) -> None:
    """The ops on [1, 8, 1, 1], two products and their activations, do not depend on the image extents."""
    nodes, given, weights, _ = NETS["images"]
    program = parsed(nodes, given, weights())
    program.compile(closed())
    counts = []
    for n, h, w in ((1, 32, 48), (1, 40, 24), (1, 56, 24), (2, 40, 48)):
        planned.clear()
        program.run({"x": np.zeros((n, 3, h, w), np.float32)})
        counts.append(len(planned))
    assert counts[1] == counts[0]  # used for the second time
    assert counts[2] <= counts[0] - 3
    assert counts[3] == counts[0]


@pytest.mark.parametrize("name", list(NETS))
def test_graphs_of_bodies_are_those_that_each_would_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are extracted once for bodies that differ only in extents, with the strides of each."""
    shared = body.prepared

    def checked(module: Any, inputs: Any, dims: Any, axes: Any = (), *prepare: Any) -> Graph:
        got, wanted = shared(module, inputs, dims, axes, *prepare), body.read(module, inputs, dims, axes)
        for one in prepare:
            one(wanted)
        assert got.dims == wanted.dims
        assert text_of(got.nodes)[0] == text_of(wanted.nodes)[0]
        loads = [[g.steps(n) for n in g.nodes if n.kind == "load"] for g in (got, wanted)]
        assert loads[0] == loads[1]
        return got

    for module in (pointwise, reduce, gemm_epilogue):
        monkeypatch.setattr(module, "prepared", checked)
    monkeypatch.setattr(shared_caches(), "kernels", KernelCache())  # in which all may be cached already
    nodes, given, weights, draw = NETS[name]
    rng = np.random.default_rng(5)
    program = parsed(nodes, given, weights())
    program.compile(CpuTarget())
    for _ in range(30):
        program.run({"x": draw(rng)})


def test_bodies_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    plain = body.read

    def noting(*given: Any) -> Graph:
        read.append(given)
        return plain(*given)

    monkeypatch.setattr(body, "read", noting)
    nodes, given, weights, _ = NETS["images"]
    program = parsed(nodes, given, weights())
    program.compile(CpuTarget())
    counts = []
    for height, width in ((44, 60), (60, 84), (84, 100)):
        program.run({"x": np.zeros((1, 3, height, width), np.float32)})
        counts.append(len(read))
    assert counts[0] > 0
    assert counts[2] == counts[0]
