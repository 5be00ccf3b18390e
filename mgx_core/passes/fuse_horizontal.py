"""Merges matrix products that share their left operand into one (horizontal fusion)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere
from ..named_tuples import NamedTuple
from ..ops.broadcast import Multibroadcast
from ..ops.coded_product import DequantDot
from ..ops.elementwise import Pointwise
from ..ops.linear import Dot
from ..ops.operation import Operation
from ..ops.pointwise import Add
from ..ops.quantized_product import QuantDot
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..records import dataclass
from ..rules.constants import aligned, along
from ..rules.engine import Rewriter, Rules
from ..types.argument import Array
from ..types.dim import Dim
from ..types.shape import Shape
from .interface import CountingPass

__all__ = ["FuseHorizontal"]


class _Step(NamedTuple):
    """A pointwise op on a product's result, unary or with a per-column constant."""

    op: Operation
    result: Instruction
    column: Array | None = None
    left: bool = False  # True if the constant is the left operand


class _Product(NamedTuple):
    """A product with a constant right side, and the steps that follow it.

    weights: the matrix, or codes, scales and zero points with a row for each of its columns; zeros: the zero point of the left
    operand, if any; view: the reshape between the product and the steps, if any, which keeps the columns.
    """

    dot: Instruction
    weights: tuple[Array, ...]
    steps: tuple[_Step, ...]
    zeros: tuple[Array, ...] = ()
    view: Operation | None = None

    @property
    def result(self) -> Instruction:
        return self.steps[-1].result if self.steps else self.dot

    @property
    def axis(self) -> int:
        """The axis of the weights that corresponds to the product's columns."""
        return 0 if isinstance(self.dot.op, DequantDot) else 1

    @property
    def columns(self) -> int:
        return int(self.weights[0].shape[self.axis])

    @property
    def form(self) -> tuple[object, ...]:
        """The op, the zero point, and the type and other extent of each constant: products with equal forms can be merged."""
        return self.dot.op, *map(int, self.zeros), *((w.dtype, w.shape[1 - self.axis]) for w in self.weights)


@dataclass(frozen=True)
class FuseHorizontal(CountingPass):
    """Merges dots of one value with constant matrices by concatenating them and their biases; the results become slices (views).

    Quantized matrices are merged in packed form.  Quantized products also merge the steps after them if all have the same
    form: scales, conversions, biases.

    most: the most columns of a merged product (wider ones gain nothing); rules: applied after merging, to merge the ops on all
    slices of a product and to replace a concatenation of its slices by the product.
    """

    most: int = 1 << 15
    rules: Rules | None = field(default=None, repr=False, compare=False)
    name: str = "fuse-horizontal"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            changed |= self._join(inner, ins)
        if changed and self.rules is not None:
            module.sweep()  # removes the merged products: rules check the number of users
            Rewriter(self.rules, self.tally).apply(module)
        return changed

    def _join(self, module: Module, shared: Instruction) -> bool:
        dots = [u for u in shared.users if _is_dot(u) and u.inputs[0] is shared and u.parent is module]
        if len(dots) < 2:
            return False
        found = [p for p in (_product(d) for d in dots if d.inputs[1] is not shared) if p is not None]
        found = [p for p in found if p.form == found[0].form]
        if len(found) < 2:
            self.tally.refuse(self.name, dots[0], No("no two right operands are constant matrices of the same type"))
            return False
        if sum(p.columns for p in found) > self.most:
            self.tally.refuse(self.name, dots[0], No(f"the merged product would have more than {self.most} columns"))
            return False
        self.tally.fired[self.name] += 1
        found = _same_steps(found)
        joined = {p.dot for p in found}
        first = shared.next
        while first is not None and first not in joined:
            first = first.next
        self._build(module, shared, found, first or dots[0])
        return True

    def _build(self, module: Module, shared: Instruction, found: list[_Product], first: Instruction) -> None:
        sources = tuple(dict.fromkeys(s for p in found for s in (*p.dot.sources, *p.result.sources)))

        def literal(array: Array) -> Instruction:
            return module.add_literal(array, before=first)

        def add(op: Operation, *inputs: Instruction) -> Instruction:
            return module.add(op, *inputs, sources=sources, before=first)

        dims = shared.shape.dims
        each = zip(*(p.weights for p in found), strict=True)
        weights = [literal(np.concatenate(parts, axis=found[0].axis)) for parts in each]
        if not isinstance(found[0].dot.op, DequantDot) and len(dims) > 2:
            right: tuple[Dim, ...] = (*dims[:-2], *weights[0].shape.dims)
            weights = [add(Multibroadcast(out_lens=right), weights[0])]
        product = add(found[0].dot.op, shared, *weights, *map(literal, found[0].zeros))
        for steps in zip(*(p.steps for p in found), strict=True):
            columns = [s.column for s in steps if s.column is not None]
            if columns:
                whole = literal(np.concatenate(columns))
                column = add(Multibroadcast(out_lens=product.shape.dims), whole)
                product = add(steps[0].op, *((column, product) if steps[0].left else (product, column)))
            else:
                product = add(steps[0].op, product)
        start = 0
        axis = len(dims) - 1
        for p in found:
            width = p.columns
            part = module.add(
                Slice(axes=(axis,), starts=(start,), ends=(start + width,)),
                product,
                sources=p.result.sources,
                before=first,
            )
            start += width
            if p.view is not None and p.steps:
                part = module.add(p.view, part, sources=p.result.sources, before=first)
            module.replace(p.result, part)


def _is_dot(ins: Instruction) -> bool:
    return isinstance(ins.op, (Dot, DequantDot)) or (isinstance(ins.op, QuantDot) and _zeros(ins) is not None)


def _zeros(dot: Instruction) -> tuple[Array, ...] | None:
    """Returns the zero point of an integer product's left operand, if any; None if there are other zero points."""
    given = dot.inputs[2:]
    if all(i.is_absent for i in given):
        return ()
    zero = given[0].literal
    if zero is None or given[0].shape.elements() != 1 or not all(i.is_absent for i in given[1:]):
        return None
    return (np.asarray(zero.value).reshape(()),)


def _same_steps(found: Sequence[_Product]) -> list[_Product]:
    """Returns the products with the steps that all share; a few products without a bias get one of zeros."""
    made: list[list[_Step]] = [[] for _ in found]
    rest = [list(p.steps) for p in found]
    while True:
        heads = [r[0] if r else None for r in rest]
        model = next((h for h in heads if h is not None), None)
        if model is None:
            break
        same = [h is not None and _like(h, model) for h in heads]
        if not all(same):
            column = model.column
            if column is None or not isinstance(model.op, Add) or 2 * sum(same) < len(found):
                break  # attention often has biases for queries and values but not for keys
        for n, step in enumerate(heads):
            if same[n] and step is not None:
                made[n].append(step)
                del rest[n][0]
            else:
                assert model.column is not None
                last = made[n][-1].result if made[n] else found[n].dot
                zeros = np.zeros(found[n].columns, model.column.dtype)
                made[n].append(_Step(model.op, last, zeros, model.left))
    return [p._replace(steps=tuple(steps)) for p, steps in zip(found, made, strict=True)]


def _like(one: _Step, other: _Step) -> bool:
    a, b = one.column, other.column
    types = (None if a is None else a.dtype) == (None if b is None else b.dtype)
    return one.op == other.op and types and one.left == other.left


def _product(dot: Instruction) -> _Product | None:
    whole = isinstance(dot.op, QuantDot)
    found = [_matrix(i) for i in dot.inputs[1 : 2 if whole else None] if not i.is_absent]
    weights = tuple(w for w in found if w is not None)
    if len(weights) < len(found):
        return None
    product = _Product(dot, weights, (), (_zeros(dot) if whole else None) or ())
    floats = not isinstance(dot.op, QuantDot)  # float products merge a bias only
    steps: list[_Step] = []
    view = _regrouped_rows(dot) if floats else None
    at = dot if view is None else view
    while len(at.users) == 1 and at.users[0].parent is dot.parent:
        step = _step(at.users[0], at, product.columns)
        if step is None or (floats and not (isinstance(step.op, Add) and step.column is not None)):
            break
        steps.append(step)
        at = step.result
        if floats:
            break
    return product._replace(steps=tuple(steps), view=view.op if view is not None and steps else None)


def _regrouped_rows(dot: Instruction) -> Instruction | None:
    """Returns the only user of a product, if it is a view that keeps the last axis: torch multiplies tensors as matrices."""
    user = dot.users[0] if len(dot.users) == 1 else None
    if user is None or user.parent is not dot.parent or not isinstance(user.op, (Reshape, Squeeze, Unsqueeze)):
        return None
    return user if len(user.inputs) == 1 and user.shape.rank and user.shape.dims[-1] == dot.shape.dims[-1] else None


def _step(ins: Instruction, before: Instruction, columns: int) -> _Step | None:
    """Returns a pointwise op on a result as a step; None if its other operand is not a per-column constant."""
    if not isinstance(ins.op, Pointwise) or not isinstance(ins.result, Shape) or ins.shape.dims != before.shape.dims:
        return None
    if ins.inputs == (before,):
        return _Step(ins.op, ins)
    if len(ins.inputs) != 2:
        return None
    left = ins.inputs[1] is before
    column = _vector(ins.inputs[0 if left else 1], columns)
    return None if column is None else _Step(ins.op, ins, column, left)


def _matrix(ins: Instruction) -> Array | None:
    """Returns a constant matrix, possibly broadcast over batches."""
    source = ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins
    if source.literal is None:
        return None
    value = source.literal.value
    return value if isinstance(value, np.ndarray) and value.ndim == 2 else None


def _vector(ins: Instruction, length: int) -> Array | None:
    """Returns a constant that is uniform or varies only along the last axis."""
    vector = along(aligned(ins), ins.shape.rank, ins.shape.rank - 1)
    return None if vector is None else np.broadcast_to(vector, (length,))
