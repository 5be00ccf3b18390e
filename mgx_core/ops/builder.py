"""The interface through which ops decompose themselves; `mgx_core.rules.engine.Builder` implements it on the IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..types.shape import AnyShape, Shape
from .operation import Operation

__all__ = ["Builder", "Operand"]


class Operand(Protocol):
    """An operand or result during a decomposition: an instruction of the IR."""

    @property
    def op(self) -> Operation: ...
    @property
    def inputs(self) -> Sequence[Operand]: ...
    @property
    def result(self) -> AnyShape: ...
    @property
    def shape(self) -> Shape:
        """The tensor shape of the result.  Errors: ShapeError if it is not a tensor."""
        ...


class Builder(Protocol):
    """Inserts instructions before the one that is decomposed."""

    @property
    def at(self) -> Any:
        """The instruction that is decomposed."""
        ...

    def add(self, op: Operation, *inputs: Any, modules: Sequence[Any] = ()) -> Operand:
        """Adds an op and returns its result.  Errors: ShapeError if the operands do not fit it."""
        ...

    def literal(self, data: Any) -> Operand: ...

    def absent(self) -> Operand:
        """Returns a placeholder for an absent optional operand."""
        ...
