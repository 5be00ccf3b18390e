"""Products in another form, for targets that are faster so: none of these rules is in the standard stages."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..dim import product
from ..ir.instruction import Instruction
from ..kernel import No
from ..ops.broadcast import Multibroadcast
from ..ops.convolution import Convolution
from ..ops.linear import Dot
from ..ops.movement import Transpose
from ..ops.pointwise import Mul
from ..ops.reduce import ReduceMean, ReduceSum
from ..ops.reshape import Reshape
from ..rewrite import ROUNDING, Builder, Rules
from .constants import spread

__all__ = ["DOTS", "MEANS"]

DOTS: Final = Rules("rewrite-dot")
MEANS: Final = Rules("rewrite-reduce")


@DOTS.on(Dot)
def flatten_batches(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(x [.., m, k], multibroadcast(w [k, n])) -> reshape(dot(reshape(x) [.. * m, k], w))."""
    x, w = i.inputs
    if not isinstance(w.op, Multibroadcast) or len(w.inputs) > 1:
        return None
    inner = w.inputs[0]
    if inner.shape.rank != 2 or inner.shape.dims != w.shape.dims[-2:]:
        return No("the right operand is not one matrix for all batches")
    dims = x.shape.dims
    flat = b.add(Reshape(dims=(product(dims[:-1]), dims[-1]), allowzero=True), x)
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), b.add(Dot(), flat, inner))


@DOTS.on(Convolution, changes=ROUNDING)
def dot_from_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution with windows of one element -> dot of the weights [m, c] and the image [n, c, s]."""
    x, w = i.inputs
    op: Convolution = i.op  # type: ignore[assignment]
    if any(d != 1 for d in w.shape.dims[2:]):
        return None
    if op.group != 1 or any(op.padding) or any(s != 1 for s in op.stride):
        return No("there are groups, padding or strides")
    n, c, *image = x.shape.dims
    m = w.shape.dims[0]
    flat = b.add(Reshape(dims=(n, c, product(image)), allowzero=True), x)
    matrix = b.add(Reshape(dims=(m, c)), w)
    wide = b.add(Multibroadcast(out_lens=(n, m, c)), matrix)
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), b.add(Dot(), wide, flat))


@DOTS.on(Transpose)
def turn_operands(i: Instruction, b: Builder) -> Instruction | No | None:
    """transpose(dot(x, y)) -> dot(transpose(y), transpose(x)) for the last two axes: operands may be read either way."""
    dot = i.inputs[0]
    if not isinstance(dot.op, Dot):
        return None
    rank = i.shape.rank
    swap = (*range(rank - 2), rank - 1, rank - 2)
    if (i.op.permutation or tuple(reversed(range(rank)))) != swap or len(dot.users) > 1:  # type: ignore[attr-defined]
        return No("other axes are moved too, or the product is read elsewhere")
    x, y = (b.add(Transpose(permutation=swap), v) for v in dot.inputs)
    return b.add(Dot(), y, x)


@MEANS.on(ReduceMean, changes=ROUNDING)
def sum_from_mean(i: Instruction, b: Builder) -> Instruction | No | None:
    """reduce_mean(x) -> reduce_sum(x / n) for floats."""
    if len(i.inputs) > 1 or not i.shape.dtype.is_float:
        return None
    x = i.inputs[0]
    axes: tuple[int, ...] = i.op.axes or tuple(range(x.shape.rank))  # type: ignore[attr-defined]
    count = product(x.shape.dims[a] for a in axes)
    if not isinstance(count, int) or not count:
        return No("how many elements there are is not known before running")
    share = spread(b, np.asarray(1 / count), x.shape.dims, x)
    return b.add(ReduceSum(axes=axes), b.add(Mul(), x, share))
