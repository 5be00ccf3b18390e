"""The interface of a pass."""

from __future__ import annotations

from ..ir.module import Module
from ..rules.stats import Tally

__all__ = ["Pass"]


class Pass:
    """Edits a module within one stage; usually a frozen dataclass whose fields are its options.

    Required: `name` and `apply`.
    """

    name: str
    """The pass's name in reports and in `disable_passes`."""

    tally: Tally | None = None
    """Counts of what fired and what was refused, for passes that keep them; emptied before each run and copied to its record."""

    def apply(self, module: Module) -> bool:
        """Edits a module and those nested in it; returns True if anything changed.

        Errors: MgxError for what the pass cannot accept; it must leave a module that verifies.
        """
        raise NotImplementedError(f"{type(self).__name__} derives from Pass and defines no apply(module)")
