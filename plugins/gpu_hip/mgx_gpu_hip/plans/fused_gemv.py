"""One-row products fused with the reduction that computes the row and the work on parts of the result: see `JoinRows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Kernels, Module, No
from mgx_core.ops.control import Group
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..codegen.gemv import gemv
from ..codegen.generators import Inputs
from ..codegen.product_epilogue import FusedEpilogue
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from ..join_rows import JOINED
from .gemv import operands_of_row
from .offer import offer
from .product_groups import ProductGroup, epilogue_of_parts, group_results, operand
from .row_groups import RowGroup

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


def _reads(parts: RowGroup, ins: Instruction) -> bool:
    """Returns True if an instruction is an operand of the epilogue but neither a slice of the product nor its operand."""
    if parts.tail is not None:
        return ins not in parts.parts
    reads = ProductGroup.of(parts.product.modules[0]).epilogue_reads()
    return any(i is ins and read for read, i in zip(reads, parts.product.inputs, strict=True))


def _finish(parts: RowGroup, given: Inputs, dims: Sequence[int], first: int) -> FusedEpilogue | None:
    if parts.tail is not None:
        return epilogue_of_parts(parts.tail, parts.parts, given, dims, first)
    if parts.epilogue is None:
        return None
    return ProductGroup.of(parts.epilogue.modules[0]).finish(given, dims, first)


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    """Generates the product of one row; xs: the row or the operands of its reduction, the weights, those of the epilogue."""
    parts = RowGroup.of(modules[0])
    if parts.reduction is None:
        return gemv(xs, ys, _finish(parts, xs[2:], ys[-1].lens, 2), traits)
    before = len(parts.reduction.inputs)
    prologue = parts.prologue(modules[0], [x for x in xs[:before] if x is not None], ys)
    return gemv(xs, ys, _finish(parts, xs[before + 1 :], ys[-1].lens, before + 1), traits, prologue)


@offer(
    PLANS,
    Group,
    name="joined rows",
    when=tagged(JOINED, "a product of one row with prologue and epilogue"),
    write=write,
)
def emit_row_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits one launch."""
    body = modules[0]
    parts = RowGroup.of(body)
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))

    anchor, inner, row = parts.row
    if inner is not body:
        env |= {
            p: operand(e, i, env)
            for p, i in zip(inner.parameters.values(), parts.product.inputs, strict=True)
            if i is not row
        }
    weights = operand(e, anchor.inputs[1], env)
    given: list[Value | None]
    if parts.reduction is None:
        given = list(operands_of_row(e, operand(e, row, env), weights))
    else:
        given = [*(operand(e, i, env) for i in parts.reduction.inputs), operands_of_row(e, None, weights)[0]]
    if parts.epilogue is not None:
        given += [operand(e, i, env) if _reads(parts, i) else None for i in parts.epilogue.inputs]
    results, outs = group_results(e, body)
    e.kernel(write, op, modules, given, outs)
    return results
