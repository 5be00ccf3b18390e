"""Topological orders of instructions, and the values that nested modules capture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import ShapeError
from .instruction import Instruction

if TYPE_CHECKING:
    from .module import Module

__all__ = ["captures", "near", "reads", "shuffled", "sorted_by_needs"]


def captures(module: Module) -> list[Instruction]:
    """Returns values of enclosing modules that a module (or one nested in it) reads."""
    inside: set[Module] = set()
    found: dict[Instruction, None] = {}

    def walk(m: Module) -> None:
        inside.add(m)
        for ins in m:
            for inner in ins.modules:
                if inner not in inside:
                    walk(inner)
            for i in ins.inputs:
                if i.parent is not m:
                    found[i] = None

    walk(module)
    return [i for i in found if i.parent not in inside]


def reads(ins: Instruction) -> list[Instruction]:
    """Returns the inputs of an instruction and the outer values that its modules capture."""
    return list(ins.inputs) if not ins.modules else [*ins.inputs, *(c for m in ins.modules for c in captures(m))]


def near(ins: Instruction, most: int) -> list[Instruction]:
    """Returns the nearest instructions that a value depends on, itself first; stops after `most` of them."""
    found = [ins]
    for at in found:
        found += [i for i in at.inputs if i not in found]
        if len(found) >= most:
            break
    return found


def shuffled(steps: Iterable[Instruction], seed: int) -> list[Instruction]:
    """Returns instructions in a pseudo-random topological order; equal seeds give equal orders."""
    state = seed  # of Knuth's MMIX generator: importing `random` takes longer than most uses of this module
    readers: dict[Instruction, list[Instruction]] = {i: [] for i in steps}
    waiting = dict.fromkeys(readers, 0)  # the number of unplaced dependencies
    for ins in readers:
        for need in set(reads(ins)) & readers.keys():
            readers[need].append(ins)
            waiting[ins] += 1
    ready = [i for i in readers if not waiting[i]]
    order = []
    while ready:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        chosen = ready.pop((state >> 33) % len(ready))
        order.append(chosen)
        for reader in readers[chosen]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order


def sorted_by_needs(module: Module) -> list[Instruction]:
    """Returns the instructions of a module in topological order.  Errors: ShapeError if they form a cycle."""
    order: list[Instruction] = []
    state: dict[Instruction, int] = {}
    for root in list(module):
        stack: list[tuple[Instruction, bool]] = [(root, False)]
        while stack:
            ins, done = stack.pop()
            if done:
                state[ins] = 2
                order.append(ins)
                continue
            if state.get(ins) == 2:
                continue
            if state.get(ins) == 1:
                raise ShapeError(f"{ins!r} depends on itself")
            state[ins] = 1
            stack.append((ins, True))
            for need in reversed(reads(ins)):
                if need.parent is module and state.get(need) != 2:
                    if state.get(need) == 1:
                        raise ShapeError(f"{need!r} depends on itself")
                    stack.append((need, False))
    return order
