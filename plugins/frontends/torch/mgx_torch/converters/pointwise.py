"""Pointwise arithmetic, comparisons, logic and casts."""

from __future__ import annotations

import math
from typing import Any

from mgx_core import DType, Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import divide_floor

from ..converter import Converter, converts
from ..node import Node, Scalar
from .casts import cast

__all__ = ["floor_divided"]


@converts(
    "alias", "alias_copy", "detach", "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "lift", "positive",
    "_unsafe_view_as", "resolve_conj", "resolve_neg", "detach_copy", "_assert_tensor_metadata", "real", "view_as",
)  # fmt: skip
def same(n: Node, x: Instruction, *_: Any) -> Instruction:
    return n.reshape(x, n.result_dims()) if x.shape.rank != n.result().dim() else x


@converts("dropout", "feature_dropout", "alpha_dropout")
def dropout(n: Node, x: Instruction, p: float, train: bool) -> Instruction:
    if train and p > 0:
        n.unsupported("dropout in training mode draws from torch's generator")
    return x


def unary(name: str) -> Converter:
    """Returns an op on floats; other types are promoted as in torch."""

    def convert(n: Node, x: Instruction) -> Instruction:
        return n.add(name, cast(n, x, n.dtype))

    return convert


for _name in (
    "abs", "neg", "exp", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
    "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "sigmoid",
):  # fmt: skip
    converts(_name)(unary(_name))
converts("reciprocal")(unary("recip"))
converts("_neg_view")(unary("neg"))  # the imaginary part of a conjugate


@converts("sign", "sgn")
def sign(n: Node, x: Instruction) -> Instruction:
    """Returns the sign; NaN gives 0, as in torch."""
    if x.shape.dtype is dt.bool_:
        return x
    if not x.shape.dtype.is_float:
        return n.add("sign", x)
    zero = n.full_like(x, 0)
    above, below = (n.convert(n.add(name, x, zero), x.shape.dtype) for name in ("greater", "less"))
    return n.add("sub", above, below)


def rounding(name: str) -> Converter:
    def convert(n: Node, x: Instruction) -> Instruction:
        return n.add(name, x) if x.shape.dtype.is_float else x

    return convert


for _name in ("ceil", "floor", "trunc"):
    converts(_name)(rounding(_name))
converts("fix")(rounding("trunc"))


@converts("round")
def round_(n: Node, x: Instruction, decimals: int = 0) -> Instruction:
    if not x.shape.dtype.is_float:
        return x
    if not decimals:
        return n.add("nearbyint", x)
    factor = n.full_like(x, 10.0 ** abs(decimals))
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return n.add(back, n.add("nearbyint", n.add(there, x, factor)), factor)


@converts("exp2")
def exp2(n: Node, x: Instruction) -> Instruction:
    x = n.convert(x, n.dtype)
    return n.add("pow", n.full_like(x, 2), x)


@converts("log10")
def log10(n: Node, x: Instruction) -> Instruction:
    x = n.convert(x, n.dtype)
    wide = n.convert(x, dt.float64) if x.shape.dtype is dt.float64 else n.convert(x, dt.float32)
    return n.convert(n.add("mul", n.add("log2", wide), n.full_like(wide, 0.30102999566398119521)), n.dtype)


@converts("angle")
def angle(n: Node, x: Instruction) -> Instruction:
    """Returns the angle of real numbers: pi for negative ones, NaN for NaN, else zero."""
    wide = n.convert(x, n.dtype)
    zero = n.literal(0, n.dtype)
    negative = n.pointwise("where", n.pointwise("less", wide, zero), n.literal(math.pi, n.dtype), zero)
    return n.pointwise("where", n.add("isnan", wide), wide, negative)


@converts("erfc", "special_erfc")
def erfc(n: Node, x: Instruction) -> Instruction:
    x = n.convert(x, n.dtype)
    return n.add("sub", n.full_like(x, 1), n.add("erf", x))


@converts("frac")
def frac(n: Node, x: Instruction) -> Instruction:
    return n.add("sub", x, n.add("trunc", x))


@converts("square")
def square(n: Node, x: Instruction) -> Instruction:
    return n.add("mul", x, x)


# two operands


def scaled(n: Node, y: Scalar, alpha: Any, dtype: DType) -> Instruction:
    """Returns alpha * y."""
    y = n.tensor(y, dtype)
    return y if isinstance(alpha, (int, float)) and alpha == 1 else n.pointwise("mul", y, n.tensor(alpha, dtype))


@converts("add")
def add(n: Node, x: Scalar, y: Scalar, alpha: Any = 1) -> Instruction:
    if n.dtype is dt.bool_:
        return n.pointwise("logical_or", n.tensor(x, dt.bool_), n.tensor(y if alpha else False, dt.bool_))
    return n.pointwise("add", n.tensor(x, n.dtype), scaled(n, y, alpha, n.dtype))


@converts("sub", "subtract")
def sub(n: Node, x: Scalar, y: Scalar, alpha: Any = 1) -> Instruction:
    return n.pointwise("sub", n.tensor(x, n.dtype), scaled(n, y, alpha, n.dtype))


@converts("rsub")
def rsub(n: Node, x: Scalar, y: Scalar, alpha: Any = 1) -> Instruction:
    return n.pointwise("sub", n.tensor(y, n.dtype), scaled(n, x, alpha, n.dtype))


@converts("mul", "multiply")
def mul(n: Node, x: Scalar, y: Scalar) -> Instruction:
    return n.pointwise("logical_and" if n.dtype is dt.bool_ else "mul", *n.tensors((x, y), n.dtype))


@converts("div", "true_divide", "divide")
def div(n: Node, x: Scalar, y: Scalar, rounding_mode: str | None = None) -> Instruction:
    a, b = n.tensors((x, y), n.dtype)
    if rounding_mode == "floor":
        return floor_divided(n, a, b)
    out = n.add("div", a, b)
    return n.add("trunc", out) if rounding_mode == "trunc" and n.dtype.is_float else out


@converts("ldexp")
def ldexp(n: Node, x: Instruction, exponent: Instruction) -> Instruction:
    """Returns x * 2**exponent, computed in float64: the power alone may exceed the range of narrower results."""
    wide = n.convert(exponent, dt.float64)
    power = n.add("pow", n.full_like(wide, 2), wide)
    return n.convert(n.pointwise("mul", n.convert(x, dt.float64), power), n.dtype)


@converts("floor_divide")
def floor_divide(n: Node, x: Scalar, y: Scalar) -> Instruction:
    return floor_divided(n, *n.tensors((x, y), n.dtype))


def floor_divided(n: Node, a: Instruction, b: Instruction) -> Instruction:
    """Returns the exact floor of the quotient, even if the quotient rounds up; NaN for infinite dividends."""
    if not a.shape.dtype.is_float:
        return divide_floor(n, a, b)
    zero = n.full_like(a, 0)
    rest = n.add("fmod", a, b)
    whole = n.add("nearbyint", n.add("div", n.add("sub", a, rest), b))
    signs = n.add("logical_xor", n.add("less", b, zero), n.add("less", rest, zero))
    beyond = n.add("logical_and", n.add("not_equal", rest, zero), signs)
    out = n.add("where", beyond, n.add("sub", whole, n.full_like(a, 1)), whole)
    return n.add("where", n.add("equal", b, zero), n.add("div", a, b), out)


def binary(name: str) -> Converter:
    def convert(n: Node, x: Scalar, y: Scalar) -> Instruction:
        return n.add(name, *n.tensors((x, y), n.dtype))

    return convert


for _torch, _name in (("remainder", "mod"), ("fmod", "fmod"), ("maximum", "max"), ("minimum", "min"), ("max.other", "max"),
                      ("min.other", "min")):  # fmt: skip
    converts(_torch)(binary(_name))


def incomplete_gamma(upper: bool) -> Converter:
    def convert(n: Node, a: Scalar, x: Scalar) -> Instruction:
        return n.add("igamma", *n.tensors((a, x), n.dtype), upper=upper)

    return convert


converts("igamma")(incomplete_gamma(False))
converts("igammac")(incomplete_gamma(True))


def ignoring_nan(name: str) -> Converter:
    """Applies a binary op; where one operand is NaN, returns the other."""

    def convert(n: Node, x: Scalar, y: Scalar) -> Instruction:
        a, b = n.tensors((x, y), n.dtype)
        out = n.add(name, a, b)
        if not n.dtype.is_float:
            return out
        return n.add("where", n.add("isnan", a), b, n.add("where", n.add("isnan", b), a, out))

    return convert


converts("fmax")(ignoring_nan("max"))
converts("fmin")(ignoring_nan("min"))


@converts("pow", "float_power")
def power(n: Node, x: Scalar, y: Scalar) -> Instruction:
    if isinstance(y, (int, float)) and isinstance(x, Instruction):
        x = n.convert(x, n.dtype)
        match y:
            case 1:
                return x
            case 2:
                return n.add("mul", x, x)
            case 3:
                return n.add("mul", n.add("mul", x, x), x)
        if n.dtype.is_float:
            match y:
                case 0.5:
                    return n.add("sqrt", x)
                case -0.5:
                    return n.add("rsqrt", x)
                case -1:
                    return n.add("recip", x)
    base, exponent = n.tensors((x, y), n.dtype)
    out = n.add("pow", base, exponent)
    if n.dtype.is_float or (isinstance(y, (int, float)) and y >= 0):
        return out
    zero = n.full_like(base, 0)  # for integers, 0 ** -1 is 0 in torch, but the type's minimum in the op
    lost = n.add("logical_and", n.add("equal", base, zero), n.add("less", exponent, n.full_like(exponent, 0)))
    return n.add("where", lost, zero, out)


@converts("atan2", "arctan2")
def atan2(n: Node, x: Scalar, y: Scalar) -> Instruction:
    """Returns atan2(y, x) by argument reduction: atan of the smaller over the larger, moved to its octant."""
    a, b = n.tensors((x, y), n.dtype)  # a: ordinate, b: abscissa
    zero, pi = n.full_like(a, 0), n.full_like(a, 3.141592653589793)
    half = n.full_like(a, 1.5707963267948966)
    size_a, size_b = n.add("abs", a), n.add("abs", b)
    steep = n.add("greater", size_a, size_b)
    top, low = n.add("max", size_a, size_b), n.add("min", size_a, size_b)
    ratio = n.add("where", n.add("equal", low, top), n.full_like(a, 1), n.add("div", low, top))
    ratio = n.add("where", n.add("equal", top, zero), zero, ratio)
    angle = n.add("atan", ratio)
    angle = n.add("where", steep, n.add("sub", half, angle), angle)
    left = n.add("less", n.add("where", n.add("equal", b, zero), n.add("recip", b), b), zero)
    angle = n.add("where", left, n.add("sub", pi, angle), angle)
    below = n.add("less", n.add("where", n.add("equal", a, zero), n.add("recip", a), a), zero)
    angle = n.add("where", below, n.add("neg", angle), angle)
    unordered = n.add("logical_or", n.add("isnan", a), n.add("isnan", b))
    return n.add("where", unordered, n.add("add", a, b), angle)


@converts("hypot")
def hypot(n: Node, x: Instruction, y: Instruction) -> Instruction:
    """Returns sqrt(x^2 + y^2) without overflow; infinite if either is, even with NaN."""
    a, b = (n.add("abs", v) for v in n.tensors((x, y), n.dtype))
    zero, one, long = n.full_like(a, 0), n.full_like(a, 1), n.add("max", a, b)
    ratio = n.add("div", n.add("min", a, b), n.add("where", n.add("equal", long, zero), one, long))
    out = n.add("mul", long, n.add("sqrt", n.add("add", one, n.add("mul", ratio, ratio))))
    infinite = n.add("logical_or", n.add("isinf", a), n.add("isinf", b))
    return n.add("where", infinite, n.full_like(a, float("inf")), out)


@converts("addcmul")
def addcmul(n: Node, x: Instruction, a: Instruction, b: Instruction, value: Any = 1) -> Instruction:
    wide = n.rounded_once()
    product = n.pointwise("mul", n.tensor(a, wide), n.tensor(b, wide))
    return n.convert(n.pointwise("add", n.tensor(x, wide), scaled(n, product, value, wide)), n.dtype)


@converts("fma", domain="prims")
def fma(n: Node, a: Scalar, b: Scalar, x: Scalar) -> Instruction:
    a, b, x = (n.tensor(v, n.dtype) for v in (a, b, x))
    return n.pointwise("add", n.pointwise("mul", a, b), x)


@converts("addcdiv")
def addcdiv(n: Node, x: Instruction, a: Instruction, b: Instruction, value: Any = 1) -> Instruction:
    wide = n.rounded_once()
    quotient = n.pointwise("div", n.tensor(a, wide), n.tensor(b, wide))
    return n.convert(n.pointwise("add", n.tensor(x, wide), scaled(n, quotient, value, wide)), n.dtype)


@converts("lerp")
def lerp(n: Node, x: Instruction, y: Instruction, weight: Scalar) -> Instruction:
    a, b, w = n.tensors((x, y, weight), n.rounded_once())
    near = n.add("add", a, n.add("mul", w, n.add("sub", b, a)))
    far = n.add("sub", b, n.add("mul", n.add("sub", b, a), n.add("sub", n.full_like(w, 1), w)))
    return n.convert(n.add("where", n.add("less", n.add("abs", w), n.full_like(w, 0.5)), near, far), n.dtype)
