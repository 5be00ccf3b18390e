"""Work on angles, which a narrow float does not hold: of 1000 rad, bfloat16 knows no more than the turn."""

from __future__ import annotations

from typing import Final

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.trigonometry import Cos, Sin, Tan
from ..types.shape import Shape

__all__ = ["angles"]

PERIODIC: Final = (Sin, Cos, Tan)


def angles(main: Module) -> set[Instruction]:
    """Periodic functions, and what is computed for nothing but them.

    Where angles are sums of many products, as between layers with periodic activations, they are results like any other.
    """
    found: set[Instruction] = set()
    for module in reversed(list(nested(main))):
        for ins in reversed(module):
            if isinstance(ins.op, PERIODIC) or (ins.users and found.issuperset(ins.users) and not _sums(ins)):
                found.add(ins)
    return found


def _sums(ins: Instruction) -> bool:
    """Returns True if the product sums over an axis of more than one element (an outer product does not)."""
    if not ins.op.product:
        return False
    left = ins.inputs[0].result
    return not (ins.op.product == "matrix" and isinstance(left, Shape) and left.dims[-1] == 1)
