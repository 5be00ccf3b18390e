"""Moves what reads results of unknown rank into the branches that they come from, which need not all be able to run then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ..errors import ShapeError
from ..ir.copying import never_run
from ..ir.extract import extract
from ..ir.instruction import Instruction, infer_shape
from ..ir.module import Module, everywhere, nested, within
from ..ir.ordering import reads
from ..ops.control import GetTupleElem, If
from ..rules.matching import op_as
from ..types.shape import Shape

__all__ = ["replace_misfits", "sink_into_branches"]

MOST: Final = 2000  # instructions of a module with both copies, those of nested modules included
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
        if not done and isinstance(ins.op, If) and _differs(ins) and chosen(ins) and _sink(module, ins, most(), levels):
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


def _depth(instructions: Iterable[Instruction]) -> int:
    """Returns the levels of branches in each other."""
    return max((isinstance(i.op, If) + max(map(_depth, i.modules)) for i in instructions if i.modules), default=0)


def _sink(module: Module, ins: Instruction, most: int, levels: int) -> bool:
    """Replaces an `if` by one with all instructions that depend on it; returns False if there are none, or too many.

    levels: the most levels of branches in what is copied.  Several branches that one instruction reads end up in each other.
    A branch whose results they do not fit fails if it runs; if that is true of both, returns False.
    """
    reading: dict[Instruction, None] = {ins: None}
    for later in module:
        if not later.is_return and any(i in reading for i in reads(later)):
            reading[later] = None
    items = {i: op_as(i, GetTupleElem).index for i in reading if ins in i.inputs and isinstance(i.op, GetTupleElem)}
    members = [i for i in reading if i is not ins and i not in items]
    wanted = [o for o in dict.fromkeys(module.outputs) if o in reading]
    size = len(members) + sum(1 for i in members for _ in within(i))
    if module.returned is None or not wanted or ins in wanted or not 0 < size <= most or _depth(members) > levels:
        return False
    if any(ins in reads(i) or i.op.effect for i in members):
        return False
    rest, needs = extract(members, wanted, f"{module.name}:rest")
    branches, refused = [], {}
    for branch in ins.modules:
        made = Module(branch.name)
        results = made.inline(branch, [])
        try:
            made.add_return(made.inline(rest, [results[items[n]] if n in items else n for n in needs]))
        except ShapeError as error:
            refused[made] = str(error)
            made.clear()
        branches.append(made)
    fitting = next((m for m in branches if m not in refused), None)
    if fitting is None:
        return False
    branches = [never_run(fitting, m.name, ins.inputs[0], refused[m]) if m in refused else m for m in branches]
    both = module.add(If(), ins.inputs[0], modules=branches, sources=ins.sources, before=module.returned)
    parts = {
        o: module.add(GetTupleElem(index=n), both, sources=o.sources, before=module.returned)
        for n, o in enumerate(wanted)
    }
    module.replace_return([parts.get(o, o) for o in module.outputs])
    module.sweep()
    return True


def replace_misfits(module: Module) -> bool:
    """Replaces a branch by a failing one if values in it do not fit each other, while the other branch's do; returns if it did.

    The data may never take such a branch.  Ops that keep their result's type when their operands' ranks are found do not tell.
    """
    changed = False
    for inner, ins in everywhere(module):
        why = {m: found for m in ins.modules if (found := _misfit(m))} if isinstance(ins.op, If) else {}
        fitting = next((m for m in ins.modules if m not in why), None)
        if not why or fitting is None:
            continue
        branches = [never_run(fitting, m.name, ins.inputs[0], why[m]) if m in why else m for m in ins.modules]
        inner.replace(ins, inner.add(If(), ins.inputs[0], modules=branches, sources=ins.sources, before=ins))
        inner.remove(ins)
        changed = True
    return changed


def _misfit(branch: Module) -> str:
    """Returns the first error of shape inference in a branch, apart from nested modules; empty if there is none."""
    for ins in branch:
        try:
            if not (ins.is_literal or ins.is_return or ins.modules):
                infer_shape(ins.op, ins.inputs)
        except ShapeError as error:
            return str(error.at_nodes(ins.sources))
    return ""
