"""Variables while a model is read: the value that each has at a place, in branches and in the bodies of loops, too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..types.argument import Array
from ..types.dtype import of
from ..types.shape import Shape

__all__ = ["States", "state_parameter"]

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


def state_parameter(main: Module, name: str, value: Array) -> Instruction:
    """Returns a new parameter for a state: of what it begins with, under the variable's name in signs that files can hold."""
    word = label = re.sub(r"[^A-Za-z0-9_.]", "_", f"state.{name}")
    count = 0
    while label in main.parameters:  # of a variable that differs in other signs
        count += 1
        label = f"{word}_{count}"
    return main.add_parameter(label, Shape.of(of(value.dtype), value.shape))
