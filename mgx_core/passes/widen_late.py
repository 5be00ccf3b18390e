"""Sinks widening ops to their users, one copy for each."""

from __future__ import annotations

from ..ir.module import Module, everywhere
from ..records import dataclass
from .interface import Pass

__all__ = ["WidenLate"]


@dataclass(frozen=True)
class WidenLate(Pass):
    """Moves ops that widen their operand to their readers, with a copy for each, so that every reader's loop reads narrow memory.

    Otherwise the widening would fuse with the producer of the narrow tensor, as a second, wider result.
    """

    name: str = "widen-late"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            if not ins.op.widens or ins.inputs[0].is_literal:
                continue
            readers = [u for u in ins.users if u.parent is inner and not u.is_return]
            if len(readers) < len(ins.users) or (len(readers) == 1 and ins.next is readers[0]):
                continue
            for user in readers:
                copy = inner.add(ins.op, *ins.inputs, before=user, sources=ins.sources)
                inner.set_inputs(user, [copy if i is ins else i for i in user.inputs])
            inner.remove(ins)
            changed = True
        return changed
