"""Quotients, powers, roots and logarithms."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.activation import Relu
from ..ops.builtin import Literal
from ..ops.compare import Predicate
from ..ops.convert import Convert
from ..ops.pointwise import (
    Abs,
    Add,
    Ceil,
    Clip,
    Div,
    Exp,
    Floor,
    Fmod,
    Log,
    Max,
    Min,
    Mod,
    Mul,
    Nearbyint,
    Neg,
    Pow,
    Recip,
    Rsqrt,
    Sign,
    Sqdiff,
    Sqrt,
    Sub,
    Trunc,
    Where,
)
from ..ops.reduce import ReduceMax, ReduceMin
from ..ops.reshape import Reshape
from ..ops.scalar import convert
from .constants import aligned, finite, is_constant, spread, uniform
from .engine import RANGE, ROUNDING, Builder, Rules
from .matching import one_user
from .outline import through_views

__all__ = ["POWERS"]

POWERS: Final = Rules("simplify-powers")

RANGES: Final = (Max, Min, Abs, Neg, Relu, Sub, Reshape)  # applied to ranges, their result is a range
# a difference in the last place of an operand may change their result by a whole step
STEPS: Final = (Ceil, Floor, Nearbyint, Trunc, Mod, Fmod, Sign, Predicate)
STEPPED: Final = "the quotient is rounded or compared: a rounding error would change the result by a whole step"
MOVED: Final = (*RANGES, Add, Clip, Div, Mul, Where)  # ops between a quotient and a step, besides views
BETWEEN: Final = 8  # the most of these in a row


@POWERS.on(Div, reads=Literal)
def divide_by_power_of_two(i: Instruction, b: Builder) -> Instruction | No | None:
    """x / c -> x * (1 / c) where c is a power of two."""
    c = uniform(i.inputs[1])
    if c is None or not i.shape.dtype.is_float or is_constant(i.inputs[0]):
        return None
    if not c or not math.isfinite(c) or abs(math.frexp(c)[0]) != 0.5:
        return None
    return _by_reciprocal(i, b)


@POWERS.on(Div, reads=Literal, changes=ROUNDING)
def divide_by_constant(i: Instruction, b: Builder) -> Instruction | No | None:
    """x / c -> x * (1 / c)."""
    if not i.shape.dtype.is_float or not is_constant(i.inputs[1]) or is_constant(i.inputs[0]):
        return None
    if _extreme(i.inputs[0]):
        return No(
            "a range is divided to give a scale: a rounding error in the scale would change how its row is rounded"
        )
    if _stepped(i):
        return No(STEPPED)
    return _by_reciprocal(i, b)


def _extreme(x: Instruction, depth: int = 8) -> bool:
    """Returns True for minima and maxima along axes, their absolute values and their differences."""
    x = through_views(x)
    if isinstance(x.op, (ReduceMax, ReduceMin)):
        return True
    return depth > 0 and isinstance(x.op, RANGES) and any(_extreme(y, depth - 1) for y in x.inputs)


def _stepped(x: Instruction) -> bool:
    """Returns True for a value that is rounded to an integer or compared, directly or up to `BETWEEN` ops later."""
    seen = values = {x}
    for _ in range(BETWEEN + 1):
        users = {user for value in values for user in value.users} - seen
        if any(isinstance(u.op, STEPS) or (isinstance(u.op, Convert) and not u.op.target_type.is_float) for u in users):
            return True
        values = {u for u in users if isinstance(u.op, MOVED) or u.op.view is not None}
        seen = seen | values
    return False


def _by_reciprocal(i: Instruction, b: Builder) -> Instruction | No | None:
    c = aligned(i.inputs[1])
    if c is None or i.shape.dtype.bits < 16:
        return None
    with np.errstate(all="ignore"):
        reciprocal = np.asarray(convert(1 / np.asarray(c, np.float64), i.shape.dtype))
        least = float(np.abs(reciprocal.astype(np.float64)).min()) if reciprocal.size else 1.0
    smallest = {16: 6.2e-5 if i.shape.dtype.name == "float16" else 1.2e-38, 32: 1.2e-38, 64: 2.3e-308}[
        i.shape.dtype.bits
    ]
    if not finite(reciprocal) or least < smallest:
        return No("1 / c is not a normal number of the type")
    return b.add(Mul(), i.inputs[0], spread(b, reciprocal, i.shape.dims, i))


@POWERS.on(Pow)
def square(i: Instruction, b: Builder) -> Instruction | No | None:
    """x ^ 2 -> x * x."""
    return b.add(Mul(), i.inputs[0], i.inputs[0]) if uniform(i.inputs[1]) == 2 else None


@POWERS.on(Pow)
def zeroth_power(i: Instruction, b: Builder) -> Instruction | No | None:
    """x ^ 0 -> 1."""
    return spread(b, np.ones(()), i.shape.dims, i) if uniform(i.inputs[1]) == 0 else None


@POWERS.on(Pow, changes=ROUNDING)
def root_from_power(i: Instruction, b: Builder) -> Instruction | No | None:
    """x ^ 0.5 -> sqrt(x); x ^ -0.5 -> rsqrt(x); x ^ -1 -> 1 / x."""
    if not i.shape.dtype.is_float:
        return None
    op = {0.5: Sqrt, -0.5: Rsqrt, -1.0: Recip}.get(uniform(i.inputs[1]) or 0.0)
    return None if op is None else b.add(op(), i.inputs[0])


@POWERS.on(Recip, changes=ROUNDING)
def reciprocal_of_root(i: Instruction, b: Builder) -> Instruction | No | None:
    """1 / sqrt(x) -> rsqrt(x)."""
    return b.add(Rsqrt(), i.inputs[0].inputs[0]) if isinstance(i.inputs[0].op, Sqrt) else None


@POWERS.on(Div, changes=ROUNDING)
def divide_by_root(i: Instruction, b: Builder) -> Instruction | No | None:
    """1 / sqrt(x) -> rsqrt(x); y / sqrt(x) -> y * rsqrt(x), also through a broadcast."""
    y, divisor = i.inputs
    if not isinstance(through_views(divisor).op, Sqrt):
        return None
    chain: list[Instruction] = []
    at = divisor
    while not isinstance(at.op, Sqrt):
        chain.append(at)
        at = at.inputs[0]
    if len(at.users) > 1:
        return No("the root has other users")
    if _stepped(i):
        return No(STEPPED)
    root = b.add(Rsqrt(), at.inputs[0])
    for view in reversed(chain):
        root = b.add(view.op, root)
    return root if uniform(y) == 1 else b.add(Mul(), y, root)


@POWERS.on(Log, changes=ROUNDING)
def logarithm_of_power(i: Instruction, b: Builder) -> Instruction | No | None:
    """log(exp(x)) -> x."""
    return i.inputs[0].inputs[0] if isinstance(i.inputs[0].op, Exp) else None


@POWERS.on(Exp, changes=RANGE)
def power_of_logarithm(i: Instruction, b: Builder) -> Instruction | No | None:
    """exp(log(x)) -> x, x >= 0."""
    return i.inputs[0].inputs[0] if isinstance(i.inputs[0].op, Log) else None


@POWERS.on(Mul, reads=Sub)
def squared_difference(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x - y) * (x - y) -> sqdiff(x, y)."""
    x, y = i.inputs
    return b.add(Sqdiff(), *x.inputs) if x is y and isinstance(x.op, Sub) and one_user(x) else None


@POWERS.on(Sqdiff)
def squared_difference_from_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """sqdiff(x, 0), sqdiff(0, x) -> x * x."""
    x, y = i.inputs
    if uniform(y) == 0:
        return b.add(Mul(), x, x)
    return b.add(Mul(), y, y) if uniform(x) == 0 else None
