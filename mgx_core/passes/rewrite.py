"""A pass that applies rewrite rules to a fixed point."""

from __future__ import annotations

from dataclasses import field

from ..ir.module import Module
from ..records import dataclass
from ..rules.engine import Rewriter, Rules
from .interface import CountingPass

__all__ = ["Rewrite"]


@dataclass(frozen=True)
class Rewrite(CountingPass):
    """Applies a set of rules; records rewrites and refusals in `tally`.

    off: names of disabled rules.
    """

    rules: Rules
    off: frozenset[str] = frozenset()

    name: str = field(default="", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.rules.name)

    def apply(self, module: Module) -> bool:
        return Rewriter(self.rules.without(self.off) if self.off else self.rules, self.tally).apply(module)
