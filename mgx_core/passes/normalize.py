"""Bring attributes to one form and drop what does nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.pointwise import Identity
from ..types.shape import Shape
from .interface import Pass

__all__ = ["Normalize", "normalized"]


@dataclass(frozen=True)
class Normalize(Pass):
    """Makes axes non-negative and removes identities.

    An op whose attributes have a normal form beyond axes gives `Operation.normal`.
    """

    name: str = "normalize"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner in list(nested(module)):
            for ins in inner:
                changed |= self._normalize(inner, ins)
        return changed

    def _normalize(self, module: Module, ins: Instruction) -> bool:
        if isinstance(ins.op, Identity) and ins not in module.outputs:
            module.replace(ins, ins.inputs[0])
            return True
        normal = ins.op.normal
        if normal is not None:
            op = normal(*(i.result for i in ins.inputs))
            if op != ins.op:
                module.replace_op(ins, op)
                return True
            return False
        axes = {f.name for f in ins.op.fields} & {"axis", "axes"}
        if not axes or not ins.inputs or not isinstance(ins.inputs[0].result, Shape) or not ins.inputs[0].result.ranked:
            return False
        rank = ins.inputs[0].result.rank
        changes: dict[str, int | tuple[int, ...]] = {}
        for name in axes:
            value = getattr(ins.op, name)
            if isinstance(value, int) and -rank <= value < 0:
                changes[name] = value + rank
            elif isinstance(value, tuple) and any(isinstance(a, int) and -rank <= a < 0 for a in value):
                changes[name] = tuple(a + rank if a < 0 else a for a in value)
        if not changes:
            return False
        module.replace_op(ins, ins.op.replace(**changes))
        return True


def normalized(module: Module) -> str | None:
    """The stage's invariant: no identity is left (other than one that a module returns)."""
    for inner in nested(module):
        for ins in inner:
            if isinstance(ins.op, Identity) and ins not in inner.outputs:
                return f"{ins!r} is left"
    return None
