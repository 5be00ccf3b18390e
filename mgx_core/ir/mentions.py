"""Which symbols instructions speak of, and which only they make known while a program runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..types.shape import symbols_in

if TYPE_CHECKING:
    from .instruction import Instruction

__all__ = ["introduced", "mentioned", "needed_for_extents"]


def mentioned(instructions: Iterable[Instruction]) -> set[str]:
    """The symbols whose values instructions, and the modules that they run, depend on."""
    return set().union(*_mentions(instructions))


def _mentions(instructions: Iterable[Instruction]) -> Iterator[set[str]]:
    for ins in instructions:
        if ins.is_return:  # what its inputs say
            continue
        yield symbols_in(ins.result) | ins.op.symbols()
        for module in ins.modules:
            yield from _mentions(module)


def introduced(ins: Instruction) -> set[str]:
    """The symbols that an instruction's own result makes known: those that neither its operands nor its attributes have."""
    own = symbols_in(ins.result)
    if own and not ins.is_param:
        own -= ins.op.symbols()
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
