"""Folds narrow constants without a use in their narrow type, and simplifies the result."""

from __future__ import annotations

from ..ir.module import Module, nested
from ..records import dataclass
from ..rules.engine import Rewriter, Rules
from ..rules.quantized_weights import CODED_WEIGHTS
from .fold_constants import FoldConstants
from .interface import CountingPass

__all__ = ["WidenConstants"]


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
