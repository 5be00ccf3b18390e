"""Values during emission: a strided shape over a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

from ..records import dataclass
from ..types.argument import Array
from ..types.dtype import DType
from ..types.shape import AnyShape, Shape, TupleShape, row_major
from ..types.traced_int import alignment

__all__ = [
    "NEVER_OVERWRITTEN", "Buffer", "Value", "channels_last", "count_reads", "packed_strides", "type_of", "view_of",
]  # fmt: skip

NEVER_OVERWRITTEN: Final = 1 << 30  # reader count of memory that is still being filled, which no step may overwrite


@dataclass(eq=False)
class Buffer:
    """Memory that steps read and write.

    kind: ``arena`` (placed by the planner), ``input``, ``given`` (a donated input), ``output`` or ``literal``; index: of the
    input or output; array: of a literal, row-major; owner: kept alive with the buffer; address: of a literal on the host, 0 if
    not needed; readers: remaining reads, so that a step may overwrite memory that is not read again; first, last: live range in
    steps, inclusive (-1: unused); offset: in bytes, in the arena.
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


@dataclass(eq=False)
class Value:
    """A tensor on a buffer: its strided shape, and the offset of its first element (in elements)."""

    shape: Shape
    buffer: Buffer = field(repr=False)
    offset: int = 0

    @property
    def dtype(self) -> DType:
        return self.shape.dtype

    @property
    def byte_offset(self) -> int:
        return self.offset * self.shape.dtype.size

    @property
    def lens(self) -> list[int]:
        return self.shape.lens()

    @property
    def strides(self) -> list[int]:
        return self.shape.strides()

    @property
    def plain(self) -> Shape:
        """Its type as row-major."""
        return self.shape.as_standard()

    def align(self, start: int) -> int:
        """Returns the alignment of its address in bytes, if buffers are aligned to `start`.

        Inputs are in the caller's memory and only known to be aligned to 16 bytes or one element.
        """
        size = self.shape.dtype.size
        if self.buffer.kind in ("input", "given"):
            return min(16, size) if self.offset else max(16, size)
        return alignment(self.byte_offset, start)

    def view_at(self, offset: int, shape: Shape) -> Value:
        """Returns a view of this value, `offset` elements after its first."""
        return Value(shape, self.buffer, self.offset + offset)

    def whole(self) -> bool:
        """Returns True if it is dense in its whole buffer, in any axis order."""
        return (
            self.offset == 0
            and self.shape.packed()
            and self.shape.elements() * self.shape.dtype.size == self.buffer.bytes
        )

    def dense(self) -> bool:
        """Returns True if it is dense and row-major; axes of extent 1 may have any stride."""
        return self.has_strides(row_major(self.lens))

    def has_strides(self, strides: Sequence[int]) -> bool:
        """Returns True if these are its strides; axes of extent 1 may have any."""
        return all(n == 1 or a == b for n, a, b in zip(self.lens, self.strides, strides, strict=True))


def view_of(op: Any, value: Value, others: Sequence[Value | None] = ()) -> Value | None:
    """Returns the result of an op as a view of a value, None if that is not possible."""
    found = op.view(value.shape, *(o.shape for o in others if o is not None))
    return None if found is None else value.view_at(*found)


def packed_strides(lens: Sequence[int], order: Sequence[int]) -> list[int]:
    """Returns dense strides for the axes in `order` (outermost first)."""
    packed = row_major([lens[a] for a in order])
    strides = [0] * len(lens)
    for position, axis in enumerate(order):
        strides[axis] = packed[position]
    return strides


def channels_last(lens: Sequence[int]) -> list[int]:
    """Returns dense strides with axis 1 innermost (NHWC and similar)."""
    return packed_strides(lens, [0, *range(2, len(lens)), 1])


def type_of(value: Any) -> AnyShape:
    """Returns the type of a value or tuple of values, as row-major."""
    return TupleShape(map(type_of, value)) if isinstance(value, tuple) else value.shape.as_standard()


def count_reads(value: Any, uses: int) -> None:
    """Counts reads of a value's memory, or of a tuple's items."""
    if isinstance(value, tuple):
        for v in value:
            v.buffer.readers += uses
    elif value is not None:
        value.buffer.readers += uses
