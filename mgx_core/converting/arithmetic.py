"""Arithmetic that formats spell in their own ways."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from ..ir.instruction import Instruction
from ..ops.reduce import Reduce, ReduceAll, ReduceAny, ReduceMax, ReduceMin
from ..types import dtype as dt
from .builder import InstructionBuilder

__all__ = ["clipped", "divide_floor", "divide_no_nan", "l2_normalized", "modulo_floor", "reduced", "turn"]


def divide_floor(n: InstructionBuilder, x: Instruction, y: Instruction) -> Instruction:
    """Returns the quotient rounded toward minus infinity."""
    if x.shape.dtype.is_float:
        return n.pointwise("floor", n.pointwise("div", x, y))
    if x.shape.dtype.kind == "u":
        return n.pointwise("div", x, y)
    zero, one = n.literal(0, x.shape.dtype), n.literal(1, x.shape.dtype)
    rest = n.pointwise("fmod", x, y)  # x less that of `mod` may be beyond the type's range
    toward_zero = n.pointwise("div", n.pointwise("sub", x, rest), y)
    signs = n.pointwise("logical_xor", n.pointwise("less", rest, zero), n.pointwise("less", y, zero))
    beyond = n.pointwise("logical_and", n.pointwise("not_equal", rest, zero), signs)
    made = n.pointwise("where", beyond, n.pointwise("sub", toward_zero, one), toward_zero)
    n.known.derive(made, operator.floordiv, x, y)  # of extents, whose remainders are known only at run time
    return made


def modulo_floor(n: InstructionBuilder, x: Instruction, y: Instruction) -> Instruction:
    """Returns the remainder that `divide_floor` leaves, with the sign of the divisor."""
    return n.pointwise("mod", x, y)


def divide_no_nan(n: InstructionBuilder, x: Instruction, y: Instruction) -> Instruction:
    """Returns the quotient, 0 where the divisor is 0."""
    zero = n.literal(0, x.shape.dtype)
    none = n.pointwise("equal", y, zero)
    safe = n.pointwise("where", none, n.literal(1, x.shape.dtype), y)
    return n.pointwise("where", none, zero, n.pointwise("div", x, safe))


def clipped(n: InstructionBuilder, x: Instruction, low: float, high: float) -> Instruction:
    """x within two bounds."""
    return n.pointwise("clip", x, n.literal(low, x.shape.dtype), n.literal(high, x.shape.dtype))


def l2_normalized(n: InstructionBuilder, x: Instruction, axis: int, epsilon: float) -> Instruction:
    """x over the root of its sum of squares along an axis."""
    total = n.add("reduce_sum", n.pointwise("mul", x, x), axes=(axis,))
    least = n.literal(np.float32(epsilon), x.shape.dtype)
    return n.pointwise("mul", x, n.pointwise("rsqrt", n.pointwise("max", total, least)))


def reduced(n: InstructionBuilder, op: type[Reduce], x: Instruction, axes: Sequence[int], keep: bool) -> Instruction:
    """Returns a reduction along axes, which stay with extent 1 if `keep`; none at all changes nothing."""
    chosen = n.axes(axes, x.shape.rank)
    if not chosen:
        return x
    if x.shape.dtype is dt.bool_:
        op = {ReduceMax: ReduceAny, ReduceMin: ReduceAll}.get(op, op)
    made = n.along_axes(op, x, chosen)
    return made if keep else n.squeeze(made, chosen)


def turn(n: InstructionBuilder, y: Instruction, x: Instruction) -> Instruction:
    """Returns the angle between the first axis and the way to (x, y)."""
    dtype = x.shape.dtype
    zero, pi = n.literal(0, dtype), n.literal(math.pi, dtype)
    half, minus = n.literal(math.pi / 2, dtype), n.literal(-math.pi / 2, dtype)
    none = n.pointwise("equal", x, zero)
    slope = n.pointwise("atan", n.pointwise("div", y, n.pointwise("where", none, n.literal(1, dtype), x)))
    below = n.pointwise("less", y, zero)
    turned = n.pointwise("where", below, n.pointwise("sub", slope, pi), n.pointwise("add", slope, pi))
    sloped = n.pointwise("where", n.pointwise("less", x, zero), turned, slope)
    upright = n.pointwise("where", below, minus, n.pointwise("where", n.pointwise("greater", y, zero), half, y))
    return n.pointwise("where", none, upright, sloped)
