"""Statistics of rules: how often each fired, where it refused, and why."""

from __future__ import annotations

from collections import Counter

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.operation import Operation
from ..types.shape import AnyShape

__all__ = ["Refusal", "RuleCount", "Tally"]


class Refusal(NamedTuple):
    """One instruction at which a rule matched and did not fire, with the reason."""

    rule: str
    op: Operation
    inputs: tuple[str, ...]
    result: AnyShape
    sources: tuple[str, ...]
    why: str

    @classmethod
    def at(cls, rule: str, ins: Instruction, why: str) -> Refusal:
        """Returns a refusal that records the instruction's current text."""
        return cls(rule, ins.op, tuple(i.op.name for i in ins.inputs), ins.result, ins.sources, why)

    @property
    def instruction(self) -> str:
        """The instruction's text at the time of the refusal."""
        return f"{self.op!r}({', '.join(self.inputs)}) -> {self.result}"


class RuleCount(NamedTuple):
    """Number of times one rule fired and refused, and its most frequent reason (empty if it refused nowhere)."""

    rule: str
    fired: int
    refused: int
    why: str


class Tally:
    """Counts of firings, and the refusals, of the rules of one pass."""

    __slots__ = ("fired", "refusals")

    def __init__(self) -> None:
        self.fired: Counter[str] = Counter()
        self.refusals: list[Refusal] = []

    def refuse(self, rule: str, ins: Instruction, no: No) -> None:
        """Records that a rule refused at an instruction."""
        self.refusals.append(Refusal.at(rule, ins, no.why))

    def clear(self) -> None:
        """Resets all counts and refusals."""
        self.fired.clear()
        self.refusals.clear()

    def counts(self) -> tuple[RuleCount, ...]:
        """Returns each rule that fired or refused: those that fired most first, then those that refused most."""
        reasons: dict[str, Counter[str]] = {}
        for refusal in self.refusals:
            reasons.setdefault(refusal.rule, Counter())[refusal.why] += 1
        found = []
        for rule in sorted({*self.fired, *reasons}):
            why = reasons.get(rule, Counter())
            # `most_common` with a number would import heapq
            found.append(RuleCount(rule, self.fired[rule], why.total(), max(why, key=why.__getitem__, default="")))
        return tuple(sorted(found, key=lambda c: (-c.fired, -c.refused, c.rule)))
