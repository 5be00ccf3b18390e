"""Spell composite ops out in simpler ones, so that they fuse with what is around them."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import MgxError
from ..ir.module import Module, nested
from ..ops.operation import Operation
from ..rules.engine import Builder
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
                decompose = ins.op.decompose if type(ins.op) in self.ops else None
                if ins.parent is not inner or decompose is None:
                    continue
                builder = Builder(inner, ins)
                try:
                    new = decompose(builder, *(None if i.is_absent else i for i in ins.inputs))
                except MgxError:
                    new = None
                if new is None:
                    for made in reversed(builder.made):
                        if not made.users:
                            inner.remove(made)
                    continue
                inner.replace(ins, new)
                changed = True
        return changed
