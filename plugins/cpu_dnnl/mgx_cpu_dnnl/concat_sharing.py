"""Shares memory between concatenations whose operand lists are prefixes of each other, so that operands are copied once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mgx_core import Instruction, Module, Shape
from mgx_core.ops.concat import Concat
from mgx_core.records import dataclass
from mgx_core.targets.kernel import op_of
from mgx_core.targets.values import NEVER_OVERWRITTEN, Value, packed_strides
from mgx_core.types.dtype import DType

__all__ = ["Chain", "Place", "chains_of", "places_of"]


@dataclass(eq=False)
class Chain:
    """Memory shared by several concatenations.

    longest: the concatenation with the longest operand list; storage: its memory, once allocated; filled: number of operands
    written.
    """

    longest: Instruction
    storage: Value | None = None
    filled: int = 0


@dataclass(eq=False)
class Place:
    """The memory of a concatenation, into which kernels may write operands directly.

    concat: the concatenation's launch; storage: its memory, once an operand is written.
    """

    concat: Instruction
    storage: Value | None = None

    def inside(
        self,
        part: Instruction,
        allocate: Callable[[DType, Sequence[int], Sequence[int]], Value],
        dtype: DType,
        lens: Sequence[int],
        order: Sequence[int],
    ) -> Value | None:
        """Returns memory for an operand with this axis order; None if other operands already use another order."""
        op, whole, rank = op_of(self.concat), self.concat.shape.lens(), self.concat.shape.rank
        assert isinstance(op, Concat)
        axis = op.axis % rank
        strides = packed_strides(whole, sorted(range(rank), key=lambda a: (-order[a], a)))
        if self.storage is None:
            made = allocate(dtype, whole, strides)
            made.buffer.readers = NEVER_OVERWRITTEN  # the other operands follow
            self.storage = made
        elif self.storage.strides != strides or self.storage.shape.dtype is not dtype:
            return None
        before = sum(i.shape.lens()[axis] for i in self.concat.inputs[: self.concat.inputs.index(part)])
        return self.storage.view_at(before * strides[axis], Shape(dtype, lens, strides))


def places_of(
    module: Module, among: Collection[Instruction], chains: Collection[Instruction]
) -> dict[Instruction, Place]:
    """Returns the place of each value whose only use is as one operand of a concatenation; chains: shared memory."""
    found: dict[Instruction, Place] = {}
    for ins in module:
        op = op_of(ins)
        if not isinstance(op, Concat) or ins not in among or ins in chains or not isinstance(ins.result, Shape):
            continue
        place = Place(ins)
        found |= {i: place for i in ins.inputs if i in among and i.users == (ins,) and ins.inputs.count(i) == 1}
        found[ins] = place
    return found


def chains_of(module: Module, among: Collection[Instruction]) -> dict[Instruction, Chain]:
    """Returns the chains of concatenations that share memory."""
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
