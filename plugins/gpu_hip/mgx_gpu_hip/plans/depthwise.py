"""Groups of a depthwise convolution with its epilogue, in one generated kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module, No, Operation
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.targets.kernel_emission import Results
from mgx_core.types.shape import AnyShape

from ..codegen.depthwise import depthwise_group
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..codegen.writing import Inputs
from ..emitter import GpuEmitter
from .offer import emit_generated, offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


def _of_convolution(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    assert isinstance(op, Group)
    return None if op.tag == "convolution" else No("the group is not a convolution")


def write_depthwise(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    return depthwise_group(modules[0], [x for x in xs if x is not None], ys[0], traits)


@offer(PLANS, Group, name="depthwise", when=_of_convolution, write=write_depthwise)
def emit_depthwise(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    if not e.exhaustive:
        raise Refused("the convolution and its epilogue are one kernel where plans are timed (exhaustive_tune)")
    return emit_generated(e, write_depthwise, op, modules, args)
