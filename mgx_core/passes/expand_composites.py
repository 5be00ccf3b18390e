"""Spell composite ops out in simpler ones, so that they fuse with what is around them."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.module import Module, nested
from ..ops.operation import Operation
from ..rules.decomposition import decompose
from .interface import Pass

__all__ = ["ExpandComposites"]


@dataclass(frozen=True)
class ExpandComposites(Pass):
    """Replaces ops by what their `decompose` gives.

    ops: their classes; nested modules are expanded too.
    """

    ops: frozenset[type[Operation]]
    name: str = "expand-composites"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner in list(nested(module)):
            for ins in list(inner):
                if ins.parent is inner and type(ins.op) in self.ops and isinstance(decompose(inner, ins), list):
                    changed = True
        return changed
