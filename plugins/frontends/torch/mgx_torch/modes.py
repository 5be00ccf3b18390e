"""Modes that a graph of Dynamo's switches or runs in: derivatives taken within it, and autocast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from .calls import name_of

__all__ = ["autocasts", "differentiates"]

DERIVATIVES: Final = frozenset(
    ("_grad_increment_nesting", "_jvp_increment_nesting", "_enter_dual_level", "requires_grad_")
)


def differentiates(gm: torch.fx.GraphModule) -> bool:
    """Returns True if a graph takes derivatives itself: by `torch.func`, or where it switches gradients on.

    An operator that is kept whole has no derivative: its gradient would be zero, and nothing would say so.
    """
    off = not torch.is_grad_enabled()  # else switching them on ends a part without
    for node in _nodes(gm):
        name = node.target if isinstance(node.target, str) else name_of(node.target)[1]
        name = name.rpartition(".")[2]
        if name in DERIVATIVES or (off and name == "_set_grad_enabled" and node.args[0] is True):
            return True
    return False


def _nodes(gm: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Yields the nodes of a graph and of those within it: branches, bodies of loops, parts that are computed again."""
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def autocasts(gm: torch.fx.GraphModule) -> bool:
    """Returns True if autocast is on where the graph is called, or is switched in it."""
    entered = any(n.target is torch.amp.autocast_mode._enter_autocast for n in _nodes(gm))
    return entered or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
