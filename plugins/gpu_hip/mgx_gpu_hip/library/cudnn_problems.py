"""cuDNN plans for products, convolutions, attention and low-precision products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mgx_core import dtype
from mgx_core.errors import No

from .attention import AttentionProblem, attention_graph
from .convolution import ConvProblem, conv_graph
from .cudnn import Cudnn, notes_for
from .cudnn_constants import DATA_TYPES, Note
from .cudnn_graph import Graph
from .cudnn_narrow import NarrowProblem, narrow_graph
from .cudnn_plan import CudnnPlan
from .epilogue import residual_first
from .gemm_problem import GemmProblem, Matrix

__all__ = ["gemm_graph", "plan", "plans"]


def strides(x: Matrix, rows: int, columns: int, batch: int) -> tuple[int, int, int]:
    # a batch of one still needs a stride that covers the matrix
    outer = x.batch_stride if batch > 1 else x.ld * (columns if x.transposed else rows)
    return (outer, 1, x.ld) if x.transposed else (outer, x.ld, 1)


def gemm_graph(problem: GemmProblem) -> Graph | No:
    """Returns the operation graph: the product and a pointwise node for alpha and each step; the last one writes d."""
    p = problem.folded
    if p.compute not in ("f32", "tf32"):
        return No(f"cuDNN's products accumulate in float32, got {p.compute}")
    for matrix in (p.a, p.b, p.d):
        if matrix.dtype.name not in DATA_TYPES or not matrix.dtype.is_float:
            return No(f"cuDNN's products do not support {matrix.dtype}")
    graph = Graph()
    a = graph.operand("a", (p.batch, p.m, p.k), strides(p.a, p.m, p.k, p.batch), p.a.dtype, min(p.a.align, 16))
    shared = p.batch > 1 and not p.b.batch_stride
    count = 1 if shared else p.batch
    b = graph.operand("b", (count, p.k, p.n), strides(p.b, p.k, p.n, count), p.b.dtype, min(p.b.align, 16))
    dims = (p.batch, p.m, p.n)
    d = graph.operand("d", dims, strides(p.d, p.m, p.n, p.batch), p.d.dtype, min(p.d.align, 16))
    packed = (p.m * p.n, p.n, 1)
    scaled = p.alpha != 1.0
    steps = residual_first(p.epilogue)
    at = graph.matmul(a, b, graph.tensor(dims, packed, dtype.float32, virtual=True) if steps or scaled else d)
    if scaled:
        at = graph.pointwise("mul", at, graph.number(p.alpha, dtype.float32, 3), y=None if steps else d)
    for number, step in enumerate(steps):
        last = d if number == len(steps) - 1 else None
        if step == "bias":
            bias = graph.operand("bias", (1, 1, p.n), (p.n, p.n, 1), p.bias_dtype or p.d.dtype)
            at = graph.pointwise("add", at, bias, y=last)
        elif step == "residual":
            assert p.residual is not None
            where = strides(p.residual, p.m, p.n, p.batch)
            at = graph.pointwise("add", at, graph.operand("residual", dims, where, p.residual.dtype), y=last)
        else:
            assert not isinstance(step, str)
            at = graph.activate(step, at, last)
    return graph


GRAPHS: Final[Mapping[type, tuple[str, Callable[[Any], Graph | No]]]] = {
    GemmProblem: ("gemm", gemm_graph),
    ConvProblem: ("conv", conv_graph),
    NarrowProblem: ("narrow", narrow_graph),
    AttentionProblem: ("attention", attention_graph),
}


def plan(cudnn: Cudnn, problem: Any, choice: Mapping[str, Any] | None = None) -> CudnnPlan | No:
    """Returns the saved plan, or the first one that cuDNN's heuristics find."""
    word, make = GRAPHS[type(problem)]
    graph = make(problem)
    return graph if isinstance(graph, No) else cudnn.plan(f"cudnn {word} {problem}", graph, _banned(problem), choice)


def plans(
    cudnn: Cudnn, problem: Any, count: int = 8, compiled: bool = True, share: tuple[int, int] = (0, 1)
) -> list[CudnnPlan] | No:
    """Returns several plans for timing; compiled, share: as for `Cudnn.plans`."""
    word, make = GRAPHS[type(problem)]
    graph = make(problem)
    if isinstance(graph, No):
        return graph
    return cudnn.plans(f"cudnn {word} {problem}", graph, _banned(problem), count, compiled, share)


def _banned(problem: Any) -> frozenset[Note]:
    """Returns the notes that exclude an engine for a problem."""
    if isinstance(problem, (GemmProblem, ConvProblem)):
        return notes_for(problem.dtype, problem.tf32)
    return frozenset()
