"""Fuses pointwise ops, and reductions with the surrounding pointwise ops, into groups."""

from __future__ import annotations

from dataclasses import field

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.control import FusedReduce, PointwiseGroup
from ..ops.elementwise import Pointwise
from ..records import dataclass
from ..rules.outline import Names, is_copied, is_view, outline, through_views
from ..types.dim import Dim
from ..types.shape import Shape
from .interface import CountingPass
from .product_ends import COSTLY, ProductEnds

__all__ = ["FuseElementwise"]

ELEMENTWISE, REDUCTION = "fuse-elementwise", "fuse-reductions"
FULL = No("the group is full")
EXTENTS = No("the group runs over other extents")
AXES = No("the group reduces other axes")
CHAINED = No("the group has a chain of as many reductions as a group may have")


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
class FuseElementwise(CountingPass):
    """Creates `pointwise` and `fused_reduce` groups.

    A pointwise op joins the groups of its producers if the extents agree.  A reduction joins the group of its operand, and
    pointwise ops on its result, or on the result broadcast back, join too: softmax, layer and group normalization become one
    group in any form.  A member never moves past an instruction that reads another member.
    reduce: whether reductions are grouped; costly: primitives that are not fused into the epilogues of integer products;
    most: the most members of a group; inputs: the most inputs of a group, without scalar literals; chained: the most reductions
    of a group that depend on each other, one behind the other; NVRTC takes a minute for 24 and much longer for more.
    """

    reduce: bool = True
    costly: frozenset[str] = COSTLY
    most: int = 96
    inputs: int = 24
    chained: int = 12
    name: str = "fuse-elementwise"

    def apply(self, module: Module) -> bool:
        modules = list(nested(module))
        names = Names([m.name for m in modules])
        groups = {m: [i for i in m if isinstance(i.op, (PointwiseGroup, FusedReduce))] for m in modules}
        bodies = {body for made in groups.values() for i in made for body in i.modules}
        changed = False
        for inner in modules:
            if inner not in bodies and not groups[inner]:  # a program may have been optimized before
                changed |= _Fusion(self, inner, names).run()
        return changed


class _Fusion:
    def __init__(self, options: FuseElementwise, module: Module, names: Names) -> None:
        self.options = options
        self.module = module
        self.names = names
        self.position = {ins: n for n, ins in enumerate(module)}
        self.of: dict[Instruction, _Cluster] = {}
        # for each member: the number of reductions of its group, one behind the other, that its value depends on
        self.passed: dict[Instruction, int] = {}
        self.clusters: list[_Cluster] = []
        self.ends = ProductEnds(module, self.position, options.costly)

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
            ended = self.ends.before(ins, i)
            if ended:
                self.options.tally.refuse(ELEMENTWISE, ins, ended)
                continue
            wrong = self._unfit(cluster, dims, i)
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
        self.passed[ins] = self._passed(ins, joined)

    def _passed(self, ins: Instruction, cluster: _Cluster) -> int:
        """Returns the number of reductions of the cluster, one behind the other, that the operands depend on."""
        read = [through_views(i) for i in ins.inputs]
        return max((self.passed[i] for i in read if self.of.get(i) is cluster), default=0)

    def _unfit(self, cluster: _Cluster, dims: tuple[Dim, ...], read: Instruction) -> No | None:
        """Returns a refusal if a loop nest over `dims` that reads `read` cannot be fused with the cluster's."""
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
        wrong = None if cluster is None else self._apart_from_reduction(cluster, source, ins)
        if wrong:
            self.options.tally.refuse(REDUCTION, ins, wrong)
        if cluster is None or wrong:
            cluster = self._sibling(ins, dims, axes)
        cluster.axes = axes
        cluster.members.append(ins)
        self.of[ins] = cluster
        self.passed[ins] = 1 + self._passed(ins, cluster)

    def _apart_from_reduction(self, cluster: _Cluster, source: Instruction, ins: Instruction) -> No | None:
        """Returns a refusal if a reduction cannot join the cluster of its operand, `source`."""
        dims = ins.inputs[0].shape.dims
        ended = self.ends.before_reduction(source)
        if ended:
            return ended
        if len(cluster.members) >= self.options.most:
            return FULL
        if cluster.dims != dims or source.shape.dims not in (cluster.dims, cluster.reduced):
            return EXTENTS
        if cluster.axes not in (None, ins.op.reduced_axes(len(dims))):
            return AXES
        if self.passed[source] >= self.options.chained:
            return CHAINED
        return self._blocked(cluster, ins)

    def _sibling(self, ins: Instruction, dims: tuple[Dim, ...], axes: tuple[int, ...]) -> _Cluster:
        """Returns the cluster of a reduction that reads the same value over the same axes, or a new one."""
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
        """Returns a refusal if two clusters cannot be merged at `ins`."""
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
        """Returns a refusal if the cluster may not be placed at `ins`, e.g. if an outside user of a member comes before `ins`."""
        here = self.position[ins]
        inside = set(cluster.members)
        if sum([len(m.inputs) for m in cluster.members], len(ins.inputs)) > self.options.inputs:
            reads = {through_views(i) for m in (*cluster.members, ins) for i in m.inputs} - inside
            if sum(not is_copied(r) for r in reads) > self.options.inputs:
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
        op = PointwiseGroup() if cluster.axes is None else FusedReduce(axes=cluster.axes)
        following = cluster.members[-1].next
        if following is not None:
            outline(self.module, cluster.members, op, self.names.fresh(op.name), following)
