"""Replaces ops by others: composite ops before fusion, so that their parts fuse, and ops that depend on the ranks of operands."""

from __future__ import annotations

from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere
from ..ops.control import GetTupleElem
from ..ops.operation import Operation
from ..records import dataclass
from ..rules.decomposition import decompose
from ..types.shape import Shape
from .inline_branches import put_results
from .interface import Pass

__all__ = ["ExpandComposites", "SpellOut"]


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
