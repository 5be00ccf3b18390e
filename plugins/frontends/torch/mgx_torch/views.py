"""Chains of views in a graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = ["view_of_input", "viewed", "views_of"]


def view_of_input(node: torch.fx.Node) -> list[torch.fx.Node] | None:
    """Returns a placeholder and the views that produce a node from it, if their other arguments are constants or placeholders."""
    source, *views = views_of(node)
    if source.op != "placeholder" or not views or any(n.target is operator.getitem for n in views):
        return None
    others = (given for n in views for given in n.all_input_nodes if given is not n.args[0])
    return [source, *views] if all(given.op == "placeholder" for given in others) else None


def viewed(args: Sequence[Any], places: Mapping[torch.fx.Node, int], views: Sequence[torch.fx.Node]) -> Any:
    """Returns a view of an argument; views: as of `view_of_input`; places: indices of arguments by placeholder."""
    source, *nodes = views
    found = args[places[source]]
    for node in nodes:
        rest, options = torch.fx.map_arg((node.args[1:], node.kwargs), lambda n: args[places[n]])
        found = node.target(found, *rest, **options)
    return found


def views_of(node: torch.fx.Node) -> list[torch.fx.Node]:
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
