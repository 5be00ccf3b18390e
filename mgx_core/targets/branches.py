"""Branches in a schedule: both modules of an `if` are emitted as steps, and a run executes those that the condition selects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.ordering import captures
from ..ops.control import If
from ..types.shape import Shape, TupleShape
from .kernel_emission import KernelEmitter
from .schedule import Call, Step
from .static_part import fixed, fixed_tensor, given, read_whole, with_bodies
from .values import Buffer, Value, count_reads

__all__ = ["count_uses", "emit_body", "emit_branch", "is_planned", "planned_member"]


def is_planned(ins: Instruction, member: Callable[[Instruction], bool]) -> bool:
    """Returns True for an `if` that can be scheduled: all extents are static, and both modules return the same shapes.

    member: returns whether an instruction of a module can have steps.
    """
    if not isinstance(ins.op, If) or not isinstance(ins.result, TupleShape) or not fixed(ins) or read_whole(ins):
        return False
    condition = ins.inputs[0]
    if not fixed_tensor(condition) or condition.shape.elements() != 1:
        return False
    return all(member(i) for m in ins.modules for i in m) and all(_gives(m, ins.result) for m in ins.modules)


def planned_member(ins: Instruction, control: Callable[[Instruction], bool]) -> bool:
    """Returns True if an instruction of a branch or loop can have steps; control: answers for nested control flow."""
    if given(ins):
        return ins.is_return or ins.is_absent or fixed_tensor(ins)
    if ins.op.control:
        return control(ins)
    return fixed(ins) and not ins.op.effect and not read_whole(ins)


def _gives(module: Module, wanted: TupleShape) -> bool:
    return all(
        isinstance(w, Shape) and fixed_tensor(o) and o.shape.dtype is w.dtype and o.shape.lens() == w.lens()
        for o, w in zip(module.outputs, wanted.items, strict=True)
    )


def count_uses(members: Iterable[Instruction]) -> Counter[Instruction]:
    """Counts the readers of each value among instructions, including those in their branches."""
    found: Counter[Instruction] = Counter()
    for ins in members:
        found.update(set(ins.inputs))
        for inner in with_bodies(ins):
            found.update(set(inner.inputs))  # a return reads its module's results
    return found


def emit_branch(
    e: KernelEmitter, ins: Instruction, env: dict[Instruction, Any], steps: Callable[[Value], tuple[Step, Step, Step]]
) -> tuple[Value, ...]:
    """Emits both modules of an `if` and the steps that select between them; returns the results.

    steps: returns the steps before, between and after the modules for a condition.  Live ranges are computed over all steps in
    order, so that the modules share memory with each other and with their surroundings.
    """
    current, call = e.current, Call(ins.op, "branch", ins.sources, (), "", ins)
    condition = e.value_of(ins.inputs[0], env)
    around = {v.buffer for m in ins.modules for c in captures(m) if isinstance(v := env.get(c), Value)}
    begin, otherwise, end = steps(condition)
    e.call = call
    e.add(begin)
    made = emit_body(e, ins.modules[0], env, call)
    results = [_own(value, around) or e.allocate(value.dtype, value.lens) for value in made]
    for value, result in zip(made, results, strict=True):
        _copy(e, value, result)
    e.add(otherwise)
    for value, result in zip(emit_body(e, ins.modules[1], env, call), results, strict=True):
        _copy(e, value, result)
    end.writes = [r.buffer for r in results]  # what follows the last write to them follows both modules
    e.add(end)
    e.call, e.current = None, current
    for result in results:
        result.buffer.readers = 0
    return tuple(results)


def emit_body(e: KernelEmitter, module: Module, env: dict[Instruction, Any], call: Call) -> list[Value]:
    """Emits a module of control flow; returns its results."""
    members = [i for i in module if not given(i)]
    left = count_uses(members)
    left.update(set(module.outputs))
    for p in module.parameters.values():
        count_reads(env[p], left[p])
    e.call = None
    e.emit_all(members, env, left)
    e.call = call
    return [e.value_of(o, env) for o in module.outputs]


def _own(value: Value, taken: set[Buffer]) -> Value | None:
    """Returns a module's value as the memory of a result, if it owns its memory and has a result's layout."""
    buffer = value.buffer
    if buffer.kind != "arena" or buffer in taken or not value.dense() or not value.whole():
        return None
    taken.add(buffer)
    return Value(value.plain, buffer)


def _copy(e: KernelEmitter, value: Value, result: Value) -> None:
    if value.buffer is not result.buffer and result.shape.elements():
        e.copy_into(value, result)
