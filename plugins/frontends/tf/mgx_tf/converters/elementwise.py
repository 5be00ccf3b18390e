"""Elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import chosen, clipped, divide_floor, divide_no_nan, modulo_floor, turn

from ..converter import converts
from ..node import Node

UNARY = {
    "Abs": "abs", "Neg": "neg", "Sign": "sign", "Exp": "exp", "Expm1": "expm1", "Log": "log", "Log1p": "log1p", "Sqrt": "sqrt",
    "Rsqrt": "rsqrt", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf", "Ceil": "ceil",
    "Floor": "floor", "Rint": "nearbyint", "Relu": "relu", "Sigmoid": "sigmoid", "Softplus": "softplus",
    "Softsign": "softsign", "IsNan": "isnan", "LogicalNot": "not", "Reciprocal": "recip", "Inv": "recip", "Invert": "bitwise_not",
}  # fmt: skip

BINARY = {
    "Add": "add", "AddV2": "add", "Sub": "sub", "Mul": "mul", "RealDiv": "div", "Div": "div", "TruncateDiv": "div",
    "Maximum": "max", "Minimum": "min", "Pow": "pow", "SquaredDifference": "sqdiff", "TruncateMod": "fmod",
    "Greater": "greater", "GreaterEqual": "greater_or_equal", "Less": "less", "LessEqual": "less_or_equal",
    "LogicalAnd": "logical_and", "LogicalOr": "logical_or", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "LeftShift": "bit_shift_left", "RightShift": "bit_shift_right",
}  # fmt: skip


def _unary(op: str) -> Callable[..., Instruction]:
    def convert(n: Node, x: Instruction) -> Instruction:
        return n.pointwise(op, x)

    return convert


def _binary(op: str) -> Callable[..., Instruction]:
    def convert(n: Node, x: Instruction, y: Instruction) -> Instruction:
        if op == "add" and x.shape.dtype.kind == "s":
            return n.add("tf_string_join", *n.broadcast(x, y))
        return n.pointwise(op, x, y)

    return convert


for _name, _op in UNARY.items():
    converts(_name)(_unary(_op))
for _name, _op in BINARY.items():
    converts(_name)(_binary(_op))


@converts("Round")
def round_(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("nearbyint", x) if x.shape.dtype.is_float else x


@converts("Square")
def square(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("mul", x, x)


@converts("Relu6")
def relu6(n: Node, x: Instruction) -> Instruction:
    return clipped(n, x, 0, 6)


@converts("LeakyRelu")
def leaky_relu(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("leaky_relu", x, alpha=n.float("alpha", 0.2))


@converts("Elu")
def elu(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("elu", x)


@converts("Selu")
def selu(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("selu", x)


@converts("Erfc")
def erfc(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("sub", n.literal(1, x.shape.dtype), n.pointwise("erf", x))


@converts("Ndtri")
def ndtri(n: Node, x: Instruction) -> Instruction:
    twice = n.pointwise("sub", n.pointwise("mul", x, n.literal(2, x.shape.dtype)), n.literal(1, x.shape.dtype))
    root = n.literal(math.sqrt(2), x.shape.dtype)
    return n.pointwise("mul", n.add("tf_special", twice, function="erfinv"), root)


@converts(
    "Lgamma", "Digamma", "Erfinv", "BesselI0e", "BesselI1e", "BesselI0", "BesselI1", "BesselJ0", "BesselJ1", "BesselK0",
    "BesselK1", "BesselK0e", "BesselK1e", "BesselY0", "BesselY1", "Dawsn", "Expint", "FresnelCos", "FresnelSin", "Spence",
    "Betainc", "Zeta", "Polygamma", "NextAfter",
)  # fmt: skip
def special(n: Node, *xs: Instruction) -> Instruction:
    return n.add("tf_special", *n.broadcast(*xs), function=n.op_type.lower())


@converts("Igamma", "Igammac")
def incomplete_gamma(n: Node, order: Instruction, x: Instruction) -> Instruction:
    kind = order.shape.dtype
    positive = n.pointwise("greater", order, n.literal(0, kind))
    order = n.pointwise("where", positive, order, n.literal(math.nan, kind))  # TensorFlow's result for order 0 is NaN
    return n.add("igamma", *n.broadcast(order, x), upper=n.op_type == "Igammac")


@converts("PopulationCount")
def population_count(n: Node, x: Instruction) -> Instruction:
    bits = x.shape.dtype.bits
    wide = n.convert(n.add("bit_cast", x, target_type=f"uint{bits}"), dt.uint64)
    total: Instruction | None = None
    for k in range(bits):
        moved = n.pointwise("bit_shift_right", wide, n.literal(k, dt.uint64))
        bit = n.pointwise("bitwise_and", moved, n.literal(1, dt.uint64))
        total = bit if total is None else n.pointwise("add", total, bit)
    assert total is not None
    return n.convert(total, dt.uint8)


@converts("IsInf")
def is_inf(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("isinf", x)


@converts("IsFinite")
def is_finite(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("not", n.pointwise("logical_or", n.pointwise("isinf", x), n.pointwise("isnan", x)))


@converts("Equal", "NotEqual")
def equal(n: Node, x: Instruction, y: Instruction) -> Instruction:
    if x.shape.dtype.kind == "s":
        made = n.add("tf_string_equal", *n.broadcast(x, y))
        return made if n.op_type == "Equal" else n.pointwise("not", made)
    return n.pointwise("equal" if n.op_type == "Equal" else "not_equal", x, y)


@converts("ApproximateEqual")
def approximate_equal(n: Node, x: Instruction, y: Instruction) -> Instruction:
    apart = n.pointwise("abs", n.pointwise("sub", x, y))
    return n.pointwise("less", apart, n.literal(n.float("tolerance", 1e-5), x.shape.dtype))


@converts("FloorDiv")
def floor_div(n: Node, x: Instruction, y: Instruction) -> Instruction:
    return divide_floor(n, x, y)


@converts("FloorMod", "Mod")
def floor_mod(n: Node, x: Instruction, y: Instruction) -> Instruction:
    return modulo_floor(n, x, y) if n.op_type == "FloorMod" else n.pointwise("fmod", x, y)


@converts("DivNoNan")
def div_no_nan(n: Node, x: Instruction, y: Instruction) -> Instruction:
    return divide_no_nan(n, x, y)


@converts("MulNoNan", "Xdivy", "Xlogy", "Xlog1py")
def zero_dominant(n: Node, x: Instruction, y: Instruction) -> Instruction:
    """Returns the product or quotient; 0 if the decisive operand (y of MulNoNan, else x) is 0, even if the other is NaN."""
    decides = y if n.op_type == "MulNoNan" else x
    zero = n.literal(0, x.shape.dtype)
    match n.op_type:
        case "MulNoNan":
            made = n.pointwise("mul", x, y)
        case "Xdivy":
            made = n.pointwise("div", x, y)
        case "Xlogy":
            made = n.pointwise("mul", x, n.pointwise("log", y))
        case _:
            made = n.pointwise("mul", x, n.pointwise("log1p", y))
    return n.pointwise("where", n.pointwise("equal", decides, zero), zero, made)


@converts("Atan2")
def atan2(n: Node, y: Instruction, x: Instruction) -> Instruction:
    return turn(n, y, x)


@converts("AddN", "AccumulateNV2")
def add_n(n: Node, *xs: Instruction) -> Instruction:
    if not xs:
        n.fail("at least one input is required")
    total = xs[0]
    for x in xs[1:]:
        total = n.pointwise("add", total, x)
    return total


@converts("BiasAdd")
def bias_add(n: Node, x: Instruction, bias: Instruction) -> Instruction:
    if n.string("data_format", "NHWC") == "NCHW" and x.shape.rank > 2:
        bias = n.reshape(bias, (bias.shape.dims[0], *(1,) * (x.shape.rank - 2)))
    return n.pointwise("add", x, bias)


@converts("BiasAddV1")
def bias_add_v1(n: Node, x: Instruction, bias: Instruction) -> Instruction:
    return n.pointwise("add", x, bias)


@converts("ClipByValue")
def clip_by_value(n: Node, x: Instruction, low: Instruction, high: Instruction) -> Instruction:
    return n.pointwise("clip", x, low, high)


@converts("SelectV2")
def select_v2(n: Node, condition: Instruction, x: Instruction, y: Instruction) -> Instruction:
    return n.pointwise("where", condition, x, y)


@converts("Select")
def select(n: Node, condition: Instruction, x: Instruction, y: Instruction) -> Instruction:
    return chosen(n, condition, x, y)


@converts("Cast")
def cast(n: Node, x: Instruction) -> Instruction:
    to = n.dtype("DstT")
    if to is dt.bool_ and x.shape.dtype is not dt.bool_:
        return n.pointwise("not_equal", x, n.literal(0, x.shape.dtype))
    return n.convert(x, to)


@converts("Bitcast")
def bitcast(n: Node, x: Instruction) -> Instruction:
    to = n.dtype("type")
    if to.bits != x.shape.dtype.bits:
        n.unsupported(f"a bitcast of {x.shape.dtype} to {to}, which changes the number of elements")
    return n.add("bit_cast", x, target_type=to)


@converts("CheckNumerics", "CheckNumericsV2", "DebugGradientIdentity", "EnsureShape", "PreventGradient", "StopGradient")
def passes(n: Node, x: Instruction) -> Instruction:
    return x
