"""Replaces ops that read extents by constants once the extents are static."""

from __future__ import annotations

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.fill import DimensionsOf
from ..records import dataclass
from ..types.shape import Shape
from .fold_constants import FoldConstants
from .interface import Pass

__all__ = ["SettleExtents"]


@dataclass(frozen=True)
class SettleExtents(Pass):
    """Replaces `dimensions_of` static shapes by literals and evaluates what follows from them: an instance's first pass."""

    name: str = "settle-extents"

    def apply(self, module: Module) -> bool:
        found: list[Instruction] = []
        for inner in list(nested(module)):
            for ins in inner:
                shape = ins.inputs[0].result if isinstance(ins.op, DimensionsOf) else None
                if not isinstance(shape, Shape) or shape.dynamic():
                    continue
                value = np.asarray(ins.op.evaluate([np.broadcast_to(np.int8(0), shape.lens())]))
                literal = inner.add_literal(value, before=ins)
                inner.replace(ins, literal)
                found.append(literal)
        FoldConstants().follow(found)
        return bool(found)
