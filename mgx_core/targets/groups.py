"""Lists the members of a fused group in execution order, for targets that compute them one by one, and inlines groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from ..ops.operation import Operation
from ..records import dataclass
from ..types.argument import Argument
from ..types.shape import AnyShape, TupleShape

Places = tuple[int, ...]

__all__ = ["Step", "Steps", "inline_group", "inline_groups", "members_of", "steps"]


@dataclass(frozen=True)
class Step:
    """One member of a group.

    operands: positions of the values that it reads, None where an optional operand is absent; inputs: their types;
    results: positions of its results, several for a tuple; outputs: their types;
    modules: sub-modules of an op that is not a group itself.
    """

    op: Operation
    operands: tuple[int | None, ...]
    inputs: tuple[AnyShape | None, ...]
    results: tuple[int, ...]
    outputs: tuple[AnyShape, ...]
    modules: tuple[Module, ...] = ()


@dataclass(frozen=True)
class Steps:
    """A group as a list of values: its inputs, its literals, and the results of its members in order.

    inputs: types of the inputs, in the order of the instruction's operands; results: positions of the group's results.
    """

    inputs: tuple[AnyShape, ...]
    literals: tuple[Argument, ...]
    members: tuple[Step, ...]
    results: tuple[int, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def run(self, arguments: Sequence[Any], compute: Callable[[Step, list[Any]], Any]) -> Any:
        """Evaluates the group by calling `compute` with each member and its operands; returns its result, or a tuple of several.

        `compute` returns the member's value, or a tuple if it has several results.
        """
        values = [*arguments, *(literal.value for literal in self.literals)]
        for member in self.members:
            made = compute(member, [None if n is None else values[n] for n in member.operands])
            values += made if len(member.results) > 1 else [made]
        found = tuple(values[n] for n in self.results)
        return found[0] if len(found) == 1 else found


def steps(module: Module) -> Steps:
    """Returns the members of a group's module in execution order.

    Nested groups are inlined, and tuple element accesses are resolved.
    """
    constants = [i for inner in nested(module) for i in inner if i.is_literal]
    first = len(module.parameters)
    places = {ins: (first + n,) for n, ins in enumerate(constants)}
    members: list[Step] = []
    results = _walk(module, [(n,) for n in range(first)], places, members, first + len(constants))
    inputs = tuple(p.result for p in module.parameters.values())
    return Steps(inputs, tuple(i.get_literal() for i in constants), tuple(members), results)


def _walk(
    module: Module, given: Sequence[Places], constants: Mapping[Instruction, Places], members: list[Step], count: int
) -> Places:
    """Adds the members of a module whose parameters are the values at `given`; returns the positions of its results.

    count: of values before the first member.
    """
    found = {**constants, **dict(zip(module.parameters.values(), given, strict=True))}
    for ins in module:
        if ins in found or ins.is_absent or ins.is_return:
            continue
        if isinstance(ins.op, GetTupleElem):
            found[ins] = (found[ins.inputs[0]][ins.op.index],)
        elif ins.op.fused:
            found[ins] = _walk(ins.modules[0], [found[i] for i in ins.inputs], constants, members, count)
        else:
            outputs = ins.result.items if isinstance(ins.result, TupleShape) else (ins.result,)
            at = members[-1].results[-1] + 1 if members else count
            found[ins] = tuple(range(at, at + len(outputs)))
            operands = tuple(None if i.is_absent else found[i][0] for i in ins.inputs)
            read = tuple(None if i.is_absent else i.result for i in ins.inputs)
            members.append(Step(ins.op, operands, read, found[ins], tuple(outputs), ins.modules))
    return tuple(n for made in module.outputs for n in found[made])


def members_of(op: Operation, modules: Sequence[Module]) -> Module | None:
    """Returns the body of a group that can be expanded."""
    if not isinstance(op, (Group, PointwiseGroup, FusedReduce)) or len(modules) != 1:
        return None
    members = [i for i in modules[0] if not (i.is_param or i.is_return)]
    return modules[0] if len(members) > 1 or type(members[0].op) is not type(op) or members[0].modules else None


def inline_group(module: Module, ins: Instruction) -> bool:
    """Puts a group's members before it, for its users to read.

    Returns False for other instructions, and for a group whose tuple of results is read as a whole.
    """
    if not isinstance(ins.op, (FusedReduce, Group, PointwiseGroup)):
        return False
    (body,) = ins.modules
    whole = len(body.outputs) == 1  # one member computes all results
    several = isinstance(ins.result, TupleShape) and not whole
    items = [user for user in ins.users if isinstance(user.op, GetTupleElem)]
    if several and len(items) != len(ins.users):
        return False
    results = module.inline(body, ins.inputs, before=ins)
    if several:
        for user in items:
            module.replace(user, results[user.op.index])  # type: ignore[attr-defined]
            module.remove(user)
    else:
        module.replace(ins, results[0])
    return True


def inline_groups(main: Module) -> None:
    """Inlines the groups of a program that was optimized before: editing would change their form, and compiling fuses again."""
    for module in list(nested(main)):
        while [ins for ins in list(module) if ins.op.fused and inline_group(module, ins)]:
            module.sweep()
