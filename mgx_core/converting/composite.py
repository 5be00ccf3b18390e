"""Values other than tensors while a model is read, which loops and branches carry as tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..ir.instruction import Instruction
from .builder import InstructionBuilder

__all__ = ["Composite", "flattened", "rebuilt"]


class Composite(ABC):
    """A value that consists of several tensors, or of none: a list, complex numbers, a table."""

    @abstractmethod
    def tensors(self) -> Sequence[Instruction]:
        """Returns the tensors that it consists of."""

    @abstractmethod
    def of(self, tensors: Sequence[Instruction]) -> Composite:
        """Returns a value of this kind from as many tensors."""

    def open(self) -> bool:
        """Returns True if extents of it are not known before something is put into it."""
        return False

    def closed(self, n: InstructionBuilder) -> Composite:
        """This value with the extents that were learned since."""
        return self

    def fitted(self, n: InstructionBuilder, other: object) -> Composite:
        """This value with tensors of the kinds that the value has which the other way of a branch gives in its place."""
        return self


def flattened(values: Sequence[Any]) -> list[Instruction]:
    """Returns the tensors of some values, those that are tensors themselves among them; other values have none."""
    out: list[Instruction] = []
    for value in values:
        match value:
            case Instruction():
                out.append(value)
            case Composite():
                out += value.tensors()
    return out


def rebuilt(like: Sequence[Any], tensors: Sequence[Instruction]) -> list[Any]:
    """Returns values of the kinds of others, from the tensors that `flattened` gives of them."""
    rest = list(tensors)
    out: list[Any] = []
    for value in like:
        match value:
            case Instruction():
                out.append(rest.pop(0))
            case Composite():
                out.append(value.of([rest.pop(0) for _ in value.tensors()]))
            case _:
                out.append(value)
    return out
