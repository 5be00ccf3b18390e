"""Checks the invariants of modules."""

from __future__ import annotations

from ..errors import MgxError
from ..types.shape import same_type
from .instruction import Instruction, infer_shape
from .module import Module

__all__ = ["misplaced", "verify"]


def misplaced(module: Module, seen: set[Instruction] | None = None) -> str | None:
    """Returns the text of the first instruction that reads a value before its definition (a cycle) or of another program.

    This part of `verify` is cheap enough to run on every program before compilation.
    """
    visible: set[Instruction] = set() if seen is None else set(seen)
    for ins in module:
        for i in ins.inputs:
            if i not in visible:
                where = "comes after it (see sort)" if i.parent is module else "is in no module around it"
                return f"module {module.name!r}: {ins!r} reads {i!r}, which {where}"
        for nested in ins.modules:
            wrong = misplaced(nested, visible)
            if wrong is not None:
                return wrong
        visible.add(ins)
    return None


def verify(module: Module, seen: set[Instruction] | None = None) -> list[str]:
    """Lists the violations in a module and those nested in it; empty if there are none.

    Checked: inputs come before their users or from an enclosing module, users and inputs agree, the return is last, literals
    have the shape they state, and each shape equals the inferred one.
    """
    wrong: list[str] = []
    visible: set[Instruction] = set() if seen is None else set(seen)
    for position, ins in enumerate(module):
        where = f"module {module.name!r}, instruction {position}: {ins!r}"
        if ins.parent is not module:
            wrong.append(f"{where} belongs to another module")
        for i in ins.inputs:
            if i not in visible:
                wrong.append(f"{where} reads {i!r}, which does not come before it")
            if ins not in i._users:
                wrong.append(f"{where} is not among the users of {i!r}")
        strangers = [user for user in ins._users if ins not in user.inputs]
        wrong += [f"{where} counts {user!r} as a user, which does not read it" for user in strangers]
        if ins.is_return and ins._next is not None:
            wrong.append(f"{where} is not the last instruction")
        if ins.literal is not None and not same_type(ins.result, ins.literal.shape):
            wrong.append(f"{where} holds a value of shape {ins.literal.shape}")
        for nested in ins.modules:
            wrong += verify(nested, visible)
        if not (ins.is_literal or ins.is_return):
            try:
                shape = infer_shape(ins.op, ins.inputs, ins.modules)
                if not same_type(ins.result, shape):
                    wrong.append(f"{where}: its rule gives {shape}")
            except MgxError as error:
                wrong.append(f"{where}: {error}")
        visible.add(ins)
    return wrong
