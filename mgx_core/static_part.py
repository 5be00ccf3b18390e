"""What of a lowered module runs before anything is decided while running."""

from __future__ import annotations

from .ir.instruction import Instruction
from .ir.module import Module, captures
from .shape import Shape, TupleShape

__all__ = ["fixed", "fixed_tensor", "static_part"]


def fixed(ins: Instruction) -> bool:
    """Whether all that an instruction gives are tensors of numbers with known extents."""
    result = ins.result
    items = result.items if isinstance(result, TupleShape) else (result,)
    return all(isinstance(s, Shape) and not s.dynamic() and s.dtype.kind not in "sc" for s in items)


def fixed_tensor(ins: Instruction) -> bool:
    """Whether an instruction gives one such tensor."""
    return isinstance(ins.result, Shape) and fixed(ins)


def static_part(module: Module) -> dict[Instruction, list[Instruction]]:
    """Instructions with fixed extents whose needs are all fixed too, control flow excepted, each with what it reads."""
    found: dict[Instruction, list[Instruction]] = {}
    outside: dict[Module, list[Instruction]] = {}  # what bodies read; many instructions share one
    for ins in module:
        if ins.literal is not None or ins.is_return or ins.is_param or ins.is_absent:
            continue
        if getattr(ins.op, "control", False) or not fixed(ins):
            continue
        needs = list(ins.inputs)
        for body in ins.modules:
            if body not in outside:
                outside[body] = captures(body)
            needs += outside[body]
        if all(i in found or i.is_absent or ((i.literal is not None or i.is_param) and fixed_tensor(i)) for i in needs):
            found[ins] = needs
    return found
