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

__all__ = ["DECOMPOSED", "PLANS"]

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
    return emit_generated(e, write_reduction, op, modules, _in_one_order(e, args))


def _in_one_order(e: GpuEmitter, args: Sequence[Any]) -> Sequence[Any]:
    if not args or not all(isinstance(a, Value) and all(type(n) is int for n in a.lens) for a in args):
        return args  # comparisons restrict symbols
    lens = max((a.lens for a in args), key=prod)
    whole = [a for a in args if a.lens == lens]
    first = next((a for a in whole if not e.is_constant(a)), whole[0])
    inner = _innermost(first)
    if inner is None or prod(lens) < MIN_REORDERED:
        return args
    strides = packed_strides(lens, memory_order(first.strides, lens))
    others = [a.lens == lens and _innermost(a) not in (None, inner) for a in args]
    return [e.packed(a, strides) if other else a for a, other in zip(args, others, strict=True)]


def _innermost(x: Value) -> int | None:
    """Returns the axis of unit stride; None if it is ambiguous, or an axis is broadcast."""
    if any(s == 0 and n != 1 for n, s in zip(x.lens, x.strides, strict=True)):
        return None
    found = [a for a, (n, s) in enumerate(zip(x.lens, x.strides, strict=True)) if s == 1 and n != 1]
    return found[0] if len(found) == 1 else None


generated(PLANS, write_pointwise, PointwiseGroup)
generated(PLANS, write_reduction, ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, when=_alone)
generated(PLANS, write_pointwise, name="pointwise", when=_whole)
generated(DECOMPOSED, write_decomposed, name="decomposed", when=_composite)
