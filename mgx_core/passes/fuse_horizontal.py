"""Compute matrix products that share their left operand as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.broadcast import Multibroadcast
from ..ops.linear import Dot
from ..ops.operation import Operation
from ..ops.pointwise import Add
from ..ops.slice import Slice
from ..rules.stats import Tally
from ..types.argument import Argument, Array
from ..types.dim import Dim
from .interface import Pass

__all__ = ["FuseHorizontal"]


class _Product(NamedTuple):
    """One dot with a constant right side, and the bias added to it if there is one."""

    dot: Instruction
    weight: Array
    result: Instruction
    bias: Array | None


@dataclass(frozen=True)
class FuseHorizontal(Pass):
    """Joins dots of one value with constant matrices side by side, their biases too; the results become slices, which are views.

    most: the most columns of a joined product (wider ones gain nothing).
    """

    most: int = 1 << 15
    name: str = "fuse-horizontal"
    tally: Tally = field(default_factory=Tally, init=False, repr=False, compare=False)

    def apply(self, module: Module) -> bool:
        changed = False
        for inner in list(nested(module)):
            for ins in list(inner):
                if ins.parent is inner:
                    changed |= self._join(inner, ins)
        return changed

    def _join(self, module: Module, shared: Instruction) -> bool:
        dots = [u for u in shared.users if isinstance(u.op, Dot) and u.inputs[0] is shared and u.parent is module]
        if len(dots) < 2:
            return False
        found = [p for p in (_product(d) for d in dots if d.inputs[1] is not shared) if p is not None]
        found = [p for p in found if p.weight.dtype == found[0].weight.dtype and len(p.weight) == len(found[0].weight)]
        if len(found) < 2:
            self.tally.refuse(self.name, dots[0], No("no two of the right sides are constant matrices of one type"))
            return False
        if sum(p.weight.shape[1] for p in found) > self.most:
            self.tally.refuse(self.name, dots[0], No(f"the joined product would have more than {self.most} columns"))
            return False
        self.tally.fired[self.name] += 1
        if 2 * sum(p.bias is not None for p in found) < len(found):
            found = [p._replace(result=p.dot, bias=None) for p in found]
        elif any(p.bias is None for p in found):  # keys of attention often have none where queries and values have
            found = [
                p if p.bias is not None else p._replace(bias=np.zeros(p.weight.shape[1], p.weight.dtype)) for p in found
            ]
        joined = {p.dot for p in found}
        first = shared.next
        while first is not None and first not in joined:
            first = first.next
        self._build(module, shared, found, first or dots[0])
        return True

    def _build(self, module: Module, shared: Instruction, found: list[_Product], first: Instruction) -> None:
        sources = tuple(dict.fromkeys(s for p in found for s in (*p.dot.sources, *p.result.sources)))

        def literal(array: Array) -> Instruction:
            made = module.add_literal(Argument.from_value(array))
            module.move(made, first)
            return made

        def add(op: Operation, *inputs: Instruction) -> Instruction:
            return module.add(op, *inputs, sources=sources, before=first)

        dims = shared.shape.dims
        weight = literal(np.concatenate([p.weight for p in found], axis=1))
        right: tuple[Dim, ...] = (*dims[:-2], *weight.shape.dims)
        product = add(Dot(), shared, weight if len(dims) == 2 else add(Multibroadcast(out_lens=right), weight))
        if found[0].bias is not None:
            bias = literal(np.concatenate([p.bias for p in found if p.bias is not None]))
            product = add(Add(), product, add(Multibroadcast(out_lens=product.shape.dims), bias))
        start = 0
        axis = len(dims) - 1
        for p in found:
            width = p.weight.shape[1]
            part = module.add(
                Slice(axes=(axis,), starts=(start,), ends=(start + width,)),
                product,
                sources=p.result.sources,
                before=first,
            )
            start += width
            module.replace(p.result, part)


def _product(dot: Instruction) -> _Product | None:
    weight = _matrix(dot.inputs[1])
    if weight is None:
        return None
    if len(dot.users) == 1 and isinstance(dot.users[0].op, Add) and dot.users[0].parent is dot.parent:
        result = dot.users[0]
        other = result.inputs[1] if result.inputs[0] is dot else result.inputs[0]
        bias = _vector(other, weight.shape[1])
        if bias is not None:
            return _Product(dot, weight, result, bias)
    return _Product(dot, weight, dot, None)


def _matrix(ins: Instruction) -> Array | None:
    """A constant matrix, or one repeated over batches."""
    source = ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins
    if source.literal is None:
        return None
    value = source.literal.value
    return value if isinstance(value, np.ndarray) and value.ndim == 2 else None


def _vector(ins: Instruction, length: int) -> Array | None:
    """A constant that varies along the last axis alone."""
    source = ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins
    if source.literal is None:
        return None
    value = source.literal.value
    if isinstance(value, np.ndarray) and value.size == length and value.shape[-1:] == (length,):
        return value.reshape(-1)
    return None
