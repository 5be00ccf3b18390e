"""Symbolic composition of reshapes, transposes and broadcasts: maps factors of source axes to axes of the result.

Every axis is a list of parts; a part is a factor of a source axis, or a repetition.  Reshaping splits and joins parts,
transposing permutes them, broadcasting adds repetitions; `ops` returns the cheapest equivalent list of ops.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from ..ops.broadcast import Broadcast, Multibroadcast
from ..ops.movement import Contiguous, Transpose
from ..ops.operation import Operation
from ..ops.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from ..types.dim import Dim, product

__all__ = ["ViewChain", "cost", "regrouping"]

COSTS: Final[dict[type[Operation], int]] = {Transpose: 10, Flatten: 3}


def cost(ops: Sequence[Operation]) -> int:
    """Returns the cost of a list of views: transposes are usually copies, and so is a reshape of a broadcast value."""
    total = sum(COSTS.get(type(op), 2) for op in ops)
    repeated = False
    for op in ops:
        total += 8 if repeated and isinstance(op, (Reshape, Flatten)) else 0
        repeated |= isinstance(op, (Multibroadcast, Broadcast))
    return total


class Part:
    """A factor of an axis: of the source if `real`, else a repetition."""

    __slots__ = ("real", "size")

    def __init__(self, size: Dim, real: bool = True) -> None:
        self.size = size
        self.real = real


def divided(a: Dim, b: Dim) -> Dim | None:
    """Returns a / b if b divides a for all values of the symbols, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and not a % b else None
    if isinstance(b, int) and b < 1:
        return None
    quotient = a // b
    return quotient if quotient * b == a else None


class ViewChain:
    """A view of a tensor with extents `dims`; each method returns False if the op cannot be represented."""

    def __init__(self, dims: Sequence[Dim]) -> None:
        self.dims = tuple(dims)
        self.source: list[list[Part]] = [[] if d == 1 else [Part(d)] for d in dims]
        self.axes: list[list[Part]] = [list(a) for a in self.source]

    def reshape(self, dims: Sequence[Dim]) -> bool:
        """Appends a reshape."""
        flat = [p for axis in self.axes for p in axis]
        out: list[list[Part]] = []
        at = 0
        for d in dims:
            group: list[Part] = []
            need: Dim = d
            while need != 1:
                if at == len(flat):
                    return False
                part = flat[at]
                rest = divided(need, part.size)
                if rest is not None:
                    group.append(part)
                    need = rest
                    at += 1
                    continue
                inner = divided(part.size, need)
                if inner is None:
                    return False
                first, second = Part(need, part.real), Part(inner, part.real)
                self._split(part, first, second)
                flat[at] = second
                group.append(first)
                need = 1
            out.append(group)
        if at != len(flat):
            return False
        self.axes = out
        return True

    def _split(self, part: Part, first: Part, second: Part) -> None:
        for axis in self.source:
            if part in axis:
                n = axis.index(part)
                axis[n : n + 1] = [first, second]
                return

    def transpose(self, order: Sequence[int]) -> bool:
        self.axes = [self.axes[p] for p in order]
        return True

    def spread(self, dims: Sequence[Dim]) -> bool:
        """Appends a broadcast along new leading axes and axes of extent 1."""
        axes: list[list[Part]] = [[] for _ in range(len(dims) - len(self.axes))] + self.axes
        for n, (axis, d) in enumerate(zip(axes, dims, strict=True)):
            have = product(p.size for p in axis)
            if have == d:
                continue
            if axis:
                return False
            axes[n] = [Part(d, False)]
        self.axes = axes
        return True

    def follow(self, op: Operation, dims: Sequence[Dim]) -> bool:
        """Appends an op whose result has extents `dims`."""
        match op:
            case Transpose():
                return self.transpose(op.order(len(self.axes)))
            case Multibroadcast():
                return self.spread(dims)
            case Broadcast():
                axis = op.axis + len(dims) if op.axis < 0 else op.axis
                self.axes = [*self.axes, *([] for _ in range(len(dims) - axis - len(self.axes)))]
                return self.spread(dims)
            case Contiguous():
                return True
        return self.reshape(dims)

    # the result

    def ops(self) -> list[Operation]:
        """Returns the cheapest list of ops found with the effect of the chain."""
        dims = [product(p.size for p in axis) for axis in self.axes]
        repeated = [any(not p.real for p in axis) for axis in self.axes]
        if not any(repeated):
            return self._arranged(self.axes)
        mixed = any(r and any(p.real for p in axis) for r, axis in zip(repeated, self.axes, strict=True))
        axes, wide = self.axes, dims
        if mixed:
            axes = [list(run) for axis in self.axes for _, run in itertools.groupby(axis, lambda p: p.real)]
            wide = [product(p.size for p in axis) for axis in axes]
        own = [[p for p in axis if p.real] for axis in axes]
        lead = next((n for n, axis in enumerate(own) if axis), len(own))
        out = [*self._arranged(own[lead:], units=True), Multibroadcast(out_lens=tuple(wide))]
        return [*out, Reshape(dims=tuple(dims))] if mixed else out

    def _arranged(self, axes: list[list[Part]], units: bool = False) -> list[Operation]:
        """Returns ops that arrange the source's parts into these axes, without broadcasts; units: with squeeze and unsqueeze."""
        dims = [product(p.size for p in axis) for axis in axes]
        before = [p for axis in self.source for p in axis]
        after = [p for axis in axes for p in axis]
        if before == after:
            return regrouping(self.dims, dims, units)
        direct = self._direct(axes)
        if direct is not None:
            return [Transpose(permutation=direct)]
        options = [self._by(groups, after, dims) for groups in self._groupings(before, after)]
        return min(options, key=cost)

    def _direct(self, axes: list[list[Part]]) -> tuple[int, ...] | None:
        """Returns a single permutation of the source's axes with the same effect, or None."""
        if len(axes) != len(self.source):
            return None
        units = [n for n, axis in enumerate(self.source) if not axis]
        order = []
        for axis in axes:
            if not axis:
                if not units:
                    return None
                order.append(units.pop(0))
                continue
            found = next((n for n, own in enumerate(self.source) if own and own[0] is axis[0]), None)
            if found is None or self.source[found] != axis:
                return None
            order.append(found)
        return tuple(order)

    def _groupings(self, before: list[Part], after: list[Part]) -> list[list[list[Part]]]:
        """Yields groupings of the source's parts into axes for a transpose: single parts, whole source axes, longest runs."""
        out = [[[p] for p in before]]
        whole = [axis for axis in self.source if axis]
        place = {id(p): n for n, p in enumerate(after)}
        if all(place[id(q)] == place[id(p)] + 1 for axis in whole for p, q in itertools.pairwise(axis)):
            out.append(whole)
        runs: list[list[Part]] = []
        for p in before:
            if runs and place[id(p)] == place[id(runs[-1][-1])] + 1:
                runs[-1].append(p)
            else:
                runs.append([p])
        out.append(runs)
        return out

    def _by(self, groups: list[list[Part]], after: list[Part], dims: list[Dim]) -> list[Operation]:
        middle = [product(p.size for p in g) for g in groups]
        first = {id(g[0]): n for n, g in enumerate(groups)}
        order = [first[id(p)] for p in after if id(p) in first]
        turned = [middle[n] for n in order]
        return [*regrouping(self.dims, middle), Transpose(permutation=tuple(order)), *regrouping(turned, dims)]


def regrouping(old: Sequence[Dim], new: Sequence[Dim], units: bool = False) -> list[Operation]:
    """Returns the op from one list of extents to another with the same elements in order; none if they are equal.

    units: prefer squeeze and unsqueeze to reshape (groups absorb these, as they do broadcasts).
    """
    old, new = tuple(old), tuple(new)
    if old == new:
        return []
    if units and len(new) > len(old):
        axes = _inserted(old, new)
        if axes is not None:
            return [Unsqueeze(axes=axes)]
    elif units and len(new) < len(old):
        axes = _inserted(new, old)
        if axes is not None:
            return [Squeeze(axes=axes)]
    return [Reshape(dims=new, allowzero=0 in [d for d in new if isinstance(d, int)])]


def _inserted(few: Sequence[Dim], many: Sequence[Dim]) -> tuple[int, ...] | None:
    """Returns the positions of extra extents of 1 in `many`, if it otherwise equals `few`."""
    at, axes = 0, []
    for n, d in enumerate(many):
        if at < len(few) and few[at] == d:
            at += 1
        elif d == 1:
            axes.append(n)
        else:
            return None
    return tuple(axes) if at == len(few) else None
