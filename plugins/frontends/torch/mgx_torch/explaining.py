"""Explains how ``torch.compile(backend="mgx")`` compiles a model: graphs, parts, reasons for fallback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from mgx_core.errors import counted

from .backend import Part, compile_graph
from .options import TorchOptions
from .recurrent_setting import inferring

__all__ = ["Explanation", "explain"]


@dataclass
class Explanation:
    """The parts of a model in order of first execution; prints as a table.

    graphs: the number of Dynamo's graphs (1 without graph breaks; 0 if it skipped the model); breaks: reasons for breaks and
    skips.
    """

    graphs: int
    breaks: list[str]
    parts: list[Part] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """True if the model is a single graph that mgx compiled entirely."""
        compiled = bool(self.parts) and all(p.target != "torch" for p in self.parts)
        return self.graphs == 1 and not self.breaks and compiled

    def __str__(self) -> str:
        lines = [f"{counted(self.graphs, 'graph')}, {counted(len(self.parts), 'part')}"]
        for number, part in enumerate(self.parts):
            counts = ", ".join(f"{n} {op}" for op, n in Counter(part.operators).most_common(6))
            lines.append(f"{number}: {part.target}: {counted(len(part.operators), 'operator')} ({counts})")
            lines += [f"   {reason}" for reason in part.reasons]
        if not self.graphs:
            lines = ["0 graphs: nothing was compiled, the whole model ran in torch"]
        lines += [f"{'graph break' if self.graphs else 'reason'}: {reason}" for reason in self.breaks]
        return "\n".join(lines)


def explain(model: Any, *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any) -> Explanation:
    """Runs a model once and returns which parts ran where.

    Compiles forward and backward if gradients are enabled.
    """
    parts: list[Part] = []
    graphs = 0
    chosen = TorchOptions.of(options)

    def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return compile_graph(gm, example_inputs, chosen, parts)

    torch._dynamo.reset()
    before = {kind: Counter(torch._dynamo.utils.counters[kind]) for kind in ("graph_break", "unimplemented", "frames")}
    try:
        with inferring():
            torch.compile(model, backend=backend)(*args, **kwargs)
        new = {kind: Counter(torch._dynamo.utils.counters[kind]) - known for kind, known in before.items()}
        left = new["frames"]["total"] > new["frames"]["ok"]  # functions that Dynamo skipped
        breaks = new["graph_break"] or (new["unimplemented"] if left else Counter())
    finally:
        torch._dynamo.reset()
    return Explanation(graphs, sorted(breaks), parts)
