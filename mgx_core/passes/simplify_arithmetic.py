"""Arithmetic on numbers: units, zeros, signs, powers, and chains of constants."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ..argument import Array
from ..ir.instruction import Instruction
from ..kernel import No
from ..ops.activation import Relu
from ..ops.compare import Equal, Not, NotEqual
from ..ops.pointwise import (
    Abs,
    Add,
    Ceil,
    Clip,
    Cos,
    Cosh,
    Div,
    Exp,
    Floor,
    Log,
    Max,
    Min,
    Mul,
    Nearbyint,
    Neg,
    Pow,
    Recip,
    Rsqrt,
    Sqdiff,
    Sqrt,
    Sub,
    Trunc,
    Where,
)
from ..rewrite import RANGE, ROUNDING, Builder, Rules
from ..scalar import convert
from .constants import aligned, finite, is_constant, spread, uniform
from .outline import through_views

__all__ = ["ARITHMETIC"]

ARITHMETIC: Final = Rules("simplify-arithmetic")

ANCHORS: Final = frozenset({"convolution", "convolution_backwards", "dot"})


def split(i: Instruction) -> tuple[Instruction, Instruction] | None:
    """The operand that varies and the one that is constant, where exactly one is."""
    x, y = i.inputs
    constant = is_constant(y)
    if constant == is_constant(x):
        return None
    return (x, y) if constant else (y, x)


def computed(b: Builder, op: Any, i: Instruction, *values: Array | None) -> Instruction | None:
    """`op` of constants as a literal, repeated to the extents of `i`; None if a value is not known or the result not finite."""
    arrays = [v for v in values if v is not None]
    if len(arrays) < len(values):
        return None
    with np.errstate(all="ignore"):
        value = np.asarray(op.compute(*arrays))
    return spread(b, value, i.shape.dims, i) if finite(value) else None


# units and zeros ------------------------------------------------------------------------------------------------------


@ARITHMETIC.on(Add, Sub)
def drop_zero_term(i: Instruction, b: Builder) -> Instruction | No | None:
    """x + 0, 0 + x, x - 0 -> x."""
    x, y = i.inputs
    if uniform(y) == 0:
        return x
    return y if isinstance(i.op, Add) and uniform(x) == 0 else None


@ARITHMETIC.on(Mul, Div, Pow)
def drop_unit_factor(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * 1, 1 * x, x / 1, x ^ 1 -> x."""
    x, y = i.inputs
    if uniform(y) == 1:
        return x
    return y if isinstance(i.op, Mul) and uniform(x) == 1 else None


@ARITHMETIC.on(Mul)
def product_with_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * 0 -> 0 for whole numbers."""
    found = split(i)
    if found is None or uniform(found[1]) != 0:
        return None
    if not i.shape.dtype.is_integer:
        return No("infinity and NaN times 0 are NaN")
    return found[1]


@ARITHMETIC.on(Mul, Div, changes=RANGE)
def float_product_with_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * 0, 0 / x -> 0 for floats that are finite."""
    at = (0,) if isinstance(i.op, Div) else (0, 1)
    for n in at:
        if uniform(i.inputs[n]) == 0 and i.shape.dtype.is_float:
            return i.inputs[n]
    return None


@ARITHMETIC.on(Sub)
def difference_with_itself(i: Instruction, b: Builder) -> Instruction | No | None:
    """x - x -> 0 for whole numbers."""
    x, y = i.inputs
    if x is not y:
        return None
    if not i.shape.dtype.is_integer:
        return No("infinity and NaN minus themselves are NaN")
    return spread(b, np.zeros((), np.int64), i.shape.dims, i)


# signs ----------------------------------------------------------------------------------------------------------------


@ARITHMETIC.on(Neg)
def cancel_negations(i: Instruction, b: Builder) -> Instruction | No | None:
    """-(-x) -> x; -(x - y) -> y - x."""
    inner = i.inputs[0]
    if isinstance(inner.op, Neg):
        return inner.inputs[0]
    if isinstance(inner.op, Sub) and len(inner.users) == 1:
        return b.add(Sub(), inner.inputs[1], inner.inputs[0])
    return None


@ARITHMETIC.on(Mul, Div)
def product_with_minus_one(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * -1, x / -1 -> -x."""
    if i.shape.dtype.kind not in "if":
        return None
    for n in (1,) if isinstance(i.op, Div) else (0, 1):
        if uniform(i.inputs[n]) == -1:
            return b.add(Neg(), i.inputs[1 - n])
    return None


@ARITHMETIC.on(Sub)
def zero_minus(i: Instruction, b: Builder) -> Instruction | No | None:
    """0 - x -> -x."""
    return b.add(Neg(), i.inputs[1]) if uniform(i.inputs[0]) == 0 else None


@ARITHMETIC.on(Add, Sub, Mul, Div)
def absorb_negation(i: Instruction, b: Builder) -> Instruction | No | None:
    """a + -b -> a - b; -a + b -> b - a; a - -b -> a + b; -a * -b -> a * b; -a / -b -> a / b."""
    x, y = i.inputs
    first, second = isinstance(x.op, Neg), isinstance(y.op, Neg)
    if not first and not second:
        return None
    if isinstance(i.op, (Mul, Div)):
        return b.add(i.op, x.inputs[0], y.inputs[0]) if first and second else None
    if second:
        return b.add(Sub() if isinstance(i.op, Add) else Add(), x, y.inputs[0])
    return b.add(Sub(), y, x.inputs[0]) if isinstance(i.op, Add) else None


@ARITHMETIC.on(Abs, Cos, Cosh)
def even_function_of_negation(i: Instruction, b: Builder) -> Instruction | No | None:
    """|-x|, cos(-x), cosh(-x) -> the same of x."""
    return b.add(i.op, i.inputs[0].inputs[0]) if isinstance(i.inputs[0].op, Neg) else None


@ARITHMETIC.on(Relu, Abs, Ceil, Floor, Nearbyint, Trunc)
def apply_once(i: Instruction, b: Builder) -> Instruction | No | None:
    """f(f(x)) -> f(x) for relu, abs and rounding; roundings of rounded values, abs of relu."""
    inner = i.inputs[0]
    if inner.op == i.op or (isinstance(i.op, Abs) and isinstance(inner.op, Relu)):
        return inner
    rounding = (Ceil, Floor, Nearbyint, Trunc)
    return inner if isinstance(i.op, rounding) and isinstance(inner.op, rounding) else None


# chains of constants --------------------------------------------------------------------------------------------------


@ARITHMETIC.on(Add, Sub)
def join_added_integers(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x + c) + d -> x + (c + d), also with differences, for whole numbers."""
    return _join_sums(i, b) if i.shape.dtype.is_integer else None


@ARITHMETIC.on(Add, Sub, changes=ROUNDING)
def join_added_constants(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x + c) + d -> x + (c + d), also with differences."""
    return _join_sums(i, b) if i.shape.dtype.is_float else None


def _join_sums(i: Instruction, b: Builder) -> Instruction | No | None:
    found = split(i)
    if found is None:
        return None
    inner, d = found
    if not isinstance(inner.op, (Add, Sub)):
        return None
    parts = split(inner)
    if parts is None:
        return None
    if len(inner.users) > 1:
        return No("the sum inside is read elsewhere too")
    x, c = parts
    outer, sign = isinstance(i.op, Sub), 1
    inside = isinstance(inner.op, Sub)
    if outer and d is i.inputs[0]:  # d - (inner)
        if inside and c is inner.inputs[0]:  # d - (c - x) = x + (d - c)
            value, sign = computed(b, Sub(), i, aligned(d), aligned(c)), 1
        else:  # d - (x + c) = (d - c) - x;  d - (x - c) = (d + c) - x
            value, sign = computed(b, Add() if inside else Sub(), i, aligned(d), aligned(c)), -1
    elif inside and c is inner.inputs[0]:  # (c - x) + d = (c + d) - x
        value, sign = computed(b, Sub() if outer else Add(), i, aligned(c), aligned(d)), -1
    elif inside == outer:  # (x + c) + d;  (x - c) - d = x - (c + d)
        value = computed(b, Add(), i, aligned(c), aligned(d))
        if inside and value is not None:
            return b.add(Sub(), x, value)
    elif inside:  # (x - c) + d = x + (d - c)
        value = computed(b, Sub(), i, aligned(d), aligned(c))
    else:  # (x + c) - d = x + (c - d)
        value = computed(b, Sub(), i, aligned(c), aligned(d))
    if value is None:
        return No("the constants' sum is not finite")
    return b.add(Add(), x, value) if sign > 0 else b.add(Sub(), value, x)


@ARITHMETIC.on(Mul)
def join_integer_factors(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x * c) * d -> x * (c * d) for whole numbers."""
    return _join_products(i, b) if i.shape.dtype.is_integer else None


@ARITHMETIC.on(Mul, Div, changes=ROUNDING)
def join_factors(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x * c) * d -> x * (c * d), also with divisions by constants."""
    return _join_products(i, b) if i.shape.dtype.is_float else None


def _join_products(i: Instruction, b: Builder) -> Instruction | No | None:
    found = split(i)
    if found is None:
        return None
    inner, d = found
    if not isinstance(inner.op, (Mul, Div) if i.shape.dtype.is_float else Mul):
        return None
    parts = split(inner)
    if parts is None:
        return None
    if len(inner.users) > 1:
        return No("the product inside is read elsewhere too")
    x, c = parts
    outer, inside = isinstance(i.op, Div), isinstance(inner.op, Div)
    divides = outer and d is i.inputs[0]  # d / (..)
    under = inside and c is inner.inputs[0]  # c / x
    if divides:  # d / (x * c) = (d / c) / x;  d / (x / c) = d * c / x;  d / (c / x) = (d / c) * x
        value = computed(b, Mul() if inside and not under else Div(), i, aligned(d), aligned(c))
        quotient = not under
    elif under:  # (c / x) * d = c * d / x;  (c / x) / d = (c / d) / x
        value, quotient = computed(b, Div() if outer else Mul(), i, aligned(c), aligned(d)), True
    elif inside and outer:  # x / c / d = x / (c * d)
        value = computed(b, Mul(), i, aligned(c), aligned(d))
        return No("the constants' product is not finite") if value is None else b.add(Div(), x, value)
    elif inside:  # x / c * d = x * (d / c)
        value, quotient = computed(b, Div(), i, aligned(d), aligned(c)), False
    else:  # x * c * d;  x * c / d = x * (c / d)
        value, quotient = computed(b, Div() if outer else Mul(), i, aligned(c), aligned(d)), False
    if value is None:
        return No("the constants' product is not finite")
    return b.add(Div(), value, x) if quotient else b.add(Mul(), x, value)


@ARITHMETIC.on(Add, changes=ROUNDING)
def gather_added_constants(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x + c) + (y + d) -> (x + y) + (c + d)."""
    left, right = i.inputs
    if left is right or not isinstance(left.op, Add) or not isinstance(right.op, Add):
        return None
    one, other = split(left), split(right)
    if one is None or other is None:
        return None
    if len(left.users) > 1 or len(right.users) > 1 or not i.shape.dtype.is_float:
        return No("a sum inside is read elsewhere too, or is of whole numbers")
    if one[0].op.name in ANCHORS and other[0].op.name in ANCHORS:
        return No("each constant is the bias of a product")
    value = computed(b, Add(), i, aligned(one[1]), aligned(other[1]))
    return None if value is None else b.add(Add(), b.add(Add(), one[0], other[0]), value)


@ARITHMETIC.on(Mul, changes=ROUNDING)
def factor_into_sum(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x + c) * d -> x * d + c * d where x * d then goes into the weights of a product."""
    found = split(i)
    if found is None or not isinstance(found[0].op, (Add, Sub)):
        return None
    total, d = found
    parts = split(total)
    if parts is None or not i.shape.dtype.is_float:
        return None
    x, c = parts
    if not weighted(x):
        return No("x is not a product with constant weights that is read here alone")
    if len(total.users) > 1:
        return No("the sum is read elsewhere too")
    value = computed(b, Mul(), i, aligned(c), aligned(d))
    if value is None:
        return None
    scaled = b.add(Mul(), x, d)
    return b.add(total.op, *((scaled, value) if c is total.inputs[1] else (value, scaled)))


def weighted(x: Instruction) -> bool:
    """Whether x is a convolution or dot with constant weights, read once."""
    return x.op.name in ANCHORS and len(x.users) == 1 and is_constant(x.inputs[1])


@ARITHMETIC.on(Mul)
def relu_out_of_mul(i: Instruction, b: Builder) -> Instruction | No | None:
    """relu(x) * c -> relu(x * c), c > 0, where x * c then goes into the weights of a product."""
    found = split(i)
    if found is None or not isinstance(found[0].op, Relu):
        return None
    relu, c = found
    x = relu.inputs[0]
    inner = x.inputs[0] if isinstance(x.op, Add) else x
    if not weighted(inner) or len(relu.users) > 1 or len(x.users) > 1:
        return No("x is not a product with constant weights that is read here alone")
    value = aligned(c)
    if value is None or not finite(value) or not i.shape.dtype.is_float or not bool((value > 0).all()):
        return No("the factor is not positive everywhere")
    return b.add(Relu(), b.add(Mul(), x, c))


# quotients, powers, roots ---------------------------------------------------------------------------------------------


@ARITHMETIC.on(Div)
def divide_by_power_of_two(i: Instruction, b: Builder) -> Instruction | No | None:
    """x / c -> x * (1 / c) where c is a power of two."""
    c = uniform(i.inputs[1])
    if c is None or not i.shape.dtype.is_float or is_constant(i.inputs[0]):
        return None
    if not c or not math.isfinite(c) or abs(math.frexp(c)[0]) != 0.5:
        return None
    return _by_reciprocal(i, b)


@ARITHMETIC.on(Div, changes=ROUNDING)
def divide_by_constant(i: Instruction, b: Builder) -> Instruction | No | None:
    """x / c -> x * (1 / c)."""
    if not i.shape.dtype.is_float or not is_constant(i.inputs[1]) or is_constant(i.inputs[0]):
        return None
    return _by_reciprocal(i, b)


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


@ARITHMETIC.on(Pow)
def square(i: Instruction, b: Builder) -> Instruction | No | None:
    """x ^ 2 -> x * x."""
    return b.add(Mul(), i.inputs[0], i.inputs[0]) if uniform(i.inputs[1]) == 2 else None


@ARITHMETIC.on(Pow)
def zeroth_power(i: Instruction, b: Builder) -> Instruction | No | None:
    """x ^ 0 -> 1."""
    return spread(b, np.ones(()), i.shape.dims, i) if uniform(i.inputs[1]) == 0 else None


@ARITHMETIC.on(Pow, changes=ROUNDING)
def root_from_power(i: Instruction, b: Builder) -> Instruction | No | None:
    """x ^ 0.5 -> sqrt(x); x ^ -0.5 -> rsqrt(x); x ^ -1 -> 1 / x."""
    if not i.shape.dtype.is_float:
        return None
    op = {0.5: Sqrt, -0.5: Rsqrt, -1.0: Recip}.get(uniform(i.inputs[1]) or 0.0)
    return None if op is None else b.add(op(), i.inputs[0])


@ARITHMETIC.on(Recip, changes=ROUNDING)
def reciprocal_of_root(i: Instruction, b: Builder) -> Instruction | No | None:
    """1 / sqrt(x) -> rsqrt(x)."""
    return b.add(Rsqrt(), i.inputs[0].inputs[0]) if isinstance(i.inputs[0].op, Sqrt) else None


@ARITHMETIC.on(Div, changes=ROUNDING)
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
        return No("the root is read elsewhere too")
    root = b.add(Rsqrt(), at.inputs[0])
    for view in reversed(chain):
        root = b.add(view.op, root)
    return root if uniform(y) == 1 else b.add(Mul(), y, root)


@ARITHMETIC.on(Log, changes=ROUNDING)
def logarithm_of_power(i: Instruction, b: Builder) -> Instruction | No | None:
    """log(exp(x)) -> x."""
    return i.inputs[0].inputs[0] if isinstance(i.inputs[0].op, Exp) else None


@ARITHMETIC.on(Exp, changes=RANGE)
def power_of_logarithm(i: Instruction, b: Builder) -> Instruction | No | None:
    """exp(log(x)) -> x, x >= 0."""
    return i.inputs[0].inputs[0] if isinstance(i.inputs[0].op, Log) else None


@ARITHMETIC.on(Mul)
def squared_difference(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x - y) * (x - y) -> sqdiff(x, y)."""
    x, y = i.inputs
    return b.add(Sqdiff(), *x.inputs) if x is y and isinstance(x.op, Sub) and len(x.users) == 1 else None


@ARITHMETIC.on(Sqdiff)
def squared_difference_from_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """sqdiff(x, 0), sqdiff(0, x) -> x * x."""
    x, y = i.inputs
    if uniform(y) == 0:
        return b.add(Mul(), x, x)
    return b.add(Mul(), y, y) if uniform(x) == 0 else None


# bounds ---------------------------------------------------------------------------------------------------------------


@ARITHMETIC.on(Max, Min)
def join_bounds(i: Instruction, b: Builder) -> Instruction | No | None:
    """max(max(x, c), d) -> max(x, max(c, d)), min likewise; max(x, x) -> x."""
    if i.inputs[0] is i.inputs[1]:
        return i.inputs[0]
    found = split(i)
    if found is None or type(found[0].op) is not type(i.op):
        return None
    parts = split(found[0])
    if parts is None or len(found[0].users) > 1:
        return None
    c, d = aligned(parts[1]), aligned(found[1])
    if c is None or d is None:
        return None
    op: Any = i.op
    return b.add(i.op, parts[0], spread(b, np.asarray(op.compute(c, d)), i.shape.dims, i))


@ARITHMETIC.on(Max)
def relu_from_max(i: Instruction, b: Builder) -> Instruction | No | None:
    """max(x, 0) -> relu(x)."""
    found = split(i)
    return b.add(Relu(), found[0]) if found and i.shape.dtype.kind in "if" and uniform(found[1]) == 0 else None


@ARITHMETIC.on(Max, Min)
def clip_from_bounds(i: Instruction, b: Builder) -> Instruction | No | None:
    """min(max(x, low), high), max(min(x, high), low) -> clip(x, low, high), low <= high."""
    found = split(i)
    if found is None or i.shape.dtype.kind not in "iuf":
        return None
    inner, outer = found
    least = isinstance(i.op, Min)
    if isinstance(inner.op, Relu) and least:
        x, low, high = inner.inputs[0], 0.0, uniform(outer)
        floor = spread(b, np.zeros(()), i.shape.dims, i)
    else:
        if not isinstance(inner.op, Max if least else Min):
            return None
        parts = split(inner)
        if parts is None:
            return None
        x, floor = parts[0], parts[1] if least else outer
        low, high = uniform(parts[1]), uniform(outer)  # type: ignore[assignment]
        if not least:
            low, high, outer = high, low, parts[1]  # type: ignore[assignment]
    if low is None or high is None or not low <= high or len(inner.users) > 1:
        return None
    return b.add(Clip(), x, floor, outer)


@ARITHMETIC.on(Clip)
def join_clips(i: Instruction, b: Builder) -> Instruction | No | None:
    """clip(clip(x, a, b), c, d), clip(relu(x), c, d) -> one clip."""
    inner = i.inputs[0]
    if not isinstance(inner.op, (Clip, Relu)) or len(inner.users) > 1:
        return None
    bounds = [uniform(v) for v in (*i.inputs[1:], *(inner.inputs[1:] if isinstance(inner.op, Clip) else ()))]
    known = [v for v in bounds if v is not None]
    if len(known) < len(bounds):
        return No("the bounds are not known")
    low, high, first, last = (*known, 0.0, math.inf)[:4] if len(known) == 2 else known
    if not (low <= high and first <= last):
        return No("the bounds cross")
    dims = i.shape.dims
    lower, upper = (min(max(v, low), high) for v in (first, last))
    made = [spread(b, np.asarray(v), dims, i) for v in (lower, upper)]
    return b.add(Clip(), inner.inputs[0], *made)


@ARITHMETIC.on(Relu)
def relu_of_clip(i: Instruction, b: Builder) -> Instruction | No | None:
    """relu(clip(x, low, high)) -> clip(x, max(low, 0), max(high, 0))."""
    inner = i.inputs[0]
    if not isinstance(inner.op, Clip):
        return None
    low, high = (uniform(v) for v in inner.inputs[1:])
    if low is None or high is None:
        return No("the bounds are not known")
    if 0 <= low <= high:
        return inner
    if len(inner.users) > 1 or not low <= high:
        return No("the clip is read elsewhere too, or its bounds cross")
    made = [spread(b, np.asarray(max(v, 0)), i.shape.dims, i) for v in (low, high)]
    return b.add(Clip(), inner.inputs[0], *made)


# choices --------------------------------------------------------------------------------------------------------------


@ARITHMETIC.on(Where)
def known_choice(i: Instruction, b: Builder) -> Instruction | No | None:
    """where(true, x, y) -> x; where(false, x, y) -> y; where(c, x, x) -> x."""
    c, x, y = i.inputs
    if x is y:
        return x
    value = aligned(c)
    if value is None or not value.size:
        return None
    if value.all():
        return x
    return None if value.any() else y


@ARITHMETIC.on(Where)
def choice_by_negation(i: Instruction, b: Builder) -> Instruction | No | None:
    """where(not c, x, y) -> where(c, y, x)."""
    c, x, y = i.inputs
    return b.add(Where(), c.inputs[0], y, x) if isinstance(c.op, Not) else None


@ARITHMETIC.on(Not)
def push_negation(i: Instruction, b: Builder) -> Instruction | No | None:
    """not not x -> x; not (x == y) -> x != y."""
    inner = i.inputs[0]
    if isinstance(inner.op, Not):
        return inner.inputs[0]
    if isinstance(inner.op, Equal) and len(inner.users) == 1 and inner.inputs[0].shape.dtype.kind != "s":
        return b.add(NotEqual(), *inner.inputs)
    return None
