"""Softmax as a reduction with pointwise work, which the ops before and behind it join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.linear import Dot
from mgx_core.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from mgx_core.ops.softmax import Logsoftmax, Softmax
from mgx_core.rules.engine import Builder, Rules

__all__ = ["SOFTMAX_PARTS"]

SOFTMAX_PARTS: Final = Rules("softmax-parts")
FAR: Final = 8  # pointwise ops between a softmax and the product that reads its result


@SOFTMAX_PARTS.on(Softmax, Logsoftmax)
def softmax_in_parts(i: Instruction, b: Builder) -> Instruction | No | None:
    """softmax(x) -> its decomposition, if pointwise ops or reductions of the same lines read it, and no product does.

    The probabilities are then scaled, converted or reduced as they are computed; a conversion to float32 alone read and wrote
    120 MB more for 19,200 lines of 1,025 elements in float16.
    """
    if i.result.dynamic() or not any(isinstance(u.op, Pointwise) or _along(i, u) for u in i.users):
        return None
    if _multiplied(i.users, FAR):
        return No("a product reads the result: attention has kernels of its own")
    assert i.op.decompose is not None
    made = i.op.decompose(b, *i.inputs)
    assert isinstance(made, Instruction)
    return made


def _along(softmax: Instruction, reader: Instruction) -> bool:
    """Returns True if a reduction is over the lines of a softmax."""
    rank = softmax.shape.rank
    same = isinstance(reader.op, (ReduceMax, ReduceMean, ReduceSum)) and len(reader.inputs) == 1
    return same and reader.op.reduced_axes(rank) == softmax.op.reduced_axes(rank)


def _multiplied(readers: Sequence[Instruction], steps: int) -> bool:
    """Returns True if a product reads one of the readers' results, possibly after pointwise ops and views."""
    for u in readers:
        if isinstance(u.op, Dot):
            return True
        if steps and (isinstance(u.op, Pointwise) or u.op.view is not None) and _multiplied(u.users, steps - 1):
            return True
    return False
