"""The interface of a pass."""

from __future__ import annotations

from dataclasses import field

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..records import dataclass
from ..rules.stats import Tally

__all__ = ["CountingPass", "Pass"]


class Pass:
    """Edits a module within one stage; usually a frozen dataclass whose fields are its options.

    Required: `name` and `apply`.
    """

    name: str
    """The pass's name in reports and in `disable_passes`."""

    tally: Tally | None = None
    """Counts of rewrites and refusals, for passes that keep them; cleared before each run and copied to its record."""

    def apply(self, module: Module) -> bool:
        """Edits a module and those nested in it; returns True if anything changed.

        Errors: MgxError if the pass cannot accept the module; it must leave a module that passes `verify`.
        """
        raise NotImplementedError(f"{type(self).__name__} derives from Pass and defines no apply(module)")


@dataclass(frozen=True)
class CountingPass(Pass):
    """Base of passes that count their changes and refusals, each under the pass's name unless they count several kinds."""

    tally: Tally = field(default_factory=Tally, init=False, repr=False, compare=False)

    def counted(self, ins: Instruction, no: No | None) -> bool:
        """Counts a change of an instruction, or its refusal; returns True if it is not refused."""
        if no is None:
            self.tally.fired[self.name] += 1
        else:
            self.tally.refuse(self.name, ins, no)
        return no is None
