"""Elementwise arithmetic and elementary functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..errors import ShapeError
from ..types.argument import Value
from ..types.dtype import DType
from ..types.shape import AnyShape, Shape
from .declaration import op
from .elementwise import Pointwise
from .operation import Operation
from .scalar import Expr, call, x0, x1, x2

__all__ = [
    "Abs", "Add", "Ceil", "Clip", "Div", "Erf", "Exp", "Expm1", "Floor", "Fmod", "Identity", "Log", "Log1p", "Log2", "Max", "Min",
    "Mod", "Mul", "Nearbyint", "Neg", "Pow", "Recip", "Rsqrt", "Sign", "Sqdiff", "Sqrt", "Sub", "Trunc", "Where",
]  # fmt: skip


@op("identity", exact=True)
class Identity(Operation):
    """The operand itself, of any type.

    x: any -> the same.  Source: ONNX Identity-25.
    """

    def infer(self, x: AnyShape) -> AnyShape:
        return x

    def compute(self, x: Value) -> Value:
        return x


# any number ----------------------------------------------------------------------------------------------------------


@op("abs", accepts="iuf")
class Abs(Pointwise):
    """Magnitude.  Real numbers; the most negative integer is unchanged.  Source: ONNX Abs-13."""

    scalar: ClassVar[Expr] = call("abs", x0)


@op("neg", accepts="iufc")
class Neg(Pointwise):
    """Negation; unsigned integers wrap.  Source: ONNX Neg-13."""

    scalar: ClassVar[Expr] = -x0


@op("sign", accepts="iuf")
class Sign(Pointwise):
    """-1, 0 or 1; NaN for NaN.  Source: ONNX Sign-13."""

    scalar: ClassVar[Expr] = call("sign", x0)


@op("add")
class Add(Pointwise):
    """x0 + x1; integers wrap.  Source: ONNX Add-14."""

    scalar: ClassVar[Expr] = x0 + x1


@op("sub", accepts="iufc")
class Sub(Pointwise):
    """x0 - x1; integers wrap.  Source: ONNX Sub-14."""

    scalar: ClassVar[Expr] = x0 - x1


@op("mul")
class Mul(Pointwise):
    """x0 * x1; integers wrap.  Source: ONNX Mul-14."""

    scalar: ClassVar[Expr] = x0 * x1


@op("div", accepts="iufc")
class Div(Pointwise):
    """x0 / x1; integers round toward zero, and give 0 for a divisor of 0.  Source: ONNX Div-14."""

    scalar: ClassVar[Expr] = x0 / x1


@op("pow", accepts="iufc")
class Pow(Pointwise):
    """x0 to the power x1.  Source: ONNX Pow-15."""

    scalar: ClassVar[Expr] = call("pow", x0, x1)


@op("mod", accepts="iuf")
class Mod(Pointwise):
    """Remainder with the sign of the divisor; integers give 0 for a divisor of 0.  Source: ONNX Mod-28, fmod = 0."""

    scalar: ClassVar[Expr] = call("mod", x0, x1)


@op("fmod", accepts="iuf")
class Fmod(Pointwise):
    """Remainder with the sign of the dividend; integers give 0 for a divisor of 0.  Source: ONNX Mod-28, fmod = 1."""

    scalar: ClassVar[Expr] = call("fmod", x0, x1)


@op("max", accepts="biuf")
class Max(Pointwise):
    """The larger; NaN if either is.  Source: ONNX Max-13."""

    scalar: ClassVar[Expr] = call("max", x0, x1)


@op("min", accepts="biuf")
class Min(Pointwise):
    """The smaller; NaN if either is.  Source: ONNX Min-13."""

    scalar: ClassVar[Expr] = call("min", x0, x1)


@op("sqdiff", accepts="iufc")
class Sqdiff(Pointwise):
    """The square of x0 - x1."""

    scalar: ClassVar[Expr] = (x0 - x1) * (x0 - x1)


@op("clip", accepts="iuf")
class Clip(Pointwise):
    """min(max(x0, x1), x2).  Source: ONNX Clip-13."""

    scalar: ClassVar[Expr] = call("min", call("max", x0, x1), x2)


@op("where", accepts="biufcs")
class Where(Pointwise):
    """x1 where the bool x0 is true, else x2.  Source: ONNX Where-16."""

    scalar: ClassVar[Expr] = call("where", x0, x1, x2)

    def check_dtypes(self, xs: Sequence[Shape]) -> None:
        if xs[0].dtype.kind != "b":
            raise ShapeError(f"the condition must be bool, got {xs[0].dtype}")
        Pointwise.check_dtypes(self, xs[1:])

    def result_dtype(self, xs: Sequence[Shape]) -> DType:
        return xs[1].dtype


# rounding ------------------------------------------------------------------------------------------------------------


@op("ceil", accepts="f")
class Ceil(Pointwise):
    """The smallest integer >= x0.  Source: ONNX Ceil-13."""

    scalar: ClassVar[Expr] = call("ceil", x0)


@op("floor", accepts="f")
class Floor(Pointwise):
    """The largest integer <= x0.  Source: ONNX Floor-13."""

    scalar: ClassVar[Expr] = call("floor", x0)


@op("nearbyint", accepts="f")
class Nearbyint(Pointwise):
    """The nearest integer, ties to even.  Source: ONNX Round-22."""

    scalar: ClassVar[Expr] = call("round", x0)


@op("trunc", accepts="f")
class Trunc(Pointwise):
    """Rounds toward zero."""

    scalar: ClassVar[Expr] = call("trunc", x0)


# elementary functions ------------------------------------------------------------------------------------------------


@op("exp", accepts="fc")
class Exp(Pointwise):
    """e to the x0.  Source: ONNX Exp-13."""

    scalar: ClassVar[Expr] = call("exp", x0)


@op("expm1", accepts="fc")
class Expm1(Pointwise):
    """exp(x0) - 1, accurate near 0."""

    scalar: ClassVar[Expr] = call("expm1", x0)


@op("log", accepts="fc")
class Log(Pointwise):
    """Natural logarithm.  Source: ONNX Log-13."""

    scalar: ClassVar[Expr] = call("log", x0)


@op("log1p", accepts="fc")
class Log1p(Pointwise):
    """log(1 + x0), accurate near 0."""

    scalar: ClassVar[Expr] = call("log1p", x0)


@op("log2", accepts="fc")
class Log2(Pointwise):
    """Base-2 logarithm."""

    scalar: ClassVar[Expr] = call("log2", x0)


@op("sqrt", accepts="fc")
class Sqrt(Pointwise):
    """Square root; NaN under 0.  Source: ONNX Sqrt-13."""

    scalar: ClassVar[Expr] = call("sqrt", x0)


@op("rsqrt", accepts="fc")
class Rsqrt(Pointwise):
    """1 / square root."""

    scalar: ClassVar[Expr] = call("rsqrt", x0)


@op("recip", accepts="fc")
class Recip(Pointwise):
    """1 / x0.  Source: ONNX Reciprocal-13."""

    scalar: ClassVar[Expr] = 1 / x0


@op("erf", accepts="f")
class Erf(Pointwise):
    """The error function.  Source: ONNX Erf-13."""

    scalar: ClassVar[Expr] = call("erf", x0)
