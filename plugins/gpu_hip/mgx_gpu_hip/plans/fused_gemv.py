"""One-row products fused with the reduction that computes the row and the work on parts of the result: see `JoinRows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mgx_core import Instruction, Kernels, Module, No
from mgx_core.ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.linear import Dot
from mgx_core.ops.slice import Slice
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..codegen.bodies import Body, flat
from ..codegen.gemv import gemv
from ..codegen.generators import Inputs
from ..codegen.product_epilogue import FusedEpilogue, product_epilogue
from ..codegen.reductions import Plan
from ..codegen.row_prologue import RowPrologue
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from ..join_rows import JOINED
from .gemv import operands_of_row
from .offer import offer
from .product_groups import ProductGroup, group_results

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


class _Parts(NamedTuple):
    """Members of a group: the reduction of the row, the product or its group, its slices in order, and the work on these."""

    reduction: Instruction | None
    product: Instruction
    parts: list[Instruction]
    tail: Instruction | None

    @classmethod
    def of(cls, body: Module) -> _Parts:
        members = list(body)
        product = next(i for i in members if isinstance(i.op, (Dot, Group)))
        reduction = next((i for i in members if isinstance(i.op, FusedReduce)), None)
        parts = sorted(((i.op.starts, n, i) for n, i in enumerate(members) if isinstance(i.op, Slice)))
        return cls(
            reduction,
            product,
            [i for *_, i in parts],
            next((i for i in members if isinstance(i.op, PointwiseGroup)), None),
        )

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
        if isinstance(self.product.op, Dot):
            assert self.product.parent is not None
            return self.product, self.product.parent, self.product.inputs[0]
        inner = self.product.modules[0]
        anchor = next(i for i in inner if isinstance(i.op, Dot))
        at = anchor.inputs[0]
        while at.op.reshapes and len(at.inputs) == 1:
            at = at.inputs[0]
        return anchor, inner, self.product.inputs[list(inner.parameters.values()).index(at)]

    def epilogue(self) -> tuple[Module, list[Instruction]] | None:
        """Returns the module of the epilogue, and the instructions that its parameters represent."""
        if self.tail is not None:
            return self.tail.modules[0], list(self.tail.inputs)
        if isinstance(self.product.op, Group):
            return self.product.modules[0], list(self.product.inputs)
        return None

    def reads(self, ins: Instruction) -> bool:
        """Returns True if an instruction is an operand of the epilogue but neither a slice of the product nor its operand."""
        if self.tail is not None:
            return ins not in self.parts
        reads = ProductGroup.of(self.product.modules[0]).epilogue_reads()
        return any(i is ins and read for read, i in zip(reads, self.product.inputs, strict=True))

    def stored(self, body: Module) -> list[int]:
        """Returns the indices of the reduction's results that are results of the group; these come first."""
        found = [self.result_index(o) for o in body.outputs]
        return [n for n in found if n is not None]


def _prologue(parts: _Parts, body: Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> RowPrologue:
    """Returns the reduction, with the stored results first."""
    assert parts.reduction is not None
    held, stored = parts.result_index(parts.row[2]), parts.stored(body)
    assert held is not None
    order = stored if held in stored else [*stored, held]
    module = parts.reduction.modules[0].clone()
    shapes = [module.outputs[n].shape for n in order]
    module.replace_return([module.outputs[n] for n in order])
    module = flat(module)
    results = [*outputs[: len(stored)], *(Tensor.of(s) for s in shapes[len(stored) :])]
    return RowPrologue(Plan(Body.of(module, inputs), list(inputs), results, "row"), order.index(held), len(stored))


def _finish(parts: _Parts, given: Inputs, dims: Sequence[int], first: int) -> FusedEpilogue | None:
    epilogue = parts.epilogue()
    if epilogue is None:
        return None
    module, inputs = epilogue
    if parts.tail is None:
        return ProductGroup.of(module).finish(given, dims, first)
    fixed = flat(module)
    parameters = list(fixed.parameters.values())
    joints = [parameters[inputs.index(p)] for p in parts.parts]
    return product_epilogue(fixed, joints, given, dims, first)


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    """xs: the row or the operands of its reduction, then the weights, then the operands of the epilogue."""
    parts = _Parts.of(modules[0])
    if parts.reduction is None:
        return gemv(xs, ys, _finish(parts, xs[2:], ys[-1].lens, 2), traits)
    before = len(parts.reduction.inputs)
    prologue = _prologue(parts, modules[0], [x for x in xs[:before] if x is not None], ys)
    return gemv(xs, ys, _finish(parts, xs[before + 1 :], ys[-1].lens, before + 1), traits, prologue)


@offer(
    PLANS,
    Group,
    name="joined rows",
    when=tagged(JOINED, "a product of one row with prologue and epilogue"),
    write=write,
)
def emit_joined(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits one launch."""
    body = modules[0]
    parts = _Parts.of(body)
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))

    def value(ins: Instruction) -> Value:
        if ins not in env and not ins.is_literal:
            for i in ins.inputs:
                env[i] = value(i)
            env[ins] = e.emit(ins, env)
        found: Value = e.value_of(ins, env)
        return found

    anchor, inner, row = parts.row
    if inner is not body:
        env |= {
            p: value(i) for p, i in zip(inner.parameters.values(), parts.product.inputs, strict=True) if i is not row
        }
    weights = value(anchor.inputs[1])
    given: list[Value | None]
    if parts.reduction is None:
        given = list(operands_of_row(e, value(row), weights))
    else:
        given = [*(value(i) for i in parts.reduction.inputs), operands_of_row(e, None, weights)[0]]
    epilogue = parts.epilogue()
    if epilogue is not None:
        given += [value(i) if parts.reads(i) else None for i in epilogue[1]]
    results, outs = group_results(e, body)
    e.kernel(write, op, modules, given, outs)
    return results
