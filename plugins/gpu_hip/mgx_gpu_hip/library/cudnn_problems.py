"""cuDNN's plans of problems: products, convolutions, attention, and products of narrow numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mgx_core.errors import No

from .attention import AttentionProblem, attention_graph
from .convolution import ConvProblem, conv_graph
from .cudnn import Cudnn, notes_for
from .cudnn_gemm import gemm_graph
from .cudnn_graph import Graph
from .cudnn_narrow import NarrowProblem, narrow_graph
from .cudnn_plan import CudnnPlan
from .cudnn_tables import Note
from .gemm_problem import GemmProblem

__all__ = ["plan", "plans"]

GRAPHS: Final[Mapping[type, tuple[str, Callable[[Any], Graph | No]]]] = {
    GemmProblem: ("gemm", gemm_graph),
    ConvProblem: ("conv", conv_graph),
    NarrowProblem: ("narrow", narrow_graph),
    AttentionProblem: ("attention", attention_graph),
}


def plan(cudnn: Cudnn, problem: Any, choice: Mapping[str, Any] | None = None) -> CudnnPlan | No:
    """Returns the saved plan, or the first that cuDNN's heuristics find."""
    word, make = GRAPHS[type(problem)]
    graph = make(problem)
    return graph if isinstance(graph, No) else cudnn.plan(f"cudnn {word} {problem}", graph, _banned(problem), choice)


def plans(cudnn: Cudnn, problem: Any, count: int = 8, compiled: bool = True) -> list[CudnnPlan] | No:
    """Returns several plans to time against each other; compiled: also of engines that compile kernels for the graph."""
    word, make = GRAPHS[type(problem)]
    graph = make(problem)
    if isinstance(graph, No):
        return graph
    return cudnn.plans(f"cudnn {word} {problem}", graph, _banned(problem), count, compiled)


def _banned(problem: Any) -> frozenset[Note]:
    """Returns the notes that engines for a problem must not have."""
    if isinstance(problem, (GemmProblem, ConvProblem)):
        return notes_for(problem.dtype, problem.tf32)
    return frozenset()
