"""Epilogue of a library primitive: a pointwise group read as a chain of post-ops.

The chain starts at the anchor's result and ends at the group's; each link is an activation, or a binary op with an operand that
does not depend on the anchor.  A group that is not such a chain runs as a separate loop.
"""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.activation import (
    Elu,
    GeluErf,
    GeluTanh,
    HardSwish,
    LeakyRelu,
    Mish,
    QuickGelu,
    Relu,
    Sigmoid,
    Softplus,
    Swish,
)
from ..ops.convert import Convert
from ..ops.operation import Operation
from ..ops.pointwise import Abs, Add, Clip, Div, Exp, Max, Min, Mul, Nearbyint, Neg, Sqrt, Sub
from ..ops.trigonometry import Tanh
from ..records import dataclass
from ..rules.activations import scalar_of
from ..rules.converts import holds_all
from ..types.dtype import float32, int32

__all__ = ["Link", "read_chain"]

# op -> (library algorithm, alpha, beta), attributes by name
ELTWISE: Final[dict[type[Operation], tuple[str, float | str, float | str]]] = {
    Relu: ("relu", 0.0, 0.0),
    LeakyRelu: ("relu", "alpha", 0.0),
    Elu: ("elu", "alpha", 0.0),
    Sigmoid: ("logistic", 0.0, 0.0),
    Tanh: ("tanh", 0.0, 0.0),
    Swish: ("swish", "alpha", 0.0),
    QuickGelu: ("swish", "alpha", 0.0),
    GeluErf: ("gelu_erf", 0.0, 0.0),
    GeluTanh: ("gelu_tanh", 0.0, 0.0),
    Sqrt: ("sqrt", 0.0, 0.0),
    Abs: ("abs", 0.0, 0.0),
    Exp: ("exp", 0.0, 0.0),
    HardSwish: ("hardswish", 1.0 / 6.0, 0.5),
    Mish: ("mish", 0.0, 0.0),
    Softplus: ("soft_relu", 1.0, 0.0),
    Nearbyint: ("round", 0.0, 0.0),
}
BINARY: Final[dict[type[Operation], str]] = {Add: "add", Mul: "mul", Max: "max", Min: "min", Sub: "sub", Div: "div"}
COMMUTES: Final = (Add, Mul, Max, Min)


@dataclass(frozen=True)
class Link:
    """One post-op: ``eltwise`` with a library algorithm and its two parameters, or ``binary`` with a group input.

    operand: for binary, the other operand in the group's body (a parameter or a view of one).
    """

    kind: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: Instruction | None = None


def read_chain(body: Module, anchor: Instruction) -> list[Link] | No:
    """Returns the links from the parameter `anchor` to the body's only result, or a refusal if it is not a chain.

    The caller performs float conversions when it stores the result; a rounding conversion is accepted only if all later links
    stay in its type.  Likewise the conversion of an int32 anchor to float32, and of whole numbers in range to an 8-bit integer,
    if it is last or directly converted back to float32.
    """
    if len(body.outputs) != 1:
        return No(f"the group has {len(body.outputs)} results, one is required")
    depends = _dependents(body, anchor)
    links: list[Link] = []
    converted = False  # after the current instruction
    at: Instruction = body.outputs[0]
    while at is not anchor:
        if at not in depends:
            return No("the result does not depend on the anchor")
        stored = at is body.outputs[0] and _stores_bytes(at)
        if converted and _rounds(at) and not _reads_sums(at, anchor):
            return No(f"a conversion to {at.shape.dtype} in mid-chain rounds")
        converted = converted or (isinstance(at.op, Convert) and not stored)
        step = (None, at.inputs[0]) if stored else _link(at, depends, anchor)
        if isinstance(step, No):
            return step
        link, at = step
        if link is not None:
            links.extend(reversed(link))
    links.reverse()
    return links


def _dependents(body: Module, anchor: Instruction) -> set[Instruction]:
    found = {anchor}
    for ins in body:
        if any(i in found for i in ins.inputs):
            found.add(ins)
    return found


def _rounds(ins: Instruction) -> bool:
    return isinstance(ins.op, Convert) and not holds_all(ins.shape.dtype, ins.inputs[0].shape.dtype)


def _reads_sums(ins: Instruction, anchor: Instruction) -> bool:
    """Returns True if an instruction directly converts the anchor's int32 sums."""
    return ins.inputs[0] is anchor and anchor.shape.dtype is int32 and ins.shape.dtype is float32


def _stores_bytes(at: Instruction) -> bool:
    """Returns True if an instruction converts whole numbers in range to an 8-bit integer type."""
    dtype = at.shape.dtype
    if (
        not isinstance(at.op, Convert)
        or not dtype.is_integer
        or dtype.bits != 8
        or not at.inputs[0].shape.dtype.is_float
    ):
        return False
    work = at.inputs[0]
    if not isinstance(work.op, Clip):
        return False
    low, high = (scalar_of(i) for i in work.inputs[1:3])
    if low is None or high is None or low < dtype.lowest or high > dtype.highest:
        return False
    work = work.inputs[0]
    while isinstance(work.op, (Add, Sub)):
        whole = scalar_of(work.inputs[1])
        if whole is None or whole != round(whole):
            return False
        work = work.inputs[0]
    return isinstance(work.op, Nearbyint)


def _link(
    at: Instruction, depends: set[Instruction], anchor: Instruction
) -> tuple[list[Link] | None, Instruction] | No:
    cls = type(at.op)
    onward = [i for i in at.inputs if i in depends]
    if cls is Convert:
        if _reads_sums(at, anchor):
            return None, anchor
        if at.shape.dtype is float32 and _stores_bytes(onward[0]):
            return None, onward[0].inputs[0]  # whole numbers in range survive the round trip
        if not (at.shape.dtype.is_float and onward[0].shape.dtype.is_float):
            return No(f"a conversion to {at.shape.dtype} cuts off or wraps")
        return None, onward[0]
    if cls in ELTWISE:
        algorithm, alpha, beta = ELTWISE[cls]
        return [Link("eltwise", algorithm, _number(at, alpha), _number(at, beta))], onward[0]
    if cls is Clip:
        low, high = (scalar_of(i) for i in at.inputs[1:3])
        if low is None or high is None or len(onward) != 1 or onward[0] is not at.inputs[0]:
            return No("the bounds of clip are not constant")
        return [Link("eltwise", "clip", low, high)], onward[0]
    if cls is Neg:
        return [Link("eltwise", "linear", -1.0, 0.0)], onward[0]
    if cls not in BINARY:
        return No(f"{at.op.name} is not a post-op")
    if len(onward) != 1:
        return No(f"both operands of {at.op.name} depend on the anchor")
    side = at.inputs.index(onward[0])
    other = at.inputs[1 - side]
    number = scalar_of(other)
    if number is not None:
        linear = _linear(at.op, number, side)
        if linear is not None:
            return [linear], onward[0]
    if side == 1 and cls is Sub:
        return [Link("eltwise", "linear", -1.0, 0.0), Link("binary", "add", operand=other)], onward[0]
    if side == 1 and cls not in COMMUTES:
        return No(f"the anchor is the right operand of {at.op.name}")
    return [Link("binary", BINARY[cls], operand=other)], onward[0]


def _linear(op: Operation, number: float, side: int) -> Link | None:
    match op:
        case Add():
            return Link("eltwise", "linear", 1.0, number)
        case Mul():
            return Link("eltwise", "linear", number, 0.0)
        case Sub():
            return Link("eltwise", "linear", 1.0, -number) if side == 0 else Link("eltwise", "linear", -1.0, number)
        case Div() if side == 0 and number:
            return Link("eltwise", "linear", 1.0 / number, 0.0)
    return None


def _number(at: Instruction, value: float | str) -> float:
    return float(getattr(at.op, value)) if isinstance(value, str) else value
