"""Apply rewriting rules to a fixed point."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..ir.module import Module
from ..rewrite import Refusal, Rewriter, Rules

__all__ = ["Rewrite"]


@dataclass(frozen=True)
class Rewrite:
    """Runs a set of rules; what fired and what was refused is kept for reports.

    off: names of rules to leave out.
    """

    rules: Rules
    off: frozenset[str] = frozenset()
    fired: Counter[str] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.rules.name

    def apply(self, module: Module) -> bool:
        rewriter = Rewriter(self.rules.without(self.off) if self.off else self.rules)
        changed = rewriter.apply(module)
        self.fired.update(rewriter.fired)
        self.refusals.extend(rewriter.refusals)
        return changed
