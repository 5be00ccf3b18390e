"""A linked list of instructions in execution order, with insertion, removal and reordering."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ..errors import ParameterError
from .instruction import Instruction
from .ordering import shuffled, sorted_by_needs

if TYPE_CHECKING:
    from .module import Module

__all__ = ["InstructionList"]


class InstructionList:
    """The instructions of a module; every edit increments `version`, which invalidates cached derived data.

    Editing while iterating is safe unless the current instruction's successor is removed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self.runners = 0  # the number of uses as a sub-module
        self._first: Instruction | None = None
        self._last: Instruction | None = None
        self._count = 0

    def __iter__(self) -> Iterator[Instruction]:
        at = self._first
        while at is not None:
            following = at._next
            if at.parent is self:
                yield at
                following = at._next if at.parent is self else following
            at = following

    def __reversed__(self) -> Iterator[Instruction]:
        at = self._last
        while at is not None:
            before = at._prev
            yield at
            at = before

    def __len__(self) -> int:
        return self._count

    @property
    def first(self) -> Instruction | None:
        return self._first

    @property
    def last(self) -> Instruction | None:
        """The last instruction: the return, if there is one."""
        return self._last

    @property
    def returned(self) -> Instruction | None:
        """The return instruction, if the module has one."""
        return self._last if self._last is not None and self._last.is_return else None

    def insert(self, made: Instruction, before: Instruction | None = None) -> Instruction:
        """Inserts an unlinked instruction before another one (None: at the end, before the return)."""
        if before is None:
            before = self.returned
        if before is not None:
            self._own(before)
        return self._link(made, before)

    def append(self, made: Instruction) -> Instruction:
        """Appends an unlinked instruction at the very end, even after a return; for copying and parsing."""
        return self._link(made, None)

    def _link(self, made: Instruction, before: Instruction | None) -> Instruction:
        after = self._last if before is None else before._prev
        made.parent, made._prev, made._next = self, after, before  # type: ignore[assignment]
        if after is None:
            self._first = made
        else:
            after._next = made
        if before is None:
            self._last = made
        else:
            before._prev = made
        made._use()
        self._count += 1
        self.version += 1
        return made

    def remove(self, ins: Instruction) -> None:
        """Removes an instruction.  Errors: ParameterError if it still has users, or if it is not in this module."""
        self._own(ins)
        if ins._users:
            raise ParameterError(f"{ins!r} is still read by {next(iter(ins._users))!r}")
        ins._unuse()
        for module in ins.modules:
            if not module.runners:
                module.clear()
        self._unlink(ins)
        ins.parent = None
        self._count -= 1

    remove_instruction = remove

    def clear(self) -> None:
        """Removes all instructions, last first."""
        for ins in list(reversed(self)):
            self.remove(ins)

    def _own(self, ins: Instruction) -> None:
        if ins.parent is not self:
            raise ParameterError(f"{ins!r} is not in module {self.name!r}")

    def _unlink(self, ins: Instruction) -> None:
        if ins._prev is None:
            self._first = ins._next
        else:
            ins._prev._next = ins._next
        if ins._next is None:
            self._last = ins._prev
        else:
            ins._next._prev = ins._prev
        self.version += 1

    def move(self, ins: Instruction, before: Instruction | None) -> None:
        """Moves an instruction before another one (None: to the end, before the return)."""
        if ins is before:
            return
        for one in (ins,) if before is None else (ins, before):
            self._own(one)
        self._unlink(ins)
        self._count -= 1
        ins._unuse()
        self.insert(ins, before)

    def shuffle(self, seed: int = 0) -> None:
        """Shuffles the instructions into a random topological order; parameters stay first."""
        for ins in shuffled([i for i in self if not (i.is_param or i.is_return)], seed):
            self.move(ins, None)

    def sort(self) -> None:
        """Order instructions so that every one follows its inputs.  Errors: ShapeError if they form a cycle."""
        order = sorted_by_needs(cast("Module", self))
        last = self.returned
        if last is not None:
            order.remove(last)
            order.append(last)
        before: Instruction | None = None
        for ins in order:
            ins._prev = before
            ins._next = None
            if before is not None:
                before._next = ins
            before = ins
        self._first, self._last = (order[0], order[-1]) if order else (None, None)
        self.version += 1
