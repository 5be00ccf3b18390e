"""Steps that call native loops, and the encoding of their operands' layouts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import Any, Final

from mgx_core import Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.targets.values import Buffer, Value

from ..emitter import CpuEmitter
from ..jit.cost import grain_for

__all__ = [
    "GRAIN_BYTES", "allocate_zeros", "as_indices", "broadcast", "copy_into_image", "emit_op", "encode_box", "grain_of",
    "merge_axes", "native_loop",
]  # fmt: skip

GRAIN_BYTES: Final = 32768  # minimum bytes moved per thread
MAX_AXES: Final = 32


def native_loop(
    e: CpuEmitter,
    name: str,
    loop: str | int,
    operands: Sequence[Value],
    written: Collection[Value],
    numbers: Sequence[int],
    work: int = 1,
    grain: int = 1,
    scratch: int = 0,
    updated: bool = False,
    flops: int = 0,
) -> None:
    """Emits a step that calls a native loop.

    loop: its name or address; operands: its buffers in order; written: operands that are results; updated: results are also read;
    numbers: its integer arguments; work: number of work items; grain: minimum items per thread; scratch: bytes per thread;
    flops: of all items.
    """
    from ..native_library import native

    address = native().native_loop(loop) if isinstance(loop, str) else loop
    arguments, count = list(numbers), len(operands)
    reads = [updated or v not in written for v in operands]

    def add(e: CpuEmitter, values: Sequence[Value]) -> None:
        given, label = values[:count], e.label(name)

        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            where = [(ident(v.buffer), v.byte_offset) for v in given]
            program.add_loop(label, address, None, where, arguments, work, grain, scratch)

        read = [v.buffer for v, does in zip(given, reads, strict=True) if does]
        moved = sum(v.shape.elements() * v.shape.dtype.size for v in given)
        e.step(label, read, [v.buffer for v in values[count:]], install, flops, moved)

    e.repeatable(add, [*operands, *written])


def merge_axes(dims: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Merges axes where all strides allow it, and drops axes of extent 1; returns extents and strides of at least one axis."""
    lens: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for n, *here in zip(dims, *strides, strict=True):
        if n == 1:
            continue
        if lens and all(s[-1] == h * n for s, h in zip(steps, here, strict=True)):
            lens[-1] *= n
            for s, h in zip(steps, here, strict=True):
                s[-1] = h
        else:
            lens.append(n)
            for s, h in zip(steps, here, strict=True):
                s.append(h)
    if len(lens) > MAX_AXES:
        raise Refused(f"at most {MAX_AXES} axes are supported, got {len(lens)}")
    return (lens, steps) if lens else ([1], [[1] for _ in strides])


def encode_box(dims: Sequence[int], *strides: Sequence[int]) -> list[int]:
    """Encodes an index range (`box.h`): number of axes, extents, strides of each operand."""
    lens, steps = merge_axes(dims, *strides)
    return [len(lens), *lens, *(n for s in steps for n in s)]


def grain_of(work: int, values: Sequence[Value]) -> int:
    """Returns the minimum items per thread for a loop that reads and writes `values`."""
    moved = sum(v.shape.elements() * v.shape.dtype.size for v in values)
    return grain_for(GRAIN_BYTES * work, moved)


def as_indices(e: CpuEmitter, value: Value) -> Value:
    """Returns integers as int32 or int64; converts other types to int64."""
    if value.shape.dtype in (dt.int32, dt.int64):
        return value
    wide = e.allocate(dt.int64, value.lens)
    if wide.shape.elements():
        e.copy_into(value, wide)
    return wide


def allocate_zeros(e: CpuEmitter, dtype: Any, lens: Sequence[int]) -> Value:
    """Allocates a value and emits a fill with zeros."""
    out = e.allocate(dtype, lens)
    if out.shape.elements():
        native_loop(e, "fill", f"fill_{dtype.size}", [out], [out], [0], prod(lens), GRAIN_BYTES // dtype.size)
    return out


def copy_into_image(e: CpuEmitter, x: Value, out: Value, begin: Sequence[int], filler: int = 0) -> bool:
    """Emits a copy of x [n, c, h, w] or [n, c, w] into a larger image, both channels last; returns False for more axes.

    begin: the padding before each axis; filler: its value, 0 for elements of several bytes.
    """
    if len(x.lens) not in (3, 4):
        return False
    (n, channels, *image), padded = x.lens, out.lens[2:]
    size = channels * x.shape.dtype.size
    one = len(image) == 1
    (h, height, above) = (1, 1, 0) if one else (image[0], padded[0], begin[0])
    numbers = [h, height, above, image[-1] * size, padded[-1] * size, begin[-1] * size, filler & 255]
    native_loop(e, "pad", "padded_image", [x, out], [out], numbers, n * height, grain_of(n * height, [out]))
    return True


def broadcast(value: Value, lens: Sequence[int]) -> Value:
    """Returns a value of one element broadcast to extents."""
    return value.view_at(0, Shape(value.shape.dtype, lens, [0] * len(lens)))


def emit_op(e: CpuEmitter, op: Operation, *values: Value) -> Value:
    """Emits an op on values with the first plan that accepts it; returns its result."""
    result = e.run_op(op, (), values)
    assert isinstance(result, Value)
    return result
