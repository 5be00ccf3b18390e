"""Computes narrow floats in float32 on processors without native support."""

from __future__ import annotations

from dataclasses import field
from functools import cache
from typing import Final

from mgx_core import Instruction, MgxError, Module, Operation, Pass, Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.ir.module import everywhere
from mgx_core.ops import STANDARD
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.convert import Convert
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Identity, Where
from mgx_core.ops.pooling import Windows
from mgx_core.ops.reduce import Reduce
from mgx_core.ops.reshape import Reshape
from mgx_core.records import dataclass
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape

__all__ = ["WidenNarrowFloats"]

# ops that compare or compute, though some round nothing: their kernels are loops in float32
ARITHMETIC: Final = (Pointwise, Reduce, Windows)


@cache
def _wide_inside() -> tuple[type[Operation], ...]:
    """Returns the ops whose kernels read narrow operands, caches of keys and values above all, and compute in float32."""
    from mgx_core.ops.attention import Attention  # few models without narrow floats have these
    from mgx_core.ops.rotary import RotaryEmbedding

    return Attention, RotaryEmbedding


@cache
def _own() -> frozenset[type[Operation]]:
    """Returns the standard ops except those that access bits; imports all families."""
    from mgx_core.ops.bitwise import BitCast

    return frozenset(op for op in STANDARD if not issubclass(op, (BitCast, Identity)))


@dataclass(frozen=True)
class WidenNarrowFloats(Pass):
    """Computes arithmetic on narrow float types in float32, and keeps intermediate results in it (excess precision).

    Only roundings of intermediate results are removed, whether implicit or written as conversions to the narrow type and back.
    Parameters, results, and operands and results of control flow keep their types and are rounded there; constants keep their
    rounded values; data movement keeps the operand's type, so that tables and caches stay narrow.  Ops that access bits, draw
    random numbers or come from other packages are unchanged.
    dtypes: the narrow types.
    """

    dtypes: frozenset[DType]
    name: str = "widen-narrow-floats"

    def apply(self, module: Module) -> bool:
        changed, widening = False, Widening(self.dtypes)
        for inner, ins in everywhere(module):  # enclosing modules come first
            if widening.spares_rounding(ins):
                changed |= widening.widen(inner, ins)
        return changed


@dataclass
class Widening:
    """The state of one pass run.

    wide: float32 versions of narrow values, by the module that reads them; rounded: conversions of float32 results back.
    """

    dtypes: frozenset[DType]
    wide: dict[tuple[Module, Instruction], Instruction] = field(default_factory=dict)
    rounded: set[Instruction] = field(default_factory=set)

    def is_narrow(self, ins: Instruction) -> bool:
        return isinstance(ins.result, Shape) and ins.result.dtype in self.dtypes

    def was_wide(self, ins: Instruction) -> bool:
        """Returns True if a narrow value is a rounded float32 and not constant."""
        if ins in self.rounded:
            return True
        return isinstance(ins.op, Convert) and ins.inputs[0].result == _wide(ins.result) and not _constant(ins)

    def spares_rounding(self, ins: Instruction) -> bool:
        """Returns True if float32 operands would avoid a rounding in an instruction or its readers."""
        narrow = [i for i in ins.inputs if self.is_narrow(i)]
        if not narrow or ins.modules or ins.op.random or ins.op.effect or type(ins.op) not in _own():
            return False
        if isinstance(ins.op, _wide_inside()):
            return all(map(self.was_wide, narrow))
        if any(map(self.was_wide, narrow)):
            return not (isinstance(ins.op, Convert) and not ins.op.target_type.is_float)  # from the rounded value
        if ins.op.aligns or isinstance(ins.op, (Reshape, Transpose)):
            return _constant(ins)  # converts the constant before it is broadcast
        moves = isinstance(ins.op, Where) or (ins.op.exact and not isinstance(ins.op, ARITHMETIC))
        return not moves and not isinstance(ins.op, Convert)

    def widen(self, module: Module, ins: Instruction) -> bool:
        """Rewrites an instruction to float32 operands and rounds its narrow results."""
        several = isinstance(ins.result, TupleShape)
        if several and not all(isinstance(u.op, GetTupleElem) for u in ins.users):
            return False
        inputs = [self.operand(module, i, ins) for i in ins.inputs]
        if isinstance(ins.op, Convert) and inputs[0].result == ins.result:
            module.replace(ins, inputs[0])
            return True
        try:
            new = module.add(ins.op, *inputs, before=ins, sources=ins.sources)
        except MgxError:
            return False  # its shape rule requires the narrow type
        if not self.matches(new.result, ins.result):
            module.remove(new)
            return False
        for old in ins.users if several else (ins,):
            where = old.parent or module
            item = where.add(old.op, new, before=old, sources=old.sources) if several else new
            if item.result != old.result:
                item = where.add(Convert(target_type=old.shape.dtype), item, before=old, sources=old.sources)
                self.rounded.add(item)
            where.replace(old, item)
        return True

    def operand(self, module: Module, x: Instruction, user: Instruction) -> Instruction:
        """Returns an operand's unrounded version, or converts it to float32."""
        if not self.is_narrow(x):
            return x
        if self.was_wide(x):
            return x.inputs[0]
        found = self.wide.get((module, x))
        if found is None:
            convert = Convert(target_type=dt.float32)
            found = self.wide[module, x] = module.add(convert, x, before=user, sources=x.sources)
        return found

    def matches(self, new: AnyShape, old: AnyShape) -> bool:
        """Returns True if a result type equals the old one, up to float32 for narrow types."""
        if isinstance(new, TupleShape) and isinstance(old, TupleShape):
            return len(new.items) == len(old.items) and all(map(self.matches, new.items, old.items))
        return new == old or (isinstance(old, Shape) and old.dtype in self.dtypes and new == _wide(old))


def _wide(shape: AnyShape) -> AnyShape:
    """Returns a narrow value's type with float32 elements."""
    return shape.with_dtype(dt.float32) if isinstance(shape, Shape) else shape


def _constant(ins: Instruction) -> bool:
    """Returns True if a value derives from a single constant."""
    while len(ins.inputs) == 1:
        ins = ins.inputs[0]
    return bool(ins.is_literal)
