"""Values while a native program is being put together: a strided shape on a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mgx_core import Shape
from mgx_core.types.argument import Array
from mgx_core.types.shape import row_major

__all__ = ["Buffer", "Value", "channels_last", "packed_strides", "view_of"]


@dataclass(eq=False, slots=True, weakref_slot=True)
class Buffer:
    """Memory that steps read and write.

    kind: ``arena`` (planned), ``input``, ``output`` or ``literal`` (which programs share); index: which input or output;
    address: of a literal; readers: reads that are still to come, so that a step may write over memory that nobody needs any more.
    """

    kind: str
    bytes: int
    index: int = -1
    array: Array | None = None
    owner: Any = None
    address: int = 0
    readers: int = 0
    first: int = -1
    last: int = -1
    offset: int = 0


@dataclass(eq=False, slots=True)
class Value:
    """A tensor on a buffer: its strided shape, and where its first element lies (in elements)."""

    shape: Shape
    buffer: Buffer = field(repr=False)
    offset: int = 0

    @property
    def byte_offset(self) -> int:
        return self.offset * self.shape.dtype.size

    @property
    def lens(self) -> list[int]:
        return self.shape.lens()

    @property
    def strides(self) -> list[int]:
        return self.shape.strides()

    def seen_as(self, offset: int, shape: Shape) -> Value:
        """A view of this value."""
        return Value(shape, self.buffer, self.offset + offset)

    def whole(self) -> bool:
        """Whether it covers its buffer without gaps, in whatever axis order."""
        return (
            self.offset == 0
            and self.shape.packed()
            and self.shape.elements() * self.shape.dtype.size == self.buffer.bytes
        )


def view_of(op: Any, value: Value, others: Sequence[Value | None] = ()) -> Value | None:
    """What an op with a view makes of a value, or None if it would have to move elements."""
    found = _view(op, value.shape, *(o.shape for o in others if o is not None))
    return None if found is None else value.seen_as(*found)


@lru_cache(1024)
def _view(op: Any, *shapes: Shape) -> Any:
    """The op's own answer; the layers of a network ask the same again and again."""
    return op.view(*shapes)


def packed_strides(lens: list[int], order: list[int]) -> list[int]:
    """Strides that lay the axes out densely in `order` (outermost first)."""
    packed = row_major([lens[a] for a in order])
    strides = [0] * len(lens)
    for position, axis in enumerate(order):
        strides[axis] = packed[position]
    return strides


def channels_last(lens: list[int]) -> list[int]:
    """Strides with axis 1 innermost (NHWC and its like)."""
    return packed_strides(lens, [0, *range(2, len(lens)), 1])
