"""Gathers of single elements with the pointwise work around them: see `JoinLookups`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module, No
from mgx_core.ops.control import Group
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel_emission import Results

from ..codegen.generators import Inputs, computing
from ..codegen.lookups import lookup
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from ..join_lookups import LOOKUP
from .offer import emit_generated, offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
) -> KernelSource | No:
    return computing(lambda op, xs, ys, traits: lookup(modules[0], xs, ys, traits))(op, xs, ys, traits, modules)


@offer(PLANS, Group, name="lookup", when=tagged(LOOKUP, "gathers with pointwise work"), write=write)
def emit_lookup(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one launch."""
    return emit_generated(e, write, op, modules, args)
