"""Partitions a graph into parts for mgx and parts for eager torch."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch.fx.passes.split_module import split_module

from .views import views_of

__all__ = ["eager_name", "shared", "split", "stages"]


def shared(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Returns views that torch must create so that results alias each other or inputs: copies without other readers."""
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    chains = [views_of(n) for n in output.args[0] if isinstance(n, torch.fx.Node)]
    groups = Counter({chain[-1]: chain[0] for chain in chains}.values())
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for base, *views in chains:
        if base.op == "placeholder" or (base.op == "call_function" and groups[base] > 1):
            for view in views:
                if view not in copies:
                    with gm.graph.inserting_before(output):
                        copies[view] = gm.graph.node_copy(view, lambda n: copies.get(n, n))
    if copies:
        output.args = (tuple(copies.get(n, n) if isinstance(n, torch.fx.Node) else n for n in output.args[0]),)
        gm.recompile()
    return list(copies.values())


def stages(graph: torch.fx.Graph, eager: Callable[[torch.fx.Node], bool]) -> dict[torch.fx.Node, int]:
    """Returns a stage number per call: even for mgx, odd for torch; each depends only on lower or equal ones."""
    found: dict[torch.fx.Node, int] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        odd = eager(node)
        if node.target is operator.getitem and node.args[0] in found:
            found[node] = found[node.args[0]]
            continue
        least = 1 if odd else 0
        for given in node.all_input_nodes:
            if given in found:
                at = found[given]
                least = max(least, at if (at % 2 == 1) == odd else at + 1)
        found[node] = least
    return found


def split(gm: torch.fx.GraphModule, found: Mapping[torch.fx.Node, int]) -> torch.fx.GraphModule:
    """Returns a module that calls ``submod_N`` for each stage N in order."""
    return split_module(gm, None, lambda node: found[node], keep_original_order=False)


def eager_name(name: str) -> bool:
    """True for the submodule of a stage that runs in torch."""
    return name.startswith("submod_") and int(name.removeprefix("submod_")) % 2 == 1
