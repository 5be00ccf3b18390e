"""Scales taken out of the products that make attention's scores, which device kernels sum in float32."""

from __future__ import annotations

from typing import Final

import numpy as np

from mgx_core import Instruction, No
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.linear import Dot
from mgx_core.ops.pointwise import Mul
from mgx_core.ops.softmax import Softmax
from mgx_core.rules.constants import scalar_of
from mgx_core.rules.engine import ROUNDING, Builder, Rules

__all__ = ["SCORES"]

SCORES: Final = Rules("scores")


@SCORES.on(Dot, changes=ROUNDING)
def scale_out_of_scores(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a * s, b * t) -> dot(a, b) * (s * t) where a softmax follows."""
    if not i.shape.dtype.is_float or not _before_softmax(i):
        return None
    scale, operands, found = 1.0, [], False
    for x in i.inputs:
        taken = _scaled(x)
        if taken is not None and len(x.users) == 1:
            scale, found = scale * taken[0], True
            operands.append(taken[1])
        else:
            operands.append(x)
    if not found:
        return None
    product = b.add(Dot(), *operands)
    factor = b.literal(np.asarray(scale, i.shape.dtype.numpy))
    return b.add(Mul(), product, b.add(Multibroadcast(out_lens=product.shape.dims), factor))


def _scaled(ins: Instruction) -> tuple[float, Instruction] | None:
    if isinstance(ins.op, Mul):
        for at in (0, 1):
            scale = scalar_of(ins.inputs[at])
            if scale is not None:
                return scale, ins.inputs[1 - at]
    return None


def _before_softmax(ins: Instruction) -> bool:
    for _ in range(8):
        if len(ins.users) != 1:
            return False
        ins = ins.users[0]
        if isinstance(ins.op, Softmax):
            return True
        if not isinstance(ins.op, Pointwise):
            return False
    return False
