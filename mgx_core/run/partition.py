"""Partitions of a module that run separately: on several targets, or specialized for different shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.ordering import reads
from ..ops.control import GetTupleElem
from ..targets.static_part import given

__all__ = ["in_parts"]


def in_parts(
    module: Module,
    kind: Callable[[Instruction], Hashable | None],
    needs: Callable[[Instruction], Iterable[Instruction]] = reads,
) -> list[list[Instruction]]:
    """Partitions the computing instructions into parts of one kind each, in an executable order.

    An instruction joins the newest part of its kind unless it needs a newer part; one without a kind is a part by itself;
    tuple elements stay with their tuple.
    kind: called for each instruction in order; needs: the instructions that must run before one.
    """
    parts: list[list[Instruction]] = []
    at: dict[Instruction, int] = {}
    newest: dict[Hashable, int] = {}
    for ins in module:
        if given(ins):
            continue
        own = kind(ins)
        number = -1 if own is None else newest.get(own, -1)
        if isinstance(ins.op, GetTupleElem):
            number = at[ins.inputs[0]]
        elif number < max((at.get(r, -1) for r in needs(ins)), default=-1) or number < 0:
            number = len(parts)
            parts.append([])
            if own is not None:
                newest[own] = number
        parts[number].append(ins)
        at[ins] = number
    return parts
