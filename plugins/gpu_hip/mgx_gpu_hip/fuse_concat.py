"""Let pointwise groups read concatenations in place of a copy."""

from __future__ import annotations

from dataclasses import dataclass

from mgx_core import Module, Pass
from mgx_core.ir.module import nested
from mgx_core.ops.control import Group
from mgx_core.rules.outline import Names, outline

__all__ = ["FuseConcat"]


@dataclass(frozen=True)
class FuseConcat(Pass):
    """Makes `group[tag="concat"]` of a concatenation and the one pointwise group that reads it.

    Needs the groups of `FuseElementwise`.  most: the most parts of a concatenation that is taken.
    """

    most: int = 32
    name: str = "fuse-concat"

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in nested(module)])
        changed = False
        for inner in list(nested(module)):
            for ins in list(inner):
                if ins.parent is not inner or ins.op.name != "concat" or len(ins.inputs) > self.most:
                    continue
                if len(ins.users) != 1 or ins.users[0].op.name != "pointwise" or ins.users[0].parent is not inner:
                    continue
                reader = ins.users[0]
                full = all(o.shape.dims == ins.shape.dims for o in reader.modules[0].outputs)
                if full and reader.inputs.count(ins) == 1 and reader.next is not None:
                    outline(inner, [ins, reader], lambda: Group(tag="concat"), names.fresh("concat"), reader.next)
                    changed = True
        return changed
