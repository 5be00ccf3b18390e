"""Trigonometric and hyperbolic functions, element by element."""

from __future__ import annotations

from typing import ClassVar

from .declaration import op
from .elementwise import Pointwise
from .scalar import Expr, call, x0

__all__ = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh",
]  # fmt: skip


@op("sin", accepts="fc")
class Sin(Pointwise):
    """Sine of radians.  Source: ONNX Sin-22."""

    scalar: ClassVar[Expr] = call("sin", x0)


@op("cos", accepts="fc")
class Cos(Pointwise):
    """Cosine of radians.  Source: ONNX Cos-22."""

    scalar: ClassVar[Expr] = call("cos", x0)


@op("tan", accepts="fc")
class Tan(Pointwise):
    """Tangent of radians.  Source: ONNX Tan-22."""

    scalar: ClassVar[Expr] = call("tan", x0)


@op("asin", accepts="fc")
class Asin(Pointwise):
    """Arc sine in radians; NaN outside [-1, 1].  Source: ONNX Asin-22."""

    scalar: ClassVar[Expr] = call("asin", x0)


@op("acos", accepts="fc")
class Acos(Pointwise):
    """Arc cosine in radians; NaN outside [-1, 1].  Source: ONNX Acos-22."""

    scalar: ClassVar[Expr] = call("acos", x0)


@op("atan", accepts="fc")
class Atan(Pointwise):
    """Arc tangent in radians.  Source: ONNX Atan-22."""

    scalar: ClassVar[Expr] = call("atan", x0)


@op("sinh", accepts="fc")
class Sinh(Pointwise):
    """Hyperbolic sine.  Source: ONNX Sinh-22."""

    scalar: ClassVar[Expr] = call("sinh", x0)


@op("cosh", accepts="fc")
class Cosh(Pointwise):
    """Hyperbolic cosine.  Source: ONNX Cosh-22."""

    scalar: ClassVar[Expr] = call("cosh", x0)


@op("tanh", accepts="fc")
class Tanh(Pointwise):
    """Hyperbolic tangent.  Source: ONNX Tanh-13."""

    scalar: ClassVar[Expr] = call("tanh", x0)


@op("asinh", accepts="fc")
class Asinh(Pointwise):
    """Inverse hyperbolic sine.  Source: ONNX Asinh-22."""

    scalar: ClassVar[Expr] = call("asinh", x0)


@op("acosh", accepts="fc")
class Acosh(Pointwise):
    """Inverse hyperbolic cosine; NaN under 1.  Source: ONNX Acosh-22."""

    scalar: ClassVar[Expr] = call("acosh", x0)


@op("atanh", accepts="fc")
class Atanh(Pointwise):
    """Inverse hyperbolic tangent; NaN outside [-1, 1].  Source: ONNX Atanh-22."""

    scalar: ClassVar[Expr] = call("atanh", x0)
