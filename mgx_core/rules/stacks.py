"""Reductions of stacked tensors as pointwise work on the tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.concat import Concat
from ..ops.convert import Convert
from ..ops.convolution import Convolution
from ..ops.operation import Operation
from ..ops.pointwise import Add, Max, Min, Mul
from ..ops.reduce import Reduce, ReduceMean
from ..ops.reshape import Unsqueeze
from ..types import dtype as dt
from ..types.dtype import DType
from .constants import spread
from .engine import ROUNDING, Builder, Rules
from .matching import one_user, op_as

__all__ = ["STACKS"]

STACKS: Final = Rules("simplify-stacks")

MOST: Final = 16  # tensors that a pointwise group reads besides others
COMBINED: Final[Mapping[str, Operation]] = {"add": Add(), "mul": Mul(), "max": Max(), "min": Min()}


@STACKS.on(Reduce, reads=Concat, changes=ROUNDING)
def reduce_stacked(i: Instruction, b: Builder) -> Instruction | No | None:
    """reduce_sum(concat(x, y, ..)) -> x + y + .., over an axis on which each part has one element; other reductions likewise.

    The sum of narrow floats is computed in float32 and rounded once, as in the reduction; but convolutions of one tensor are
    added in their own type, since that becomes one convolution.
    """
    stack = i.inputs[0]
    if len(i.inputs) != 1 or not isinstance(stack.op, Concat) or not all(x.shape.ranked for x in stack.inputs):
        return None
    rank = i.shape.rank
    axis = stack.op.axis % rank
    if op_as(i, Reduce).reduced_axes(rank) != (axis,) or any(x.shape.dims[axis] != 1 for x in stack.inputs):
        return None
    combine = COMBINED.get(i.op.combine)
    if combine is None or i.shape.dtype.kind != "f":
        return None
    if not one_user(stack):
        return No("the stack has other users")
    if len(stack.inputs) > MOST:
        return No(f"more than {MOST} tensors are stacked")
    parts, first = list(stack.inputs), stack.inputs[0].op
    apart = isinstance(first, Unsqueeze) and all(x.op == first for x in parts)
    parts = [x.inputs[0] for x in parts] if apart else parts
    joined = isinstance(combine, Add) and _are_convolutions_of_one_tensor(parts)
    wide = dt.float32 if i.shape.dtype.size < 4 and not joined else i.shape.dtype
    total = reduce(lambda x, y: b.add(combine, x, y), [_as_type(b, x, wide) for x in parts])
    if isinstance(i.op, ReduceMean):
        total = b.add(Mul(), total, spread(b, np.asarray(1 / len(parts)), total.shape.dims, total))
    total = _as_type(b, total, i.shape.dtype)
    return b.add(first, total) if apart else total


def _are_convolutions_of_one_tensor(parts: Sequence[Instruction]) -> bool:
    """Returns True for convolutions of one tensor, with biases or without."""
    bare = [x.inputs[0] if isinstance(x.op, Add) else x for x in parts]
    return all(isinstance(x.op, Convolution) and x.inputs[0] is bare[0].inputs[0] for x in bare)


def _as_type(b: Builder, x: Instruction, kind: DType) -> Instruction:
    return x if x.shape.dtype is kind else b.add(Convert(target_type=kind), x)
