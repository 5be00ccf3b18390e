"""Finds nodes with side effects (variable assignment, table initialization), which run even if their results are unused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from .graph import Functions, Graph

__all__ = ["effects_of"]

EFFECTS: Final = {
    "Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp",
    "ResourceScatterUpdate", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterNdUpdate", "ResourceScatterNdAdd",
    "ResourceScatterMul", "ResourceScatterMax", "ResourceScatterMin", "ResourceScatterNdSub", "ResourceScatterNdMax",
    "ResourceScatterNdMin", "LookupTableInsert",
    "ScatterUpdate", "ScatterAdd", "LookupTableImportV2", "LookupTableImport", "LookupTableInsertV2", "InitializeTableV2",
    "InitializeTable", "InitializeTableFromTextFileV2", "InitializeTableFromTextFile", "StackPushV2",
    "ResourceStridedSliceAssign",
    # operators without a converter: listed so that models with them are rejected instead of losing the assignment
    "LookupTableRemoveV2", "ResourceScatterDiv", "ResourceCountUpTo",
    "ScatterSub", "ScatterMul", "ScatterDiv", "ScatterMin", "ScatterMax", "ScatterNdUpdate", "ScatterNdAdd", "ScatterNdSub",
    *(
        f"Resource{sparse}Apply{rule}"
        for sparse in ("", "Sparse")
        for rule in (
            "Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "Adam", "AdamWithAmsgrad", "AdaMax", "AddSign", "CenteredRMSProp",
            "Ftrl", "FtrlV2", "GradientDescent", "KerasMomentum", "Momentum", "PowerSign", "ProximalAdagrad",
            "ProximalGradientDescent", "RMSProp",
        )
    ),
}  # fmt: skip


READS: Final = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}


def effects_of(graph: Graph, functions: Functions, reads: bool = False) -> set[str]:
    """Returns the names of nodes with side effects, and of no-ops and identities with control inputs from such nodes.

    reads: includes nodes that read variables, for programs that assign variables.
    """
    key = "accesses" if reads else "effects"
    found: set[str] | None = graph.derived.get(key)
    if found is not None:
        return found
    found = {n.name for n in _effective([n.proto for n in graph.nodes.values()], functions, reads)}
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


def _effective(nodes: Iterable[Any], functions: Functions, reads: bool) -> Iterator[Any]:
    """Yields the NodeDefs that have a side effect or call a function that has one."""
    kinds = EFFECTS | READS if reads else EFFECTS
    worth = {n.op for n in nodes} - functions.plain | kinds  # skips most operators without inspecting their nodes
    for node in nodes:
        if node.op in worth and (
            node.op in kinds or any(_function_has(name, functions, reads) for name in functions.called(node))
        ):
            yield node


def _function_has(name: str, functions: Functions, reads: bool) -> bool:
    known: bool | None = functions.derived.get((name, reads))
    if known is None:
        functions.derived[name, reads] = False  # ends the search on recursive functions, which are rejected later
        known = any(True for _ in _effective(functions.nodes(name), functions, reads))
        functions.derived[name, reads] = known
    return known
