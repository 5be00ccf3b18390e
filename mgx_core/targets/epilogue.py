"""What a library primitive can do after its main work: a pointwise group read as a chain of post-ops.

The chain starts at the anchor's result and ends at the group's; each link is an activation or a binary op with something that
does not depend on the anchor.  A group that is no such chain runs as a loop of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..rules.activations import scalar_of
from ..types.dtype import DType

__all__ = ["Link", "read_chain"]

# op -> (library algorithm, alpha, beta), attributes by name
ELTWISE: Final[dict[str, tuple[str, float | str, float | str]]] = {
    "relu": ("relu", 0.0, 0.0),
    "leaky_relu": ("relu", "alpha", 0.0),
    "elu": ("elu", "alpha", 0.0),
    "sigmoid": ("logistic", 0.0, 0.0),
    "tanh": ("tanh", 0.0, 0.0),
    "swish": ("swish", "alpha", 0.0),
    "gelu_erf": ("gelu_erf", 0.0, 0.0),
    "gelu_tanh": ("gelu_tanh", 0.0, 0.0),
    "sqrt": ("sqrt", 0.0, 0.0),
    "abs": ("abs", 0.0, 0.0),
    "exp": ("exp", 0.0, 0.0),
    "hard_swish": ("hardswish", 1.0 / 6.0, 0.5),
    "mish": ("mish", 0.0, 0.0),
    "softplus": ("soft_relu", 1.0, 0.0),
}
BINARY: Final = {"add": "add", "mul": "mul", "max": "max", "min": "min", "sub": "sub", "div": "div"}
COMMUTES: Final = {"add", "mul", "max", "min"}


@dataclass(frozen=True)
class Link:
    """One post-op: ``eltwise`` with a library algorithm and its two numbers, or ``binary`` with the group input it reads.

    operand: for binary, the instruction in the group's body that is the other operand (a parameter, or a view of one).
    """

    kind: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0
    operand: Instruction | None = None


def read_chain(body: Module, anchor: Instruction, dtype: DType) -> list[Link] | No:
    """The links from the parameter `anchor` to the body's one result, or why it is no chain.

    dtype: the element type in which the anchor's library accumulates; conversions at the end are left to the caller.
    """
    if len(body.outputs) != 1:
        return No(f"the group gives {len(body.outputs)} results")
    depends = _dependents(body, anchor)
    links: list[Link] = []
    at: Instruction = body.outputs[0]
    while at is not anchor:
        if at not in depends:
            return No("the result does not depend on the anchor")
        step = _link(at, depends)
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


def _link(at: Instruction, depends: set[Instruction]) -> tuple[list[Link] | None, Instruction] | No:
    name = at.op.name
    onward = [i for i in at.inputs if i in depends]
    if name == "convert":
        return None, onward[0]
    if name in ELTWISE:
        algorithm, alpha, beta = ELTWISE[name]
        return [Link("eltwise", algorithm, _number(at, alpha), _number(at, beta))], onward[0]
    if name == "clip":
        low, high = (scalar_of(i) for i in at.inputs[1:3])
        if low is None or high is None or len(onward) != 1 or onward[0] is not at.inputs[0]:
            return No("the bounds of clip are not constant")
        return [Link("eltwise", "clip", low, high)], onward[0]
    if name == "neg":
        return [Link("eltwise", "linear", -1.0, 0.0)], onward[0]
    if name not in BINARY:
        return No(f"{name} is no post-op")
    if len(onward) != 1:
        return No(f"both operands of {name} depend on the anchor")
    side = at.inputs.index(onward[0])
    other = at.inputs[1 - side]
    number = scalar_of(other)
    if number is not None:
        linear = _linear(name, number, side)
        if linear is not None:
            return [linear], onward[0]
    if side == 1 and name not in COMMUTES:
        return No(f"the anchor is the right operand of {name}")
    return [Link("binary", BINARY[name], operand=other)], onward[0]


def _linear(name: str, number: float, side: int) -> Link | None:
    match name:
        case "add":
            return Link("eltwise", "linear", 1.0, number)
        case "mul":
            return Link("eltwise", "linear", number, 0.0)
        case "sub":
            return Link("eltwise", "linear", 1.0, -number) if side == 0 else Link("eltwise", "linear", -1.0, number)
        case "div" if side == 0 and number:
            return Link("eltwise", "linear", 1.0 / number, 0.0)
    return None


def _number(at: Instruction, value: float | str) -> float:
    return float(getattr(at.op, value)) if isinstance(value, str) else value
