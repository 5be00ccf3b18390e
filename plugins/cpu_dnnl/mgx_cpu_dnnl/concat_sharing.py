"""Concatenations of which one begins with all operands of another: they share memory, and each operand is copied once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mgx_core import Instruction, Module, Shape
from mgx_core.ops.concat import Concat
from mgx_core.targets.kernel import op_of
from mgx_core.targets.values import Value

__all__ = ["Chain", "chains_of"]


@dataclass(eq=False)
class Chain:
    """Memory that several concatenations share.

    longest: the one whose operands begin with those of all others; storage: its memory once there; filled: how many operands
    are in it.
    """

    longest: Instruction
    storage: Value | None = None
    filled: int = 0


def chains_of(module: Module, among: Collection[Instruction]) -> dict[Instruction, Chain]:
    """The chain of each concatenation that shares memory with another."""
    by_first: dict[tuple[Instruction, int], list[Instruction]] = {}
    for ins in module:
        op = op_of(ins)
        if isinstance(op, Concat) and ins in among and isinstance(ins.result, Shape) and len(ins.inputs) > 1:
            by_first.setdefault((ins.inputs[0], op.axis % ins.shape.rank), []).append(ins)
    found: dict[Instruction, Chain] = {}
    for group in by_first.values():
        chains: list[Chain] = []
        for ins in sorted(group, key=lambda i: -len(i.inputs)):
            chain = next((c for c in chains if c.longest.inputs[: len(ins.inputs)] == ins.inputs), None)
            if chain is None:
                chains.append(Chain(ins))
            else:
                found[ins] = found[chain.longest] = chain
    return found
