"""Recognizes activations that exporters decompose into primitive ops."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.activation import (
    GeluErf,
    GeluTanh,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    Prelu,
    QuickGelu,
    Sigmoid,
    Softplus,
    Swish,
)
from ..ops.compare import Greater, GreaterOrEqual, Less, LessOrEqual
from ..ops.convert import Convert
from ..ops.operation import Operation
from ..ops.pointwise import Add, Clip, Div, Erf, Exp, Log, Max, Mul, Neg, Pow, Recip, Where
from ..ops.trigonometry import Tanh
from .constants import is_constant, scalar_of, uniform
from .engine import ROUNDING, Builder, Rules
from .matching import either, one_user, other

__all__ = ["ACTIVATIONS", "scalar_of"]

ACTIVATIONS: Final = Rules("raise-activations")
DEEPEST: Final = 6  # the most nested products in a formula


def factors(ins: Instruction, depth: int = 0) -> tuple[float, list[Instruction]]:
    """Returns the constant and the other factors of a flattened product (through a few products with a single use)."""
    value = scalar_of(ins)
    if value is not None:
        return value, []
    if depth > DEEPEST or (depth and not one_user(ins)):
        return 1.0, [ins]
    if isinstance(ins.op, Mul):
        c, left = factors(ins.inputs[0], depth + 1)
        d, right = factors(ins.inputs[1], depth + 1)
        return c * d, left + right
    if isinstance(ins.op, Div):
        divisor = scalar_of(ins.inputs[1])
        if divisor:
            c, left = factors(ins.inputs[0], depth + 1)
            return c / divisor, left
    return 1.0, [ins]


def one_plus(ins: Instruction, cls: type[Operation]) -> Instruction | None:
    """Returns the operand of an op of class `cls` in ``1 + op(operand)``."""
    if not isinstance(ins.op, Add):
        return None
    return next((x.inputs[0] for x, one in either(ins) if isinstance(x.op, cls) and scalar_of(one) == 1.0), None)


def close(i: Instruction, a: float, b: float) -> bool:
    """Returns True if a constant of a model equals that of the formula, up to rounding in the result's type."""
    of = i.shape.dtype
    return math.isclose(a, b, rel_tol=min(1e-3, 64 * of.epsilon)) or a == float(np.asarray(b).astype(of.numpy))


def _gated(i: Instruction, cls: type[Operation]) -> tuple[float, Instruction, float, list[Instruction]] | None:
    """Returns c, x, s and the factors of y where a product is ``c * x * (1 + op(s * y))`` for an op of class `cls`."""
    c, parts = factors(i)
    for n, part in enumerate(parts):
        inner = one_plus(part, cls)
        if inner is not None and len(parts) == 2:
            return c, parts[1 - n], *factors(inner)
    return None


@ACTIVATIONS.on(Mul, reads=(Add, Mul, Div), changes=ROUNDING)
def gelu_from_erf(i: Instruction, b: Builder) -> Instruction | No | None:
    """0.5 * x * (1 + erf(x / sqrt(2))) -> gelu_erf(x)."""
    found = _gated(i, Erf)
    if found is None:
        return None
    c, x, scale, inside = found
    if inside != [x] or not close(i, scale, math.sqrt(0.5)):
        return No("the argument of erf is not x / sqrt(2)")
    return b.add(GeluErf(), x) if close(i, c, 0.5) else No(f"the factor is {c}, not 0.5")


@ACTIVATIONS.on(Mul, reads=(Add, Mul, Div), changes=ROUNDING)
def gelu_from_tanh(i: Instruction, b: Builder) -> Instruction | No | None:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * y)) -> gelu_tanh(x), where y = x + 0.044715 * x^3 or x * (1 + 0.044715 * x^2)."""
    found = _gated(i, Tanh)
    if found is None:
        return None
    c, x, scale, inside = found
    if not close(i, scale, math.sqrt(2 / math.pi)) or not close(i, c, 0.5):
        return No("the constants are not those of gelu")
    match inside:
        case [whole] if _has_cube(whole, x):
            return b.add(GeluTanh(), x)
        case [one, two] if (one is x and _has_square(two, x)) or (two is x and _has_square(one, x)):
            return b.add(GeluTanh(), x)
    return No("the argument of tanh is neither x + 0.044715 * x^3 nor x * (1 + 0.044715 * x^2)")


def _has_cube(ins: Instruction, x: Instruction) -> bool:
    """Returns True for ``x + 0.044715 * x^3``."""
    return isinstance(ins.op, Add) and any(one is x and _is_power(rest, x, 3) for one, rest in either(ins))


def _has_square(ins: Instruction, x: Instruction) -> bool:
    """Returns True for ``1 + 0.044715 * x^2``."""
    return isinstance(ins.op, Add) and any(scalar_of(one) == 1.0 and _is_power(rest, x, 2) for one, rest in either(ins))


def _is_power(ins: Instruction, x: Instruction, exponent: int) -> bool:
    """Returns True for ``0.044715 * x^exponent``; the power may be computed in a wider type, as programs in float16 do."""
    scale, parts = factors(ins)
    if not close(ins, scale, 0.044715):
        return False
    if len(parts) == 1:
        power = _converted(parts[0])
        if isinstance(power.op, Pow):
            base, given = power.inputs
            return scalar_of(given) == exponent and (base is x or _widened(base) is x)
    return parts == [x] * exponent


def _converted(ins: Instruction) -> Instruction:
    """Returns the operand of a conversion between floating-point types, other instructions themselves."""
    return ins.inputs[0] if isinstance(ins.op, Convert) and ins.inputs[0].shape.dtype.is_float else ins


def _widened(ins: Instruction) -> Instruction:
    """Returns the operand of a conversion to a wider floating-point type, other instructions themselves."""
    source = _converted(ins)
    return source if source.shape.dtype.bits < ins.shape.dtype.bits else ins


@ACTIVATIONS.on(Mul, reads=Sigmoid, changes=ROUNDING)
def swish_from_sigmoid(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * sigmoid(x) -> swish(x); x * sigmoid(a * x) -> quick_gelu(x), a > 0."""
    for gate, x in either(i):
        if not isinstance(gate.op, Sigmoid):
            continue
        inner = gate.inputs[0]
        if inner is x:
            return b.add(Swish(), x)
        scale, parts = factors(inner)
        if parts == [x] and isinstance(inner.op, (Mul, Div)):
            return b.add(QuickGelu(alpha=scale), x)
    return None


@ACTIVATIONS.on(Div, Recip, changes=ROUNDING)
def sigmoid_from_exp(i: Instruction, b: Builder) -> Instruction | No | None:
    """1 / (1 + exp(-x)) -> sigmoid(x)."""
    if isinstance(i.op, Div) and scalar_of(i.inputs[0]) != 1.0:
        return None
    power = one_plus(i.inputs[-1], Exp)
    if power is None or not i.shape.dtype.is_float:
        return None
    if not isinstance(power.op, Neg):
        return No("the exponent is not negated")
    return b.add(Sigmoid(), power.inputs[0])


@ACTIVATIONS.on(Log, reads=Add, changes=ROUNDING)
def softplus_from_exp(i: Instruction, b: Builder) -> Instruction | No | None:
    """log(1 + exp(x)) -> softplus(x)."""
    x = one_plus(i.inputs[0], Exp)
    return b.add(Softplus(), x) if x is not None and i.shape.dtype.is_float else None


@ACTIVATIONS.on(Mul, reads=Tanh, changes=ROUNDING)
def mish_from_tanh(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * tanh(softplus(x)) -> mish(x)."""
    for gate, x in either(i):
        match gate:
            case Instruction(Tanh(), (Instruction(Softplus(), (source,)),)) if source is x:
                return b.add(Mish(), x)
    return None


@ACTIVATIONS.on(Mul, Div, reads=(Clip, Mul, Div), changes=ROUNDING)
def hard_sigmoid_from_clip(i: Instruction, b: Builder) -> Instruction | No | None:
    """clip(x + 3, 0, 6) / 6 -> hard_sigmoid(x)."""
    c, parts = factors(i)
    if len(parts) != 1 or not isinstance(parts[0].op, Clip) or not i.shape.dtype.is_float:
        return None
    total, low, high = parts[0].inputs
    top = scalar_of(high)
    if scalar_of(low) != 0.0 or top is None or not close(i, c * top, 1.0) or not isinstance(total.op, Add):
        return No("the bounds and the factor do not clip to 0 and 1")
    for x, constant in either(total):
        offset = scalar_of(constant)
        if offset is not None:
            return b.add(HardSigmoid(alpha=c, beta=offset * c), x)
    return None


@ACTIVATIONS.on(Mul, reads=(HardSigmoid, Clip, Mul, Div), changes=ROUNDING)
def hard_swish_from_hard_sigmoid(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * hard_sigmoid(x) with slope 1/6 and offset 1/2 -> hard_swish(x); also x * clip(x + 3, 0, 6) / 6."""
    c, parts = factors(i)
    if len(parts) != 2 or not i.shape.dtype.is_float:
        return None
    for gate, x in (parts, parts[::-1]):
        if isinstance(gate.op, HardSigmoid) and gate.inputs[0] is x and c == 1.0:
            if close(i, gate.op.alpha, 1 / 6) and close(i, gate.op.beta, 0.5):
                return b.add(HardSwish(), x)
            return No("the slope and offset are not 1/6 and 1/2")
        if isinstance(gate.op, Clip) and isinstance(gate.inputs[0].op, Add) and x in gate.inputs[0].inputs:
            total, low, high = gate.inputs
            offset = other(total, x)
            bounds = offset and scalar_of(offset), scalar_of(low), scalar_of(high)
            if bounds == (3.0, 0.0, 6.0) and close(i, c, 1 / 6):
                return b.add(HardSwish(), x)
            return No("the constants are not those of hard_swish")
    return None


@ACTIVATIONS.on(Prelu)
def leaky_relu_from_prelu(i: Instruction, b: Builder) -> Instruction | No | None:
    """prelu(x, a) -> leaky_relu(x), a a uniform constant, which becomes an attribute."""
    if not i.shape.dtype.is_float:
        return None
    slope = uniform(i.inputs[1])
    return No("the slope is not one constant") if slope is None else b.add(LeakyRelu(alpha=slope), i.inputs[0])


@ACTIVATIONS.on(Max, reads=Mul)
def leaky_relu_from_max(i: Instruction, b: Builder) -> Instruction | No | None:
    """max(x, a * x) -> leaky_relu(x), 0 < a < 1."""
    if not i.shape.dtype.is_float:
        return None
    for x, scaled in either(i):
        factor = other(scaled, x) if isinstance(scaled.op, Mul) else None
        if factor is None or is_constant(x):
            continue
        slope = scalar_of(factor)
        if slope is not None and 0 < slope < 1:
            return b.add(LeakyRelu(alpha=slope), x)
        return No("the slope is not a constant between 0 and 1")
    return None


@ACTIVATIONS.on(Where)
def leaky_relu_from_where(i: Instruction, b: Builder) -> Instruction | No | None:
    """where(x > 0, x, a * x), where(x < 0, a * x, x) -> leaky_relu(x)."""
    condition, then, other = i.inputs
    if not isinstance(condition.op, (Greater, GreaterOrEqual, Less, LessOrEqual)) or not i.shape.dtype.is_float:
        return None
    x, scaled = (then, other) if isinstance(condition.op, (Greater, GreaterOrEqual)) else (other, then)
    if condition.inputs[0] is not x or scalar_of(condition.inputs[1]) != 0.0 or not isinstance(scaled.op, Mul):
        return None
    if x not in scaled.inputs:
        return None
    slope = scalar_of(scaled.inputs[1] if scaled.inputs[0] is x else scaled.inputs[0])
    return No("the slope is not constant") if slope is None else b.add(LeakyRelu(alpha=slope), x)
