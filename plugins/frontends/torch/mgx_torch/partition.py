"""Partitions a graph into parts for mgx and parts for eager torch."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.passes.split_module import split_module

__all__ = ["eager_name", "shared", "split", "stages", "view_of_input", "viewed"]


def shared(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Returns views that torch must create so that results alias each other or inputs: copies without other readers."""
    (output,) = (n for n in gm.graph.nodes if n.op == "output")
    chains = [_views(n) for n in output.args[0] if isinstance(n, torch.fx.Node)]
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


def view_of_input(node: torch.fx.Node) -> list[torch.fx.Node] | None:
    """Returns a placeholder and the views that produce a node from it, if their other arguments are constants."""
    source, *views = _views(node)
    fixed = all(n.all_input_nodes == [n.args[0]] and n.target is not operator.getitem for n in views)
    return [source, *views] if source.op == "placeholder" and views and fixed else None


def viewed(args: Sequence[Any], view: tuple[int, Sequence[torch.fx.Node]]) -> Any:
    """Returns a view of an argument, by index, through the operators of nodes."""
    index, nodes = view
    found = args[index]
    for node in nodes:
        found = node.target(found, *node.args[1:], **node.kwargs)
    return found


def _views(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Returns the chain of views that produces a node: their operand first, the node last."""
    found = [node]
    while True:
        first = found[0]
        if first.target is operator.getitem and _is_view(first.args[0]):
            found = [first.args[0].args[0], first.args[0], *found]
        elif _is_view(first) and isinstance(first.args[0], torch.fx.Node):
            found = [first.args[0], *found]
        else:
            return found


def _is_view(node: Any) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


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
