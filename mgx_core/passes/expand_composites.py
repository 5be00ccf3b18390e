"""Decomposes composite ops before fusion, so that their parts fuse with the surrounding ops."""

from __future__ import annotations

from ..ir.module import Module, everywhere
from ..ops.operation import Operation
from ..records import dataclass
from ..rules.decomposition import decompose
from .interface import Pass

__all__ = ["ExpandComposites"]


@dataclass(frozen=True)
class ExpandComposites(Pass):
    """Replaces ops by their decomposition, in nested modules too.

    ops: the classes of the ops to decompose.
    """

    ops: frozenset[type[Operation]]
    name: str = "expand-composites"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            changed |= type(ins.op) in self.ops and isinstance(decompose(inner, ins), list)
        return changed
