"""Recognizes the two products of attention, which rules for other products leave to its kernels."""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import Instruction
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.softmax import Softmax
from mgx_core.rules.outline import through_views

__all__ = ["before_softmax", "beside_softmax"]


def beside_softmax(product: Instruction, operands: Sequence[Instruction]) -> bool:
    """Returns True if a softmax reads a product, possibly after pointwise ops, or one of its operands is a softmax."""
    return before_softmax(product) or any(isinstance(through_views(x).op, Softmax) for x in operands)


def before_softmax(ins: Instruction) -> bool:
    """Returns True if a softmax reads the value, and nothing else does, possibly after pointwise ops."""
    for _ in range(8):
        if len(ins.users) != 1:
            return False
        ins = ins.users[0]
        if isinstance(ins.op, Softmax):
            return True
        if not isinstance(ins.op, Pointwise):
            return False
    return False
