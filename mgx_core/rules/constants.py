"""Access to constants in rules: literals and broadcasts of literals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.instruction import Instruction
from ..ops.broadcast import Broadcast, Multibroadcast
from ..ops.movement import Transpose
from ..ops.reshape import Squeeze, Unsqueeze
from ..ops.scalar import convert
from ..types.argument import Array
from ..types.dim import Dim
from ..types.dtype import of as dtype_of
from .engine import Builder
from .outline import through_views

__all__ = [
    "aligned", "along", "bound", "computed", "decided", "finite", "is_constant", "same_constant", "scalar_of", "split",
    "spread", "uniform", "whole",
]  # fmt: skip

LARGEST = 1 << 16  # the most elements of a constant that are compared


def scalar_of(ins: Instruction) -> float | None:
    """Returns the value of a literal with one element, broadcast or not."""
    source = through_views(ins)
    if source.literal is None or source.shape.elements() != 1 or not source.shape.dtype.is_number:
        return None
    if source.shape.dtype.kind == "c":
        return None
    return float(np.asarray(source.literal.value).reshape(()))


def uniform(ins: Instruction) -> float | None:
    """Returns the common value of all elements of a uniform literal, broadcast or not."""
    found = _repeated(ins)
    return None if found is None else float(found)


def whole(ins: Instruction) -> int | None:
    """Returns the common value of a uniform integer literal, exact for any magnitude; broadcast or not."""
    found = _repeated(ins) if ins.shape.dtype.is_integer else None
    return None if found is None else int(found)


def bound(ins: Instruction) -> float | int | None:
    """Returns the common value of a uniform literal; an int for integers, which may not be representable as a float."""
    return whole(ins) if ins.shape.dtype.is_integer else uniform(ins)


def _repeated(ins: Instruction) -> Any:
    """Returns the common element of a uniform literal, as stored."""
    source = through_views(ins)
    if source.literal is None:
        return None
    value = source.literal.value
    if not isinstance(value, np.ndarray) or not 0 < value.size <= LARGEST or not source.shape.dtype.is_number:
        return None
    if source.shape.dtype.kind == "c":
        return None
    first = value.flat[0]
    if value.size > 1 and not (value.flat[-1] == first and (value == first).all()):
        return None
    return first


def decided(ins: Instruction) -> bool | None:
    """Common value of all elements of a constant condition, if there are any and they are equal."""
    value = aligned(ins)
    if value is None or not value.size or value.any() != value.all():
        return None
    return bool(value.all())


def is_constant(ins: Instruction) -> bool:
    """Returns True if an instruction is a literal, broadcast or not."""
    return through_views(ins).literal is not None


def aligned(ins: Instruction) -> Array | None:
    """Returns the value of a constant, not repeated: an array that numpy broadcasts to the instruction's extents."""
    if ins.literal is not None:
        value = ins.literal.value
        return value if isinstance(value, np.ndarray) else None
    if len(ins.inputs) != 1 or not ins.shape.ranked:
        return None
    op = ins.op
    inner = aligned(ins.inputs[0]) if op.aligns or isinstance(op, Transpose) else None
    if inner is None or isinstance(op, Multibroadcast):
        return inner
    rank = ins.inputs[0].shape.rank
    inner = inner.reshape((1,) * (rank - inner.ndim) + inner.shape)
    match op:
        case Transpose():
            return inner.transpose(op.order(rank))
        case Broadcast():
            axis = op.axis + ins.shape.rank if op.axis < 0 else op.axis
            return inner.reshape(inner.shape + (1,) * (ins.shape.rank - axis - rank))
        case Unsqueeze():
            return np.expand_dims(inner, op.axes)
        case Squeeze():
            units = [n for n, d in enumerate(ins.inputs[0].shape.dims) if d == 1]
            removed = [a + rank if a < 0 else a for a in op.axes] or units
            return inner.reshape([n for a, n in enumerate(inner.shape) if a not in removed])
    return None


def along(value: Array | None, rank: int, axis: int) -> Array | None:
    """Returns a constant for a tensor of that rank as a vector along one axis, of one element if it is the same everywhere."""
    if value is None:
        return None
    dims = (1,) * (rank - value.ndim) + value.shape
    if any(n != 1 for a, n in enumerate(dims) if a != axis):
        return None
    return value.reshape(-1)


def spread(b: Builder, value: Array, dims: Sequence[Dim], like: Instruction | None = None) -> Instruction:
    """Returns a literal broadcast to the given extents, in the element type of `like` if that is given."""
    if like is not None and value.dtype != like.shape.dtype.numpy:
        value = convert(value, like.shape.dtype)
    made = b.literal(value)
    return made if made.shape.dims == tuple(dims) else b.add(Multibroadcast(out_lens=tuple(dims)), made)


def finite(value: Array) -> bool:
    """Returns True if no element is infinite or NaN."""
    if dtype_of(value.dtype).is_integer:
        return True
    return bool(np.isfinite(value.astype(np.float32, copy=False) if value.dtype.itemsize < 4 else value).all())


def split(i: Instruction) -> tuple[Instruction, Instruction] | None:
    """Returns the operand that varies and the one that is constant, where exactly one is."""
    x, y = i.inputs
    constant = is_constant(y)
    if constant == is_constant(x):
        return None
    return (x, y) if constant else (y, x)


def computed(b: Builder, op: Any, i: Instruction, *values: Array | None) -> Instruction | None:
    """`op` of constants as a literal, broadcast to the extents of `i`; None if a value is unknown or the result is not finite."""
    arrays = [v for v in values if v is not None]
    if len(arrays) < len(values):
        return None
    with np.errstate(all="ignore"):
        value = np.asarray(op.compute(*arrays))
    return spread(b, value, i.shape.dims, i) if finite(value) else None


def same_constant(x: Instruction | None, y: Instruction | None) -> bool:
    """Returns True if two operands are one value, or equal constants."""
    if x is y:
        return True
    if x is None or y is None:
        return False
    one, other = aligned(x), aligned(y)
    return one is not None and other is not None and one.dtype == other.dtype and np.array_equal(one, other)
