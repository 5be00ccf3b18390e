"""Moves what reads results of unknown rank into the branches that they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..ir.extract import extract
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ir.ordering import reads
from ..ops.control import GetTupleElem, If
from ..rules.matching import op_as
from ..types.shape import Shape

__all__ = ["sink_into_branches"]

MOST: Final = 2000  # instructions of a module with both copies
DEEPEST: Final = 2  # levels of branches in each other: each doubles the copies


def sink_into_branches(module: Module, chosen: Callable[[Instruction], bool]) -> bool:
    """Copies what reads an `if`'s results into both branches if these differ in rank, which is known there; returns if it did.

    chosen: returns whether this may be done to an `if`.
    """
    return _sink_first(module, chosen, lambda: MOST - sum(1 for inner in nested(module) for _ in inner), DEEPEST)


def _sink_first(module: Module, chosen: Callable[[Instruction], bool], most: Callable[[], int], levels: int) -> bool:
    """Does so for the first `if` of a module, or for one of each module that its instructions run.

    Types after it are only known once the program is copied, which takes longer: modules that do not depend on each other take
    one copy.  most: returns how many instructions may be copied; levels: of modules in each other.
    """
    done = False
    for ins in list(module):
        if not done and isinstance(ins.op, If) and _differs(ins) and chosen(ins) and _sink(module, ins, most()):
            return True
        for inner in ins.modules if levels > 1 else ():
            done |= _sink_first(inner, chosen, most, levels - 1)
    return done


def _differs(ins: Instruction) -> bool:
    """Returns True if ranks of results are known in each branch, but not after them."""
    outputs = [o.result for m in ins.modules for o in m.outputs]
    items = [u.result for u in ins.users if isinstance(u.op, GetTupleElem)]
    return all(isinstance(s, Shape) and s.ranked for s in outputs) and any(
        isinstance(s, Shape) and not s.ranked for s in items
    )


def _sink(module: Module, ins: Instruction, most: int) -> bool:
    """Replaces an `if` by one with all instructions that depend on it; returns False if there are none, or too many."""
    reading: dict[Instruction, None] = {ins: None}
    for later in module:
        if not later.is_return and any(i in reading for i in reads(later)):
            reading[later] = None
    items = {i: op_as(i, GetTupleElem).index for i in reading if ins in i.inputs and isinstance(i.op, GetTupleElem)}
    members = [i for i in reading if i is not ins and i not in items]
    wanted = [o for o in dict.fromkeys(module.outputs) if o in reading]
    if module.returned is None or not wanted or ins in wanted or not 0 < len(members) <= most:
        return False
    if any(ins in reads(i) or i.op.effect for i in members):
        return False
    rest, needs = extract(members, wanted, f"{module.name}:rest")
    branches = []
    for branch in ins.modules:
        made = Module(branch.name)
        results = made.inline(branch, [])
        made.add_return(made.inline(rest, [results[items[n]] if n in items else n for n in needs]))
        branches.append(made)
    both = module.add(If(), ins.inputs[0], modules=branches, sources=ins.sources, before=module.returned)
    parts = {
        o: module.add(GetTupleElem(index=n), both, sources=o.sources, before=module.returned)
        for n, o in enumerate(wanted)
    }
    module.replace_return([parts.get(o, o) for o in module.outputs])
    module.sweep()
    return True
