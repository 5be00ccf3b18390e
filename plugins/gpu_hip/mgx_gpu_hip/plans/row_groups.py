"""Groups of a product, the reduction that computes its one row, and the work on parts of the result: see `JoinRows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mgx_core import Instruction, Module
from mgx_core.ops.coded_product import DequantDot
from mgx_core.ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.linear import Dot
from mgx_core.ops.slice import Slice

from ..codegen.bodies import Body, flat
from ..codegen.reductions import Plan
from ..codegen.row_prologue import RowPrologue
from ..codegen.source import Tensor

__all__ = ["RowGroup"]


class RowGroup(NamedTuple):
    """Members of a group: the reduction of the row, the product or its group, its slices in order, and the work on these."""

    reduction: Instruction | None
    product: Instruction
    parts: list[Instruction]
    tail: Instruction | None

    @classmethod
    def of(cls, body: Module) -> RowGroup:
        members = list(body)
        product = next(i for i in members if isinstance(i.op, (Dot, DequantDot, Group)))
        reduction = next((i for i in members if isinstance(i.op, FusedReduce)), None)
        parts = sorted(((i.op.starts, n, i) for n, i in enumerate(members) if isinstance(i.op, Slice)))
        return cls(
            reduction,
            product,
            [i for *_, i in parts],
            next((i for i in members if isinstance(i.op, PointwiseGroup)), None),
        )

    @property
    def epilogue(self) -> Instruction | None:
        """The group that contains the epilogue: the work on the parts, or the product's own group; None without epilogue."""
        return self.tail or (self.product if isinstance(self.product.op, Group) else None)

    def result_index(self, ins: Instruction) -> int | None:
        """Returns the index of the reduction's result that an instruction is, or is a view of; otherwise None."""
        while ins.op.reshapes and len(ins.inputs) == 1:
            ins = ins.inputs[0]
        if isinstance(ins.op, GetTupleElem):
            return ins.op.index if ins.inputs[0] is self.reduction else None
        return 0 if ins is self.reduction else None

    @property
    def row(self) -> tuple[Instruction, Module, Instruction]:
        """The product itself, the module that contains it, and the row's instruction in the group."""
        if isinstance(self.product.op, (Dot, DequantDot)):
            assert self.product.parent is not None
            return self.product, self.product.parent, self.product.inputs[0]
        inner = self.product.modules[0]
        anchor = next(i for i in inner if isinstance(i.op, (Dot, DequantDot)))
        at = anchor.inputs[0]
        while at.op.reshapes and len(at.inputs) == 1:
            at = at.inputs[0]
        return anchor, inner, self.product.inputs[list(inner.parameters.values()).index(at)]

    def stored(self, body: Module) -> list[int]:
        """Returns the indices of the reduction's results that are results of the group; these come first."""
        found = [self.result_index(o) for o in body.outputs]
        return [n for n in found if n is not None]

    def prologue(self, body: Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> RowPrologue:
        """Returns the reduction, with the stored results first.

        inputs: its operands; outputs: the results of the group.
        """
        assert self.reduction is not None
        held, stored = self.result_index(self.row[2]), self.stored(body)
        assert held is not None
        order = stored if held in stored else [*stored, held]
        module = self.reduction.modules[0].clone()
        shapes = [module.outputs[n].shape for n in order]
        module.replace_return([module.outputs[n] for n in order])
        module = flat(module)
        results = [*outputs[: len(stored)], *(Tensor.of(s) for s in shapes[len(stored) :])]
        return RowPrologue(Plan(Body.of(module, inputs), list(inputs), results, "row"), order.index(held), len(stored))
