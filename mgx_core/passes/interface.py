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
    """Counts of rewrites and refusals, for passes that keep them; cleared before each run and copied to its record."""

    def apply(self, module: Module) -> bool:
        """Edits a module and those nested in it; returns True if anything changed.

        Errors: MgxError if the pass cannot accept the module; it must leave a module that passes `verify`.
        """
        raise NotImplementedError(f"{type(self).__name__} derives from Pass and defines no apply(module)")
