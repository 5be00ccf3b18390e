"""Elementwise arithmetic and elementary functions."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError
from ..types.argument import Value
from ..types.dtype import DType
from ..types.shape import AnyShape, Shape
from .declaration import op
from .elementwise import Pointwise
from .operation import Operation
from .scalar import call, x0, x1, x2

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


@op("abs", scalar=call("abs", x0), accepts="iuf")
class Abs(Pointwise):
    """Magnitude.  Real numbers; the most negative integer is unchanged.  Source: ONNX Abs-13."""


@op("neg", scalar=-x0, accepts="iufc")
class Neg(Pointwise):
    """Negation; unsigned integers wrap.  Source: ONNX Neg-13."""


@op("sign", scalar=call("sign", x0), accepts="iuf")
class Sign(Pointwise):
    """-1, 0 or 1; NaN for NaN.  Source: ONNX Sign-13."""


@op("add", scalar=x0 + x1)
class Add(Pointwise):
    """x0 + x1; integers wrap.  Source: ONNX Add-14."""


@op("sub", scalar=x0 - x1, accepts="iufc")
class Sub(Pointwise):
    """x0 - x1; integers wrap.  Source: ONNX Sub-14."""


@op("mul", scalar=x0 * x1)
class Mul(Pointwise):
    """x0 * x1; integers wrap.  Source: ONNX Mul-14."""


@op("div", scalar=x0 / x1, accepts="iufc")
class Div(Pointwise):
    """x0 / x1; integers round toward zero, and give 0 for a divisor of 0.  Source: ONNX Div-14."""


@op("pow", scalar=call("pow", x0, x1), accepts="iufc")
class Pow(Pointwise):
    """x0 to the power x1.  Source: ONNX Pow-15."""


@op("mod", scalar=call("mod", x0, x1), accepts="iuf")
class Mod(Pointwise):
    """Remainder with the sign of the divisor; integers give 0 for a divisor of 0.  Source: ONNX Mod-28, fmod = 0."""


@op("fmod", scalar=call("fmod", x0, x1), accepts="iuf")
class Fmod(Pointwise):
    """Remainder with the sign of the dividend; integers give 0 for a divisor of 0.  Source: ONNX Mod-28, fmod = 1."""


@op("max", scalar=call("max", x0, x1), accepts="biuf")
class Max(Pointwise):
    """The larger; NaN if either is.  Source: ONNX Max-13."""


@op("min", scalar=call("min", x0, x1), accepts="biuf")
class Min(Pointwise):
    """The smaller; NaN if either is.  Source: ONNX Min-13."""


@op("sqdiff", scalar=(x0 - x1) * (x0 - x1), accepts="iufc")
class Sqdiff(Pointwise):
    """The square of x0 - x1."""


@op("clip", scalar=call("min", call("max", x0, x1), x2), accepts="iuf")
class Clip(Pointwise):
    """min(max(x0, x1), x2).  Source: ONNX Clip-13."""


@op("where", scalar=call("where", x0, x1, x2), accepts="biufcs")
class Where(Pointwise):
    """x1 where the bool x0 is true, else x2.  Source: ONNX Where-16."""

    def check_dtypes(self, xs: Sequence[Shape]) -> None:
        if xs[0].dtype.kind != "b":
            raise ShapeError(f"the condition must be bool, got {xs[0].dtype}")
        Pointwise.check_dtypes(self, xs[1:])

    def result_dtype(self, xs: Sequence[Shape]) -> DType:
        return xs[1].dtype


# rounding ------------------------------------------------------------------------------------------------------------


@op("ceil", scalar=call("ceil", x0), accepts="f")
class Ceil(Pointwise):
    """The smallest integer >= x0.  Source: ONNX Ceil-13."""


@op("floor", scalar=call("floor", x0), accepts="f")
class Floor(Pointwise):
    """The largest integer <= x0.  Source: ONNX Floor-13."""


@op("nearbyint", scalar=call("round", x0), accepts="f")
class Nearbyint(Pointwise):
    """The nearest integer, ties to even.  Source: ONNX Round-22."""


@op("trunc", scalar=call("trunc", x0), accepts="f")
class Trunc(Pointwise):
    """Rounds toward zero."""


# elementary functions ------------------------------------------------------------------------------------------------


@op("exp", scalar=call("exp", x0), accepts="fc")
class Exp(Pointwise):
    """e to the x0.  Source: ONNX Exp-13."""


@op("expm1", scalar=call("expm1", x0), accepts="fc")
class Expm1(Pointwise):
    """exp(x0) - 1, accurate near 0."""


@op("log", scalar=call("log", x0), accepts="fc")
class Log(Pointwise):
    """Natural logarithm.  Source: ONNX Log-13."""


@op("log1p", scalar=call("log1p", x0), accepts="fc")
class Log1p(Pointwise):
    """log(1 + x0), accurate near 0."""


@op("log2", scalar=call("log2", x0), accepts="fc")
class Log2(Pointwise):
    """Base-2 logarithm."""


@op("sqrt", scalar=call("sqrt", x0), accepts="fc")
class Sqrt(Pointwise):
    """Square root; NaN under 0.  Source: ONNX Sqrt-13."""


@op("rsqrt", scalar=call("rsqrt", x0), accepts="fc")
class Rsqrt(Pointwise):
    """1 / square root."""


@op("recip", scalar=1 / x0, accepts="fc")
class Recip(Pointwise):
    """1 / x0.  Source: ONNX Reciprocal-13."""


@op("erf", scalar=call("erf", x0), accepts="f")
class Erf(Pointwise):
    """The error function.  Source: ONNX Erf-13."""
