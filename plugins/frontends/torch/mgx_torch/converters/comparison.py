"""Comparisons, logic and selection."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..complex_parts import by_parts
from ..converter import Converter, converts
from ..node import Node, Scalar
from .casts import cast

__all__: list[str] = []


def comparison(name: str) -> Converter:
    def convert(n: Node, x: Scalar, y: Scalar) -> Instruction:
        return n.add(name, *n.tensors((x, y), n.common_dtype(0, 1)))

    return convert


for _torch, _name in (
    ("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_or_equal"), ("gt", "greater"), ("ge", "greater_or_equal"),
    ("not_equal", "not_equal"), ("less", "less"), ("less_equal", "less_or_equal"), ("greater", "greater"),
    ("greater_equal", "greater_or_equal"),
):  # fmt: skip
    converts(_torch)(comparison(_name))


def logical(name: str) -> Converter:
    def convert(n: Node, *xs: Instruction) -> Instruction:
        return n.pointwise(name, *(cast(n, n.tensor(x), dt.bool_) for x in xs))

    return convert


for _torch, _name in (("logical_and", "logical_and"), ("logical_or", "logical_or"), ("logical_xor", "logical_xor"),
                      ("logical_not", "not")):  # fmt: skip
    converts(_torch)(logical(_name))


def bitwise(name: str, truths: str) -> Converter:
    def convert(n: Node, *xs: Scalar) -> Instruction:
        return n.add(truths if n.dtype is dt.bool_ else name, *n.tensors(xs, n.dtype))

    return convert


for _name in ("and", "or", "xor"):
    converts(f"bitwise_{_name}", f"__{_name}__", f"__r{_name}__")(bitwise(f"bitwise_{_name}", f"logical_{_name}"))
converts("bitwise_not")(bitwise("bitwise_not", "not"))


def shift(name: str) -> Converter:
    def convert(n: Node, x: Scalar, y: Scalar) -> Instruction:
        return n.add(name, *n.tensors((x, y), n.dtype))

    return convert


converts("bitwise_left_shift", "__lshift__")(shift("bit_shift_left"))
converts("bitwise_right_shift", "__rshift__")(shift("bit_shift_right"))


def test(name: str) -> Converter:
    def convert(n: Node, x: Instruction) -> Instruction:
        if not x.shape.dtype.is_float:
            return n.filled(x.shape.dims, False, dt.bool_)
        return n.add(name, x)

    return convert


converts("isnan")(test("isnan"))
converts("isinf")(test("isinf"))


@converts("isfinite")
def isfinite(n: Node, x: Instruction) -> Instruction:
    if not x.shape.dtype.is_float:
        return n.filled(x.shape.dims, True, dt.bool_)
    return n.add("not", n.add("logical_or", n.add("isnan", x), n.add("isinf", x)))


@converts("signbit")
def signbit(n: Node, x: Instruction) -> Instruction:
    """Returns the sign bit, also of -0.0 and NaN."""
    if x.shape.dtype is dt.bool_:
        return n.full_like(x, False)
    if x.shape.dtype.is_float:
        x = n.add("bit_cast", x, target_type={16: dt.int16, 32: dt.int32, 64: dt.int64}[x.shape.dtype.bits])
    return n.add("less", x, n.full_like(x, 0))


@converts("nan_to_num")
def nan_to_num(
    n: Node, x: Instruction, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Instruction:
    dtype = x.shape.dtype
    if not dtype.is_float:
        return x
    high = float(dtype.highest) if posinf is None else posinf
    low = float(dtype.lowest) if neginf is None else neginf
    zero = n.full_like(x, 0)
    infinite = n.add("isinf", x)
    out = n.add("where", n.add("logical_and", infinite, n.add("greater", x, zero)), n.full_like(x, high), x)
    out = n.add("where", n.add("logical_and", infinite, n.add("less", x, zero)), n.full_like(x, low), out)
    return n.add("where", n.add("isnan", x), n.full_like(x, nan or 0.0), out)


@by_parts("where")
def where(n: Node, condition: Instruction, a: Scalar, b: Scalar) -> Instruction:
    mask, *_ = n.broadcast(cast(n, condition, dt.bool_), n.tensor(a), n.tensor(b))
    first, second = (n.broadcast_to(n.tensor(x, n.dtype), mask.shape.dims) for x in (a, b))
    return n.add("where", mask, first, second)


@by_parts("masked_fill")
def masked_fill(n: Node, x: Instruction, mask: Instruction, value: Scalar) -> Instruction:
    xs = n.broadcast(mask, n.tensor(value, n.dtype), x)
    return n.add("where", *xs)


@converts("clamp", "clip", "hardtanh")
def clamp(n: Node, x: Instruction, low: Scalar | None = None, high: Scalar | None = None, **given: Any) -> Instruction:
    return _between(n, x, low, high)


def _between(n: Node, x: Instruction, low: Scalar | None, high: Scalar | None) -> Instruction:
    out = n.convert(x, n.dtype)
    if low is not None:
        out = n.pointwise("max", out, n.tensor(low, n.dtype))
    if high is not None:
        out = n.pointwise("min", out, n.tensor(high, n.dtype))
    return out


@converts("clamp_min")
def clamp_min(n: Node, x: Instruction, low: Scalar) -> Instruction:
    return _between(n, x, low, None)


@converts("clamp_max")
def clamp_max(n: Node, x: Instruction, high: Scalar) -> Instruction:
    return _between(n, x, None, high)


@converts("relu6")
def relu6(n: Node, x: Instruction) -> Instruction:
    return _between(n, x, 0, 6)
