"""Converts between strided values and oneDNN memory descriptors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import DeviceError, Refused
from mgx_core.targets.values import Value, channels_last, packed_strides

from .emitter import CpuEmitter

__all__ = ["NAMES", "as_channels_last", "descriptor", "is_channels_last", "is_nested", "same_order"]

NAMES = {dt.float32: "f32", dt.bfloat16: "bf16", dt.float16: "f16", dt.int8: "s8", dt.uint8: "u8", dt.int32: "s32"}


def descriptor(value: Value | Shape, lens: list[int] | None = None, strides: list[int] | None = None) -> Any:
    """Returns the plain descriptor of a value, optionally with other extents and strides.

    Broadcast axes (stride 0) become axes of extent 1, which oneDNN broadcasts.
    Errors: Refused for strides that oneDNN cannot describe (see `is_nested`).
    """
    shape = value.shape if isinstance(value, Value) else value
    lens = shape.lens() if lens is None else lens
    strides = shape.strides() if strides is None else strides
    dims = tuple(1 if s == 0 and n != 1 else n for n, s in zip(lens, strides, strict=True))
    return _descriptor(dims, NAMES[shape.dtype], tuple(max(s, 1) for s in strides))


@lru_cache(1024)
def _descriptor(dims: tuple[int, ...], dtype: str, steps: tuple[int, ...]) -> Any:
    from .native_library import native

    try:
        return native().MemoryDesc(dims, dtype, steps)
    except DeviceError as error:
        raise Refused(f"extents {list(dims)} with strides {list(steps)}: {error}") from None


def is_nested(value: Value) -> bool:
    """Returns True if each stride covers the span of all axes with smaller strides, as oneDNN requires.

    Counterexample: every second row of each matrix of a batch, if the number of rows is odd.
    """
    end = 1
    for step, n in sorted((s, n) for n, s in zip(value.lens, value.strides, strict=True) if n > 1 and s != 0):
        if step < end:
            return False
        end = step * n
    return True


def is_channels_last(value: Value) -> bool:
    """Returns True if a [n, c, ..] value is dense with channels innermost (axes of extent 1 may have any stride)."""
    return value.has_strides(channels_last(value.lens))


def as_channels_last(e: CpuEmitter, value: Value) -> Value:
    """Returns the value with channels innermost: itself, or a copy."""
    if is_channels_last(value):
        return normalized(value, channels_last(value.lens))
    return e.copy(value, channels_last(value.lens))


def normalized(value: Value, strides: list[int]) -> Value:
    """Replaces the strides of axes of extent 1 by those of a dense layout."""
    return Value(Shape(value.shape.dtype, value.lens, strides), value.buffer, value.offset)


def same_order(value: Value | Shape) -> list[int]:
    """Returns dense strides in the value's axis order (row-major where that is ambiguous)."""
    shape = value.shape if isinstance(value, Value) else value
    lens, strides = shape.lens(), shape.strides()
    if any(s == 0 and n != 1 for n, s in zip(lens, strides, strict=True)):
        return Shape(shape.dtype, lens).strides()
    return packed_strides(lens, _stable_order(lens, strides))


def _stable_order(lens: list[int], strides: list[int]) -> list[int]:
    """Returns the axes by descending stride; axes of extent 1 follow their left neighbor."""
    real = sorted((a for a in range(len(lens)) if lens[a] != 1), key=lambda a: (-strides[a], a))
    order = list(real)
    for axis in range(len(lens)):
        if lens[axis] == 1:
            position = order.index(axis - 1) + 1 if axis - 1 in order else 0
            order.insert(position, axis)
    return order
