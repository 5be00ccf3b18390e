"""Fuses the conversion of an image into the convolution of few channels that reads it."""

from __future__ import annotations

from dataclasses import dataclass

from mgx_core import Instruction, Module, Pass
from mgx_core.ir.module import nested
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.ops.convert import Convert
from mgx_core.ops.convolution import Convolution
from mgx_core.rules.outline import Names

from .join_rows import outside_groups
from .plans.few_channels import READ, is_few_channels

__all__ = ["JoinImages"]


@dataclass(frozen=True)
class JoinImages(Pass):
    """Moves the conversion of an image into the group of the first layer, if that is its only reader.

    The kernel for few channels converts the image while it reads it.  If a target declines the group, its members run separately.
    """

    name: str = "join-images"

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in nested(module)])
        changed = False
        for inner in list(outside_groups(module)):
            for ins in list(inner):
                if ins.parent is inner and (isinstance(ins.op, Convolution) or _is_group(ins)):
                    changed |= _join(inner, ins, names)
        return changed


def _is_group(ins: Instruction) -> bool:
    return isinstance(ins.op, Group) and ins.op.tag == Convolution.name


def _join(module: Module, ins: Instruction, names: Names) -> bool:
    body = ins.modules[0] if ins.modules else None
    anchor = ins if body is None else next((i for i in body if isinstance(i.op, Convolution)), None)
    if anchor is None or is_few_channels(anchor.op, [i.result for i in anchor.inputs]) is not None:
        return False
    place = 0
    if body is not None:
        parameters = list(body.parameters.values())
        if anchor.inputs[0] not in parameters:
            return False
        place = parameters.index(anchor.inputs[0])
    image = ins.inputs[place]
    conversion = _conversion(image)
    if conversion is None or image.users != (ins,) or image.parent is not module or ins.next is None:
        return False
    made = Module(names.fresh(Convolution.name))
    args = [image.inputs[0] if i is image else i for i in ins.inputs]
    given = [made.add_parameter(f"x{n}", a.result) for n, a in enumerate(args)]
    narrow = made.add(conversion, given[place], sources=image.sources)
    inner = [narrow if i is image else g for i, g in zip(ins.inputs, given, strict=True)]
    made.add_return(made.inline(body, inner) if body is not None else [made.add(ins.op, *inner, sources=ins.sources)])
    sources = (*image.sources, *(s for s in ins.sources if s not in image.sources))
    group = Group(tag=Convolution.name)
    module.replace(ins, module.add(group, *args, modules=[made], sources=sources, before=ins))
    module.remove(ins)
    module.remove(image)
    return True


def _conversion(ins: Instruction) -> Convert | None:
    """Returns the conversion that an instruction, or its group, consists of; None for anything else."""
    if isinstance(ins.op, PointwiseGroup):
        inside = [i for i in ins.modules[0] if not (i.is_param or i.is_return)]
        if len(inside) != 1 or ins.modules[0].outputs != (inside[0],):
            return None
        op = inside[0].op
    else:
        op = ins.op
    if not isinstance(op, Convert) or len(ins.inputs) != 1 or ins.inputs[0].shape.dtype not in READ:
        return None
    return op
