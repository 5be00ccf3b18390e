"""Pointwise ops, reductions and groups of them: one generated loop nest each."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from mgx_core import Kernels, Module, No, Operation, Shape
from mgx_core.ops.control import FusedReduce, PointwiseGroup
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from mgx_core.rules.decomposition import decomposed
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, packed_strides
from mgx_core.types.shape import AnyShape

from ..codegen.bodies import is_reduction, single
from ..codegen.generators import Inputs
from ..codegen.geometry import memory_order
from ..codegen.pointwise import pointwise
from ..codegen.reduce import fused_reduce
from ..codegen.source import DeviceTraits, KernelSource, Tensor, entry_word
from ..emitter import GpuEmitter
from .offer import emit_generated, generated, offer

__all__ = ["DECOMPOSED", "PLANS", "in_one_order"]

PLANS = Kernels("gpu")
DECOMPOSED = Kernels("gpu")  # for ops without another plan
MIN_REORDERED: Final = 1 << 17  # elements from which a copy pays off


def _given(xs: Inputs) -> list[Tensor]:
    return [x for x in xs if x is not None]


def write_pointwise(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource:
    return pointwise(modules[0] if modules else single(op, _given(xs)), _given(xs), ys, traits)


def write_reduction(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource:
    return fused_reduce(modules[0] if modules else single(op, _given(xs)), _given(xs), ys, traits)


def write_decomposed(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    """Generates one kernel for the decomposition of an op, if it is a single loop nest."""
    module = decomposed(op, [None if x is None else Shape.of(x.dtype, x.lens) for x in xs])
    if not isinstance(module, Module):
        return module or No(f"there is no generator for {op.name}")
    write = fused_reduce if any(map(is_reduction, module)) else pointwise
    return write(module, _given(xs), ys, traits, entry_word([op.name]))


def _whole(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    """Declines ops that are not pointwise or have an absent operand."""
    if not isinstance(op, Pointwise):
        return No(f"{op.name} is not a pointwise op")
    return No("an operand is absent") if None in inputs else None


def _alone(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    return None if len(inputs) == 1 else No("the axes are an operand")


def _composite(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    if modules or op.decompose is None:
        return No(f"there is no generator for {op.name}")
    return None


@offer(PLANS, FusedReduce, name="generated", write=write_reduction)
def emit_reduction(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one kernel; operands in another memory order than the first, constants once, are copied to its order.

    A loop nest follows one order.  Reads across the other took 54 us where the copy and the kernel take 12 (32 images of 288
    channels of 4 x 64 in float16, H200).
    """
    return emit_generated(e, write_reduction, op, modules, in_one_order(e, args))


def in_one_order(e: GpuEmitter, args: Sequence[Any]) -> Sequence[Any]:
    """Returns operands of which all that have the extents of the largest, but for those of 1, are in one memory order."""
    if not args or not all(isinstance(a, Value) and all(type(n) is int for n in a.lens) for a in args):
        return args  # comparisons restrict symbols
    dims = _axes(max(args, key=lambda a: prod(a.lens)))[0]
    whole = [a for a in args if _axes(a)[0] == dims]
    given = [a for a in whole if not e.is_constant(a)] or whole
    first = given[0]
    # results have the order of the first operand if all extents are equal; otherwise they are row-major
    if any(a.lens != first.lens for a in whole):
        first = next((a for a in given if a.shape.standard()), first)
    inner = _innermost(first)
    if inner is None or prod(dims) < MIN_REORDERED:
        return args
    strides = packed_strides(dims, memory_order(_axes(first)[1], dims))
    made = []
    for a in args:
        if _axes(a)[0] == dims and _innermost(a) not in (None, inner):
            left = iter(strides)
            a = e.packed(a, [1 if n == 1 else next(left) for n in a.lens])
        made.append(a)
    return made


def _axes(x: Value) -> tuple[list[int], list[int]]:
    """Returns the extents other than 1, and their strides."""
    long = [(n, s) for n, s in zip(x.lens, x.strides, strict=True) if n != 1]
    return [n for n, _ in long], [s for _, s in long]


def _innermost(x: Value) -> int | None:
    """Returns the place among the axes longer than 1 of that of unit stride; None if it is ambiguous, or an axis is broadcast."""
    _, strides = _axes(x)
    return strides.index(1) if 0 not in strides and strides.count(1) == 1 else None


generated(PLANS, write_pointwise, PointwiseGroup)
generated(PLANS, write_reduction, ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, when=_alone)
generated(PLANS, write_pointwise, name="pointwise", when=_whole)
generated(DECOMPOSED, write_decomposed, name="decomposed", when=_composite)
