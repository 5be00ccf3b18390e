"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import chosen, clipped, divide_floor, fake_quantized, modulo_floor, turn

from ..converter import converts
from ..node import Node

UNARY = {
    "ABS": "abs", "NEG": "neg", "SIGN": "sign", "EXP": "exp", "LOG": "log", "SQRT": "sqrt", "RSQRT": "rsqrt", "SIN": "sin",
    "COS": "cos", "TANH": "tanh", "CEIL": "ceil", "FLOOR": "floor", "RELU": "relu", "LOGISTIC": "sigmoid", "ELU": "elu",
    "LOGICAL_NOT": "not",
}  # fmt: skip
BINARY = {
    "ADD": "add", "SUB": "sub", "MUL": "mul", "DIV": "div", "MAXIMUM": "max", "MINIMUM": "min", "POW": "pow",
    "SQUARED_DIFFERENCE": "sqdiff", "GREATER": "greater", "GREATER_EQUAL": "greater_or_equal", "LESS": "less",
    "LESS_EQUAL": "less_or_equal", "LOGICAL_AND": "logical_and", "LOGICAL_OR": "logical_or", "BITWISE_XOR": "bitwise_xor",
    "RIGHT_SHIFT": "bit_shift_right",
}  # fmt: skip


def _unary(op: str) -> Callable[..., Instruction]:
    def convert(n: Node, x: Instruction) -> Instruction:
        return n.pointwise(op, x)

    return convert


def _binary(op: str, activates: bool) -> Callable[..., Instruction]:
    def convert(n: Node, x: Instruction, y: Instruction) -> Instruction:
        if op == "mul" and n.kind().kind == "c":
            return _complex_product(n, x, y)
        made = n.pointwise(op, x, y)
        return n.activated(made) if activates else made

    return convert


def _complex_product(n: Node, x: Instruction, y: Instruction) -> Instruction:
    """Returns the product of complex numbers stored as pairs along the last axis."""
    (a, b), (c, d) = ([n.slice(v, [v.shape.rank - 1], [k], [k + 1]) for k in range(2)] for v in (x, y))
    real = n.pointwise("sub", n.pointwise("mul", a, c), n.pointwise("mul", b, d))
    imag = n.pointwise("add", n.pointwise("mul", a, d), n.pointwise("mul", b, c))
    return n.concat([real, imag], real.shape.rank - 1)


for _name, _op in UNARY.items():
    converts(_name)(_unary(_op))
for _name, _op in BINARY.items():
    converts(_name)(_binary(_op, _name in ("ADD", "SUB", "MUL", "DIV")))


@converts("EQUAL", "NOT_EQUAL")
def equal(n: Node, x: Instruction, y: Instruction) -> Instruction:
    if x.shape.dtype.kind == "s":
        made = n.add("tflite_string_equal", *n.broadcast(x, y))
        return made if n.op_type == "EQUAL" else n.pointwise("not", made)
    return n.pointwise("equal" if n.op_type == "EQUAL" else "not_equal", x, y)


@converts("ROUND")
def round_(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("nearbyint", x)


@converts("SQUARE")
def square(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("mul", x, x)


@converts("RELU6")
def relu6(n: Node, x: Instruction) -> Instruction:
    return clipped(n, x, 0, 6)


@converts("RELU_N1_TO_1")
def relu_n1_to_1(n: Node, x: Instruction) -> Instruction:
    return clipped(n, x, -1, 1)


@converts("RELU_0_TO_1")
def relu_0_to_1(n: Node, x: Instruction) -> Instruction:
    return clipped(n, x, 0, 1)


@converts("LEAKY_RELU")
def leaky_relu(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("leaky_relu", x, alpha=float(n.option("Alpha", 0.0)))


@converts("PRELU")
def prelu(n: Node, x: Instruction, slope: Instruction) -> Instruction:
    return n.pointwise("prelu", x, slope)


@converts("HARD_SWISH")
def hard_swish(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("hard_swish", x)


@converts("GELU")
def gelu(n: Node, x: Instruction) -> Instruction:
    return n.pointwise("gelu_tanh" if n.option("Approximate", False) else "gelu_erf", x)


@converts("ADD_N")
def add_n(n: Node, *xs: Instruction) -> Instruction:
    total = xs[0]
    for x in xs[1:]:
        total = n.pointwise("add", total, x)
    return total


@converts("FLOOR_DIV")
def floor_div(n: Node, x: Instruction, y: Instruction) -> Instruction:
    return divide_floor(n, x, y)


@converts("FLOOR_MOD")
def floor_mod(n: Node, x: Instruction, y: Instruction) -> Instruction:
    return modulo_floor(n, x, y)


@converts("ATAN2")
def atan2(n: Node, y: Instruction, x: Instruction) -> Instruction:
    return turn(n, y, x)


@converts("SELECT_V2")
def select_v2(n: Node, condition: Instruction, x: Instruction, y: Instruction) -> Instruction:
    return n.pointwise("where", condition, x, y)


@converts("SELECT")
def select(n: Node, condition: Instruction, x: Instruction, y: Instruction) -> Instruction:
    return chosen(n, condition, x, y)


@converts("CAST")
def cast(n: Node, x: Instruction) -> Instruction:
    to = n.kind()
    if to is dt.bool_ and x.shape.dtype is not dt.bool_:
        return n.pointwise("not_equal", x, n.literal(0, x.shape.dtype))
    if to.kind == "c":  # complex numbers get a last axis for real and imaginary parts
        real = n.convert(x, dt.float64 if to is dt.complex128 else dt.float32)
        axis = x.shape.rank
        return n.concat([n.unsqueeze(real, [axis]), n.unsqueeze(n.full_like(real, 0), [axis])], axis)
    return n.convert(x, to)


@converts("BITCAST")
def bitcast(n: Node, x: Instruction) -> Instruction:
    return n.add("bit_cast", x, target_type=n.kind())


@converts("QUANTIZE")
def quantize(n: Node, x: Instruction) -> Instruction:
    given = n.input(0)
    assert given is not None
    source, to = given.quantization, n.output()
    same = source is not None and to.quantization is not None and np.array_equal(source.scale, to.quantization.scale)
    if same and x.shape.dtype is to.dtype and source == to.quantization:
        return x
    return n.quantized(n.dequantized(x, given), to)


@converts("DEQUANTIZE")
def dequantize(n: Node, x: Instruction) -> Instruction:
    given = n.input(0)
    assert given is not None
    return n.convert(n.dequantized(x, given), n.kind())


@converts("FAKE_QUANT")
def fake_quant(n: Node, x: Instruction) -> Instruction:
    low, high = (np.asarray(n.option(w, v), np.float32) for w, v in (("Min", -6.0), ("Max", 6.0)))
    return fake_quantized(n, x, low, high, n.option("NumBits", 8), n.option("NarrowRange", False))


@converts("DENSIFY")
def densify(n: Node, x: Instruction) -> Instruction:
    return x
