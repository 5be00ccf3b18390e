"""Trigonometric and hyperbolic functions, element by element."""

from __future__ import annotations

from .declaration import op
from .elementwise import Pointwise
from .scalar import call, x0

__all__ = [
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh",
]  # fmt: skip


@op("sin", scalar=call("sin", x0), accepts="fc")
class Sin(Pointwise):
    """Sine of radians.  Source: ONNX Sin-22."""


@op("cos", scalar=call("cos", x0), accepts="fc")
class Cos(Pointwise):
    """Cosine of radians.  Source: ONNX Cos-22."""


@op("tan", scalar=call("tan", x0), accepts="fc")
class Tan(Pointwise):
    """Tangent of radians.  Source: ONNX Tan-22."""


@op("asin", scalar=call("asin", x0), accepts="fc")
class Asin(Pointwise):
    """Arc sine in radians; NaN outside [-1, 1].  Source: ONNX Asin-22."""


@op("acos", scalar=call("acos", x0), accepts="fc")
class Acos(Pointwise):
    """Arc cosine in radians; NaN outside [-1, 1].  Source: ONNX Acos-22."""


@op("atan", scalar=call("atan", x0), accepts="fc")
class Atan(Pointwise):
    """Arc tangent in radians.  Source: ONNX Atan-22."""


@op("sinh", scalar=call("sinh", x0), accepts="fc")
class Sinh(Pointwise):
    """Hyperbolic sine.  Source: ONNX Sinh-22."""


@op("cosh", scalar=call("cosh", x0), accepts="fc")
class Cosh(Pointwise):
    """Hyperbolic cosine.  Source: ONNX Cosh-22."""


@op("tanh", scalar=call("tanh", x0), accepts="fc")
class Tanh(Pointwise):
    """Hyperbolic tangent.  Source: ONNX Tanh-13."""


@op("asinh", scalar=call("asinh", x0), accepts="fc")
class Asinh(Pointwise):
    """Inverse hyperbolic sine.  Source: ONNX Asinh-22."""


@op("acosh", scalar=call("acosh", x0), accepts="fc")
class Acosh(Pointwise):
    """Inverse hyperbolic cosine; NaN under 1.  Source: ONNX Acosh-22."""


@op("atanh", scalar=call("atanh", x0), accepts="fc")
class Atanh(Pointwise):
    """Inverse hyperbolic tangent; NaN outside [-1, 1].  Source: ONNX Atanh-22."""
