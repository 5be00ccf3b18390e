"""Pointwise ops, reductions and groups of them: one generated loop nest each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module, No, Operation, Shape
from mgx_core.ops.control import FusedReduce, PointwiseGroup
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from mgx_core.rules.decomposition import decomposed
from mgx_core.types.shape import AnyShape

from ..codegen.bodies import is_reduction, single
from ..codegen.generators import Inputs
from ..codegen.pointwise import pointwise
from ..codegen.reduce import fused_reduce
from ..codegen.source import DeviceTraits, KernelSource, Tensor, entry_word
from .offer import generated

__all__ = ["DECOMPOSED", "PLANS"]

PLANS = Kernels("gpu")
DECOMPOSED = Kernels("gpu")  # for ops without another plan


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


generated(PLANS, write_pointwise, PointwiseGroup)
generated(PLANS, write_reduction, FusedReduce)
generated(PLANS, write_reduction, ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, when=_alone)
generated(PLANS, write_pointwise, name="pointwise", when=_whole)
generated(DECOMPOSED, write_decomposed, name="decomposed", when=_composite)
