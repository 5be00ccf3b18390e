"""Inlines branches with a constant condition, and modules selected by static shapes."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere
from ..ir.symbols import found_extents
from ..ops.control import GetTupleElem, If
from ..ops.modules import SelectModule, selected
from ..records import dataclass
from ..rules.constants import aligned
from ..rules.matching import op_as
from ..types.dim import Dim
from .interface import CountingPass

__all__ = ["InlineBranches", "put_results"]


@dataclass(frozen=True)
class InlineBranches(CountingPass):
    """Inlines the taken branch of an `if` with a constant condition, and the module that static shapes select."""

    name: str = "inline-branches"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            if isinstance(ins.op, (If, SelectModule)):
                changed |= self.counted(ins, self._inline(inner, ins))
        return changed

    def _inline(self, module: Module, ins: Instruction) -> No | None:
        """Inlines the taken branch; returns a refusal if it is unknown."""
        if not all(isinstance(u.op, GetTupleElem) for u in ins.users):
            return No("its results are used as one tuple")
        branch = _selected(ins) if isinstance(ins.op, SelectModule) else _taken(ins)
        if isinstance(branch, No):
            return branch
        put_results(
            module, ins, module.inline(branch, ins.inputs if isinstance(ins.op, SelectModule) else [], before=ins)
        )
        return None


def _taken(ins: Instruction) -> Module | No:
    condition = aligned(ins.inputs[0])
    if condition is None or condition.size != 1:
        return No("the condition is known only at run time")
    return ins.modules[0 if condition.reshape(()) else 1]


def _selected(ins: Instruction) -> Module | No:
    if any(i.is_absent or i.result.dynamic() for i in ins.inputs):
        return No("the shapes that select a module are known only at run time")
    found = selected(ins.modules, [i.result for i in ins.inputs])
    return No("no module accepts these shapes") if found is None else found


def put_results(module: Module, ins: Instruction, results: Sequence[Instruction]) -> None:
    """Replaces the uses of an instruction's tuple items by the given results, and removes the instruction.

    Shapes of later instructions are unchanged, except for extents that are static in the results.
    """
    symbols: dict[str, Dim] = {}
    for item in ins.users:
        result = results[op_as(item, GetTupleElem).index]
        parent = item.parent or module
        symbols |= found_extents(item.result, result.result)
        for user in item.users:
            (user.parent or parent).rewire(user, [result if i is item else i for i in user.inputs])
        parent.remove(item)
    module.remove(ins)
    module.substitute(symbols)
