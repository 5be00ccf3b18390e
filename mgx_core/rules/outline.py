"""Outlining: moves instructions into a sub-module that a group op runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.builtin import Param, Return
from ..ops.control import GetTupleElem
from ..ops.operation import Operation
from ..types.shape import AnyShape, Shape, TupleShape

__all__ = ["Names", "follows", "is_copied", "outline", "through_views"]


class Names:
    """Generates unique names for new modules below a root."""

    def __init__(self, taken: Sequence[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, kind: str) -> str:
        n = self._next.get(kind, 0)
        while f"{kind}_{n}" in self._taken:
            n += 1
        self._next[kind] = n + 1
        name = f"{kind}_{n}"
        self._taken.add(name)
        return name


def is_view(ins: Instruction) -> bool:
    """Returns True for the view ops that groups copy along with their members."""
    return ins.op.aligns and len(ins.inputs) == 1


def through_views(ins: Instruction) -> Instruction:
    """Returns source of a chain of views."""
    while ins.op.aligns and len(ins.inputs) == 1:  # is_view, without a call
        ins = ins.inputs[0]
    return ins


def is_copied(ins: Instruction) -> bool:
    """Returns True for a literal of one element, which is copied into the modules that use it."""
    return ins.is_literal and isinstance(ins.result, Shape) and ins.result.elements() == 1


def outline(
    module: Module,
    members: Sequence[Instruction],
    op: Operation,
    name: str,
    before: Instruction,
) -> Instruction:
    """Replaces `members` (in order) by one instruction with a module that holds copies of them.

    Views read by members and scalar literals are copied into the module; all other operands become parameters.
    Values with outside uses become results: one value, or a tuple read with `get_tuple_elem`.
    op: of the new instruction; before: its position.  Returns the new instruction.
    """
    body = Module(name)
    inside = set(members)
    went: dict[Instruction, Instruction] = {}
    args: list[Instruction] = []

    def take(ins: Instruction) -> Instruction:
        found = went.get(ins)
        if found is not None:
            return found
        if ins.literal is not None and is_copied(ins):
            made = body.add_literal(ins.literal)
        elif is_view(ins) and ins.parent is module:
            made = copy(ins, (take(ins.inputs[0]),))
        elif ins.is_absent:
            made = body.add_absent()
        else:
            made = Instruction(_param(f"x{len(args)}", ins.result), ins.result)
            body.insert(made, body.first if not args else went[args[-1]].next)
            args.append(ins)
        went[ins] = made
        return made

    def copy(ins: Instruction, inputs: tuple[Instruction, ...]) -> Instruction:
        made = Instruction(ins.op, ins.result, inputs, ins.modules, ins.literal, ins.sources)
        return body.append(made)

    for ins in members:
        inputs = tuple(take(i) for i in ins.inputs)
        went[ins] = copy(ins, inputs)
    results = [m for m in members if any(not _only_inside(u, inside, module) for u in m.users)]
    returned = [went[r] for r in results]
    body.append(Instruction(Return(), TupleShape(r.result for r in returned), tuple(returned)))
    sources = tuple(dict.fromkeys(s for m in members for s in m.sources))
    made = module.add(op, *args, modules=[body], sources=sources, before=before)
    for n, old in enumerate(results):
        new = made if len(results) == 1 else module.add(GetTupleElem(index=n), made, sources=old.sources, before=before)
        for user in old.users:
            if user not in inside and user.parent is not None:
                user.parent.rewire(user, [new if i is old else i for i in user.inputs])
                if is_view(user) and user.parent is module:
                    _move_views(module, user, before)
    for ins in reversed(members):
        if not ins.users:
            module.remove(ins)
        else:
            _drop_views(module, ins)
            module.remove(ins)
    return made


@lru_cache(4096)
def _param(label: str, shape: AnyShape) -> Param:
    """Cached, since groups have the same few parameters."""
    return Param(label=label, shape=shape)


def _only_inside(user: Instruction, inside: set[Instruction], module: Module) -> bool:
    """Returns True if a user is a member, or a view that only members read."""
    if user in inside:
        return True
    if is_view(user) and user.parent is module and user.users:
        return all(_only_inside(u, inside, module) for u in user.users)
    return False


def _move_views(module: Module, view: Instruction, before: Instruction | None) -> None:
    """Moves a view, and views of it, after the instruction that it now reads.

    A view with symbolic extents that is already after it is not moved: an extent may be defined between the two.
    """
    if view.op.symbols() and follows(view, before):
        return
    module.move(view, before)
    for user in view.users:
        if is_view(user) and user.parent is module:
            _move_views(module, user, view.next)


def follows(ins: Instruction, place: Instruction | None) -> bool:
    """Returns True if an instruction is at or after a position in its module."""
    while place is not None and place is not ins:
        place = place.next
    return place is not None


def _drop_views(module: Module, ins: Instruction) -> None:
    """Removes dead views of a member."""
    for user in ins.users:
        _drop_views(module, user)
        if not user.users:
            module.remove(user)
