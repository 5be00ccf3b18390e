"""Named activations: pointwise ops with a formula of their own."""

from __future__ import annotations

import math

from ..errors import ParameterError
from .declaration import op
from .elementwise import Pointwise
from .expression import Operand
from .scalar import Expr, attr, call, x0, x1

__all__ = [
    "Celu", "Elu", "GeluErf", "GeluTanh", "HardSigmoid", "HardSwish", "LeakyRelu", "LogSigmoid", "Mish", "Prelu",
    "QuickGelu", "Relu", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Swish", "ThresholdedRelu",
]  # fmt: skip


def sigmoid(x: Operand) -> Expr:
    """1 / (1 + exp(-x)) as an expression."""
    return 1 / (1 + call("exp", call("neg", x)))


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) as an expression that does not overflow."""
    return call("max", x, 0) + call("log1p", call("exp", -call("abs", x)))


def mish(x: Expr) -> Expr:
    """x * tanh(log(1 + exp(x))) as an expression with one exponential that does not overflow.

    With t = exp(-|x|) the tanh is n / (n + 2) for x < 0, where n = t (t + 2), and else n / (n + 2 t t), where n = 1 + 2 t.
    """
    t, below = call("exp", -call("abs", x)), x < 0
    n = call("where", below, t * (t + 2), 1 + 2 * t)
    return x * (n / (n + call("where", below, 2, 2 * t * t)))


@op("relu", scalar=call("max", x0, 0), accepts="iuf")
class Relu(Pointwise):
    """max(x0, 0).  Source: ONNX Relu-14."""


@op("leaky_relu", scalar=call("where", x0 < 0, attr("alpha") * x0, x0), accepts="f")
class LeakyRelu(Pointwise):
    """x0 for x0 >= 0, else alpha * x0.  Source: ONNX LeakyRelu-16."""

    alpha: float = 0.01


@op("prelu", scalar=call("where", x0 < 0, x1 * x0, x0), accepts="iuf")
class Prelu(Pointwise):
    """x0 for x0 >= 0, else x1 * x0.  Source: ONNX PRelu-16."""


@op("thresholded_relu", scalar=call("where", x0 > attr("alpha"), x0, 0), accepts="f")
class ThresholdedRelu(Pointwise):
    """x0 for x0 > alpha, else 0.  Source: ONNX ThresholdedRelu-22."""

    alpha: float = 1.0


@op("elu", scalar=call("where", x0 < 0, attr("alpha") * call("expm1", x0), x0), accepts="f")
class Elu(Pointwise):
    """x0 for x0 >= 0, else alpha * (exp(x0) - 1).  Source: ONNX Elu-22."""

    alpha: float = 1.0


@op("selu", scalar=attr("gamma") * call("where", x0 < 0, attr("alpha") * call("expm1", x0), x0), accepts="f")
class Selu(Pointwise):
    """gamma * x0 for x0 >= 0, else gamma * alpha * (exp(x0) - 1).  Source: ONNX Selu-22."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


@op("celu", scalar=call("max", x0, 0) + call("min", attr("alpha") * call("expm1", x0 / attr("alpha")), 0), accepts="f")
class Celu(Pointwise):
    """max(0, x0) + min(0, alpha * (exp(x0 / alpha) - 1)).

    Errors: ParameterError for an `alpha` of 0.  Source: ONNX Celu-28.
    """

    alpha: float = 1.0

    def check(self) -> None:
        if self.alpha == 0:
            raise ParameterError("celu: attribute 'alpha' must not be 0")


@op("sigmoid", scalar=sigmoid(x0), accepts="f")
class Sigmoid(Pointwise):
    """1 / (1 + exp(-x0)).  Source: ONNX Sigmoid-13."""


@op("log_sigmoid", scalar=-softplus(-x0), accepts="f")
class LogSigmoid(Pointwise):
    """log(sigmoid(x0)) without overflow."""


@op("hard_sigmoid", scalar=call("max", call("min", attr("alpha") * x0 + attr("beta"), 1), 0), accepts="f")
class HardSigmoid(Pointwise):
    """alpha * x0 + beta clipped to [0, 1].  Source: ONNX HardSigmoid-22."""

    alpha: float = 0.2
    beta: float = 0.5


@op("hard_swish", scalar=x0 * call("max", call("min", x0 * (1 / 6) + 0.5, 1), 0), accepts="f")
class HardSwish(Pointwise):
    """x0 * hard_sigmoid(x0) with slope 1/6 and offset 1/2.  Source: ONNX HardSwish-22."""


@op("softplus", scalar=softplus(x0), accepts="f")
class Softplus(Pointwise):
    """log(1 + exp(x0)) without overflow.  Source: ONNX Softplus-22."""


@op("softsign", scalar=x0 / (1 + call("abs", x0)), accepts="f")
class Softsign(Pointwise):
    """x0 / (1 + |x0|).  Source: ONNX Softsign-22."""


@op("mish", scalar=mish(x0), accepts="f")
class Mish(Pointwise):
    """x0 * tanh(softplus(x0)).  Source: ONNX Mish-22."""


@op("swish", scalar=x0 * sigmoid(attr("alpha") * x0), accepts="f")
class Swish(Pointwise):
    """x0 * sigmoid(alpha * x0); with alpha 1 also called silu.  Source: ONNX Swish-24."""

    alpha: float = 1.0


@op("quick_gelu", scalar=x0 * sigmoid(attr("alpha") * x0), accepts="f")
class QuickGelu(Pointwise):
    """x0 * sigmoid(alpha * x0): the logistic approximation of gelu."""

    alpha: float = 1.702


@op("gelu_erf", scalar=0.5 * x0 * (1 + call("erf", x0 * math.sqrt(0.5))), accepts="f")
class GeluErf(Pointwise):
    """x0 * P(N(0, 1) < x0).  Source: ONNX Gelu-20, approximate = none."""


@op(
    "gelu_tanh",
    scalar=0.5 * x0 * (1 + call("tanh", x0 * (math.sqrt(2 / math.pi) + math.sqrt(2 / math.pi) * 0.044715 * (x0 * x0)))),
    accepts="f",
)
class GeluTanh(Pointwise):
    """The hyperbolic tangent approximation of gelu.  Source: ONNX Gelu-20, approximate = tanh."""


@op(
    "shrink",
    scalar=call(
        "where", x0 < -attr("lambd"), x0 + attr("bias"), call("where", x0 > attr("lambd"), x0 - attr("bias"), 0)
    ),
    accepts="f",
)
class Shrink(Pointwise):
    """x0 + bias for x0 < -lambd, x0 - bias for x0 > lambd, else 0.  Source: ONNX Shrink-9."""

    lambd: float = 0.5
    bias: float = 0.0
