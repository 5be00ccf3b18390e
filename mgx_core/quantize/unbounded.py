"""Finds sums of products of activations that may exceed float16's range: linear attention, state-space layers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.elementwise import Pointwise
from ..ops.operation import Operation
from ..ops.pointwise import Exp, Mul
from ..ops.reduce import Reduce, ReduceSum
from ..ops.scan import PrefixScanSum
from ..ops.softmax import AlongAxis

__all__ = ["attention_products", "unbounded"]

MOST: Final = 64  # most instructions between a product and the softmax that bounds it


def unbounded(main: Module) -> set[Instruction]:
    """Returns products of two computed values without a softmax before or after, cumulative sums, and values computed from
    them up to the next product with constants.

    A product is a matrix product, or a multiplication followed by a sum.  Differences of cumulative sums suffer from
    cancellation.  Models written for 16 bits compute these explicitly in float32, which a float32 export does not preserve.
    Constants that computed indices choose (adapters, experts, rows of a table) count as constants.
    """
    computed: set[Instruction] = set()
    chosen: set[Instruction] = set()
    found: set[Instruction] = set()
    for module in nested(main):
        for ins in module:
            given = ins.is_param or ins.modules or not computed.isdisjoint(ins.inputs)
            if not given and chosen.isdisjoint(ins.inputs):
                continue
            picked = ins.op.picks or (ins.op.moves and len(ins.inputs) == 1)
            if picked and ins.inputs[0] not in computed:
                chosen.add(ins)
                continue
            computed.add(ins)
            if ins.op.product == "matrix" and computed.issuperset(ins.inputs[:2]):
                if not _bounded(ins, ins, computed):
                    found.add(ins)
            elif isinstance(ins.op, PrefixScanSum):
                found.add(ins)
            elif isinstance(ins.op, ReduceSum) and (factors := _multiplied(ins, computed)):
                found.update((ins, *factors))
            elif (_is_elementwise(ins.op) or isinstance(ins.op, Reduce)) and not found.isdisjoint(ins.inputs):
                found.add(ins)
    return found


def attention_products(main: Module) -> set[Instruction]:
    """Returns the matrix products of two computed values before or after a softmax."""
    computed: set[Instruction] = set()
    for ins in main:
        if ins.is_param or ins.modules or not computed.isdisjoint(ins.inputs):
            computed.add(ins)
    products = [i for i in main if i.op.product == "matrix" and computed.issuperset(i.inputs[:2])]
    return {i for i in products if _bounded(i, i, computed)}


def _is_elementwise(op: Operation) -> bool:
    """Returns True if each result element is computed from at most one element of each operand."""
    return isinstance(op, Pointwise) or op.exact or op.reshapes or op.aligns


def _multiplied(total: Instruction, computed: set[Instruction]) -> list[Instruction]:
    """Returns the chain from a sum's operand to a multiplication of two computed values; empty if there is none."""
    way = [total.inputs[0]]
    while len(way[-1].inputs) == 1 and (way[-1].op.exact or way[-1].op.reshapes or way[-1].op.aligns):
        way.append(way[-1].inputs[0])
    product = way[-1]
    if not isinstance(product.op, Mul) or not computed.issuperset(product.inputs) or len(set(product.inputs)) == 1:
        return []
    return [] if _bounded(product, total, computed) else way


def _bounded(product: Instruction, total: Instruction, computed: set[Instruction]) -> bool:
    """Returns True for the two products of attention: scores before a softmax, and values weighted by one; total: the sum."""
    return _reaches(total.users, lambda i: i.users, (AlongAxis, Exp), computed) or _reaches(
        product.inputs[:2], lambda i: i.inputs, (AlongAxis,), computed
    )


def _reaches(
    start: Iterable[Instruction],
    follow: Callable[[Instruction], Iterable[Instruction]],
    goal: tuple[type[Operation], ...],
    computed: set[Instruction],
) -> bool:
    """Returns True if pointwise ops, data movement and at most one product with constants (talking heads) lead to a goal."""
    waiting = deque((i, 1) for i in start)
    seen: set[Instruction] = set()
    while waiting and len(seen) < MOST:
        ins, products = waiting.popleft()
        if isinstance(ins.op, goal):
            return True
        weighted = bool(ins.op.product) and not computed.issuperset(ins.inputs[:2])
        if ins not in seen and (_is_elementwise(ins.op) or (weighted and products)):
            waiting.extend((near, products - weighted) for near in follow(ins))
        seen.add(ins)
    return False
