"""Chains of views in a graph."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["view_of_input", "viewed", "views_of"]


def view_of_input(node: torch.fx.Node) -> list[torch.fx.Node] | None:
    """Returns a placeholder and the views that produce a node from it, if their other arguments are constants."""
    source, *views = views_of(node)
    fixed = all(n.all_input_nodes == [n.args[0]] and n.target is not operator.getitem for n in views)
    return [source, *views] if source.op == "placeholder" and views and fixed else None


def viewed(args: Sequence[Any], view: tuple[int, Sequence[torch.fx.Node]]) -> Any:
    """Returns a view of an argument, by index, through the operators of nodes."""
    index, nodes = view
    found = args[index]
    for node in nodes:
        found = node.target(found, *node.args[1:], **node.kwargs)
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
