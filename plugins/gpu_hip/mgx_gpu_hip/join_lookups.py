"""Fuses gathers of single elements with the pointwise work that computes their indices and reads their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mgx_core import Instruction, Module, Pass, Shape
from mgx_core.ops.control import GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.index import GatherElements
from mgx_core.rules.outline import Names, outline
from mgx_core.types.dim import Dim
from mgx_core.types.shape import TupleShape

from .codegen.bodies import LOOKUPS
from .join_rows import outside_groups

__all__ = ["LOOKUP", "JoinLookups"]

LOOKUP: Final = "lookup"  # tag of the groups
MOST: Final = 48  # members of a group
LEAST: Final = 3
INPUTS: Final = 24  # operands of a group


@dataclass(frozen=True)
class JoinLookups(Pass):
    """Groups gathers from vectors, and along an axis, with pointwise groups over the same elements that only they connect.

    Trees as tables, hashed grids and splines compute an index for each element, gather a number, and compute the next index:
    each of these was a launch, and its result was written and read again.  If a target declines the group, its members run
    separately.
    """

    name: str = "join-lookups"

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in outside_groups(module)])
        changed = False
        for inner in list(outside_groups(module)):
            order = {ins: n for n, ins in enumerate(inner)}
            taken: set[Instruction] = set()
            for root in reversed(list(order)):
                members = [] if root in taken else _connected(root)
                if not _worthwhile(members):
                    continue
                items = [u for m in members for u in m.users if isinstance(u.op, GetTupleElem)]
                whole = sorted({*members, *items}, key=order.__getitem__)
                following = whole[-1].next
                behind = [order[u] for m in whole for u in m.users if u not in whole and u in order]
                if following is None or any(n < order[whole[-1]] for n in behind):
                    continue
                taken.update(whole)
                outline(inner, whole, Group(tag=LOOKUP), names.fresh("lookup"), following)
                changed = True
        return changed


def _connected(root: Instruction) -> list[Instruction]:
    """Returns an instruction with all that compute indices and operands for it alone, over the same elements; or nothing."""
    dims = _dims(root)
    if dims is None:
        return []
    members = [root]
    waiting = [root]
    while waiting:
        member = waiting.pop()
        for x in member.inputs[1:] if isinstance(member.op, LOOKUPS) else member.inputs:
            source = x.inputs[0] if isinstance(x.op, GetTupleElem) else x
            if source in members or source.parent is not root.parent or len(members) == MOST:
                continue
            if _dims(source) == dims and all(u in members and not table for u, table in _readers(source)):
                members.append(source)
                waiting += [*members]  # what they read may have no other users now
    return members


def _readers(ins: Instruction) -> list[tuple[Instruction, bool]]:
    """Returns the users of an instruction's results, and whether they look up elements of these, which needs all of them."""
    results = [ins, *(u for u in ins.users if isinstance(u.op, GetTupleElem))]
    users = [(r, u) for r in results for u in r.users if not isinstance(u.op, GetTupleElem)]
    return [(u, isinstance(u.op, LOOKUPS) and u.inputs[0] is r) for r, u in users]


def _dims(ins: Instruction) -> tuple[Dim, ...] | None:
    """Returns the extents over which an instruction works element by element; None for others."""
    results = ins.result.items if isinstance(ins.result, TupleShape) else (ins.result,)
    shapes = [r for r in results if isinstance(r, Shape) and not r.dynamic()]
    if len(shapes) < len(results) or not shapes or any(s.dims != shapes[0].dims for s in shapes):
        return None
    if isinstance(ins.op, LOOKUPS):
        table, indices = (i.result for i in ins.inputs)
        if not isinstance(table, Shape) or not isinstance(indices, Shape) or table.dynamic() or 0 in table.dims:
            return None
        single = isinstance(ins.op, GatherElements) or table.rank == 1
        return shapes[0].dims if single and indices.dims == shapes[0].dims else None
    return shapes[0].dims if isinstance(ins.op, (Pointwise, PointwiseGroup)) else None


def _worthwhile(members: Sequence[Instruction]) -> bool:
    """Returns True if an index is computed, looked up and used, or looked up again, from operands that a launch takes.

    A single gather that runs beside others, and a conversion of its result that joins other work, would take more launches.
    """
    read = {x for m in members for x in m.inputs if not isinstance(x.op, GetTupleElem)}.difference(members)
    if len(members) < LEAST or len(read) > INPUTS:
        return False
    found = [m.inputs[1] for m in members if isinstance(m.op, LOOKUPS)]
    return any((x.inputs[0] if isinstance(x.op, GetTupleElem) else x) in members for x in found)
