"""Merges convolutions of the same tensor, and embedding lookups in tables of the same width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere, nested
from ..ops.broadcast import Multibroadcast
from ..ops.compare import Less
from ..ops.concat import Concat
from ..ops.convolution import Convolution
from ..ops.elementwise import Pointwise
from ..ops.index import Gather
from ..ops.operation import Operation
from ..ops.pointwise import Add, Where
from ..ops.reshape import Reshape
from ..ops.slice import Slice
from ..records import dataclass
from ..rules.constants import aligned, along
from ..types.argument import Array
from ..types.dim import Dim, product
from .interface import CountingPass

__all__ = ["JoinConvolutions", "JoinGathers"]


class _Place:
    """Inserts instructions before a position, with the source names of those that they replace."""

    def __init__(self, module: Module, before: Instruction, old: Sequence[Instruction]) -> None:
        self.module = module
        self.before = before
        self.sources = tuple(dict.fromkeys(s for o in old for s in o.sources))

    def add(self, op: Operation, *inputs: Instruction) -> Instruction:
        return self.module.add(op, *inputs, sources=self.sources, before=self.before)

    def literal(self, array: Array) -> Instruction:
        return self.module.add_literal(array, before=self.before)


@dataclass(frozen=True)
class JoinConvolutions(CountingPass):
    """Merges convolutions of one tensor with equal windows by concatenating their weights and biases, and the op that
    follows them; the results become slices along the channels.

    It is faster if each alone is too small to use all cores; most: the most channels of a merged result.
    """

    most: int = 512
    name: str = "join-convolutions"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, shared in everywhere(module):
            changed |= len(shared.users) > 1 and self._join(inner, shared)
        return changed

    def _join(self, module: Module, shared: Instruction) -> bool:
        groups: dict[object, list[Instruction]] = {}
        for user in shared.users:
            if (
                isinstance(user.op, Convolution)
                and user.inputs[0] is shared
                and user.parent is module
                and user.op.group == 1
            ):
                w = user.inputs[1]
                if w.literal is not None and w is not shared:
                    groups.setdefault((user.op, w.shape.dims[1:]), []).append(user)
        changed = False
        for found in groups.values():
            if len(found) < 2:
                continue
            wide = No(f"the merged result would have more than {self.most} channels")
            if self.counted(found[0], wide if sum(int(c.shape.dims[1]) for c in found) > self.most else None):
                self._build(module, found)
                changed = True
        return changed

    def _build(self, module: Module, found: list[Instruction]) -> None:
        order = {ins: n for n, ins in enumerate(module)}
        found = sorted(found, key=order.__getitem__)
        counts = [int(c.shape.dims[1]) for c in found]
        results = list(found)
        place = _Place(module, found[0], found)
        weights = np.concatenate([np.asarray(c.inputs[1].get_literal().value) for c in found])
        made = place.add(found[0].op, found[0].inputs[0], place.literal(weights))
        biases = [_bias(c) for c in found]
        if all(bias is not None for bias in biases):
            results = [c.users[0] for c in found]
            place.sources = tuple(dict.fromkeys((*place.sources, *(s for r in results for s in r.sources))))
            parts = [np.broadcast_to(bias, (n,)) for bias, n in zip(biases, counts, strict=True) if bias is not None]
            bias = place.literal(np.concatenate(parts).reshape(-1, *(1,) * (made.shape.rank - 2)))
            made = place.add(Add(), made, place.add(Multibroadcast(out_lens=made.shape.dims), bias))
        after = [r.users[0] if len(r.users) == 1 else r for r in results]
        unary = all(isinstance(a.op, Pointwise) and len(a.inputs) == 1 and a.op == after[0].op for a in after)
        if unary and all(a.parent is module for a in after):
            results = after
            made = place.add(after[0].op, made)
        start = 0
        for result, n in zip(results, counts, strict=True):
            part = place.add(Slice(axes=(1,), starts=(start,), ends=(start + n,)), made)
            part.sources = result.sources
            start += n
            module.replace(result, part)
        module.sweep()


def _bias(convolution: Instruction) -> Array | None:
    """Returns the per-channel bias that is added to a convolution, if the sum is its only user."""
    if len(convolution.users) != 1 or not isinstance(convolution.users[0].op, Add):
        return None
    add = convolution.users[0]
    value = aligned(add.inputs[1] if add.inputs[0] is convolution else add.inputs[0])
    return None if value is None or add.parent is not convolution.parent else along(value, add.shape.rank, 1)


@dataclass(frozen=True)
class JoinGathers(CountingPass):
    """Merges lookups in constant tables of the same width: concatenates the tables and offsets the indices.

    least: the fewest lookups that are merged.
    """

    least: int = 4
    name: str = "join-gathers"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner in list(nested(module)):
            groups: dict[object, list[Instruction]] = {}
            for ins in inner:
                if not isinstance(ins.op, Gather):
                    continue
                table, indices = ins.inputs
                if table.literal is None or not indices.is_param:
                    continue
                if ins.op.axis % table.shape.rank or indices.shape.dtype.bits < 32:
                    continue
                key = (table.shape.dtype, table.shape.dims[1:], indices.shape.dtype)
                groups.setdefault(key, []).append(ins)
            for found in groups.values():
                few = No(f"fewer than {self.least} tables of the same width")
                if self.counted(found[0], few if len(found) < self.least else None):
                    self._build(inner, found)
                    changed = True
        return changed

    def _build(self, module: Module, found: list[Instruction]) -> None:
        place = _Place(module, found[0], found)
        tables = [np.asarray(g.inputs[0].get_literal().value) for g in found]
        starts = np.cumsum([0, *(len(t) for t in tables[:-1])])
        flat = []
        for g, table, start in zip(found, tables, starts, strict=True):
            indices = g.inputs[1]
            kind = indices.shape.dtype.numpy
            wrapped = self._wrapped(place, indices, len(table))
            moved = place.add(Add(), wrapped, self._spread(place, np.asarray(start, kind), wrapped))
            flat.append(place.add(Reshape(dims=(product(indices.shape.dims),), allowzero=True), moved))
        rows = place.add(Gather(axis=0), place.literal(np.concatenate(tables)), place.add(Concat(axis=0), *flat))
        at: Dim = 0
        for g, part in zip(found, flat, strict=True):
            n = part.shape.dims[0]
            cut = place.add(Slice(axes=(0,), starts=(at,), ends=(at + n,)), rows)
            at = at + n
            module.replace(g, place.add(Reshape(dims=g.shape.dims, allowzero=True), cut))
        module.sweep()

    @staticmethod
    def _spread(place: _Place, value: Array, like: Instruction) -> Instruction:
        made = place.literal(value)
        return made if not like.shape.rank else place.add(Multibroadcast(out_lens=like.shape.dims), made)

    def _wrapped(self, place: _Place, indices: Instruction, length: int) -> Instruction:
        """Returns indices with negative ones made non-negative."""
        kind = indices.shape.dtype.numpy
        negative = place.add(Less(), indices, self._spread(place, np.zeros((), kind), indices))
        turned = place.add(Add(), indices, self._spread(place, np.asarray(length, kind), indices))
        return place.add(Where(), negative, turned, indices)
