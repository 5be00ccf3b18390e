"""Tensor lists as one stacked tensor, and conversion of values to the types of another branch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mgx_core import Instruction, ParseError
from mgx_core import dtype as dt
from mgx_core.converting.builder import InstructionBuilder
from mgx_core.converting.filling import filled
from mgx_core.types.dim import Dim
from mgx_core.types.dtype import DType

from .values import Optional, TensorList, Value, leaves, rebuilt

__all__ = ["fitted", "record_extents", "allocated"]


def allocated(n: InstructionBuilder, listed: TensorList, dims: Sequence[Dim]) -> TensorList:
    """Returns the list with storage: `count` zero elements of extents `dims`, unless it is allocated already."""
    if listed.stacked is not None:
        return listed
    if listed.count is None:
        raise ParseError("a list is read before its length is known")
    zero = _zero(n, listed.dtype)
    known = n.dims(listed.count)
    if known is not None:
        return replace(listed, stacked=n.broadcast_to(zero, (*known, *dims)))
    count = n.reshape(n.convert(listed.count, dt.int64), (1,))
    rows = filled(n, count, n.literal(0, dt.int64))  # a gather preserves static element extents
    return replace(listed, stacked=n.add("gather", n.broadcast_to(zero, (1, *dims)), rows, axis=0))


def record_extents(listed: TensorList, element: Instruction) -> None:
    """Records the extents of an element that is inserted into a list without storage."""
    listed.seen.append(element.shape.dims)


def fitted(n: InstructionBuilder, value: Value, other: Value) -> Value:
    """Returns a value with the structure of `other`: lists without storage and empty optionals are filled with zeros."""
    match value, other:
        case TensorList(stacked=None), TensorList(stacked=Instruction() as stacked):
            return allocated(n, value, stacked.shape.dims[1:])
        case Optional(held=None), Optional(held=tuple() as held):
            return replace(value, held=tuple(_zeros_like(n, v) for v in held))
    return value


def _zeros_like(n: InstructionBuilder, value: Value) -> Value:
    return rebuilt(value, [n.broadcast_to(_zero(n, x.shape.dtype), x.shape.dims) for x in leaves(value)])


def _zero(n: InstructionBuilder, dtype: DType) -> Instruction:
    return n.literal("" if dtype.kind == "s" else 0, dtype)
