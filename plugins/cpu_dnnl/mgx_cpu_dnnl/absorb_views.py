"""Moves views that only attention reads into its groups."""

from __future__ import annotations

from typing import Final

from mgx_core import Instruction, Module, Pass
from mgx_core.ir.module import everywhere
from mgx_core.ops.movement import Transpose
from mgx_core.ops.reshape import Reshape, Squeeze, Unsqueeze
from mgx_core.ops.slice import Slice
from mgx_core.records import dataclass

__all__ = ["AbsorbViews"]

VIEWS: Final = (Reshape, Slice, Squeeze, Transpose, Unsqueeze)


@dataclass(frozen=True)
class AbsorbViews(Pass):
    """Moves the slices, reshapes and transposes in front of an attention group into it, where nothing else reads them.

    Kernels read strided operands in either case.  A layer then has a third of its instructions, and structurally equal layers
    share the group's body, so that instances for new shapes are cheaper.
    """

    name: str = "absorb-views"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            if ins.op.tag == "attention":
                changed |= _absorb(inner, ins)
        return changed


def _absorb(module: Module, group: Instruction) -> bool:
    (body,) = group.modules
    chains = [_chain(i, group) for i in group.inputs]
    if not any(chains):
        return False
    made = Module(body.name)
    parameters: dict[Instruction, Instruction] = {}
    for given, chain in zip(group.inputs, chains, strict=True):
        source = chain[0].inputs[0] if chain else given
        if source not in parameters:
            parameters[source] = made.add_parameter(f"x{len(parameters)}", source.result)
    copies: dict[Instruction, Instruction] = {}
    for inside, given, chain in zip(body.parameters.values(), group.inputs, chains, strict=True):
        at = parameters[chain[0].inputs[0] if chain else given]
        for view in chain:
            at = made.add_like(view, [at])
        copies[inside] = at
    for ins in body:
        if not (ins.is_param or ins.is_return):
            copies[ins] = made.add_like(ins, [copies[i] for i in ins.inputs], ins.modules)
    made.add_return([copies[o] for o in body.outputs])
    sources = dict.fromkeys(s for chain in chains for view in chain for s in view.sources)
    sources |= dict.fromkeys(group.sources)
    new = module.add(group.op, *parameters, modules=[made], sources=sources, before=group)
    module.replace(group, new)
    module.remove(group)
    for chain in chains:
        for view in reversed(chain):
            module.remove(view)
    return True


def _chain(x: Instruction, reader: Instruction) -> list[Instruction]:
    """Returns the chain of views, in order, through which `reader` alone reads x's memory."""
    chain: list[Instruction] = []
    while isinstance(x.op, VIEWS) and len(x.inputs) == 1 and x.users == (reader,) and reader.inputs.count(x) == 1:
        chain.insert(0, x)
        x, reader = x.inputs[0], x
    return chain
