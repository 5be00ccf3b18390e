"""Lowers arithmetic that several formats define differently from mgx's ops (floor division, fake quantization, ...)."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from ..ir.instruction import Instruction
from ..ops.reduce import Reduce, ReduceAll, ReduceAny, ReduceMax, ReduceMin
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import broadcast
from .builder import InstructionBuilder

__all__ = [
    "bucketized", "chosen", "clipped", "divide_floor", "divide_no_nan", "fake_quantized", "l2_normalized", "last_two_transposed",
    "matrix_product", "modulo_floor", "reduced", "turn", "with_common_batch",
]  # fmt: skip


def divide_floor(n: InstructionBuilder, x: Instruction, y: Instruction) -> Instruction:
    """Returns the quotient rounded toward minus infinity."""
    if x.shape.dtype.is_float:
        return n.pointwise("floor", n.pointwise("div", x, y))
    if x.shape.dtype.kind == "u":
        return n.pointwise("div", x, y)
    zero, one = n.literal(0, x.shape.dtype), n.literal(1, x.shape.dtype)
    rest = n.pointwise("fmod", x, y)  # fmod: x minus the remainder of `mod` may overflow
    toward_zero = n.pointwise("div", n.pointwise("sub", x, rest), y)
    signs = n.pointwise("logical_xor", n.pointwise("less", rest, zero), n.pointwise("less", y, zero))
    beyond = n.pointwise("logical_and", n.pointwise("not_equal", rest, zero), signs)
    made = n.pointwise("where", beyond, n.pointwise("sub", toward_zero, one), toward_zero)
    n.known.derive(made, operator.floordiv, x, y)  # keeps quotients of extents symbolic
    return made


def modulo_floor(n: InstructionBuilder, x: Instruction, y: Instruction) -> Instruction:
    """Returns the remainder of `divide_floor`; it has the sign of the divisor."""
    return n.pointwise("mod", x, y)


def divide_no_nan(n: InstructionBuilder, x: Instruction, y: Instruction) -> Instruction:
    """Returns the quotient, 0 where the divisor is 0."""
    zero = n.literal(0, x.shape.dtype)
    none = n.pointwise("equal", y, zero)
    safe = n.pointwise("where", none, n.literal(1, x.shape.dtype), y)
    return n.pointwise("where", none, zero, n.pointwise("div", x, safe))


def clipped(n: InstructionBuilder, x: Instruction, low: float, high: float) -> Instruction:
    """Returns x clamped to [low, high]."""
    return n.pointwise("clip", x, n.literal(low, x.shape.dtype), n.literal(high, x.shape.dtype))


def l2_normalized(n: InstructionBuilder, x: Instruction, axis: int, epsilon: float) -> Instruction:
    """Returns x / sqrt(max(sum(x^2), epsilon)), the sum over one axis."""
    total = n.add("reduce_sum", n.pointwise("mul", x, x), axes=(axis,))
    least = n.literal(np.float32(epsilon), x.shape.dtype)
    return n.pointwise("mul", x, n.pointwise("rsqrt", n.pointwise("max", total, least)))


def matrix_product(n: InstructionBuilder, x: Instruction, y: Instruction) -> Instruction:
    """Returns the matrix product with broadcast batch axes.  Errors: ParseError if an operand has rank below 2."""
    if min(x.shape.rank, y.shape.rank) < 2:
        n.fail(f"operands of rank 2 or more are required, got {x.shape} and {y.shape}")
    return n.add("dot", *with_common_batch(n, x, y))


def with_common_batch(n: InstructionBuilder, x: Instruction, y: Instruction) -> tuple[Instruction, Instruction]:
    """Returns matrices with their batch axes broadcast to each other."""
    rank = max(x.shape.rank, y.shape.rank)
    batches = [(1,) * (rank - v.shape.rank) + v.shape.dims[:-2] for v in (x, y)]
    common = [broadcast(p, q) for p, q in zip(*batches, strict=True)]
    return n.broadcast_to(x, (*common, *x.shape.dims[-2:])), n.broadcast_to(y, (*common, *y.shape.dims[-2:]))


def last_two_transposed(n: InstructionBuilder, x: Instruction, turn: bool = True) -> Instruction:
    """Returns x with its last two axes transposed if `turn`."""
    rank = x.shape.rank
    return n.transpose(x, (*range(rank - 2), rank - 1, rank - 2)) if turn else x


def reduced(n: InstructionBuilder, op: type[Reduce], x: Instruction, axes: Sequence[int], keep: bool) -> Instruction:
    """Returns a reduction over `axes`, kept with extent 1 if `keep`; x itself if `axes` is empty."""
    chosen = n.axes(axes, x.shape.rank)
    if not chosen:
        return x
    if x.shape.dtype is dt.bool_:
        op = {ReduceMax: ReduceAny, ReduceMin: ReduceAll}.get(op, op)
    made = n.along_axes(op, x, chosen)
    return made if keep else n.squeeze(made, chosen)


def turn(n: InstructionBuilder, y: Instruction, x: Instruction) -> Instruction:
    """Returns atan2(y, x)."""
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


def chosen(n: InstructionBuilder, condition: Instruction, x: Instruction, y: Instruction) -> Instruction:
    """Returns where(condition, x, y); a condition of rank 1 selects whole rows."""
    if condition.shape.rank == 1 and x.shape.rank > 1:
        condition = n.reshape(condition, (condition.shape.dims[0], *(1,) * (x.shape.rank - 1)))
    return n.pointwise("where", condition, x, y)


def bucketized(n: InstructionBuilder, x: Instruction, edges: Array) -> Instruction:
    """Returns the index of each element's bucket: the number of edges that are not above it."""
    axis = x.shape.rank
    wide = n.unsqueeze(n.convert(x, dt.float32), [axis])
    reached = n.pointwise("greater_or_equal", wide, n.literal(edges, dt.float32))
    return n.squeeze(n.add("reduce_sum", n.convert(reached, dt.int32), axes=(axis,)), [axis])


def fake_quantized(
    n: InstructionBuilder, x: Instruction, low: Array, high: Array, bits: int, narrow: bool
) -> Instruction:
    """Returns x quantized to `bits` over the range [low, high] and dequantized; the range is nudged so that 0 is exact.

    low, high: float32; narrow: the lowest quantized value is not used.
    """
    least, most = int(narrow), (1 << bits) - 1
    scale = ((high - low) / np.float32(most - least)).astype(np.float32)
    zero = np.clip(np.floor(least - low / scale + np.float32(0.5)), least, most).astype(np.float32)
    nudged_low = ((least - zero) * scale).astype(np.float32)
    nudged_high = ((most - zero) * scale).astype(np.float32)
    inside = n.pointwise("clip", x, n.literal(nudged_low), n.literal(nudged_high))
    steps = n.pointwise("div", n.pointwise("sub", inside, n.literal(nudged_low)), n.literal(scale))
    rounded = n.pointwise("floor", n.pointwise("add", steps, n.literal(np.float32(0.5))))
    return n.pointwise("add", n.pointwise("mul", rounded, n.literal(scale)), n.literal(nudged_low))
