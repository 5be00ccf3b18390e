"""Scalar expression trees, which define pointwise ops.

An expression is a tree of `Call`, `Input`, `Const`, `Attr` and `Cast` nodes, built with Python's operators and the functions
of this module.  Each interpretation (numpy in `scalar`; LLVM IR, HIP C++ in the targets; text for the docs) is one table from the
primitives' names.  Operands of one primitive share one dtype; comparisons and tests give bool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from ..errors import counted
from ..types.dtype import DType

__all__ = [
    "EXACT", "PRIMITIVES", "Attr", "Call", "Cast", "Const", "Expr", "Input", "attr", "call", "fold", "leaf_of",
    "operands", "primitives", "rounds", "text", "x0", "x1", "x2",
]  # fmt: skip

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
# primitives whose results are exact in their operands' type
EXACT: Final = frozenset(
    {"neg", "abs", "sign", "min", "max", "floor", "ceil", "round", "trunc", "lt", "le", "gt", "ge", "eq", "ne", "isnan"}
    | {"isinf", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor"}
    | {"bitwise_not", "shift_left", "shift_right", "where"}
)


def _left(primitive: str) -> Callable[[Expr, Operand], Expr]:
    return lambda self, other: call(primitive, self, other)


def _right(primitive: str) -> Callable[[Expr, Operand], Expr]:
    return lambda self, other: call(primitive, other, self)


class Expr:
    """A scalar expression; Python's arithmetic, comparison and bit operators build larger ones."""

    __slots__ = ()

    __add__, __radd__ = _left("add"), _right("add")
    __sub__, __rsub__ = _left("sub"), _right("sub")
    __mul__, __rmul__ = _left("mul"), _right("mul")
    __truediv__, __rtruediv__ = _left("div"), _right("div")
    __lt__, __le__, __gt__, __ge__ = _left("lt"), _left("le"), _left("gt"), _left("ge")

    def __neg__(self) -> Expr:
        return call("neg", self)


class Input(Expr):
    """The element of the op's `index`-th input."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Const(Expr):
    """A number, in the dtype of the operands it is combined with."""

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
    """Returns a primitive by name applied to expressions and numbers."""
    if len(args) != PRIMITIVES[primitive][0]:
        raise TypeError(f"{primitive} takes {counted(PRIMITIVES[primitive][0], 'operand')}, got {len(args)}")
    return Call(primitive, tuple(a if isinstance(a, Expr) else Const(a) for a in args))


def attr(name: str) -> Expr:
    """Returns the op's attribute `name`."""
    return Attr(name)


x0: Final[Expr] = Input(0)
x1: Final[Expr] = Input(1)
x2: Final[Expr] = Input(2)


def fold(
    expr: Expr, leaf: Callable[[Expr], Any], node: Callable[[Call, list[Any]], Any], cast: Callable[[Cast, Any], Any]
) -> Any:
    """Folds a tree bottom-up with a table of primitives; every interpretation uses it."""
    match expr:
        case Call():
            return node(expr, [fold(a, leaf, node, cast) for a in expr.args])
        case Cast():
            return cast(expr, fold(expr.value, leaf, node, cast))
    return leaf(expr)


def leaf_of(e: Expr, inputs: Sequence[Any], attributes: Any) -> Any:
    """Returns the value of a leaf: one of the inputs, a number, or an attribute."""
    match e:
        case Input(index=index):
            return inputs[index]
        case Const(value=value):
            return value
        case Attr(name=name):
            return getattr(attributes, name)
    raise TypeError(e)


def operands(expr: Expr) -> int:
    """Returns how many inputs an op has that computes the expression: one more than the highest index."""
    match expr:
        case Input(index=index):
            return index + 1
        case Cast(value=value):
            return operands(value)
        case Call(args=args):
            return max(map(operands, args), default=0)
    return 0


@cache
def primitives(e: Expr) -> frozenset[str]:
    """Returns the names of the primitives in an expression."""
    if isinstance(e, Cast):
        return primitives(e.value)
    if isinstance(e, Call):
        return frozenset({e.primitive}).union(*map(primitives, e.args))
    return frozenset()


def rounds(expr: Expr) -> bool:
    """Returns True if the value of an expression of floats may be rounded."""
    match expr:
        case Call(primitive=primitive, args=args):
            return primitive not in EXACT or any(map(rounds, args))
    return isinstance(expr, Cast)


def text(expr: Expr) -> str:
    """Returns the expression as text: ``1 / (1 + exp(-x0))`` prints as ``div(1, add(1, exp(neg(x0))))``."""

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
