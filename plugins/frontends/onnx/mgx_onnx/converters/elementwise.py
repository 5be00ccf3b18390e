"""ONNX's elementwise arithmetic, comparisons, logic and bit operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import Converter, converts
from ..node import Node
from .precision import as_float, widened

__all__ = ["operands"]

UNARY: Final[Mapping[str, str]] = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "IsNaN": "isnan", "Log": "log", "Neg": "neg", "Not": "not", "Reciprocal": "recip", "Round": "nearbyint", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip

BINARY: Final[Mapping[str, str]] = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Div": "div", "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_or_equal", "Less": "less",
    "LessOrEqual": "less_or_equal", "Mul": "mul", "Or": "logical_or", "Sub": "sub", "Xor": "logical_xor",
}  # fmt: skip


def operands(n: Node, a: Instruction, b: Instruction) -> list[Instruction]:
    """Returns two broadcast operands, by numpy's rules or by the attributes `broadcast` and `axis`.

    These attributes were removed in opset 7, but some exporters still write them.
    """
    if n.attr("broadcast", 0) and n.has("axis"):
        dims, rank = b.shape.dims, a.shape.rank
        axis = n.attr("axis")
        axis += rank if axis < 0 else 0
        if not 0 <= axis <= rank - len(dims):
            raise n.error(f"axis {axis} does not align {len(dims)} axes with rank {rank}")
        b = n.reshape(b, (*dims, *[1] * (rank - axis - len(dims))))
    return n.broadcast(a, b)


def _unary(name: str) -> Converter:
    def convert(n: Node, x: Instruction) -> Instruction:
        return n.add(name, x)

    return convert


def _binary(name: str) -> Converter:
    def convert(n: Node, a: Instruction, b: Instruction) -> Instruction:
        return n.add(name, *operands(n, a, b))

    return convert


for _onnx, _name in UNARY.items():
    converts(_onnx)(_unary(_name))
for _onnx, _name in BINARY.items():
    converts(_onnx)(_binary(_name))


@converts("Identity")
def identity(n: Node, x: Instruction) -> Instruction:
    return x


@converts("Pow")
def power(n: Node, a: Instruction, b: Instruction) -> Instruction:
    """Returns the power in the base's type; mixed types are computed in the wider one."""
    to = a.shape.dtype
    if b.shape.dtype is not to:
        if to.is_float and b.shape.dtype.is_integer:
            b = n.convert(b, to)
        elif to.is_integer and b.shape.dtype.is_integer:
            a, b = n.convert(a, dt.int64), n.convert(b, dt.int64)
        else:
            common = dt.float64 if to.is_integer or dt.float64 in (to, b.shape.dtype) else dt.float32
            a, b = n.convert(a, common), n.convert(b, common)
    return n.convert(n.add("pow", *operands(n, a, b)), to)


@converts("Mod")
def modulo(n: Node, a: Instruction, b: Instruction) -> Instruction:
    truncates = n.attr("fmod", 0)
    if truncates not in (0, 1):
        raise n.error(f"fmod must be 0 or 1, got {truncates}")
    return n.pointwise("fmod" if truncates else "mod", *_common(n, a, b))


def _common(n: Node, a: Instruction, b: Instruction) -> tuple[Instruction, Instruction]:
    """Returns operands promoted to one type (widest float, else widest integer), since older exporters mix them."""
    x, y = a.shape.dtype, b.shape.dtype
    to = max(x, y, key=lambda t: (t.is_float, t.bits, t.kind == "i"))
    return n.convert(a, to), n.convert(b, to)


@converts("BitShift")
def bit_shift(n: Node, a: Instruction, b: Instruction) -> Instruction:
    direction = n.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise n.error(f"direction must be LEFT or RIGHT, got {direction!r}")
    return n.pointwise("bit_shift_left" if direction == "LEFT" else "bit_shift_right", a, b)


@converts("Where")
def where(n: Node, condition: Instruction, a: Instruction, b: Instruction) -> Instruction:
    return n.pointwise("where", condition, a, b)


@converts("IsInf")
def is_inf(n: Node, x: Instruction) -> Instruction:
    negative, positive = bool(n.attr("detect_negative", 1)), bool(n.attr("detect_positive", 1))
    return n.add("isinf", x, detect_negative=negative, detect_positive=positive)


@converts("Clip")
def clip(n: Node, x: Instruction, low: Instruction | None = None, high: Instruction | None = None) -> Instruction:
    """Converts Clip, whose bounds are attributes before opset 11."""
    if low is None and n.has("min"):
        low = n.literal(n.attr("min"), x.shape.dtype)
    if high is None and n.has("max"):
        high = n.literal(n.attr("max"), x.shape.dtype)
    low, high = (b if b is None else _bound(n, x, b) for b in (low, high))
    if low is None:
        return x if high is None else n.pointwise("min", x, high)
    return n.pointwise("max", x, low) if high is None else n.pointwise("clip", x, low, high)


def _bound(n: Node, x: Instruction, bound: Instruction) -> Instruction:
    """Returns a bound: a scalar in the standard, but anything that broadcasts to `x` is accepted."""
    if bound.shape.rank > x.shape.rank:
        bound = n.reshape(bound, ())
    return n.broadcast_to(n.convert(bound, x.shape.dtype), x.shape.dims)


def _chain(name: str) -> Converter:
    def convert(n: Node, *xs: Instruction) -> Instruction:
        return _folded(n, name, xs)

    return convert


def _folded(n: Node, name: str, xs: tuple[Instruction, ...]) -> Instruction:
    if not xs:
        raise n.error("at least one input is required")
    out, *rest = xs
    for x in rest:
        out = n.pointwise(name, out, x)
    return out


converts("Max")(_chain("max"))
converts("Min")(_chain("min"))


@converts("Sum")
def total(n: Node, *xs: Instruction) -> Instruction:
    if len(xs) < 3:
        return _folded(n, "add", xs)
    return n.convert(_folded(n, "add", tuple(widened(n, x) for x in xs)), xs[0].shape.dtype)


@converts("Mean")
def mean(n: Node, *xs: Instruction) -> Instruction:
    out = _folded(n, "add", tuple(as_float(n, x) for x in xs))
    return n.convert(n.add("mul", out, n.full_like(out, 1 / len(xs))), xs[0].shape.dtype)


# com.microsoft operators


@converts("BiasAdd", domain="com.microsoft")
def bias_add(n: Node, x: Instruction, bias: Instruction, skip: Instruction) -> Any:
    out = n.pointwise("add", n.pointwise("add", widened(n, x), widened(n, bias)), widened(n, skip))
    return n.convert(out, x.shape.dtype)
