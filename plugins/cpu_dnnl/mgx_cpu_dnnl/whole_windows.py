"""Rewrites int8 convolutions whose window covers the whole input (one output position) as products and sums.

Streaming audio models consist of them.  For so few elements, the overhead of a primitive dominates.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from mgx_core import Instruction, No
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Mul, Sub
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.ops.reduce import ReduceSum
from mgx_core.ops.reshape import Reshape
from mgx_core.rules.engine import Builder, Rules

__all__ = ["WHOLE_WINDOWS"]

WHOLE_WINDOWS: Final = Rules("whole-windows")

BYTES: Final = frozenset({dt.int8, dt.uint8})
MAX_PRODUCTS: Final = 1 << 14  # multiplications up to which a loop is faster than a primitive call


@WHOLE_WINDOWS.on(QuantConvolution)
def whole_window_as_product(i: Instruction, b: Builder) -> Instruction | No | None:
    """quant_convolution with one output position -> quant_dot of the flattened input, channels last."""
    op = i.op
    assert isinstance(op, QuantConvolution)
    found = _operands(i)
    if found is None or op.group != 1:
        return None
    x, w, array = found
    n, kernels, window = x.shape.dims[0], w.shape.dims[0], array.shape[2:]
    if prod(window) == 1:
        return None  # already a product
    depth = array[0].size
    rows = b.add(Reshape(dims=(n, depth)), b.add(Transpose(permutation=_channels_last(array.ndim)), x))
    columns = b.literal(np.ascontiguousarray(array.transpose(_channels_last(array.ndim)).reshape(-1, depth).T))
    return b.add(Reshape(dims=(n, kernels, *(1 for _ in window))), b.add(QuantDot(), rows, columns, *i.inputs[2:3]))


@WHOLE_WINDOWS.on(QuantConvolution)
def whole_depthwise_window_as_sum(i: Instruction, b: Builder) -> Instruction | No | None:
    """Depthwise quant_convolution with one output position -> reduce_sum(x * w) over the window."""
    op = i.op
    assert isinstance(op, QuantConvolution)
    found = _operands(i)
    if found is None or not op.group == found[0].shape.dims[1] == found[1].shape.dims[0]:
        return None
    x, _, array = found
    n, channels, *window = x.shape.lens()
    if n * array.size > MAX_PRODUCTS:
        return No(f"a primitive is faster for {n * array.size} multiplications")
    order = _channels_last(array.ndim)
    wide = b.add(Convert(target_type=dt.int32), b.add(Transpose(permutation=order), x))
    dims = wide.shape.dims
    zero = [z for z in i.inputs[2:3] if not z.is_absent]
    if zero:
        point = b.add(Reshape(dims=()), b.add(Convert(target_type=dt.int32), zero[0]))
        wide = b.add(Sub(), wide, b.add(Multibroadcast(out_lens=dims), point))
    weights = b.literal(
        np.ascontiguousarray(array[:, 0].astype(np.int32).transpose(*range(1, array.ndim - 1), 0)[None])
    )
    products = b.add(Mul(), wide, b.add(Multibroadcast(out_lens=dims), weights))
    sums = b.add(ReduceSum(axes=tuple(range(1, array.ndim - 1))), products)
    return b.add(Reshape(dims=(n, channels, *(1 for _ in window))), sums)


def _channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _operands(i: Instruction) -> tuple[Instruction, Instruction, np.ndarray] | None:
    """Returns input and constant weights of a convolution with one output position; None for others."""
    op, (x, w) = i.op, i.inputs[:2]
    assert isinstance(op, QuantConvolution)
    if x.shape.dynamic() or w.literal is None or not {x.shape.dtype, w.shape.dtype} <= BYTES:
        return None
    if any(not z.is_absent for z in i.inputs[3:]):
        return None
    window = w.shape.lens()[2:]
    moves = op.sliding(x.shape.lens()[2:], window)
    if any((*moves.begins, *moves.ends)) or any(d != 1 for d in moves.dilation) or x.shape.lens()[2:] != window:
        return None
    return x, w, np.asarray(w.literal.value)
