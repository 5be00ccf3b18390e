"""Detects derivatives and autocast inside Dynamo graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from .calls import name_of

__all__ = ["autocasts", "differentiates", "nodes_of"]

DERIVATIVES: Final = frozenset(
    ("_grad_increment_nesting", "_jvp_increment_nesting", "_enter_dual_level", "requires_grad_")
)


def differentiates(gm: torch.fx.GraphModule) -> bool:
    """True if a graph computes derivatives: by `torch.func`, or by enabling gradients.

    Operators that are not decomposed have no derivative: their gradient would silently be zero.
    """
    off = not torch.is_grad_enabled()  # otherwise enabling them ends a region without gradients
    for node in nodes_of(gm):
        name = node.target if isinstance(node.target, str) else name_of(node.target)[1]
        name = name.rpartition(".")[2]
        if name in DERIVATIVES or (off and name == "_set_grad_enabled" and node.args[0] is True):
            return True
    return False


def nodes_of(gm: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Yields the nodes of a graph and its subgraphs: branches, loop bodies, checkpointed regions."""
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def autocasts(gm: torch.fx.GraphModule) -> bool:
    """True if autocast is enabled where the graph is called, or changed inside it."""
    entered = any(n.target is torch.amp.autocast_mode._enter_autocast for n in nodes_of(gm))
    return entered or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
