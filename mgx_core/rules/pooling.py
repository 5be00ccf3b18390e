"""Simplifies pooling to reductions, or removes it."""

from __future__ import annotations

from typing import Final, cast

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.local_response import Lrn
from ..ops.pooling import Pooling, Windows
from ..ops.reduce import ReduceMax, ReduceMean
from .engine import ROUNDING, Builder, Rules
from .matching import op_as

__all__ = ["POOLING"]

POOLING: Final = Rules("rewrite-pooling")


def whole(i: Instruction) -> bool:
    """Returns True if a single window covers the whole image."""
    op = op_as(i, Pooling)
    if op.dyn_global:
        return True
    image = i.inputs[0].shape.dims[2:]
    return (
        op.lengths == image
        and not any(op.padding)
        and op.padding_mode == "default"
        and all(d == 1 for d in i.shape.dims[2:])
    )


@POOLING.on(Pooling)
def reduction_from_max_pooling(i: Instruction, b: Builder) -> Instruction | No | None:
    """max pooling with one window over all of an image -> reduce_max."""
    if op_as(i, Pooling).mode != "max" or not whole(i):
        return None
    return b.add(ReduceMax(axes=tuple(range(2, i.shape.rank))), i.inputs[0])


@POOLING.on(Pooling, changes=ROUNDING)
def reduction_from_average_pooling(i: Instruction, b: Builder) -> Instruction | No | None:
    """average pooling with one window over all of an image -> reduce_mean."""
    if op_as(i, Pooling).mode != "average" or not whole(i):
        return None
    return b.add(ReduceMean(axes=tuple(range(2, i.shape.rank))), i.inputs[0])


@POOLING.on(Windows)
def fit_windows(i: Instruction, b: Builder) -> Instruction | No | None:
    """windows that extend beyond the padded axis are shortened, if an axis has a single window."""
    op = op_as(i, Windows)
    if isinstance(op, Pooling) and op.dyn_global:
        return None
    fitted = op.fitted(i.inputs[0].shape.dims[2:])
    return None if fitted is op else b.add(fitted, i.inputs[0])


@POOLING.on(Pooling)
def drop_pooling_of_one(i: Instruction, b: Builder) -> Instruction | No | None:
    """average or max pooling with windows of one element at stride 1 -> x."""
    op = op_as(i, Pooling)
    if op.mode == "lpnorm" or op.dyn_global or any(n != 1 for n in op.lengths) or any(s != 1 for s in op.stride):
        return None
    return i.inputs[0] if not any(op.padding) and i.inputs[0].result == i.result else None


@POOLING.on(Pooling)
def plain_average(i: Instruction, b: Builder) -> Instruction | No | None:
    """count_include_pad -> false if there is no padding."""
    op = op_as(i, Pooling)
    if not op.count_include_pad or any(op.padding) or op.padding_mode != "default" or op.ceil_mode:
        return None
    return b.add(op.replace(count_include_pad=False), i.inputs[0])


@POOLING.on(Lrn, changes=ROUNDING)
def pooling_from_lrn(i: Instruction, b: Builder) -> Instruction | No | None:
    """lrn(x) -> x * (bias + alpha * average pooling of x * x over channels) ^ -beta."""
    op = op_as(i, Lrn)
    return cast(Instruction, op.decompose(b, i.inputs[0]))
