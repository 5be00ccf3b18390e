"""Groups that no other plan takes: their members one after the other, and depthwise convolutions with their epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Kernels, Module, No
from mgx_core.ops.control import FusedReduce, Group, PointwiseGroup

from ..codegen.depthwise import depthwise_group
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..codegen.writing import Inputs
from ..emitter import Emitter
from ..kernel import Declined, Results
from .offer import generated, offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


@offer(PLANS, Group, PointwiseGroup, FusedReduce, name="members of")
def emit_members(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Each member by a plan of its own."""
    (body,) = modules
    members = [i for i in body if not (i.is_param or i.is_return)]
    if len(members) == 1 and type(members[0].op) is type(op) and not members[0].modules:
        raise Declined("it has one member, which is no group")
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
    for ins in members:
        env[ins] = e.emit(ins, env)
    results = [env[o] for o in body.outputs]
    return results[0] if len(results) == 1 else tuple(results)


def write_depthwise(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    if op.tag != "convolution":
        return No("the group is no convolution")
    return depthwise_group(modules[0], [x for x in xs if x is not None], ys[0], traits)


# behind the members, which always do: taken only where plans are timed
generated(PLANS, write_depthwise, Group, name="depthwise")
