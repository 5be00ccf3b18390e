"""Arithmetic identities of sums and products: neutral elements, zeros, signs, and chains of constants."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.activation import Relu
from ..ops.builtin import Literal
from ..ops.elementwise import Pointwise
from ..ops.pointwise import Abs, Add, Ceil, Div, Floor, Mul, Nearbyint, Neg, Pow, Sub, Trunc
from ..ops.trigonometry import Cos, Cosh
from .constants import aligned, computed, finite, is_constant, split, spread, uniform
from .engine import RANGE, ROUNDING, Builder, Rules
from .matching import one_user

__all__ = ["ARITHMETIC"]

ARITHMETIC: Final = Rules("simplify-arithmetic")


@ARITHMETIC.on(Add, Sub, reads=Literal)
def drop_zero_term(i: Instruction, b: Builder) -> Instruction | No | None:
    """x + 0, 0 + x, x - 0 -> x."""
    x, y = i.inputs
    if uniform(y) == 0:
        return x
    return y if isinstance(i.op, Add) and uniform(x) == 0 else None


@ARITHMETIC.on(Mul, Div, Pow, reads=Literal)
def drop_unit_factor(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * 1, 1 * x, x / 1, x ^ 1 -> x."""
    x, y = i.inputs
    if uniform(y) == 1:
        return x
    return y if isinstance(i.op, Mul) and uniform(x) == 1 else None


@ARITHMETIC.on(Mul, reads=Literal)
def product_with_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * 0 -> 0 for integers."""
    found = split(i)
    if found is None or uniform(found[1]) != 0:
        return None
    if not i.shape.dtype.is_integer:
        return No("infinity and NaN times 0 are NaN")
    return found[1]


@ARITHMETIC.on(Mul, Div, reads=Literal, changes=RANGE)
def float_product_with_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * 0, 0 / x -> 0 for floats that are finite."""
    at = (0,) if isinstance(i.op, Div) else (0, 1)
    for n in at:
        if uniform(i.inputs[n]) == 0 and i.shape.dtype.is_float:
            return i.inputs[n]
    return None


@ARITHMETIC.on(Sub)
def difference_with_itself(i: Instruction, b: Builder) -> Instruction | No | None:
    """x - x -> 0 for integers."""
    x, y = i.inputs
    if x is not y:
        return None
    if not i.shape.dtype.is_integer:
        return No("infinity and NaN minus themselves are NaN")
    return spread(b, np.zeros((), np.int64), i.shape.dims, i)


# signs ----------------------------------------------------------------------------------------------------------------


@ARITHMETIC.on(Neg, reads=(Neg, Sub))
def cancel_negations(i: Instruction, b: Builder) -> Instruction | No | None:
    """-(-x) -> x; -(x - y) -> y - x."""
    inner = i.inputs[0]
    if isinstance(inner.op, Neg):
        return inner.inputs[0]
    if isinstance(inner.op, Sub) and one_user(inner):
        return b.add(Sub(), inner.inputs[1], inner.inputs[0])
    return None


@ARITHMETIC.on(Mul, Div, reads=Literal)
def product_with_minus_one(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * -1, x / -1 -> -x."""
    if i.shape.dtype.kind not in "if":
        return None
    for n in (1,) if isinstance(i.op, Div) else (0, 1):
        if uniform(i.inputs[n]) == -1:
            return b.add(Neg(), i.inputs[1 - n])
    return None


@ARITHMETIC.on(Sub, reads=Literal)
def zero_minus(i: Instruction, b: Builder) -> Instruction | No | None:
    """0 - x -> -x."""
    return b.add(Neg(), i.inputs[1]) if uniform(i.inputs[0]) == 0 else None


@ARITHMETIC.on(Add, Sub, Mul, Div, reads=Neg)
def absorb_negation(i: Instruction, b: Builder) -> Instruction | No | None:
    """a + -b -> a - b; -a + b -> b - a; a - -b -> a + b; -a * -b -> a * b; -a / -b -> a / b for floats."""
    x, y = i.inputs
    first, second = isinstance(x.op, Neg), isinstance(y.op, Neg)
    if not first and not second:
        return None
    if isinstance(i.op, Div) and i.shape.dtype.is_integer:
        return No("negating the most negative integer wraps around")
    if isinstance(i.op, (Mul, Div)):
        return b.add(i.op, x.inputs[0], y.inputs[0]) if first and second else None
    if second:
        return b.add(Sub() if isinstance(i.op, Add) else Add(), x, y.inputs[0])
    return b.add(Sub(), y, x.inputs[0]) if isinstance(i.op, Add) else None


@ARITHMETIC.on(Abs, Cos, Cosh, reads=Neg)
def even_function_of_negation(i: Instruction, b: Builder) -> Instruction | No | None:
    """|-x|, cos(-x), cosh(-x) -> the same function of x."""
    if not isinstance(i.inputs[0].op, Neg):
        return None
    if not i.shape.dtype.is_signed:
        return No("negation of unsigned integers wraps around")
    return b.add(i.op, i.inputs[0].inputs[0])


@ARITHMETIC.on(Relu, Abs, Ceil, Floor, Nearbyint, Trunc)
def apply_once(i: Instruction, b: Builder) -> Instruction | No | None:
    """f(f(x)) -> f(x) for relu, abs and rounding; roundings of rounded values, abs of relu."""
    inner = i.inputs[0]
    if inner.op == i.op or (isinstance(i.op, Abs) and isinstance(inner.op, Relu)):
        return inner
    rounding = (Ceil, Floor, Nearbyint, Trunc)
    return inner if isinstance(i.op, rounding) and isinstance(inner.op, rounding) else None


# chains of constants --------------------------------------------------------------------------------------------------


@ARITHMETIC.on(Add, Sub, reads=(Add, Sub))
def join_added_integers(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x + c) + d -> x + (c + d), also with differences, for integers."""
    return _joined(i, b, Add, Sub, "sum") if i.shape.dtype.is_integer else None


@ARITHMETIC.on(Add, Sub, reads=(Add, Sub), changes=ROUNDING)
def join_added_constants(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x + c) + d -> x + (c + d), also with differences."""
    return _joined(i, b, Add, Sub, "sum") if i.shape.dtype.is_float else None


@ARITHMETIC.on(Mul, reads=Mul)
def join_integer_factors(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x * c) * d -> x * (c * d) for integers."""
    return _joined(i, b, Mul, Div, "product") if i.shape.dtype.is_integer else None


@ARITHMETIC.on(Mul, Div, reads=(Mul, Div), changes=ROUNDING)
def join_factors(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x * c) * d -> x * (c * d), also with divisions by constants."""
    return _joined(i, b, Mul, Div, "product") if i.shape.dtype.is_float else None


def _joined(
    i: Instruction, b: Builder, join: type[Pointwise], undo: type[Pointwise], result: str
) -> Instruction | No | None:
    """Joins the constants of two nested sums and differences, or products and quotients; `undo` is the inverse of `join`."""
    found = split(i)
    if found is None or not isinstance(found[0].op, (join, undo)):
        return None
    inner, d = found
    parts = split(inner)
    if parts is None or (isinstance(inner.op, Div) and i.shape.dtype.is_integer):  # integer quotients are truncated
        return None
    if len(inner.users) > 1:
        return No(f"the {result} inside has other users")
    x, c = parts
    # signs in the sum, or exponents in the product: of x, c and d in d - (x - c), they are -1, 1 and 1
    inner_sign, d_sign = _signs(i, inner, undo)
    x_sign, c_sign = (inner_sign * sign for sign in _signs(inner, x, undo))
    constants = aligned(c), aligned(d)
    if c_sign == d_sign:
        value = computed(b, join(), i, *constants)
    else:
        value = computed(b, undo(), i, *(constants if c_sign > 0 else constants[::-1]))
    if value is None:
        return No(f"the constants' {result} is not finite")
    if x_sign < 0:  # then one of the constants is positive
        return b.add(undo(), value, x)
    return b.add(join() if c_sign > 0 or d_sign > 0 else undo(), x, value)


def _signs(i: Instruction, x: Instruction, undo: type[Pointwise]) -> tuple[int, int]:
    """Returns the signs of x and of the other operand: -1 for one that is subtracted, or by which the other is divided."""
    if not isinstance(i.op, undo):
        return 1, 1
    return (1, -1) if x is i.inputs[0] else (-1, 1)


@ARITHMETIC.on(Add, reads=Add, changes=ROUNDING)
def gather_added_constants(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x + c) + (y + d) -> (x + y) + (c + d)."""
    left, right = i.inputs
    if left is right or not isinstance(left.op, Add) or not isinstance(right.op, Add):
        return None
    one, other = split(left), split(right)
    if one is None or other is None:
        return None
    if len(left.users) > 1 or len(right.users) > 1 or not i.shape.dtype.is_float:
        return No("a sum inside has other users, or is of integers")
    if one[0].op.product and other[0].op.product:
        return No("each constant is the bias of a product")
    value = computed(b, Add(), i, aligned(one[1]), aligned(other[1]))
    return None if value is None else b.add(Add(), b.add(Add(), one[0], other[0]), value)


@ARITHMETIC.on(Mul, reads=(Add, Sub), changes=ROUNDING)
def factor_into_sum(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x + c) * d -> x * d + c * d if x * d can be folded into the weights of a product."""
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
        return No("the sum has other users")
    value = computed(b, Mul(), i, aligned(c), aligned(d))
    if value is None:
        return None
    scaled = b.add(Mul(), x, d)
    return b.add(total.op, *((scaled, value) if c is total.inputs[1] else (value, scaled)))


def weighted(x: Instruction) -> bool:
    """Returns True if x is a convolution or dot with constant weights, read once."""
    return bool(x.op.product) and one_user(x) and is_constant(x.inputs[1])


@ARITHMETIC.on(Mul, reads=Relu)
def relu_out_of_mul(i: Instruction, b: Builder) -> Instruction | No | None:
    """relu(x) * c -> relu(x * c), c > 0, if x * c can be folded into the weights of a product."""
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
