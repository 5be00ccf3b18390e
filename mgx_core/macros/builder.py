"""The instruction builder that is passed to macro functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from ..converting.builder import InstructionBuilder
from ..converting.known import Known
from ..errors import ShapeError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.operation import Operation
from ..types.dim import Dim
from ..types.dim import broadcast as broadcast_dims
from ..types.dtype import DType

__all__ = ["MacroBuilder"]


class MacroBuilder(InstructionBuilder):
    """Adds instructions before a given one of a module (None: at its end)."""

    def __init__(self, module: Module, before: Instruction | None) -> None:
        self._module = module
        self._before = before

    @property
    def module(self) -> Module:
        return self._module

    @property
    def known(self) -> Known:
        return Known()

    def absent(self) -> Instruction:
        return self.placed(self._module.add_absent())

    def sources(self) -> tuple[str, ...]:
        return ()

    def insert(self, op: Operation, args: Sequence[Instruction], modules: Sequence[Module]) -> Instruction:
        return self._module.add(op, *args, modules=modules, before=self._before)

    def literal(self, value: Any, dtype: Any = None) -> Instruction:
        return self.placed(super().literal(value, dtype))

    def placed(self, made: Instruction) -> Instruction:
        if self._before is not None:
            self._module.move(made, self._before)
        return made

    def common(self, op: Operation | str, *xs: Instruction, **attributes: Any) -> Instruction:
        """Returns a pointwise op on operands broadcast to common extents and promoted to the widest element type."""
        kind = reduce(_wider, (x.shape.dtype for x in xs))
        return self.pointwise(op, *(self.convert(x, kind) for x in xs), **attributes)

    def batched(self, a: Instruction, b: Instruction) -> tuple[Instruction, Instruction]:
        """Returns two (batches of) matrices broadcast to common batch extents."""
        rank = max(a.shape.rank, b.shape.rank)
        lead: list[Dim] = [1] * (rank - 2)
        for x in (a, b):
            if x.shape.rank < 2:
                raise ShapeError(f"matrices are required, got {x.shape}")
            for axis, d in enumerate(x.shape.dims[:-2], rank - x.shape.rank):
                lead[axis] = broadcast_dims(lead[axis], d)
        return self.broadcast_to(a, (*lead, *a.shape.dims[-2:])), self.broadcast_to(b, (*lead, *b.shape.dims[-2:]))

    def along(self, x: Instruction, like: Instruction, axis: int) -> Instruction:
        """Returns a vector broadcast along one axis to the extents of another tensor."""
        rest = [n for n in range(like.shape.rank) if n != axis]
        return self.broadcast_to(self.unsqueeze(x, rest), like.shape.dims)


def _wider(a: DType, b: DType) -> DType:
    order = "biuf"
    return max((a, b), key=lambda t: (order.find(t.kind) if t.is_float else 0, t.bits, t.kind))
