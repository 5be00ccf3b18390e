"""Horizontal fusion: groups independent neighboring instructions so that one launch does their work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mgx_core import Instruction, Module, Pass, Shape
from mgx_core.ops.coded_product import DequantDot
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import FusedReduce, Group, PointwiseGroup
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.index import Gather
from mgx_core.ops.rotary import RotaryEmbedding
from mgx_core.rules.outline import Names, outline, through_views

from .join_rows import outside_groups

__all__ = ["HORIZONTAL", "JoinLaunches"]

HORIZONTAL: Final = "side by side"  # tag of the groups
SMALL_BYTES: Final = 1 << 20  # bytes of a result above which launch overhead is negligible
MAX_MEMBERS: Final = 4  # members of a group
KINDS: Final = (PointwiseGroup, FusedReduce, Pointwise, Concat, Gather, RotaryEmbedding, DequantDot)


@dataclass(frozen=True)
class JoinLaunches(Pass):
    """Groups small independent neighbors: the rotary embeddings of queries and keys, the appends to key and value caches.

    A launch on a few thousand elements takes as long as an empty one.  Only views and constants may be between the members of a
    group.  If their kernels cannot share a launch, the members run separately.
    """

    name: str = "join-launches"

    def apply(self, module: Module) -> bool:
        modules = list(outside_groups(module))
        names = Names([m.name for m in modules])
        found = [bundle for m in modules for bundle in _bundles(m)]
        for bundle in found:
            last = bundle[-1]
            assert last.parent is not None and last.next is not None
            outline(last.parent, bundle, Group(tag=HORIZONTAL), names.fresh("side_by_side"), last.next)
        return bool(found)


def _bundles(module: Module) -> list[list[Instruction]]:
    """Returns the lists of two or more instructions to group, in order."""
    found: list[list[Instruction]] = []
    bundle: list[Instruction] = []
    behind: set[Instruction] = set()  # members and values computed from them

    def close() -> None:
        if len(bundle) > 1:
            found.append(list(bundle))
        bundle.clear()
        behind.clear()

    for ins in module:
        if ins.is_param or ins.is_literal or ins.is_absent:
            continue
        depends = any(i in behind for i in ins.inputs)
        if through_views(ins) is not ins:  # a view moves along with its operand
            if depends:
                behind.add(ins)
            continue
        if not depends and ins.op.view is not None and len(ins.inputs) == 1:
            continue
        small = _is_small(ins)
        if depends or not small or len(bundle) == MAX_MEMBERS:
            close()
        if small:
            bundle.append(ins)
            behind.add(ins)
    close()
    return found


def _is_small(ins: Instruction) -> bool:
    if not isinstance(ins.op, KINDS) or ins.op.view is not None or not isinstance(ins.result, Shape):
        return False
    operands = [i.result for i in ins.inputs if not i.is_absent]
    if ins.result.dynamic() or not all(isinstance(s, Shape) and not s.dynamic() for s in operands):
        return False
    return 0 < ins.result.elements() * ins.result.dtype.size <= SMALL_BYTES
