"""Which symbols instructions speak of, and which only they make known while a program runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..dim import Sym, symbols_of
from ..shape import Shape, TupleShape

if TYPE_CHECKING:
    from .instruction import Instruction

__all__ = ["introduced", "mentioned", "needed_for_extents", "symbols_in"]


def symbols_in(value: Any) -> set[str]:
    """The names of the symbols in an extent, a shape, or several of them."""
    if isinstance(value, Sym):
        return {s.name for s in symbols_of(value)}
    if isinstance(value, Shape):
        return symbols_in(value.dims) if value.ranked and value.dynamic() else set()
    if isinstance(value, TupleShape):
        return symbols_in(value.items)
    return set().union(*map(symbols_in, value)) if isinstance(value, (tuple, list)) else set()


def mentioned(instructions: Iterable[Instruction]) -> set[str]:
    """The symbols whose values instructions, and the modules that they run, depend on."""
    return set().union(*_mentions(instructions))


def _mentions(instructions: Iterable[Instruction]) -> Iterator[set[str]]:
    for ins in instructions:
        if ins.is_return:  # what its inputs say
            continue
        yield symbols_in(ins.result) | _in_attributes(ins)
        for module in ins.modules:
            yield from _mentions(module)


def _in_attributes(ins: Instruction) -> set[str]:
    from ..kernel import op_of

    return symbols_in(tuple(op_of(ins).attributes().values()))


def introduced(ins: Instruction) -> set[str]:
    """The symbols that an instruction's own result makes known: those that neither its operands nor its attributes have."""
    own = symbols_in(ins.result)
    if own and not ins.is_param:
        own -= _in_attributes(ins)
        for i in ins.inputs:
            own -= symbols_in(i.result)
        for module in ins.modules:
            for inner in module:
                for i in inner.inputs:
                    if i.parent is not module:
                        own -= symbols_in(i.result)
    return own


def needed_for_extents(ins: Instruction) -> bool:
    """Whether what follows in the module speaks of a symbol that this instruction makes known, and no parameter."""
    own = introduced(ins)
    if own and ins.parent is not None and not ins.is_param:
        for p in ins.parent.parameters.values():
            own -= symbols_in(p.result)
    return bool(own) and any(not own.isdisjoint(found) for found in _mentions(_following(ins)))


def _following(ins: Instruction) -> Iterator[Instruction]:
    at = ins._next
    while at is not None:
        yield at
        at = at._next
