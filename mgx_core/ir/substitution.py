"""Extents for symbols while a module is copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..ops.operation import Operation
from ..types.dim import Dim, Sym
from ..types.shape import AnyShape, Shape, TupleShape

if TYPE_CHECKING:
    from .instruction import Instruction
    from .module import Module

__all__ = ["Substitution", "learn_symbols"]


class Substitution:
    """Extents for symbols while a module is copied, and what ops and shapes became with them.

    exact: whether the parameters' shapes are those declared with the symbols replaced, so that a result whose symbols are all
    known need not be inferred again; alike: nested modules that are copied once for several.
    """

    def __init__(self, values: Mapping[str, Dim] | None, alike: Mapping[Module, Module] | None = None) -> None:
        self.symbols: dict[str, Dim] = dict(values or {})
        self.exact = True
        self._shapes: dict[int, Shape] = {}  # by id, of what the module that is copied holds
        self._ops: dict[int, Operation] = {}
        self._known = len(self.symbols)
        self._alike = alike or {}
        self._copies: dict[Module, Module] = {}

    def module(self, module: Module, went: dict[Instruction, Instruction]) -> Module:
        """The copy of a nested module; `went`: where instructions around it went."""
        one = self._alike.get(module) if self.exact else None
        if one is None:
            return module.copied(self, went)
        copy = self._copies.get(one)
        if copy is None:
            copy = module.copied(self, went)
            if any(ins.result.dynamic() for ins in copy):
                return copy  # symbols that are learnt later may be others for each
            self._copies[one] = copy
            for ins in copy:
                ins.sources = ()  # who runs it knows its own
        return copy

    def op(self, op: Operation) -> Operation:
        """The op with the symbols in its attributes replaced."""
        if self._known != len(self.symbols):
            self._known = len(self.symbols)
            self._ops.clear()
        found = self._ops.get(id(op))
        if found is None:
            found = self._ops[id(op)] = op.substitute(self.symbols)
        return found

    def shape(self, shape: AnyShape) -> Shape | None:
        """The shape without symbols, if that follows."""
        if not self.exact:
            return None
        found = self._shapes.get(id(shape))
        if found is None and isinstance(shape, Shape):
            found = shape.substitute(self.symbols)
            if found.dynamic():
                return None
            self._shapes[id(shape)] = found
        return found


def learn_symbols(old: AnyShape, new: AnyShape, symbols: dict[str, Dim]) -> None:
    """Note what the lone symbols of `old` became in `new`, so that later attributes follow."""
    match old, new:
        case Shape(), Shape():
            if old.ranked and new.ranked and old.rank == new.rank:
                for a, b in zip(old.dims, new.dims, strict=True):
                    lone = a.symbol if isinstance(a, Sym) else None
                    if lone is not None and a != b:
                        symbols.setdefault(lone.name, b)
        case TupleShape(), TupleShape():
            for one, other in zip(old.items, new.items, strict=False):
                learn_symbols(one, other, symbols)
