"""Parse-time values other than tensors; loops and branches carry them as their component tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..ir.instruction import Instruction
from .builder import InstructionBuilder

__all__ = ["Composite", "flattened", "rebuilt"]


class Composite(ABC):
    """A value represented by zero or more tensors: a list, a complex tensor, a hash table."""

    @abstractmethod
    def tensors(self) -> Sequence[Instruction]:
        """Returns the component tensors."""

    @abstractmethod
    def of(self, tensors: Sequence[Instruction]) -> Composite:
        """Returns a value of this kind from its component tensors."""

    def open(self) -> bool:
        """Returns True if some extents are unknown until an element is added."""
        return False

    def closed(self, n: InstructionBuilder) -> Composite:
        """Returns this value with the extents that have become known since."""
        return self

    def fitted(self, n: InstructionBuilder, other: object) -> Composite:
        """Returns this value with its tensors converted to the types of `other`, the result of the other branch."""
        return self


def flattened(values: Sequence[Any]) -> list[Instruction]:
    """Returns the component tensors of all values, in order; values that are neither tensors nor composites have none."""
    out: list[Instruction] = []
    for value in values:
        match value:
            case Instruction():
                out.append(value)
            case Composite():
                out += value.tensors()
    return out


def rebuilt(like: Sequence[Any], tensors: Sequence[Instruction]) -> list[Any]:
    """Inverse of `flattened`: returns values of the same kinds as the given ones from their component tensors."""
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
