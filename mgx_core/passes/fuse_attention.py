"""Fuses scaled dot-product attention: both products and all ops between them."""

from __future__ import annotations

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere, nested
from ..ops.broadcast import Multibroadcast
from ..ops.control import Group
from ..ops.elementwise import Pointwise
from ..ops.linear import Dot
from ..ops.movement import Transpose
from ..ops.reshape import Reshape
from ..ops.softmax import Softmax
from ..records import dataclass
from ..rules.constants import scalar_of
from ..rules.outline import Names, is_view, outline, through_views
from .interface import CountingPass

__all__ = ["FuseAttention"]


@dataclass(frozen=True)
class FuseAttention(CountingPass):
    """Creates `group[tag="attention"]` instructions around each softmax over the last axis between two dots.

    The body holds, in order: the first dot, pointwise ops on the scores (scale, mask, bias), the softmax, pointwise ops on the
    weights, the second dot, and the transpose and reshape that merge the heads, if these have no other users.
    rounds: also the quantization of the result to bytes, with scalars before the transpose, or with scalars and per-channel
    vectors after the reshape.
    """

    name: str = "fuse-attention"
    rounds: bool = False

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in nested(module)])
        changed = False
        order: dict[Instruction, int] = {}  # positions, still valid for the members of the next groups
        for inner, ins in everywhere(module):
            if isinstance(ins.op, Softmax):
                members = self._match(ins)
                if isinstance(members, No):
                    self.tally.refuse(self.name, ins, members)
                else:
                    if not order.keys() >= set(members):
                        order = {ins: n for n, ins in enumerate(inner)}
                    self._build(inner, sorted(members, key=order.__getitem__), names)
                    self.tally.fired[self.name] += 1
                    changed = True
        return changed

    def _match(self, softmax: Instruction) -> list[Instruction] | No:
        """Returns the members of a group around a softmax, or the reason why there is none."""
        rank = softmax.shape.rank
        if softmax.op.reduced_axes(rank) != (rank - 1,):
            return No("the softmax is not along the last axis")
        above = self._above(softmax)
        if above is None:
            return No("no product is connected to the softmax by pointwise operations alone")
        below = self._below(softmax)
        if below is None:
            return No("the weights are not connected to the left operand of one product by pointwise operations alone")
        members = [*above, softmax, *below]
        inside = set(members)
        for member in members[:-1]:
            if any(not _inside(u, inside) for u in member.users):
                return No(f"the result of {member.op.name} has other users")
        return members

    def _above(self, softmax: Instruction) -> list[Instruction] | None:
        """Returns the first dot and the pointwise ops from it to the softmax."""
        found: list[Instruction] = []
        at = softmax.inputs[0]
        for _ in range(12):
            if isinstance(at.op, Dot):
                return [at, *found]
            if not isinstance(at.op, Pointwise):
                return None
            found.insert(0, at)
            onward = [i for i in at.inputs if _leads_to_dot(i, at)]
            if len(onward) != 1:
                return None
            at = onward[0]
        return None

    def _below(self, softmax: Instruction) -> list[Instruction] | None:
        """Returns the pointwise ops from the softmax to the second dot, that dot, and the ops that merge the heads."""
        found: list[Instruction] = []
        inside = {softmax}
        at = softmax
        for _ in range(12):
            outside = {u for m in inside for u in m.users if u not in inside}
            dots = [u for u in outside if isinstance(u.op, Dot)]
            if len(outside) == 1 and dots:
                dot = dots[0]
                if dot.inputs[0] is not at or dot.inputs[1] is at:
                    return None
                return [*found, dot, *_way_out(dot, self.rounds)]
            more = [u for u in outside if isinstance(u.op, Pointwise) and u.shape.dims == softmax.shape.dims]
            if dots or len(more) != len(outside) or not more:
                return None
            ready = [u for u in more if all(i in inside or i not in more for i in u.inputs)]
            at = ready[-1] if ready else more[-1]
            for u in ready or more:
                found.append(u)
                inside.add(u)
        return None

    def _build(self, module: Module, members: list[Instruction], names: Names) -> None:
        following = members[-1].next
        if following is not None:
            outline(module, members, Group(tag="attention"), names.fresh("attention"), following)


def _inside(user: Instruction, inside: set[Instruction]) -> bool:
    return user in inside or (is_view(user) and bool(user.users) and all(_inside(u, inside) for u in user.users))


def _leads_to_dot(ins: Instruction, reader: Instruction) -> bool:
    """Returns True if a dot is reached through pointwise ops with single users."""
    for _ in range(12):
        if set(ins.users) != {reader}:
            return False
        if isinstance(ins.op, Dot):
            return True
        if not isinstance(ins.op, Pointwise):
            return False
        onward = [i for i in ins.inputs if isinstance(through_views(i).op, Pointwise) or isinstance(i.op, Dot)]
        onward = [i for i in onward if not is_view(i)]
        if not onward:
            return False
        reader, ins = ins, onward[0]
    return False


def _way_out(dot: Instruction, rounds: bool) -> list[Instruction]:
    """Returns the transpose and reshape that merge the heads after the second dot, each the only user of its operand.

    Before them, heads in two axes (groups, and heads of a group) are merged into one.  rounds: also quantization to bytes,
    before or after all of these.
    """
    found = _rounding(dot, rows=False) if rounds else []
    rounded = bool(found)
    at = found[-1] if found else dot
    if dot.shape.rank == 5 and len(at.users) == 1:
        joined = at.users[0]
        if isinstance(joined.op, Reshape) and len(joined.inputs) == 1 and joined.shape.rank == 4:
            at = joined
            found.append(at)
    for cls in (Transpose, Reshape):
        if len(at.users) == 1 and isinstance(at.users[0].op, cls) and len(at.users[0].inputs) == 1:
            at = at.users[0]
            found.append(at)
        else:
            break
    return found if rounded or not rounds else [*found, *_rounding(at, rows=True)]


def _rounding(at: Instruction, rows: bool) -> list[Instruction]:
    """Returns the pointwise ops that quantize a value to bytes; none if it is not quantized.

    rows: their other operands may be vectors along the last axis, not only scalars.
    """
    found: list[Instruction] = []
    while len(found) < 8 and len(at.users) == 1:
        user = at.users[0]
        others = [i for i in user.inputs if i is not at]
        if not isinstance(user.op, Pointwise) or len(others) + 1 != len(user.inputs):
            break
        if not all(scalar_of(i) is not None or (rows and _is_row(i)) for i in others):
            break
        found.append(user)
        at = user
        if at.shape.dtype.bits == 8 and at.shape.dtype.kind in "iuf":
            return found
    return []


def _is_row(ins: Instruction) -> bool:
    """Returns True for a tensor that is broadcast over all axes but the last."""
    source = ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins
    return source.shape.dims[-1:] == ins.shape.dims[-1:] and all(n == 1 for n in source.shape.dims[:-1])
