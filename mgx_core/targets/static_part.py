"""What of a lowered module runs before anything is decided while running."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.instruction import Instruction
from ..ir.interpreter import reads
from ..ir.module import Module, captures
from ..types.shape import Shape, TupleShape

__all__ = ["Split", "fixed", "fixed_tensor", "given", "split", "static_part"]


@dataclass(frozen=True)
class Split:
    """A lowered module in two: what runs whatever the values are, and what is decided at run time.

    static: instructions with static extents, each with what it reads; rest: all others but parameters and literals, in order;
    wanted: the instructions of the static part that the rest or the caller reads.
    """

    static: dict[Instruction, list[Instruction]] = field(default_factory=dict)
    rest: list[Instruction] = field(default_factory=list)
    wanted: list[Instruction] = field(default_factory=list)


def split(module: Module) -> Split:
    """The static part of a module and the rest."""
    static = static_part(module)
    rest = [] if len(static) == len(module) else [i for i in module if i not in static and not given(i)]
    wanted = dict.fromkeys(o for o in module.outputs if o in static)
    for ins in rest:
        wanted.update(dict.fromkeys(r for r in reads(ins) if r in static))
    return Split(static, rest, list(wanted))


def given(ins: Instruction) -> bool:
    """True for what computes nothing: parameters, literals, absent operands and the return."""
    return ins.is_param or ins.literal is not None or ins.is_return or ins.is_absent


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
    settled: set[Instruction] = set()
    known: dict[int, bool] = {}  # by id of a result: many instructions share one
    outside: dict[Module, list[Instruction]] = {}  # what bodies read; many instructions share one
    for ins in module:
        at = id(ins.result)
        if at not in known:
            known[at] = fixed(ins)
        if ins.literal is not None or not known[at] or ins.is_return or ins.is_param or ins.is_absent:
            if _given(ins):
                settled.add(ins)
            continue
        if ins.op.control:
            continue
        needs = list(ins.inputs)
        for body in ins.modules:
            if body not in outside:
                outside[body] = captures(body)
            needs += outside[body]
        if settled.issuperset(needs) or all(i in settled or _given(i) for i in needs):
            found[ins] = needs
            settled.add(ins)
    return found


def _given(ins: Instruction) -> bool:
    """Whether a value is there before anything runs, with known extents, or is known to be absent."""
    return ins.is_absent or ((ins.literal is not None or ins.is_param) and fixed_tensor(ins))
