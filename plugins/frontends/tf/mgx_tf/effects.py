"""Nodes that must run though nothing reads them: assignments to variables, the filling of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .graph import Graph

__all__ = ["effects_of"]

EFFECTS: Final = {
    "Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp",
    "ResourceScatterUpdate", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterNdUpdate", "ResourceScatterNdAdd",
    "ScatterUpdate", "ScatterAdd", "LookupTableImportV2", "LookupTableImport", "LookupTableInsertV2", "InitializeTableV2",
    "InitializeTable", "InitializeTableFromTextFileV2", "InitializeTableFromTextFile", "StackPushV2",
}  # fmt: skip


def effects_of(graph: Graph, functions: Mapping[str, Any]) -> set[str]:
    """Names of the nodes that have an effect, or wait for one through control inputs."""
    found: set[str] | None = graph.derived.get("effects")
    if found is not None:
        return found
    graph.derived["effects"] = set()  # a function that calls itself is refused later
    direct = {n.name for n in graph.nodes.values() if n.op in EFFECTS or _calls_effects(n, functions)}
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
    graph.derived["effects"] = found
    return found


def _calls_effects(node: Any, functions: Mapping[str, Any]) -> bool:
    if node.op in functions:
        return bool(effects_of(functions[node.op], functions))
    for value in node.attributes.values():
        names = (
            [value.func.name]
            if value.HasField("func")
            else [f.name for f in value.list.func]
            if value.HasField("list")
            else []
        )
        for name in names:
            if name in functions and effects_of(functions[name], functions):
                return True
    return False
