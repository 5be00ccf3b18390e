"""Recognise activations that exporters spell out in primitive ops."""

from __future__ import annotations

import math
from typing import Final

from ..ir.instruction import Instruction
from ..kernel import No
from ..ops.activation import GeluErf, GeluTanh, Swish
from ..ops.pointwise import Mul
from ..rewrite import Builder, Rules
from .constants import scalar_of

__all__ = ["ACTIVATIONS", "scalar_of"]

ACTIVATIONS: Final = Rules("raise-activations")


def factors(ins: Instruction, root: bool = True) -> tuple[float, list[Instruction]]:
    """A product flattened: its constant, and what is multiplied (through products that nothing else reads)."""
    value = scalar_of(ins)
    if value is not None:
        return value, []
    if ins.op.name == "mul" and (root or len(ins.users) == 1):
        c, left = factors(ins.inputs[0], False)
        d, right = factors(ins.inputs[1], False)
        return c * d, left + right
    if ins.op.name == "div" and (root or len(ins.users) == 1):
        divisor = scalar_of(ins.inputs[1])
        if divisor:
            c, left = factors(ins.inputs[0], False)
            return c / divisor, left
    return 1.0, [ins]


def one_plus(ins: Instruction, name: str) -> Instruction | None:
    """The operand of `name` in ``1 + name(operand)``."""
    if ins.op.name != "add":
        return None
    for at in (0, 1):
        if ins.inputs[at].op.name == name and scalar_of(ins.inputs[1 - at]) == 1.0:
            return ins.inputs[at].inputs[0]
    return None


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-3)


@ACTIVATIONS.on(Mul)
def gelu_from_erf(i: Instruction, b: Builder) -> Instruction | No | None:
    """0.5 * x * (1 + erf(x / sqrt(2))) -> gelu_erf(x)."""
    c, parts = factors(i)
    for n, part in enumerate(parts):
        inner = one_plus(part, "erf")
        if inner is None or len(parts) != 2:
            continue
        x = parts[1 - n]
        scale, inside = factors(inner)
        if inside != [x] or not close(scale, math.sqrt(0.5)):
            return No("the argument of erf is not x / sqrt(2)")
        gelu = b.add(GeluErf(), x)
        return gelu if close(c, 0.5) else No(f"the factor is {c}, not 0.5")
    return None


@ACTIVATIONS.on(Mul)
def gelu_from_tanh(i: Instruction, b: Builder) -> Instruction | No | None:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) -> gelu_tanh(x)."""
    c, parts = factors(i)
    for n, part in enumerate(parts):
        inner = one_plus(part, "tanh")
        if inner is None or len(parts) != 2:
            continue
        x = parts[1 - n]
        scale, inside = factors(inner)
        if len(inside) != 1 or not close(scale, math.sqrt(2 / math.pi)) or not close(c, 0.5):
            return No("the constants are not those of gelu")
        if not _cubic(inside[0], x):
            return No("the argument of tanh is not x + 0.044715 * x^3")
        return b.add(GeluTanh(), x)
    return None


def _cubic(ins: Instruction, x: Instruction) -> bool:
    if ins.op.name != "add" or x not in ins.inputs:
        return False
    other = ins.inputs[1] if ins.inputs[0] is x else ins.inputs[0]
    scale, parts = factors(other)
    if not close(scale, 0.044715):
        return False
    if len(parts) == 1 and parts[0].op.name == "pow":
        return parts[0].inputs[0] is x and scalar_of(parts[0].inputs[1]) == 3.0
    return parts == [x, x, x]


@ACTIVATIONS.on(Mul)
def swish_from_sigmoid(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * sigmoid(x) -> swish(x)."""
    for at in (0, 1):
        if i.inputs[at].op.name == "sigmoid" and i.inputs[at].inputs[0] is i.inputs[1 - at]:
            return b.add(Swish(), i.inputs[1 - at])
    return None
