"""Fuses concatenations into the pointwise work that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mgx_core import Instruction, Module, Pass
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.rules.outline import Names, outline

from .join_rows import outside_groups

__all__ = ["CONCAT", "JoinConcats"]

CONCAT: Final = "concat"  # tag of the groups


@dataclass(frozen=True)
class JoinConcats(Pass):
    """Groups a concatenation with the pointwise work that is its only reader and has one result of its extents.

    The layers of a dense block normalize the concatenation of all layers before them: it was written, and read again, by each.
    If a target declines the group, its members run separately.
    """

    name: str = "join-concats"

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in outside_groups(module)])
        changed = False
        for inner in list(outside_groups(module)):
            for ins in list(inner):
                work = _work(ins)
                if work is not None and work.next is not None:
                    outline(inner, [ins, work], Group(tag=CONCAT), names.fresh("concat"), work.next)
                    changed = True
        return changed


def _work(ins: Instruction) -> Instruction | None:
    """Returns the pointwise group that reads a concatenation, if both can be grouped."""
    if not isinstance(ins.op, Concat) or len(ins.inputs) < 2 or len(ins.users) != 1:
        return None
    work = ins.users[0]
    if not isinstance(work.op, PointwiseGroup) or work.parent is not ins.parent or work.inputs.count(ins) != 1:
        return None
    results = work.modules[0].outputs
    return work if len(results) == 1 and results[0].shape.dims == ins.shape.dims else None
