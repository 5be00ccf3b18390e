"""Scalar expressions, evaluated over numpy arrays; conversion between element types.

Re-exports the names of `expression`, which defines the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..types.argument import Array
from ..types.dtype import DType
from .erf import erf
from .expression import (
    EXACT,
    PRIMITIVES,
    Attr,
    Call,
    Cast,
    Const,
    Expr,
    Input,
    attr,
    call,
    fold,
    leaf_of,
    primitives,
    rounds,
    text,
    x0,
    x1,
    x2,
)

__all__ = [
    "EXACT", "NUMPY", "PRIMITIVES", "Attr", "Call", "Cast", "Const", "Expr", "Input", "attr", "call", "convert", "evaluate",
    "fold", "leaf_of", "primitives", "rounds", "same", "text", "widen", "x0", "x1", "x2",
]  # fmt: skip


def evaluate(expr: Expr, inputs: Sequence[Array], attributes: Any) -> Array:
    """Returns the expression over whole arrays: narrow floats are computed in float32, and the caller rounds the result."""

    wide: list[Any] = [widen(x) for x in inputs]

    def cast(e: Cast, value: Any) -> Any:
        to = getattr(attributes, e.to) if isinstance(e.to, str) else e.to
        return convert(np.asarray(value), to)

    like = wide[0].dtype if wide else np.dtype(np.float32)

    def node(e: Call, args: list[Any]) -> Any:
        given = 1 if e.primitive == "where" else 0  # the condition does not determine the operands' dtype
        return NUMPY[e.primitive](*args[:given], *same(args[given:], like))

    with np.errstate(all="ignore"):
        return np.asarray(fold(expr, lambda e: leaf_of(e, wide, attributes), node, cast))


def same(args: list[Any], like: np.dtype[Any]) -> list[Any]:
    """Converts Python numbers to the dtype of the arrays they are combined with (default: `like`), so that numpy never widens."""
    array = next((a for a in reversed(args) if isinstance(a, (np.ndarray, np.generic))), None)
    if array is not None:
        like = array.dtype
    elif like.kind not in "fc" and any(isinstance(a, float) for a in args):
        like = np.dtype(np.float32)
    return [a if isinstance(a, (np.ndarray, np.generic, bool)) else np.asarray(a).astype(like) for a in args]


def widen(x: Array) -> Array:
    """Returns a narrow float array as float32, a sub-byte integer array as a byte; others unchanged."""
    # 2: a registered type; numpy's own return 1, or 0 for a dtype that was unpickled or byte-swapped
    if x.dtype.isbuiltin != 2 and x.dtype != np.float16:
        return x
    if x.dtype.name.startswith("int"):
        return x.astype(np.int8)
    if x.dtype.name.startswith("uint"):
        return x.astype(np.uint8)
    return x.astype(np.float32)


def convert(x: Array, to: DType) -> Array:
    """Numeric conversion: floats to integers truncate (and saturate where C++ leaves it undefined), others as numpy does."""
    if x.dtype == to.numpy:
        return x
    with np.errstate(all="ignore"):
        wide = widen(x)
        if to.is_integer and wide.dtype.kind == "f":
            if to.bits < 8:
                return wide.astype(np.int32).astype(to.numpy)
            low, high = float(to.lowest), float(to.highest)
            safe = np.where(np.isnan(wide), 0, wide)
            out = np.clip(safe, low, high).astype(to.numpy)
            return np.where(safe >= high, to.numpy.type(to.highest), out) if to.bits >= 32 else out
        if to.kind == "b":
            return np.asarray(wide != 0)
        if to.kind == "f" and to.bits < 16 and wide.dtype.kind in "iub":
            wide = wide.astype(np.float32)
        if wide.dtype.kind == "c" and to.kind != "c":
            wide = wide.real
        return wide.astype(to.numpy)


def _div(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind in "iu":
        zero = b == 0
        safe = np.where(zero, 1, b).astype(np.asarray(b).dtype)
        with np.errstate(all="ignore"):
            quotient = a // safe
            correction = ((a % safe) != 0) & ((a < 0) != (safe < 0))
        return np.where(zero, 0, quotient + correction).astype(np.asarray(a).dtype)
    return a / b


def _integer_zero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wraps an integer remainder: returns 0 for a divisor of 0 instead of a warning and an undefined value."""

    def safe(a: Any, b: Any) -> Any:
        if np.asarray(b).dtype.kind in "iu":
            zero = b == 0
            return np.where(zero, 0, function(a, np.where(zero, 1, b))).astype(np.asarray(a).dtype)
        return function(a, b)

    return safe


def _shift(function: Callable[[Any, Any], Any], fills: bool) -> Callable[[Any, Any], Any]:
    """Wraps a shift: for amounts outside the width, returns 0, or -1 for an arithmetic right shift of a negative number."""

    def shifted(a: Any, b: Any) -> Any:
        bits = np.asarray(a).dtype.itemsize * 8
        whole = (b < 0) | (b >= bits)
        rest = np.where(a < 0, -1, 0) if fills and np.asarray(a).dtype.kind == "i" else 0
        steps = np.where(whole, 0, b).astype(np.asarray(b).dtype)
        return np.where(whole, rest, function(a, steps)).astype(np.asarray(a).dtype)

    return shifted


def _pow(a: Any, b: Any) -> Any:
    base, power = np.asarray(a), np.asarray(b)
    if base.dtype.kind not in "iu" or power.dtype.kind != "i":
        return np.power(a, b)
    # among integers, only 1 and -1 have an integer inverse
    inverse = np.where(np.abs(base) == 1, np.power(base, power & 1), 0)
    # 1/0 is the minimum of the type, as for conversions of infinity to 32 and 64 bits
    inverse = np.where(base == 0, np.iinfo(base.dtype).min, inverse).astype(base.dtype)
    return np.where(power < 0, inverse, np.power(base, np.maximum(power, 0)))


NUMPY: Final[Mapping[str, Callable[..., Any]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "min": np.minimum,
    "max": np.maximum,
    "pow": _pow,
    "mod": _integer_zero(np.mod),
    "fmod": _integer_zero(np.fmod),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "exp": np.exp,
    "log": np.log,
    "log2": np.log2,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.invert,
    "shift_left": _shift(np.left_shift, False),
    "shift_right": _shift(np.right_shift, True),
    "where": np.where,
}
