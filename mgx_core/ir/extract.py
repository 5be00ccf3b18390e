"""Extracts instructions of a module into a new module; captured values become parameters."""

from __future__ import annotations

from collections.abc import Sequence

from .instruction import Instruction
from .module import Module
from .ordering import reads

__all__ = ["extract"]


def extract(
    members: Sequence[Instruction], results: Sequence[Instruction], name: str
) -> tuple[Module, list[Instruction]]:
    """Returns a module with copies of `members` (in order) that returns `results`, and the values that its parameters replace.

    Literals are shared.  Modules run by members are copied, and values that they capture become parameters as well.
    """
    made = Module(name)
    went: dict[Instruction, Instruction] = {}
    taken: list[Instruction] = []
    inside = set(members)
    needed = [need for ins in members for need in reads(ins)]
    for need in dict.fromkeys([*needed, *results]):
        if need in inside:
            continue
        if need.literal is not None:
            went[need] = made.add_literal(need.literal)
        elif need.is_absent:
            went[need] = made.add_absent()
        else:
            went[need] = made.add_parameter(str(len(taken)), need.result)
            taken.append(need)
    for ins in members:
        modules = tuple(m.clone(outer=went) for m in ins.modules)
        went[ins] = made.add_like(ins, [went[i] for i in ins.inputs], modules)
    made.add_return([went[r] for r in results])
    return made, taken
