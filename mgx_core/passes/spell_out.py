"""Expands ops whose expansion depends on the ranks of their operands."""

from __future__ import annotations

from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere
from ..ops.control import GetTupleElem
from ..records import dataclass
from ..types.shape import Shape
from .inline_branches import put_results
from .interface import Pass

__all__ = ["SpellOut"]


@dataclass(frozen=True)
class SpellOut(Pass):
    """Replaces an op that defines `module_for` by that module, inlined, once the ranks of its operands are known."""

    name: str = "spell-out"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            if ins.op.module_for is not None:
                changed |= _spelled_out(inner, ins)
        return changed


def _spelled_out(module: Module, ins: Instruction) -> bool:
    ready = all(i.is_absent or (isinstance(i.result, Shape) and i.result.ranked) for i in ins.inputs)
    if ins.op.module_for is None or not ready or not all(isinstance(u.op, GetTupleElem) for u in ins.users):
        return False
    values = [None if i.literal is None else i.literal.value for i in ins.inputs]
    found = ins.op.module_for([i.result for i in ins.inputs], values)
    if found is None:
        return False
    body, taken = found
    put_results(module, ins, module.inline(body, [ins.inputs[n] for n in taken], before=ins))
    return True
