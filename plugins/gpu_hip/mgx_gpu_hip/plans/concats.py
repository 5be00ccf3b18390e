"""Concatenations with the pointwise work that reads them, in one generated kernel: see `JoinConcats`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mgx_core import Instruction, Kernels, Module, No
from mgx_core.ops.axes import normalize
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel_emission import Results

from ..codegen.concat_pointwise import concat_pointwise
from ..codegen.generators import Inputs, computing
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from ..join_concats import CONCAT
from .offer import offer, output_like
from .product_groups import operand

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


@dataclass(frozen=True)
class Form:
    """Parameters of a kernel: the concatenated axis, the number of parts, and the parameter of the work that they form."""

    axis: int
    parts: int
    place: int
    name: str = Concat.name


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
) -> KernelSource | No:
    checked = computing(
        lambda form, inputs, outputs, device: concat_pointwise(
            modules[0], inputs[: form.parts], form.axis, form.place, inputs[form.parts :], outputs[0], device
        )
    )
    return checked(op, xs, ys, traits, modules)


@offer(PLANS, Group, name="concat", when=tagged(CONCAT, "a concatenation with pointwise work"))
def emit_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one launch."""
    body = modules[0]
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
    joint, concat = next((i, i.op) for i in body if isinstance(i.op, Concat))
    work = next(i for i in body if isinstance(i.op, PointwiseGroup))
    parts = [operand(e, i, env) for i in joint.inputs]
    others = [operand(e, i, env) for i in work.inputs if i is not joint]
    lens = [*parts[0].lens]
    axis = normalize(concat.axis, len(lens))
    lens[axis] = sum(p.lens[axis] for p in parts)
    out = output_like(e, work.modules[0].outputs[0].shape.dtype, lens, parts)
    form = Form(axis, len(parts), work.inputs.index(joint))
    e.kernel(write, form, work.modules, [*parts, *others], [out])  # type: ignore[arg-type]
    return out
