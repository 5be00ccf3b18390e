"""Variables while a model is read: the value that each has at a place, in branches and in the bodies of loops, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..ir.instruction import Instruction

__all__ = ["States"]

Made = TypeVar("Made")


class States:
    """The values of variables that were assigned so far, by name.

    A branch or a loop's body is built by `apart`: what it assigns are results of its module, and those outside see them only
    once the branch or the loop has given them.
    """

    def __init__(self) -> None:
        self.current: dict[str, Instruction] = {}

    def apart(self, build: Callable[[], Made]) -> tuple[Made, dict[str, Instruction]]:
        """Returns what `build` gives, and the variables that it assigns with their values; here they stay as they were."""
        outside = self.current
        self.current = dict(outside)
        try:
            made = build()
            changed = {k: v for k, v in self.current.items() if outside.get(k) is not v}
        finally:
            self.current = outside
        return made, changed
