"""Chains of views in a graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false

__all__ = ["covers", "is_view_of_input", "region_of", "viewed", "views_of"]

aten = torch.ops.aten
# views that begin at the first element of their operand
UNMOVED = frozenset((
    aten.alias.default, aten.detach.default, aten.expand.default, aten.permute.default, aten.squeeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.unsqueeze.default, aten.view.default,
))  # fmt: skip


def is_view_of_input(node: torch.fx.Node) -> bool:
    """Returns True for a placeholder's view, or view of a view, by constants and by numbers computed from placeholders."""
    source, *views = views_of(node)
    if source.op != "placeholder" or not views or any(n.target is operator.getitem for n in views):
        return False
    others = (given for n in views for given in n.all_input_nodes if given is not n.args[0])
    return all(map(_is_number_of_arguments, others))


def _is_number_of_arguments(node: torch.fx.Node) -> bool:
    """Returns True for a size or number that is an argument, or is computed from such."""
    if isinstance(node.meta.get("val"), torch.Tensor):
        return False
    computed = node.op == "call_function" and all(map(_is_number_of_arguments, node.all_input_nodes))
    return node.op == "placeholder" or computed


def viewed(args: Sequence[Any], places: Mapping[torch.fx.Node, int], view: torch.fx.Node) -> Any:
    """Returns a view of an argument (see `is_view_of_input`); places: indices of arguments by placeholder."""
    made: dict[torch.fx.Node, Any] = {}

    def value(node: torch.fx.Node) -> Any:
        if node in places:
            return args[places[node]]
        if node not in made:
            given, options = torch.fx.map_arg((node.args, node.kwargs), value)
            made[node] = node.target(*given, **options)
        return made[node]

    return value(view)


def region_of(view: torch.fx.Node, base: torch.fx.Node) -> tuple[Any, ...] | None:
    """Returns the arguments of `Tensor.as_strided` that make a view from another of the same memory, or from that itself.

    None if it has another type, depends on sizes that change, or if one of them may begin elsewhere.
    """
    before, after = base.meta.get("val"), view.meta.get("val")
    if not (_is_plain(before) and _is_plain(after)) or before.dtype is not after.dtype:
        return None
    if any(n.target not in UNMOVED for node in (base, view) for n in views_of(node)[1:]):
        return None
    region = tuple(after.shape), tuple(after.stride())
    return region if all(isinstance(n, int) for part in region for n in part) else None


def covers(view: torch.fx.Node, base: torch.fx.Node) -> bool:
    """Returns True if a view, or view of a view, has each element of its base once, in one block of memory."""
    before, after = base.meta.get("val"), view.meta.get("val")
    if region_of(view, base) is None or before.numel() != after.numel():
        return False
    return is_non_overlapping_and_dense_or_false(after)


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


def _is_plain(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return not (value.is_conj() or value.is_neg())


def _is_view(node: Any) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view
