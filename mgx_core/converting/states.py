"""The current values of a model's variables during parsing, across branches and loop bodies."""

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
    """The current value of each assigned variable, by name.

    Branches and loop bodies are built inside `apart`: their assignments become results of their module, which the caller assigns
    outside once the branch or loop is built.
    """

    def __init__(self) -> None:
        self.current: dict[str, Instruction] = {}

    def apart(self, build: Callable[[], Made]) -> tuple[Made, dict[str, Instruction]]:
        """Returns the result of `build` and the variables it assigned; `current` is restored."""
        outside = self.current
        self.current = dict(outside)
        try:
            made = build()
            changed = {k: v for k, v in self.current.items() if outside.get(k) is not v}
        finally:
            self.current = outside
        return made, changed


def state_parameter(main: Module, name: str, value: Array) -> Instruction:
    """Returns a new parameter for a state, with the type of its initial value and a sanitized, unique name."""
    word = label = re.sub(r"[^A-Za-z0-9_.]", "_", f"state.{name}")
    count = 0
    while label in main.parameters:  # another variable has the same sanitized name
        count += 1
        label = f"{word}_{count}"
    return main.add_parameter(label, Shape.of(of(value.dtype), value.shape))
