"""Scalar expressions: the primitives that pointwise ops are made of.

An expression is a tree of `Call`, `Input`, `Const`, `Attr` and `Cast` nodes, built with Python's operators and the functions
of this module.  Each interpretation (numpy here; LLVM IR, HIP C++ in the targets; text for the docs) is one table from the
primitives' names.  Operands of one primitive share one dtype; comparisons and tests give bool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from ..types.argument import Array
from ..types.dtype import DType
from .erf import erf

__all__ = [
    "EXACT",
    "NUMPY",
    "PRIMITIVES",
    "Attr",
    "Call",
    "Cast",
    "Const",
    "Expr",
    "Input",
    "attr",
    "call",
    "convert",
    "evaluate",
    "fold",
    "primitives",
    "rounds",
    "same",
    "text",
    "widen",
    "x0",
    "x1",
    "x2",
]

# name -> (arity, result is bool, meaning); targets and docs are tested to cover exactly these
PRIMITIVES: Final[Mapping[str, tuple[int, bool, str]]] = {
    "add": (2, False, "a + b"),
    "sub": (2, False, "a - b"),
    "mul": (2, False, "a * b"),
    "div": (2, False, "a / b; integers round toward zero"),
    "neg": (1, False, "-a"),
    "abs": (1, False, "magnitude"),
    "sign": (1, False, "-1, 0 or 1; NaN stays"),
    "min": (2, False, "smaller; NaN if either is"),
    "max": (2, False, "larger; NaN if either is"),
    "pow": (2, False, "a to the power b"),
    "mod": (2, False, "remainder with the divisor's sign"),
    "fmod": (2, False, "remainder with the dividend's sign"),
    "floor": (1, False, "down"),
    "ceil": (1, False, "up"),
    "round": (1, False, "to nearest, ties to even"),
    "trunc": (1, False, "toward zero"),
    "sqrt": (1, False, "square root"),
    "rsqrt": (1, False, "1 / square root"),
    "exp": (1, False, "e to the a"),
    "log": (1, False, "natural logarithm"),
    "log2": (1, False, "base-2 logarithm"),
    "expm1": (1, False, "exp(a) - 1"),
    "log1p": (1, False, "log(1 + a)"),
    "sin": (1, False, "sine"),
    "cos": (1, False, "cosine"),
    "tan": (1, False, "tangent"),
    "asin": (1, False, "arc sine"),
    "acos": (1, False, "arc cosine"),
    "atan": (1, False, "arc tangent"),
    "sinh": (1, False, "hyperbolic sine"),
    "cosh": (1, False, "hyperbolic cosine"),
    "tanh": (1, False, "hyperbolic tangent"),
    "asinh": (1, False, "inverse hyperbolic sine"),
    "acosh": (1, False, "inverse hyperbolic cosine"),
    "atanh": (1, False, "inverse hyperbolic tangent"),
    "erf": (1, False, "error function"),
    "lt": (2, True, "a < b"),
    "le": (2, True, "a <= b"),
    "gt": (2, True, "a > b"),
    "ge": (2, True, "a >= b"),
    "eq": (2, True, "a == b"),
    "ne": (2, True, "a != b"),
    "isnan": (1, True, "is NaN"),
    "isinf": (1, True, "is an infinity"),
    "logical_and": (2, True, "both"),
    "logical_or": (2, True, "either"),
    "logical_xor": (2, True, "exactly one"),
    "logical_not": (1, True, "not a"),
    "bitwise_and": (2, False, "bits of both"),
    "bitwise_or": (2, False, "bits of either"),
    "bitwise_xor": (2, False, "bits of exactly one"),
    "bitwise_not": (1, False, "bits flipped"),
    "shift_left": (2, False, "a << b; 0 unless 0 <= b < width"),
    "shift_right": (2, False, "a >> b, filled with the sign; only the sign is left unless 0 <= b < width"),
    "where": (3, False, "b where a, else c"),
}
# those whose values are exact in the type of their operands
EXACT: Final = frozenset(
    {"neg", "abs", "sign", "min", "max", "floor", "ceil", "round", "trunc", "lt", "le", "gt", "ge", "eq", "ne", "isnan"}
    | {"isinf", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor"}
    | {"bitwise_not", "shift_left", "shift_right", "where"}
)


class Expr:
    """A scalar expression; Python's arithmetic, comparison and bit operators build larger ones."""

    __slots__ = ()

    def __add__(self, other: Operand) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return call("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return call("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return call("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return call("div", other, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __lt__(self, other: Operand) -> Expr:
        return call("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return call("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return call("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return call("ge", self, other)


class Input(Expr):
    """The element of the op's `index`-th input."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Const(Expr):
    """A number, in the dtype of the operands that it is combined with."""

    __slots__ = ("value",)

    def __init__(self, value: float | int | bool) -> None:
        self.value = value


class Attr(Expr):
    """The value of one of the op's attributes, as a number."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Cast(Expr):
    """`value` converted to the DType named by attribute `to` of the op, or to the fixed DType `to`."""

    __slots__ = ("to", "value")

    def __init__(self, value: Expr, to: DType | str) -> None:
        self.value = value
        self.to = to


class Call(Expr):
    """One primitive applied to its operands."""

    __slots__ = ("args", "primitive")

    def __init__(self, primitive: str, args: tuple[Expr, ...]) -> None:
        self.primitive = primitive
        self.args = args


Operand: TypeAlias = "Expr | float | int | bool"


def call(primitive: str, *args: Operand) -> Expr:
    """A primitive by name applied to expressions and numbers."""
    if len(args) != PRIMITIVES[primitive][0]:
        raise TypeError(f"{primitive} takes {PRIMITIVES[primitive][0]} operands, got {len(args)}")
    return Call(primitive, tuple(a if isinstance(a, Expr) else Const(a) for a in args))


def attr(name: str) -> Expr:
    """The op's attribute `name`."""
    return Attr(name)


x0: Final[Expr] = Input(0)
x1: Final[Expr] = Input(1)
x2: Final[Expr] = Input(2)


def fold(
    expr: Expr, leaf: Callable[[Expr], Any], node: Callable[[Call, list[Any]], Any], cast: Callable[[Cast, Any], Any]
) -> Any:
    """Interpret a tree bottom-up: what every interpretation table is driven by."""
    match expr:
        case Call():
            return node(expr, [fold(a, leaf, node, cast) for a in expr.args])
        case Cast():
            return cast(expr, fold(expr.value, leaf, node, cast))
    return leaf(expr)


@cache
def primitives(e: Expr) -> frozenset[str]:
    """Returns the names of the primitives that an expression is made of."""
    if isinstance(e, Cast):
        return primitives(e.value)
    if isinstance(e, Call):
        return frozenset({e.primitive}).union(*map(primitives, e.args))
    return frozenset()


def rounds(expr: Expr) -> bool:
    """True if the value of an expression of floats may be rounded."""
    match expr:
        case Call(primitive=primitive, args=args):
            return primitive not in EXACT or any(map(rounds, args))
    return isinstance(expr, Cast)


def text(expr: Expr) -> str:
    """The expression for people: ``1 / (1 + exp(-x0))`` prints as ``div(1, add(1, exp(neg(x0))))``."""

    def leaf(e: Expr) -> str:
        match e:
            case Input(index=index):
                return f"x{index}"
            case Const(value=value):
                return repr(value)
            case Attr(name=name):
                return name
        raise TypeError(e)

    return str(
        fold(
            expr,
            leaf,
            lambda e, args: f"{e.primitive}({', '.join(args)})",
            lambda e, value: f"convert({value}, {e.to})",
        )
    )


def evaluate(expr: Expr, inputs: Sequence[Array], attributes: Any) -> Array:
    """The expression over whole arrays: narrow floats compute in float32, the caller rounds the result."""

    wide: list[Any] = [widen(x) for x in inputs]

    def leaf(e: Expr) -> Any:
        match e:
            case Input(index=index):
                return wide[index]
            case Const(value=value):
                return value
            case Attr(name=name):
                return getattr(attributes, name)
        raise TypeError(e)

    def cast(e: Cast, value: Any) -> Any:
        to = getattr(attributes, e.to) if isinstance(e.to, str) else e.to
        return convert(np.asarray(value), to)

    like = wide[0].dtype if wide else np.dtype(np.float32)

    def node(e: Call, args: list[Any]) -> Any:
        given = 1 if e.primitive == "where" else 0  # the condition says nothing about the dtype of the choices
        return NUMPY[e.primitive](*args[:given], *same(args[given:], like))

    with np.errstate(all="ignore"):
        return np.asarray(fold(expr, leaf, node, cast))


def same(args: list[Any], like: np.dtype[Any]) -> list[Any]:
    """Bring Python numbers to the dtype of the arrays they are combined with (`like` if none), so that numpy never widens."""
    array = next((a for a in reversed(args) if isinstance(a, (np.ndarray, np.generic))), None)
    if array is not None:
        like = array.dtype
    elif like.kind not in "fc" and any(isinstance(a, float) for a in args):
        like = np.dtype(np.float32)
    return [a if isinstance(a, (np.ndarray, np.generic, bool)) else np.asarray(a).astype(like) for a in args]


def widen(x: Array) -> Array:
    """A narrow float array as float32, a sub-byte integer array as a byte; others unchanged."""
    if x.dtype.isbuiltin == 1 and x.dtype != np.float16:
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
    """Integer remainders by zero give 0 instead of a warning and rubbish."""

    def safe(a: Any, b: Any) -> Any:
        if np.asarray(b).dtype.kind in "iu":
            zero = b == 0
            return np.where(zero, 0, function(a, np.where(zero, 1, b))).astype(np.asarray(a).dtype)
        return function(a, b)

    return safe


def _shift(function: Callable[[Any, Any], Any], fills: bool) -> Callable[[Any, Any], Any]:
    """Shifts by a negative amount, or by the width or more, leave what the sign extension alone gives."""

    def shifted(a: Any, b: Any) -> Any:
        bits = np.asarray(a).dtype.itemsize * 8
        whole = (b < 0) | (b >= bits)
        rest = np.where(a < 0, -1, 0) if fills and np.asarray(a).dtype.kind == "i" else 0
        steps = np.where(whole, 0, b).astype(np.asarray(b).dtype)
        return np.where(whole, rest, function(a, steps)).astype(np.asarray(a).dtype)

    return shifted


def _pow(a: Any, b: Any) -> Any:
    if np.asarray(a).dtype.kind in "iu" and np.asarray(b).dtype.kind == "i":
        base = np.asarray(a)
        out = np.power(base, np.maximum(b, 0))
        with np.errstate(all="ignore"):
            inverse = np.trunc(np.power(base.astype(np.float64), b)).astype(base.dtype)
        return np.where(np.asarray(b) < 0, inverse, out)
    return np.power(a, b)


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
