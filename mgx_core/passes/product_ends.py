"""Limits of pointwise fusion across quantized products, so that each one's epilogue stays separate and stores narrow results."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.convert import Convert
from ..ops.elementwise import Pointwise
from ..ops.scalar import primitives
from ..rules.constants import is_constant
from ..rules.outline import is_view, through_views
from ..types.dtype import float32
from ..types.shape import Shape

__all__ = ["COSTLY", "ProductEnds"]

COSTLY = frozenset({"erf"})

NARROW = No("the producer's epilogue stores narrow numbers, which the epilogue of a later product reads")
SUMS = No("the producer has an epilogue of its own, which stores narrower numbers than its sums")
EARLIER = No("the producer has an epilogue of its own, which the epilogue of a later product reads")
STEPS = 24  # the longest chain of instructions followed between two products


class ProductEnds:
    """Prevents pointwise groups from extending across the epilogues of quantized products.

    position: the index of each instruction in the module; costly: primitives that take the few threads of an integer product
    longer than a separate launch with many threads.
    """

    def __init__(self, module: Module, position: Mapping[Instruction, int], costly: frozenset[str] = COSTLY) -> None:
        self._position = position
        self._costly = costly
        self._products: dict[Instruction, Instruction] = {}  # for each member of an epilogue
        self._widened: set[Instruction] = set()  # members of an epilogue behind a narrow number, which may be stored
        for ins in module:
            narrow = False
            for member in _epilogue(ins, costly):
                self._products[member] = ins
                if narrow:
                    self._widened.add(member)
                narrow = narrow or member.shape.dtype.bits <= 8

    def before(self, ins: Instruction, read: Instruction) -> No | None:
        """Returns a refusal if a product's epilogue ends between `read` and its user `ins`."""
        if _narrow_end(ins, self._position):
            return NARROW
        return _earlier_sums(ins, read, self._position) or (SUMS if self._finished(ins, read) else None)

    def before_reduction(self, source: Instruction) -> No | None:
        """Returns a refusal if a product's epilogue ends at `source`, the operand of a reduction."""
        return SUMS if source in self._products else None

    def _finished(self, ins: Instruction, read: Instruction) -> bool:
        """Returns True if a product's epilogue ends before `ins`: a costly function, a reduction, or a later epilogue."""
        product = self._products.get(through_views(read))
        if product is None or ins in self._products:
            return False
        if _has(ins, self._costly):
            return True
        others = {self._products.get(through_views(i)) for i in ins.inputs} - {None, product}
        later = any(o is not None and self._position[o] > self._position[product] for o in others)
        # a later epilogue reads narrow numbers, and widens them itself
        return (later and through_views(read) not in self._widened) or _reduced_later(ins)


def _narrow_end(ins: Instruction, position: Mapping[Instruction, int]) -> bool:
    """Returns True if an instruction widens the narrow result of one product's epilogue for the epilogue of a later product.

    Each product then keeps its own epilogue: the earlier one stores narrow numbers and the later one reads them.
    """
    if not isinstance(ins.op, Convert) or ins.inputs[0].shape.dtype.bits > 8 or ins.shape.dtype.bits < 16:
        return False
    own = _last_product_before(ins, position)
    at = ins
    for _ in range(STEPS):
        if own is None or len(at.users) != 1 or not isinstance(at.users[0].op, Pointwise):
            return False
        reader = at.users[0]
        others = [i for i in reader.inputs if i is not at and not is_constant(i)]
        if others:
            later = _last_product_before(others[0], position)
            return later is not None and position[later] > position[own]
        at = reader
    return False


def _epilogue(ins: Instruction, costly: frozenset[str]) -> list[Instruction]:
    """Returns the epilogue of a quantized product (ops with constants on its sums), if its result is narrower than the sums.

    A target applies it to the accumulators, so that the sums need not be stored.
    """
    if not ins.op.product or not isinstance(ins.result, Shape) or ins.inputs[0].shape.dtype.bits > 8:
        return []
    found: list[Instruction] = []
    at = ins
    while len(at.users) == 1 and isinstance(at.users[0].op, Pointwise) and at.users[0].parent is ins.parent:
        reader = at.users[0]
        if ins.shape.dtype.is_integer and at.shape.dtype.bits < ins.shape.dtype.bits and _has(reader, costly):
            break
        if any(i is not at and not is_constant(i) for i in reader.inputs) or reader.shape.dims != ins.shape.dims:
            break
        found.append(reader)
        at = reader
    return found if found and at.shape.dtype.bits < ins.shape.dtype.bits else []


def _has(ins: Instruction, costly: frozenset[str]) -> bool:
    """Returns True for a pointwise op with one of these primitives."""
    return isinstance(ins.op, Pointwise) and not costly.isdisjoint(primitives(type(ins.op).scalar))


def _reduced_later(ins: Instruction) -> bool:
    """Returns True if a reduction reads an instruction through pointwise ops, none of which stores narrow numbers."""
    seen = {ins}
    pending = [ins]
    while pending and len(seen) <= STEPS:
        for user in pending.pop().users:
            if user.op.combine:
                return True
            if user in seen or not (isinstance(user.op, Pointwise) or is_view(user)):
                continue
            seen.add(user)
            if user.shape.dtype.bits > 8:
                pending.append(user)
    return False


def _earlier_sums(ins: Instruction, read: Instruction, position: Mapping[Instruction, int]) -> No | None:
    """Returns a refusal if `read` is in one product's epilogue and `ins` combines it with a later product's epilogue.

    The earlier product then keeps its own epilogue, and its sums need not be stored for the later one.
    """
    own = _product_before(read) if ins.shape.dtype is float32 else None
    if own is None or own is read or not own.shape.dtype.is_integer:
        return None
    others = (_last_product_before(i, position) for i in ins.inputs if i is not read and not is_constant(i))
    later = any(o is not None and o.shape.dtype.is_integer and position[o] > position[own] for o in others)
    return EARLIER if later else None


def _product_before(ins: Instruction) -> Instruction | None:
    """Returns the product at the start of a chain of pointwise ops, if none of these stores narrow numbers."""
    at = ins
    for _ in range(STEPS):
        if at.op.product:
            return at
        if at.shape.dtype.bits <= 8:
            return None  # the epilogue has ended: these are not the product's sums
        if not isinstance(at.op, Pointwise) or len(at.users) > 1:
            return None
        varying = [i for i in at.inputs if not is_constant(i)]
        if len(varying) != 1:
            return None
        at = varying[0]
    return None


def _last_product_before(ins: Instruction, position: Mapping[Instruction, int]) -> Instruction | None:
    """Returns the last product that a chain of pointwise ops starts from, whose epilogue they form."""
    last: Instruction | None = None
    pending = [ins]
    for _ in range(STEPS):
        if not pending:
            break
        at = pending.pop()
        if at.op.product and at in position:
            last = at if last is None or position[at] > position[last] else last
        elif isinstance(at.op, Pointwise) and len(at.users) == 1:
            pending += [i for i in at.inputs if not is_constant(i)]
    return last
