"""Splits a graph into parts that mgx computes and parts that stay with torch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import torch
from torch.fx.passes.split_module import split_module

__all__ = ["eager_name", "split", "stages"]


def stages(graph: torch.fx.Graph, eager: Callable[[torch.fx.Node], bool]) -> dict[torch.fx.Node, int]:
    """A number for each call: even ones are mgx's, odd ones torch's; each depends on lower or equal numbers only."""
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
    """A module that calls ``submod_N`` for each stage N in order."""
    return split_module(gm, None, lambda node: found[node], keep_original_order=False)


def eager_name(name: str) -> bool:
    """True for the sub-module of a stage that stays with torch."""
    return name.startswith("submod_") and int(name.removeprefix("submod_")) % 2 == 1
