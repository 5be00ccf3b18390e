"""Sums, averages and norms of windows as depthwise convolutions, for targets without a kernel of their own for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..types.argument import Array
from .attention_parts import full
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .convolution import Convolution
from .pointwise import Abs, Div, Mul, Pow, Sqrt

__all__ = ["power_parts", "quotient_parts", "root_parts", "sum_parts"]


def sum_parts(
    b: Builder,
    x: Operand,
    lengths: Sequence[int],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
) -> Operand:
    """Returns the sums over windows of x [n, c, *s]."""
    channels = int(x.shape.dims[1])
    ones = b.literal(np.ones((channels, 1, *lengths), x.shape.dtype.numpy))
    return b.add(Convolution(group=channels, stride=stride, dilation=dilation, padding=padding), x, ones)


def quotient_parts(b: Builder, sums: Operand, counts: Array) -> Operand:
    """Returns sums [n, c, *o] over counts [*o]."""
    return b.add(Div(), sums, b.add(Multibroadcast(out_lens=sums.shape.dims), b.literal(counts)))


def power_parts(b: Builder, x: Operand, order: int) -> Operand:
    """Returns |x|^order."""
    if order == 2:
        return b.add(Mul(), x, x)
    size = b.add(Abs(), x)
    return size if order == 1 else b.add(Pow(), size, full(b, order, x))


def root_parts(b: Builder, x: Operand, order: int) -> Operand:
    """Returns the root of x of this order."""
    if order == 1:
        return x
    return b.add(Sqrt(), x) if order == 2 else b.add(Pow(), x, full(b, 1 / order, x))
