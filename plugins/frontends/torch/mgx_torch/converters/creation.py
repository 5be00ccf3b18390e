"""Tensor creation: constants, ranges, diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.filling import count_up

from ..converter import Converter, converts
from ..node import Node, Scalar

__all__: list[str] = []


def constant(value: int) -> Converter:
    def convert(n: Node, *_: Any) -> Instruction:
        return n.filled(n.result_dims(), value, n.dtype)

    return convert


for _kind, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    converts(_kind, f"{_kind}_like", f"new_{_kind}")(constant(_value))
converts("empty_permuted", "empty_strided", "new_empty_strided")(constant(0))


@converts("full", "full_like")
def full(n: Node, size: Any, value: Scalar) -> Instruction:
    return n.filled(n.result_dims(), value, n.dtype)


@converts("new_full")
def new_full(n: Node, x: Instruction, size: Any, value: Scalar) -> Instruction:
    return n.filled(n.result_dims(), value, n.dtype)


@converts("fill")
def fill(n: Node, x: Instruction, value: Scalar) -> Instruction:
    return n.filled(x.shape.dims, value, n.dtype)


@converts("scalar_tensor")
def scalar_tensor(n: Node, value: Scalar) -> Instruction:
    return n.tensor(value, n.dtype)


@converts("arange.default", "arange")
def arange(n: Node, end: Scalar) -> Instruction:
    return ranged(n, 0, end, 1)


@converts("arange.start", "arange.start_step")
def arange_from(n: Node, start: Scalar, end: Scalar, step: Scalar = 1) -> Instruction:
    return ranged(n, start, end, step)


def ranged(n: Node, start: Scalar, end: Scalar, step: Scalar) -> Instruction:
    """Returns start, start + step, ... with torch's number of elements."""
    (length,) = n.result_dims()
    numbers = [x for x in (start, end, step) if isinstance(x, (int, float))]
    if isinstance(length, int) and len(numbers) == 3:
        count = np.arange(length)
        if n.dtype.is_float:
            return n.literal(numbers[0] + count * np.float64(numbers[2]), n.dtype)
        return n.literal(int(numbers[0]) + count * int(numbers[2]), n.dtype)
    whole = not any(isinstance(x, float) for x in numbers)
    kind = dt.int64 if whole else dt.float64
    limits = [n.tensor(x, kind) for x in (start, end, step)]
    return n.convert(n.add("dynamic_range", *limits, length=length), n.dtype)


@converts("linspace")
def linspace(n: Node, start: Scalar, end: Scalar, steps: int) -> Instruction:
    """Returns equal steps computed from both ends to the middle, as in torch."""
    count = n.static(steps, "the number of steps")
    if isinstance(start, (int, float)) and isinstance(end, (int, float)):
        return n.literal(np.linspace(start, end, count), n.dtype)
    kind = dt.float64 if n.dtype is dt.float64 or n.dtype.is_integer else dt.float32
    near, far = (n.broadcast_to(n.tensor(v, kind), (count,)) for v in (start, end))
    if count < 2:
        return n.convert(near, n.dtype)
    step = n.add("div", n.add("sub", far, near), n.full_like(near, count - 1))
    index = np.arange(count)
    up = n.add("add", near, n.add("mul", step, n.literal(index, kind)))
    down = n.add("sub", far, n.add("mul", step, n.literal(count - 1 - index, kind)))
    found = n.add("where", n.literal(index < count // 2, dt.bool_), up, down)
    return n.convert(n.add("trunc", found) if n.dtype.is_integer else found, n.dtype)


@converts("tril_indices", "triu_indices")
def triangle(n: Node, rows: Any, columns: Any, offset: int = 0, **_: Any) -> Instruction:
    """Returns the row-major indices of a triangle of a matrix of static size."""
    shape = n.static(rows, "the number of rows"), n.static(columns, "the number of columns")
    lower = "tril" in str(n.fx.target)
    kept = np.tril(np.ones(shape, bool), offset) if lower else np.triu(np.ones(shape, bool), offset)
    return n.literal(np.stack(np.nonzero(kept)), n.dtype)


@converts("eye")
def eye(n: Node, *_: Any) -> Instruction:
    dims = n.result_dims()
    rows, columns = (count_up(n, n.tensor(d, dt.int64), d) for d in dims)
    return n.convert(n.pointwise("equal", n.unsqueeze(rows, [1]), columns), n.dtype)
