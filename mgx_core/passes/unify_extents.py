"""Replaces extents that a product requires to be equal to others."""

from __future__ import annotations

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.linear import Dot
from ..records import dataclass
from ..types.dim import Dim, broadcasts
from .interface import Pass

__all__ = ["UnifyExtents"]


@dataclass(frozen=True)
class UnifyExtents(Pass):
    """Replaces an extent ``broadcast(n, m)`` by n where a product requires it to be n.

    The scores of a decoder have past + new columns, its mask as many as the caller has given: their sum broadcasts one to the
    other, and the product with the values requires past + new.  Attention is fused only where these extents are equal.
    """

    name: str = "unify-extents"

    def apply(self, module: Module) -> bool:
        found: dict[str, Dim] = {}
        for ins in module:
            if isinstance(ins.op, Dot):
                rows, columns = ins.inputs[1].shape.dims[-2], ins.inputs[0].shape.dims[-1]
                for whole, part in ((rows, columns), (columns, rows)):
                    if whole != part and part in broadcasts(whole):
                        found[str(whole)] = part
        if not found:
            return False
        outputs = list(module.outputs)
        copies = module.inline(module.clone(found), list(module.parameters.values()), _end(module))
        for old, new in zip(outputs, copies, strict=True):
            if old is not new and not old.is_param:
                module.replace(old, new)
        module.sweep()
        return True


def _end(module: Module) -> Instruction | None:
    """Returns the return instruction of a module."""
    return next((ins for ins in module if ins.is_return), None)
