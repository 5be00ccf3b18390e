"""Group pointwise ops, and reductions with the pointwise ops around them, into one launch each."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.control import FusedReduce, PointwiseGroup
from ..ops.convert import Convert
from ..ops.operation import Pointwise
from ..ops.scalar import primitives
from ..rules.constants import is_constant
from ..rules.outline import Names, is_view, outline, through_views
from ..rules.stats import Tally
from ..types.dim import Dim
from ..types.dtype import float32
from ..types.shape import Shape
from .interface import Pass

__all__ = ["FuseElementwise"]

ELEMENTWISE, REDUCTION = "fuse-elementwise", "fuse-reductions"
FULL = No("the group is full")
EXTENTS = No("the group runs over other extents")
AXES = No("the group reduces other axes")
NARROW = No("the product before it ends in narrow numbers, which the work of a later product reads")
SUMS = No("the product before it ends in its own work, which stores narrower numbers than its sums")
EARLIER = No("the product before it ends in its own work, which that of a later product reads")
STEPS = 24  # instructions that are followed from one product to another


@dataclass
class _Cluster:
    """Instructions that run as one launch over the extents `dims`; with reductions, over `axes` of them."""

    dims: tuple[Dim, ...]
    axes: tuple[int, ...] | None = None
    members: list[Instruction] = field(default_factory=list)

    @property
    def reduced(self) -> tuple[Dim, ...] | None:
        if self.axes is None:
            return None
        return tuple(1 if n in self.axes else d for n, d in enumerate(self.dims))


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Makes `pointwise` and `fused_reduce` groups.

    A pointwise op joins the groups of its producers where the extents agree; a reduction joins the group of what it reduces, and
    pointwise ops on its result, or on that broadcast back, join too: softmax, layer and group normalisation in any form they
    were written become one group.  Nothing moves past an instruction that reads a member.
    reduce: whether reductions are grouped at all; most: the most members of one group; inputs: the most inputs of one.
    """

    reduce: bool = True
    most: int = 96
    inputs: int = 24
    name: str = "fuse-elementwise"
    tally: Tally = field(default_factory=Tally, init=False, repr=False, compare=False)

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in nested(module)])
        changed = False
        for inner in list(nested(module)):
            if not any(isinstance(ins.op, (PointwiseGroup, FusedReduce)) for ins in inner):
                changed |= _Fusion(self, inner, names).run()
        return changed


class _Fusion:
    def __init__(self, options: FuseElementwise, module: Module, names: Names) -> None:
        self.options = options
        self.module = module
        self.names = names
        self.position = {ins: n for n, ins in enumerate(module)}
        self.of: dict[Instruction, _Cluster] = {}
        self.clusters: list[_Cluster] = []
        self.finishing = {
            member: ins for ins in module for member in _finish(ins)
        }  # by the product whose sums they read

    def run(self) -> bool:
        for ins in self.module:
            if isinstance(ins.op, Pointwise) and isinstance(ins.result, Shape) and ins.result.ranked:
                self._pointwise(ins)
            elif self.options.reduce and ins.op.combine and len(ins.inputs) == 1:
                self._reduction(ins)
        for cluster in self.clusters:
            if cluster.members:
                self._build(cluster)
                self.options.tally.fired[ELEMENTWISE if cluster.axes is None else REDUCTION] += 1
        return any(c.members for c in self.clusters)

    def _pointwise(self, ins: Instruction) -> None:
        dims = ins.shape.dims
        if ins.shape.dtype.kind not in "biuf" or any(i.shape.dtype.kind not in "biuf" for i in ins.inputs):
            return
        joined: _Cluster | None = None
        for i in ins.inputs:
            cluster = self.of.get(through_views(i))
            if cluster is None or cluster is joined:
                continue
            apart = NARROW if _narrow_end(ins, self.position) else _earlier_sums(ins, i, self.position)
            if apart:
                self.options.tally.refuse(ELEMENTWISE, ins, apart)
                continue
            if self._finished(ins, i):
                self.options.tally.refuse(ELEMENTWISE, ins, SUMS)
                continue
            wrong = self._unfit(cluster, ins, dims, i)
            if not wrong:
                wrong = self._blocked(cluster, ins) if joined is None else self._apart(joined, cluster, ins)
            if wrong:
                self.options.tally.refuse(ELEMENTWISE if cluster.axes is None else REDUCTION, ins, wrong)
            else:
                joined = cluster if joined is None else self._merge(joined, cluster)
        if joined is None:
            joined = _Cluster(dims)
            self.clusters.append(joined)
        elif joined.axes is None and joined.dims != dims:
            joined.dims = dims
        joined.members.append(ins)
        self.of[ins] = joined

    def _finished(self, ins: Instruction, read: Instruction) -> bool:
        """True if a product's own work ends before `ins`: a costly function, a reduction, or the work of a later product."""
        product = self.finishing.get(through_views(read))
        if product is None or ins in self.finishing:
            return False
        if _costly(ins):
            return True
        others = {self.finishing.get(through_views(i)) for i in ins.inputs} - {None, product}
        later = any(o is not None and self.position[o] > self.position[product] for o in others)
        return later or _reduced_later(ins)

    def _unfit(self, cluster: _Cluster, ins: Instruction, dims: tuple[Dim, ...], read: Instruction) -> No | None:
        """A refusal if `ins` cannot run in the cluster's loop."""
        if len(cluster.members) >= self.options.most:
            return FULL
        if dims == cluster.dims:
            good = through_views(read).shape.dims in (cluster.dims, cluster.reduced)
        else:
            good = dims == cluster.reduced and read.shape.dims == dims and not is_view(read)
        return None if good else EXTENTS

    def _reduction(self, ins: Instruction) -> None:
        dims = ins.inputs[0].shape.dims
        axes = ins.op.reduced_axes(len(dims))
        if ins.shape.dtype.kind not in "biuf":
            return
        source = through_views(ins.inputs[0])
        cluster = self.of.get(source)
        wrong: No | None = None
        if cluster is not None:
            if source in self.finishing:
                wrong = SUMS
            elif len(cluster.members) >= self.options.most:
                wrong = FULL
            elif cluster.dims != dims or source.shape.dims not in (cluster.dims, cluster.reduced):
                wrong = EXTENTS
            elif cluster.axes not in (None, axes):
                wrong = AXES
            else:
                wrong = self._blocked(cluster, ins)
            if wrong:
                self.options.tally.refuse(REDUCTION, ins, wrong)
        if cluster is None or wrong:
            cluster = self._sibling(ins, dims, axes)
        cluster.axes = axes
        cluster.members.append(ins)
        self.of[ins] = cluster

    def _sibling(self, ins: Instruction, dims: tuple[Dim, ...], axes: tuple[int, ...]) -> _Cluster:
        """The cluster of a reduction that reads the same value over the same axes, or a new one."""
        for user in ins.inputs[0].users:
            other = self.of.get(user)
            if (
                other is not None
                and user is not ins
                and other.axes == axes
                and other.dims == dims
                and len(other.members) < self.options.most
                and not self._blocked(other, ins)
            ):
                return other
        made = _Cluster(dims)
        self.clusters.append(made)
        return made

    def _apart(self, one: _Cluster, other: _Cluster, ins: Instruction) -> No | None:
        """A refusal if two clusters cannot be one at `ins`."""
        if one.axes is not None and other.axes is not None and one.axes != other.axes:
            return AXES
        if one.dims != other.dims:
            return EXTENTS
        if len(one.members) + len(other.members) >= self.options.most:
            return FULL
        return self._blocked(other, ins) or self._blocked(one, ins)

    def _merge(self, one: _Cluster, other: _Cluster) -> _Cluster:
        one.axes = one.axes or other.axes
        one.members = sorted((*one.members, *other.members), key=self.position.__getitem__)
        for member in other.members:
            self.of[member] = one
        other.members = []
        return one

    def _blocked(self, cluster: _Cluster, ins: Instruction) -> No | None:
        """A refusal if the cluster may not run at `ins`, as where something outside that comes before `ins` reads a member."""
        here = self.position[ins]
        inside = set(cluster.members)
        reads = {through_views(i) for m in (*cluster.members, ins) for i in m.inputs} - inside
        if len(reads) > self.options.inputs:
            return No(f"the group would read more than {self.options.inputs} values")
        stack = [u for m in cluster.members for u in m.users]
        while stack:
            user = stack.pop()
            if user in inside or user is ins:
                continue
            if user.parent is not self.module:
                return No("a nested module reads a member of the group")
            if is_view(user):
                stack.extend(user.users)
                continue
            if self.position[user] < here:
                return No(f"{user.op.name}, which comes before, reads a member of the group")
        return None

    def _build(self, cluster: _Cluster) -> None:
        axes = cluster.axes
        last = cluster.members[-1]
        following = last.next
        if axes is None:
            if following is not None:
                outline(self.module, cluster.members, PointwiseGroup, self.names.fresh("pointwise"), following)
        elif following is not None:
            outline(
                self.module,
                cluster.members,
                lambda: FusedReduce(axes=axes),
                self.names.fresh("fused_reduce"),
                following,
            )


def _narrow_end(ins: Instruction, position: dict[Instruction, int]) -> bool:
    """True if an instruction widens what the work of one product made narrow, for the work of a later product.

    Each product then ends in its own work: the earlier one stores narrow numbers, which the later one reads.
    """
    if not isinstance(ins.op, Convert) or ins.inputs[0].shape.dtype.bits > 8 or ins.shape.dtype.bits < 16:
        return False
    own = _product_before(ins)
    at = ins
    for _ in range(STEPS):
        if own is None or len(at.users) != 1 or not isinstance(at.users[0].op, Pointwise):
            return False
        reader = at.users[0]
        others = [i for i in reader.inputs if i is not at and not is_constant(i)]
        if others:
            later = _product_before(others[0])
            return later is not None and position.get(later, -1) > position[own]
        at = reader
    return False


def _finish(ins: Instruction) -> list[Instruction]:
    """The work on the sums of a product of narrow numbers, with constants, if it ends in numbers narrower than the sums.

    A target's product does it where the sums are, so that these need not be stored.
    """
    if not ins.op.product or not isinstance(ins.result, Shape) or ins.inputs[0].shape.dtype.bits > 8:
        return []
    found: list[Instruction] = []
    at = ins
    while len(at.users) == 1 and isinstance(at.users[0].op, Pointwise) and at.users[0].parent is ins.parent:
        reader = at.users[0]
        if ins.shape.dtype.is_integer and at.shape.dtype.bits < ins.shape.dtype.bits and _costly(reader):
            break
        if any(i is not at and not is_constant(i) for i in reader.inputs) or reader.shape.dims != ins.shape.dims:
            break
        found.append(reader)
        at = reader
    return found if found and at.shape.dtype.bits < ins.shape.dtype.bits else []


def _costly(ins: Instruction) -> bool:
    """True for functions that take the few threads of a product of integers longer than a launch of their own takes many."""
    return isinstance(ins.op, Pointwise) and "erf" in primitives(type(ins.op).scalar)


def _reduced_later(ins: Instruction) -> bool:
    """True if a reduction reads what is computed from an instruction element by element."""
    seen = {ins}
    pending = [ins]
    while pending and len(seen) <= STEPS:
        for user in pending.pop().users:
            if user.op.combine:
                return True
            if user not in seen and (isinstance(user.op, Pointwise) or is_view(user)):
                seen.add(user)
                pending.append(user)
    return False


def _earlier_sums(ins: Instruction, read: Instruction, position: dict[Instruction, int]) -> No | None:
    """A refusal if `read` is work on one product's integer sums that meets work on a later product's sums at `ins`.

    The earlier product then ends in its own work, and its sums need not be stored for the loop or epilogue of the later one.
    """
    own = _product_before(read) if ins.shape.dtype is float32 else None
    if own is None or own is read or not own.shape.dtype.is_integer:
        return None
    others = (_product_before(i) for i in ins.inputs if i is not read and not is_constant(i))
    later = any(o is not None and o.shape.dtype.is_integer and position[o] > position[own] for o in others)
    return EARLIER if later else None


def _product_before(ins: Instruction) -> Instruction | None:
    """The product whose result a chain of work on elements begins with."""
    at = ins
    for _ in range(STEPS):
        if at.op.product:
            return at
        if not isinstance(at.op, Pointwise) or len(at.users) > 1:
            return None
        varying = [i for i in at.inputs if not is_constant(i)]
        if len(varying) != 1:
            return None
        at = varying[0]
    return None
