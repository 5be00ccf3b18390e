"""Horizontal fusion: groups independent instructions so that one launch does their work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mgx_core import Instruction, Module, Pass, Shape
from mgx_core.ops.coded_product import DequantDot
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.index import Gather, GatherElements, Gathernd
from mgx_core.ops.pad import Pad
from mgx_core.ops.rotary import RotaryEmbedding
from mgx_core.ops.scan import PrefixScanSum
from mgx_core.ops.softmax import Logsoftmax, Softmax
from mgx_core.rules.outline import Names, follows, outline, through_views

from .join_rows import outside_groups

__all__ = ["HORIZONTAL", "JoinLaunches"]

HORIZONTAL: Final = "side by side"  # tag of the groups
SMALL_BYTES: Final = 1 << 21  # bytes of a result above which launch overhead is negligible
MAX_MEMBERS: Final = 8  # members of a group
AHEAD: Final = 64  # instructions behind the first member among which others are looked for
ELEMENTWISE: Final = (
    PointwiseGroup, Pointwise, Concat, Gather, GatherElements, Gathernd, RotaryEmbedding, DequantDot,
)  # fmt: skip
ALONG: Final = (Softmax, Logsoftmax, PrefixScanSum)


@dataclass(frozen=True)
class JoinLaunches(Pass):
    """Groups small independent instructions: the rotary embeddings of queries and keys, the appends to key and value caches.

    A launch on a few thousand elements takes as long as an empty one.  Members of one kind need not be neighbors: those behind
    the first move to it, with the views that they read, if nothing in between computes their operands.  Reductions, softmax
    and scans are grouped with such over as many elements only, since threads that work together require equal blocks.  If their
    kernels cannot share a launch, the members run separately.
    """

    name: str = "join-launches"

    def apply(self, module: Module) -> bool:
        modules = list(outside_groups(module))
        names = Names([m.name for m in modules])
        found = [bundle for m in modules for bundle in _bundles(m)]
        for members, views in found:
            first = members[0]
            assert first.parent is not None and first.next is not None
            for view in views:
                # not left out when another group copied it, and not moved before with a member of another group that it reads
                if view.parent is not None and follows(view, first):
                    first.parent.move(view, first)
            outline(first.parent, members, Group(tag=HORIZONTAL), names.fresh("side_by_side"), first.next)
        return bool(found)


class _Bundle(NamedTuple):
    """Two or more instructions to group, and the views and constants to move in front of them, both in order."""

    members: list[Instruction]
    views: list[Instruction]


def _bundles(module: Module) -> list[_Bundle]:
    """Returns the instructions to group, in order."""
    order = list(module)
    kinds = [_kind(ins) for ins in order]
    taken: set[Instruction] = set()
    found: list[_Bundle] = []
    for n, first in enumerate(order):
        if kinds[n] is not None and first not in taken:
            bundle = _bundle(order[n : n + AHEAD], kinds[n : n + AHEAD], taken)
            if len(bundle.members) > 1:
                taken.update((*bundle.members, *bundle.views))
                found.append(bundle)
    return found


def _bundle(order: Sequence[Instruction], kinds: Sequence[object], taken: set[Instruction]) -> _Bundle:
    """Returns the first instruction with later ones of its kind whose operands do not depend on it or what follows."""
    first, neighbors, apart = order[0], True, _apart(order[0])
    members, views = [first], list[Instruction]()
    behind = {first}  # values that are not computed before the first member
    passed: list[Instruction] = []  # views on others
    for ins, kind in zip(order[1:], kinds[1:], strict=True):
        if ins in taken:
            continue  # moves to the place of an earlier group
        depends = any(i in behind for i in ins.inputs)
        if not depends and _moves_along(ins):
            passed.append(ins)
            continue
        behind.add(ins)
        joins = not depends and kind == kinds[0]
        if joins and (neighbors or (apart and type(ins.op) is type(first.op) and _apart(ins))):
            members.append(ins)
            views += passed
            passed.clear()
            if len(members) == MAX_MEMBERS:
                break
        elif through_views(ins) is ins:
            neighbors = False
    return _Bundle(members, views)


def _apart(ins: Instruction) -> bool:
    """Returns False for concatenations and their parts, which may be written in place."""
    return not isinstance(ins.op, Concat) and not any(
        isinstance(u.op, Concat) or (_moves_along(u) and not _apart(u)) for u in ins.users
    )


def _moves_along(ins: Instruction) -> bool:
    """Returns True for what needs no launch: constants, views, elements of tuples; not where an extent may be computed later."""
    if ins.result.dynamic():
        return False
    if not ins.inputs:
        return ins.is_param or ins.is_literal or ins.is_absent
    return len(ins.inputs) == 1 and (ins.op.aligns or ins.op.view is not None or isinstance(ins.op, GetTupleElem))


def _kind(ins: Instruction) -> object:
    """Returns what the members of a group have in common; None for instructions that are not grouped."""
    if ins.op.view is not None or not isinstance(ins.result, Shape):
        return None
    operands = [i.result for i in ins.inputs if not i.is_absent]
    if ins.result.dynamic() or not all(isinstance(s, Shape) and not s.dynamic() for s in operands):
        return None
    if not 0 < ins.result.elements() * ins.result.dtype.size <= SMALL_BYTES:
        return None
    if isinstance(ins.op, FusedReduce):
        reductions = [i for i in ins.modules[0] if i.op.combine]
        return (FusedReduce, tuple(reductions[0].inputs[0].shape.dims[a] for a in ins.op.axes)) if reductions else None
    if isinstance(ins.op, ALONG):
        return (type(ins.op), ins.shape.dims[ins.op.axis]) if len(ins.inputs) == 1 else None
    return ELEMENTWISE if isinstance(ins.op, ELEMENTWISE) or (isinstance(ins.op, Pad) and _apart(ins)) else None
