"""Folds narrow constants that nothing takes as they are, and simplifies what they allow."""

from __future__ import annotations

from dataclasses import field

from ..ir.module import Module, nested
from ..records import dataclass
from ..rules.coded_weights import CODED_WEIGHTS
from ..rules.engine import Rewriter, Rules
from ..rules.stats import Tally
from .fold_constants import FoldConstants
from .interface import Pass

__all__ = ["WidenConstants"]


@dataclass(frozen=True)
class WidenConstants(Pass):
    """Folds constants that `FoldConstants` left in their narrow type, but for the weights of products, which become codes.

    Then the rules run again on what that made constant.

    rules: those of the stage, which had their chance to use the narrow values.
    """

    rules: Rules
    name: str = "widen-constants"
    tally: Tally = field(default_factory=Tally, init=False, repr=False, compare=False)

    def apply(self, module: Module) -> bool:
        if not any(ins.op.widens and not ins.inputs[0].is_param for inner in nested(module) for ins in inner):
            return False
        changed = Rewriter(CODED_WEIGHTS, self.tally).apply(module)
        folded = FoldConstants(widened=True).apply(module)
        module.sweep()
        if folded:
            Rewriter(self.rules, self.tally).apply(module)
        return changed or folded
