"""Values while a device program is being put together: a strided shape on a buffer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mgx_core import Shape
from mgx_core.types.argument import Array
from mgx_core.types.shape import row_major

from .codegen.source import Tensor

__all__ = ["Buffer", "Value", "channels_last", "packed_strides"]


@dataclass(eq=False)
class Buffer:
    """Device memory that steps read and write.

    kind: ``arena`` (planned), ``input``, ``output`` or ``literal``; index: which input or output; readers: reads still to come.
    """

    kind: str
    bytes: int
    index: int = -1
    array: Array | None = None
    readers: int = 0
    first: int = -1
    last: int = -1
    offset: int = 0
    kept: Any = None  # what its array must not outlive


@dataclass(frozen=True)
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

    @property
    def align(self) -> int:
        """Bytes that its address is a multiple of: buffers start at 256, callers' inputs are only known to fit their elements."""
        size = self.shape.dtype.size
        if self.buffer.kind == "input":
            return min(16, size) if self.byte_offset else max(16, size)
        at = self.byte_offset
        return min(256, at & -at) if at else 256

    @property
    def tensor(self) -> Tensor:
        return Tensor(self.shape.dtype, tuple(self.lens), tuple(self.strides), min(self.align, 16))

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
