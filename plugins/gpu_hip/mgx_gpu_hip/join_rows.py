"""Fuses products of one row with the reduction that computes the row and with pointwise work on parts of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from mgx_core import Instruction, Module, Pass, Shape
from mgx_core.ops.coded_product import DequantDot
from mgx_core.ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.linear import Dot
from mgx_core.ops.slice import Slice
from mgx_core.rules.outline import Names, outline, through_views

__all__ = ["CODED", "CODED_ROW", "MAX_ROWS", "JOINED", "MIN_WEIGHTS", "JoinRows", "outside_groups"]

JOINED: Final = "joined rows"  # tag of the groups
CODED: Final = "coded rows"  # tag of groups around products with quantized weights
CODED_ROW: Final = "coded row"  # tag of groups around such a product (or group) of one row and the reduction before it
MAX_ROWS: Final = 16  # rows of such a product up to which reading the weights dominates
MIN_WEIGHTS: Final = 1 << 16  # elements of weights below which a launch takes longer than reading them
MAX_PARTS: Final = 4  # maximum number of parts of a product that one thread combines


@dataclass(frozen=True)
class JoinRows(Pass):
    """Groups a normalization, the product of its one row with constant weights, and the pointwise work that combines parts of the
    result; and products of few rows with quantized weights with the pointwise work that follows, and with a normalization of one
    row.

    A decoder runs such a sequence per token: RMS norm, the joined products of the gated layer, SwiGLU on their halves.  As three
    launches each waits for the one before, while only the product moves much memory.  If a target declines the group, its members
    run separately.
    """

    name: str = "join-rows"

    def apply(self, module: Module) -> bool:
        names = Names([m.name for m in outside_groups(module)])
        changed = False
        for inner in list(outside_groups(module)):
            for ins in list(inner):
                if ins.parent is inner and _is_product(ins):
                    changed |= _join(inner, ins, names)
                elif ins.parent is inner and isinstance(ins.op, DequantDot):
                    changed |= _join_codes(inner, ins, names)
        return changed


def outside_groups(module: Module) -> Iterator[Module]:
    """Yields a module and the modules of its control flow."""
    yield module
    for ins in module:
        if not ins.op.fused:
            for m in ins.modules:
                yield from outside_groups(m)


def _is_product(ins: Instruction) -> bool:
    return isinstance(ins.op, Dot) or (isinstance(ins.op, Group) and ins.op.tag == Dot.name)


def _join(module: Module, ins: Instruction, names: Names) -> bool:
    operands = _operands(ins)
    if operands is None or not _one_row(ins.result):
        return False
    row, weights = operands
    source = through_views(weights)
    if not source.is_literal or prod(source.shape.lens()[-2:]) < MIN_WEIGHTS:
        return False
    behind = _parts(ins) if isinstance(ins.op, Dot) else []
    last = behind[-1] if behind else ins
    position = {i: n for n, i in enumerate(module)}
    before = _made_by(row, ins, position, position[last])
    members = [*before, ins, *behind]
    if len(members) == 1 or last.next is None:
        return False
    outline(module, members, Group(tag=JOINED), names.fresh("joined_rows"), last.next)
    return True


def _join_codes(module: Module, product: Instruction, names: Names) -> bool:
    """Groups a product of few rows and quantized weights with the one pointwise group that reads it or slices of its columns.

    A second group around it has the reduction that computes its one row, so that a target may decline one of the two.
    """
    shape = product.result
    if not isinstance(shape, Shape) or shape.dynamic() or prod(shape.lens()[:-1]) > MAX_ROWS:
        return False
    behind = _parts(product) or _whole(product)
    joined = product
    if behind and behind[-1].next is not None:
        joined = outline(module, [product, *behind], Group(tag=CODED), names.fresh("coded_rows"), behind[-1].next)
    row = _coded_row(joined)
    if row is not None and _one_row(shape) and joined.next is not None:
        position = {i: n for n, i in enumerate(module)}
        before = _made_by(row, joined, position, position[joined])
        if before:
            members = [*before, joined]
            outline(module, members, Group(tag=CODED_ROW), names.fresh("coded_row"), joined.next)
            return True
    return joined is not product


def _coded_row(ins: Instruction) -> Instruction | None:
    """Returns the row of a product with quantized weights, or of a group around one; None unless it is an operand."""
    if isinstance(ins.op, DequantDot):
        return ins.inputs[0]
    body = ins.modules[0]
    anchor = next(i for i in body if isinstance(i.op, DequantDot))
    places = {p: n for n, p in enumerate(body.parameters.values())}
    found = places.get(_through_reshapes(anchor.inputs[0]))
    return None if found is None else ins.inputs[found]


def _whole(product: Instruction) -> list[Instruction]:
    """Returns the one pointwise group that reads a product and has results of its shape; otherwise an empty list."""
    tail = product.users[0] if len(product.users) == 1 else None
    if tail is None or not isinstance(tail.op, PointwiseGroup) or tail.inputs.count(product) != 1:
        return []
    return [tail] if all(o.shape.dims == product.shape.dims for o in tail.modules[0].outputs) else []


def _one_row(shape: object) -> bool:
    return isinstance(shape, Shape) and not shape.dynamic() and prod(shape.lens()[:-1]) == 1


def _operands(ins: Instruction) -> tuple[Instruction, Instruction] | None:
    """Returns row and weights of a product, or of a group's anchor; None unless both are operands of the instruction."""
    if isinstance(ins.op, Dot):
        return ins.inputs[0], ins.inputs[1]
    body = ins.modules[0]
    anchor = next((i for i in body if isinstance(i.op, Dot)), None)
    if anchor is None:
        return None
    places = {p: n for n, p in enumerate(body.parameters.values())}
    found = [places.get(_through_reshapes(anchor.inputs[0])), places.get(through_views(anchor.inputs[1]))]
    if found[0] is None or found[1] is None:
        return None
    return ins.inputs[found[0]], ins.inputs[found[1]]


def _through_reshapes(ins: Instruction) -> Instruction:
    while ins.op.reshapes and len(ins.inputs) == 1:
        ins = ins.inputs[0]
    return ins


def _made_by(row: Instruction, reader: Instruction, position: dict[Instruction, int], last: int) -> list[Instruction]:
    """Returns the reduction over one row that computes `row`, and the views in between; empty if it cannot be moved."""
    chain: list[Instruction] = []
    at = row
    while at.op.reshapes and len(at.inputs) == 1 and at.users == (chain[-1] if chain else reader,):
        chain.append(at)
        at = at.inputs[0]
    reduction = at.inputs[0] if isinstance(at.op, GetTupleElem) else at
    if not isinstance(reduction.op, FusedReduce) or reduction.parent is not reader.parent:
        return []
    shapes = reduction.modules[0].output_shapes()
    rank = at.shape.rank
    rows = all(_one_row(s) and isinstance(s, Shape) and s.rank == rank and s.lens()[-1] > 1 for s in shapes)
    if not rows or reduction.op.axes != (rank - 1,) or any(i.is_absent for i in reduction.inputs):
        return []
    items = [u for u in reduction.users if isinstance(u.op, GetTupleElem)]
    made = [reduction, *items]
    inside = {*made, *chain, reader}
    others = [u for m in made for u in m.users if u not in inside]
    if any(position.get(u, -1) <= last for u in others):
        return []
    return sorted([*made, *chain], key=lambda i: position[i])


def _parts(product: Instruction) -> list[Instruction]:
    """Returns the slices that read a product, equal parts of its columns, and the one pointwise group that reads them."""
    columns = [(u.op, u) for u in product.users if isinstance(u.op, Slice) and len(u.inputs) == 1]
    if len(columns) < len(product.users) or not 2 <= len(columns) <= MAX_PARTS:
        return []
    columns.sort(key=lambda pair: pair[0].starts)
    parts = [u for _, u in columns]
    rank, width = product.shape.rank, product.shape.lens()[-1] // len(parts)
    for n, (op, part) in enumerate(columns):
        ranges = op.ranges(rank, op.starts, op.ends, op.axes, op.steps)
        if ranges != [(rank - 1, n * width, (n + 1) * width, 1)] or part.shape.lens()[-1] != width:
            return []
    readers: Sequence[Instruction] = list(dict.fromkeys(u for p in parts for u in p.users))
    if len(readers) != 1 or not isinstance(readers[0].op, PointwiseGroup):
        return []
    work = readers[0]
    same = all(o.shape.lens() == parts[0].shape.lens() for o in work.modules[0].outputs)
    once = all(work.inputs.count(p) == 1 and p.users == (work,) for p in parts)
    if not same or not once:
        return []
    return [*parts, work]
