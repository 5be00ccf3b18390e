"""Concatenations, alone or with the pointwise work that reads them: see `JoinConcats`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mgx_core import Instruction, Kernels, Module, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.axes import normalize
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel import op_of
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..codegen import movement
from ..codegen.concat_pointwise import concat_pointwise
from ..codegen.generators import Inputs, computing, copying
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from ..join_concats import CONCAT
from .offer import emit_generated, offer, output_like
from .product_groups import operand

__all__ = ["PLANS"]

PLANS = Kernels("gpu")
MOST: Final = 256  # parts of a launch: all parameters of a kernel take at most 4 KiB, a pointer 8 bytes
write_concat = copying(lambda op, xs, ys, traits: movement.concat(op, xs, ys[0], traits))


@offer(PLANS, Concat, name="generated", write=write_concat)
def emit_concat(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one launch per `MOST` parts, each of which writes a slice of the result; none for parts that are there already."""
    out = None if e.current is None or op_of(e.current) is not op else e.concatenated.get(e.current)
    if out is None and len(args) <= MOST:
        return emit_generated(e, write_concat, op, modules, args)
    lens, axis = [*args[0].lens], normalize(op.axis, len(args[0].lens))
    lens[axis] = sum(a.lens[axis] for a in args)
    if out is None:
        out = output_like(e, args[0].dtype, lens, args)
    else:
        e.uncacheable()  # depends on the memory of the parts
    runs: list[tuple[int, list[Value]]] = []  # adjacent parts that are not in place, and where they begin
    begin = end = 0
    for part in args:
        if not _is_there(part, out, out.offset + begin * out.strides[axis]):
            if not runs or end != begin or len(runs[-1][1]) == MOST:
                runs.append((begin, []))
            runs[-1][1].append(part)
            end = begin + part.lens[axis]
        begin += part.lens[axis]
    for begin, parts in runs:
        lens[axis] = sum(p.lens[axis] for p in parts)
        written = out.view_at(begin * out.strides[axis], Shape(out.dtype, lens, out.strides))
        e.kernel(write_concat, op, modules, parts, [written])
    return out


def _is_there(part: Value, out: Value, offset: int) -> bool:
    """Returns True if a part is in the result's memory, at its place."""
    same = all(n == 1 or p == q for n, p, q in zip(part.lens, part.strides, out.strides, strict=True))
    return part.buffer is out.buffer and part.offset == offset and same


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
    if len(args) > MOST:
        raise Refused(f"{len(args)} operands, at most {MOST} are taken by one launch")
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
