"""Fuses pointwise groups into the epilogues of the convolutions and matrix products that they read."""

from __future__ import annotations

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.control import Group, PointwiseGroup
from ..records import dataclass
from ..rules.outline import Names, outline
from .interface import CountingPass

__all__ = ["PRODUCTS", "FuseEpilogue"]

PRODUCTS = {"matrix": "epilogue-dot", "window": "epilogue-convolution"}  # kind of product -> its name in `fusion_rules`


@dataclass(frozen=True)
class FuseEpilogue(CountingPass):
    """Creates a `group` from an anchor (convolution, dot) and the only pointwise group that reads it.

    The body is the anchor, any reshapes between the two, and the pointwise group, so that a target that declines
    the group runs the two parts.  Needs the groups of `FuseElementwise`.
    products: the kinds of anchors that may have an epilogue.
    """

    products: frozenset[str] = frozenset(PRODUCTS)
    name: str = "fuse-epilogue"

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in nested(module)])
        changed = False
        for inner in list(nested(module)):
            position = {ins: n for n, ins in enumerate(inner)}
            for ins in list(inner):
                if ins.parent is inner and isinstance(ins.op, PointwiseGroup):
                    changed |= self._fuse(inner, ins, position, names)
        return changed

    def _fuse(self, module: Module, ins: Instruction, position: dict[Instruction, int], names: Names) -> bool:
        best: list[Instruction] = []
        for i in ins.inputs:
            chain = self._chain(i, ins)
            if isinstance(chain, No):
                self.tally.refuse(self.name, ins, chain)
            elif chain and (not best or position[chain[0]] > position[best[0]]):
                best = chain
        if not best or ins.next is None:
            return False
        self.tally.fired[self.name] += 1
        tag = best[0].op.name
        made = outline(module, [*best, ins], Group(tag=tag), names.fresh(tag), ins.next)
        position[made] = position[ins]
        return True

    def _chain(self, read: Instruction, reader: Instruction) -> list[Instruction] | No:
        """Returns the anchor and the reshapes up to `read`, all with single users; a refusal; or nothing without an anchor."""
        chain: list[Instruction] = []
        at, user = read, reader
        while at.op.reshapes and len(at.inputs) == 1 and at.users == (user,):
            chain.insert(0, at)
            at, user = at.inputs[0], at
        if at.op.product not in self.products:
            return []
        if at.parent is not reader.parent:  # a branch may not need the result
            return No(f"the {at.op.name} is outside the module that reads it")
        if at.users != (user,) or user.inputs.count(at) != 1:
            return No(f"the {at.op.name} has other users")
        body = reader.modules[0]
        full = [o.shape.dims for o in body.outputs]
        if any(dims != read.shape.dims for dims in full):
            return No(f"the group's results have other extents than the {at.op.name}")
        return [at, *chain]
