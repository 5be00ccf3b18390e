"""Runs programs whose results have the rank that a branch on data decides: what comes before it, and each branch, as pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..ir.extract import extract
from ..ir.instruction import Instruction
from ..ir.module import Module, within
from ..ir.ordering import reads
from ..named_tuples import NamedTuple
from ..ops.control import GetTupleElem, If
from ..rules.matching import op_as
from ..targets.counted_results import items_of
from ..targets.static_part import given
from ..types.argument import Value
from ..types.shape import Shape
from .device_pieces import on_host
from .piece_extents import take_extents
from .pieces import PieceRunner

__all__ = ["RunPieces", "deciding_rank", "in_branches"]

# returns results, and what ran
RunPieces: TypeAlias = Callable[[Sequence[Value]], tuple[list[Value], Sequence[PieceRunner]]]


def deciding_rank(module: Module) -> Instruction | None:
    """Returns the first `if` of a module that has a result of unknown rank."""
    for ins in module:
        if isinstance(ins.op, If) and any(isinstance(s, Shape) and not s.ranked for s in items_of(ins.result)):
            return ins
    return None


class _Piece(NamedTuple):
    """A part of the module, and the values that it takes."""

    run: RunPieces
    takes: list[Instruction]


def in_branches(module: Module, run: Callable[[Module], RunPieces]) -> RunPieces | None:
    """Returns what runs a module up to the `if` that decides ranks, then one of its branches; None if that is not possible.

    run: returns what runs a module without such an `if`, which is each part of this one.
    """
    taken = deciding_rank(module)
    if taken is None:
        return None
    items = {u: op_as(u, GetTupleElem).index for u in taken.users if isinstance(u.op, GetTupleElem)}
    after = {taken, *items}
    before = [i for i in module if not given(i) and i not in after]
    if taken in module.outputs or any(not after.isdisjoint(reads(i)) for i in before):
        return None
    if any(i.op.effect and not i.is_return for ins in [*before, taken] for i in (ins, *within(ins))):
        return None
    cut = [extract([i for i in m if not given(i)], m.outputs, m.name) for m in taken.modules]
    read = [taken.inputs[0], *(t for _, takes in cut for t in takes)]
    wanted = dict.fromkeys([*read, *(o for o in module.outputs if o not in items)])
    passed = [w for w in wanted if not w.is_param]
    tensors = all(isinstance(w.result, Shape) and w.literal is None for w in wanted)
    if not tensors or not all(r.shape.ranked for r in read):
        return None
    parameters = list(module.parameters.values())
    sources = [*parameters, *passed]
    head, takes = extract(before, passed, module.name)
    if not take_extents(head, takes, parameters) or not all(take_extents(*one, sources) for one in cut):
        return None
    branches = [_Piece(in_branches(body, run) or run(body), needs) for body, needs in cut]
    first = _Piece(in_branches(head, run) or run(head), takes) if passed else None

    def run_all(args: Sequence[Value]) -> tuple[list[Value], Sequence[PieceRunner]]:
        values = dict(zip(parameters, args, strict=True))
        ran: Sequence[PieceRunner] = []
        if first is not None:
            results, ran = first.run([values[t] for t in first.takes])
            values.update(zip(passed, results, strict=True))

        def chosen(branch: Any, none: Sequence[Value]) -> list[Any]:
            return [branch.run([values[t] for t in branch.takes])]

        condition = np.asarray(on_host(values[taken.inputs[0]]))
        ((results, then),) = op_as(taken, If).compute(condition, modules=branches, run=chosen)
        return [results[items[o]] if o in items else values[o] for o in module.outputs], [*ran, *then]

    return run_all
