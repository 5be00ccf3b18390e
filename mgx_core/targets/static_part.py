"""Static part of a lowered module: the instructions that run before any run-time shape decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import TypeGuard

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.ordering import captures, reads
from ..ir.symbols import mentioned
from ..ops.control import GetTupleElem, If, Loop, Scan
from ..records import dataclass
from ..types.shape import AnyShape, Shape, TupleShape
from .kernel import op_of

__all__ = [
    "Split", "fixed", "fixed_tensor", "given", "given_fixed", "numbered", "numeric", "read_whole", "split",
    "views_constant", "with_bodies",
]  # fmt: skip


@dataclass(frozen=True)
class Split:
    """A lowered module, split into the part that runs independent of values and the rest.

    static: instructions with static extents, with their operands; rest: all others except parameters and literals, in order;
    wanted: static instructions that the rest or the caller reads; counted: instructions after the static part with a
    data-dependent extent, with its axis; steps leave a result of maximum size and the count.
    """

    static: dict[Instruction, list[Instruction]] = field(default_factory=dict)
    rest: list[Instruction] = field(default_factory=list)
    wanted: list[Instruction] = field(default_factory=list)
    counted: dict[Instruction, int] = field(default_factory=dict)

    def counting(self, module: Module, counted: dict[Instruction, int]) -> Split:
        """Returns the split with some instructions of the rest as counted ones."""
        rest = [i for i in self.rest if i not in counted]
        return Split(self.static, rest, _wanted(module, self.static, rest), counted)


def split(module: Module, planned: Callable[[Instruction], bool] | None = None) -> Split:
    """Splits a module into instructions with static extents and static operands, and the rest.

    planned: returns whether an op of control flow can have steps in a schedule; None: none can.
    """
    static: dict[Instruction, list[Instruction]] = {}
    rest: list[Instruction] = []
    there: set[Instruction] = set()
    known: dict[int, bool] = {}  # by id of a result: many instructions share one
    outside: dict[Module, list[Instruction]] = {}  # captures of bodies; many instructions share one
    for ins in module:
        if given(ins):
            if given_fixed(ins):
                there.add(ins)
            continue
        at = id(ins.result)
        if at not in known:
            known[at] = fixed(ins)
        inside = not ins.op.control or (planned is not None and planned(ins))
        # Instructions that define symbols are in the rest, so nothing before the first of them can use one.
        if not known[at] or not inside or read_whole(ins) or (rest and mentioned([ins])):
            rest.append(ins)
            continue
        needs = list(ins.inputs)
        for body in ins.modules:
            if body not in outside:
                outside[body] = captures(body)
            needs += outside[body]
        if there.issuperset(needs) or all(i in there or given_fixed(i) for i in needs):
            static[ins] = needs
            there.add(ins)
        else:
            rest.append(ins)
    if rest:
        rest = _with_views(module, static, rest)
    return Split(static, rest, _wanted(module, static, rest))


def views_constant(ins: Instruction) -> bool:
    """Returns True for a view, or a chain of them, of a literal: a weight that is broadcast."""
    while ins.literal is None:
        if len(ins.inputs) != 1 or not op_of(ins).aligns:
            return False
        ins = ins.inputs[0]
    return True


def _with_views(
    module: Module, static: dict[Instruction, list[Instruction]], rest: list[Instruction]
) -> list[Instruction]:
    """Returns the rest with views of literals that it alone reads, which are removed from `static`.

    As results of the static part they would be copied in each run, weights among them.
    """
    there, before = set(rest), len(rest)
    for ins in reversed(list(static)):
        if views_constant(ins) and ins.users and there.issuperset(ins.users) and ins not in module.outputs:
            there.add(ins)
            del static[ins]
    return rest if len(there) == before else [ins for ins in module if ins in there]


def _wanted(
    module: Module, static: dict[Instruction, list[Instruction]], rest: Iterable[Instruction]
) -> list[Instruction]:
    wanted = dict.fromkeys(o for o in module.outputs if o in static)
    for ins in rest:
        wanted.update(dict.fromkeys(r for r in reads(ins) if r in static))
    return list(wanted)


def given(ins: Instruction) -> bool:
    """Returns True for instructions without computation: parameters, literals, absent operands and the return."""
    return ins.is_param or ins.literal is not None or ins.is_return or ins.is_absent


def fixed(ins: Instruction) -> bool:
    """Returns True if all results of an instruction are numeric tensors with static extents."""
    result = ins.result
    items = result.items if isinstance(result, TupleShape) else (result,)
    return all(numeric(s) and not s.dynamic() for s in items)


def numeric(shape: AnyShape) -> TypeGuard[Shape]:
    """Returns True for tensors that runners accept: neither of strings nor of complex numbers."""
    return isinstance(shape, Shape) and shape.dtype.kind not in "sc"


def read_whole(ins: Instruction) -> bool:
    """Returns True if a tuple is returned, or read by anything but `get_tuple_elem`: only its items have memory."""
    return isinstance(ins.result, TupleShape) and any(
        user.parent is not ins.parent or not isinstance(op_of(user), GetTupleElem) for user in ins.users
    )


def fixed_tensor(ins: Instruction) -> bool:
    """Returns True if an instruction has a single such result."""
    return isinstance(ins.result, Shape) and fixed(ins)


def given_fixed(ins: Instruction) -> bool:
    """Returns True if a value exists before the run and has static extents, or is absent."""
    return ins.is_absent or ((ins.literal is not None or ins.is_param) and fixed_tensor(ins))


def with_bodies(ins: Instruction) -> Iterator[Instruction]:
    """Yields the instructions of the modules of a branch or loop, recursively."""
    for module in ins.modules if isinstance(ins.op, (If, Loop, Scan)) else ():
        for inner in module:
            yield inner
            yield from with_bodies(inner)


def numbered(module: Module) -> list[Instruction]:
    """Returns the instructions of a module, its branches and loops, in the numbering of program files."""
    return [*module, *(inner for ins in module for inner in with_bodies(ins))]
