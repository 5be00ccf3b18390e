"""Inserts autocast's casts into exported programs, which torch's decompositions would lose."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves, tree_map

from .calls import name_of, subgraphs
from .decompositions import PASSED_BY
from .node import described

__all__ = ["with_casts"]

Region: TypeAlias = Sequence[Any]  # the arguments of torch.autocast: device, element type, whether it is on, cache
DEVICES = ("cuda", "cpu")
AUTOCAST = torch.ops.higher_order.wrap_with_autocast
ENTER, EXIT = torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast  # around torch.cond
ASSERTS = torch.ops.aten._assert_tensor_metadata.default


def with_casts(exported: ExportedProgram) -> ExportedProgram:
    """Casts operands of operators that autocast does not intercept but whose decompositions contain matrix products.

    Applies to the program's autocast regions and to the ambient autocast. `run_decompositions` keeps these operators or
    decomposes them below autocast; either way they would compute in float32.
    """
    around = next(((d, torch.get_autocast_dtype(d), True, None) for d in DEVICES if torch.is_autocast_enabled(d)), None)
    if around is None and not any(map(_autocasts, exported.graph_module.modules())):
        return exported
    module = copy.deepcopy(exported.graph_module)
    _cast(module, around)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=exported.graph_signature,
        state_dict=exported.state_dict,
        range_constraints=exported.range_constraints,
        module_call_graph=exported.module_call_graph,
        example_inputs=exported.example_inputs,
        constants=exported.constants,
        verifiers=exported.verifiers,
    )


def _autocasts(gm: torch.nn.Module) -> bool:
    return isinstance(gm, torch.fx.GraphModule) and any(n.target in (AUTOCAST, ENTER) for n in gm.graph.nodes)


def _cast(gm: torch.fx.GraphModule, region: Region | None) -> None:
    """Inserts casts into a graph called in an autocast region, and into its subgraphs."""
    around: list[Region | None] = []
    for node in list(gm.graph.nodes):
        if node.op != "call_function":  # inputs may have the names of operators
            continue
        for inner in subgraphs(node):
            _cast(inner, node.args[:4] if node.target is AUTOCAST else region)
        if node.target is ASSERTS:  # the original types
            gm.graph.erase_node(node)
        elif node.target is ENTER:
            around.append(region)
            region = node.args
        elif node.target is EXIT:
            region = around.pop()
        elif region is not None and name_of(node.target)[1] in PASSED_BY and _narrows(node, region):
            _cast_operands(gm.graph, node, region[1])
    gm.recompile()


def _narrows(node: torch.fx.Node, region: Region) -> bool:
    """Returns True if eager torch returns autocast's type for the call in this region."""
    device, dtype, enabled, _ = region
    with FakeTensorMode(), torch.no_grad(), torch.autocast(device, dtype, bool(enabled), False):
        args, kwargs = tree_map(_sample, (described(node.args), {k: described(v) for k, v in node.kwargs.items()}))
        found = node.target(*args, **kwargs)
    return any(x.dtype is dtype for x in tree_leaves(found) if isinstance(x, torch.Tensor))


def _sample(value: Any) -> Any:
    """Returns a tensor like a node's with the example sizes, since torch's LSTM does not support symbols."""
    if isinstance(value, torch.Tensor):
        return torch.empty([_sample(d) for d in value.shape], dtype=value.dtype, device=value.device)
    if isinstance(value, torch.SymInt):
        return value.node.hint if value.node.has_hint() else 2
    return value


def _cast_operands(graph: torch.fx.Graph, node: torch.fx.Node, dtype: torch.dtype) -> None:
    made: dict[torch.fx.Node, torch.fx.Node] = {}

    def cast(x: torch.fx.Node) -> torch.fx.Node:
        value = x.meta.get("val")
        if (
            not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
            or value.dtype in (dtype, torch.float64)
        ):
            return x
        if x not in made:
            with graph.inserting_before(node):
                made[x] = graph.call_function(torch.ops.aten._to_copy.default, (x,), {"dtype": dtype})
            with value.fake_mode:
                made[x].meta = {**node.meta, "val": value.to(dtype)}
        return made[x]

    node.args = torch.fx.map_arg(node.args, cast)
    node.kwargs = torch.fx.map_arg(node.kwargs, cast)
