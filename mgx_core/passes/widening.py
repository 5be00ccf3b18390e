"""Passes on ops that widen their operand: folds those of constants, and moves others to their readers."""

from __future__ import annotations

from ..ir.module import Module, everywhere, nested
from ..records import dataclass
from ..rules.engine import Rewriter, Rules
from ..rules.quantized_weights import CODED_WEIGHTS
from .fold_constants import FoldConstants
from .interface import CountingPass, Pass

__all__ = ["WidenConstants", "WidenLate"]


@dataclass(frozen=True)
class WidenConstants(CountingPass):
    """Folds conversions of narrow constants that `FoldConstants` left, except quantized weights of products.

    Then applies the rules again to the folded constants.

    rules: the stage's rules, which ran before on the narrow constants.
    """

    rules: Rules
    name: str = "widen-constants"

    def apply(self, module: Module) -> bool:
        if not any(ins.op.widens and not ins.inputs[0].is_param for inner in nested(module) for ins in inner):
            return False
        changed = Rewriter(CODED_WEIGHTS, self.tally).apply(module)
        folded = FoldConstants(widened=True).apply(module)
        module.sweep()
        if folded:
            Rewriter(self.rules, self.tally).apply(module)
        return changed or folded


@dataclass(frozen=True)
class WidenLate(Pass):
    """Moves ops that widen their operand to their readers, with a copy for each, so that every reader's loop reads narrow memory.

    Otherwise the widening would fuse with the producer of the narrow tensor, as a second, wider result.
    """

    name: str = "widen-late"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            if not ins.op.widens or ins.inputs[0].is_literal:
                continue
            readers = [u for u in ins.users if u.parent is inner and not u.is_return]
            if len(readers) < len(ins.users) or (len(readers) == 1 and ins.next is readers[0]):
                continue
            for user in readers:
                copy = inner.add(ins.op, *ins.inputs, before=user, sources=ins.sources)
                inner.set_inputs(user, [copy if i is ins else i for i in user.inputs])
            inner.remove(ins)
            changed = True
        return changed
