"""Lists of tensors, kept as one tensor with the elements along a new first axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mgx_core import Instruction, ParseError
from mgx_core import dtype as dt
from mgx_core.converting.builder import InstructionBuilder
from mgx_core.types.dim import Dim

from .values import TensorList

__all__ = ["learned", "materialized"]


def materialized(n: InstructionBuilder, listed: TensorList, dims: Sequence[Dim]) -> TensorList:
    """Returns the list with `count` elements of extents `dims`, all zeros, where it has none yet."""
    if listed.stacked is not None:
        return listed
    if listed.count is None:
        raise ParseError("a list of unknown length is read")
    zero = n.literal("" if listed.dtype.kind == "s" else 0, listed.dtype)
    known = n.dims(listed.count)
    if known is not None:
        return replace(listed, stacked=n.broadcast_to(zero, (*known, *dims)))
    count = n.reshape(n.convert(listed.count, dt.int64), (1,))
    parts = [count]
    for d in dims:
        if not isinstance(d, int):
            raise ParseError(f"a list of a length known only at run time has elements of open extents {list(dims)}")
        parts.append(n.literal([d], dt.int64))
    whole: Instruction = n.add("concat", *parts, axis=0) if len(parts) > 1 else count
    return replace(listed, stacked=n.add("multibroadcast", zero, whole))


def learned(listed: TensorList, element: Instruction) -> None:
    """Keeps the extents of an element that is put into a list."""
    listed.seen.append(element.shape.dims)
