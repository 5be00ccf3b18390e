"""Nodes whose order matters: assignments to variables and the filling of tables, which run though nothing reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .graph import Graph

__all__ = ["effects_of"]

EFFECTS: Final = {
    "Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp",
    "ResourceScatterUpdate", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterNdUpdate", "ResourceScatterNdAdd",
    "ResourceScatterMul", "ResourceScatterMax", "ResourceScatterMin",
    "ScatterUpdate", "ScatterAdd", "LookupTableImportV2", "LookupTableImport", "LookupTableInsertV2", "InitializeTableV2",
    "InitializeTable", "InitializeTableFromTextFileV2", "InitializeTableFromTextFile", "StackPushV2",
}  # fmt: skip


READS: Final = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}


def effects_of(graph: Graph, functions: Mapping[str, Any], reads: bool = False) -> set[str]:
    """Names of the nodes that have an effect, or wait for one through control inputs.

    reads: those that read variables count, too, which matters where variables change.
    """
    key = "accesses" if reads else "effects"
    found: set[str] | None = graph.derived.get(key)
    if found is not None:
        return found
    graph.derived[key] = set()  # a function that calls itself is refused later
    kinds = EFFECTS | READS if reads else EFFECTS
    direct = {n.name for n in graph.nodes.values() if n.op in kinds or _calls_effects(n, functions, reads)}
    found = set(direct)
    grew = bool(found)
    while grew:
        more = {
            n.name
            for n in graph.nodes.values()
            if n.name not in found and any(c in found for c in n.controls) and n.op in ("NoOp", "Identity")
        }
        found |= more
        grew = bool(more)
    graph.derived[key] = found
    return found


def _calls_effects(node: Any, functions: Mapping[str, Any], reads: bool) -> bool:
    if node.op in functions:
        return bool(effects_of(functions[node.op], functions, reads))
    for value in node.attributes.values():
        names = (
            [value.func.name]
            if value.HasField("func")
            else [f.name for f in value.list.func]
            if value.HasField("list")
            else []
        )
        for name in names:
            if name in functions and effects_of(functions[name], functions, reads):
                return True
    return False
