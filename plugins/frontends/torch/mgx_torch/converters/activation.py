"""Activations."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction

from ..converter import Converter, converts
from ..node import Node, Scalar

__all__: list[str] = []


def plain(name: str) -> Converter:
    def convert(n: Node, x: Instruction) -> Instruction:
        return n.add(name, x)

    return convert


for _torch, _name in (
    ("relu", "relu"),
    ("mish", "mish"),
    ("selu", "selu"),
    ("silu", "swish"),
    ("log_sigmoid", "log_sigmoid"),
):
    converts(_torch)(plain(_name))


@converts("hardswish")
def hardswish(n: Node, x: Instruction) -> Instruction:
    return n.add("hard_swish", x)


@converts("hardsigmoid")
def hardsigmoid(n: Node, x: Instruction) -> Instruction:
    return n.add("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@converts("log_sigmoid_forward")
def log_sigmoid_forward(n: Node, x: Instruction) -> tuple[Instruction, Instruction]:
    """Returns log(sigmoid(x)) and the buffer that the backward reads on the CPU, which is empty on other devices."""
    if 0 in n.result_dims(1) and 0 not in x.shape.dims:
        return n.add("log_sigmoid", x), n.filled(n.result_dims(1), 0, n.dtype)
    return n.add("log_sigmoid", x), n.add("exp", n.add("neg", n.add("abs", x)))


@converts("gelu")
def gelu(n: Node, x: Instruction, approximate: str = "none") -> Instruction:
    return n.add("gelu_tanh" if approximate == "tanh" else "gelu_erf", x)


@converts("leaky_relu")
def leaky_relu(n: Node, x: Instruction, slope: Scalar = 0.01) -> Instruction:
    return n.add("leaky_relu", x, alpha=n.fixed_number(slope, "the slope"))


@converts("elu")
def elu(n: Node, x: Instruction, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1) -> Instruction:
    alpha, scale = n.fixed_number(alpha, "alpha"), n.fixed_number(scale, "the scale")
    input_scale = n.fixed_number(input_scale, "the scale of the input")
    if scale == 1 and input_scale == 1:
        return n.add("elu", x, alpha=alpha)
    inside = n.add("expm1", n.add("mul", x, n.full_like(x, input_scale)))
    negative = n.add("mul", inside, n.full_like(x, alpha * scale))
    return n.add("where", n.add("greater", x, n.full_like(x, 0)), n.add("mul", x, n.full_like(x, scale)), negative)


@converts("celu")
def celu(n: Node, x: Instruction, alpha: Scalar = 1.0) -> Instruction:
    return n.add("celu", x, alpha=n.fixed_number(alpha, "alpha"))


@converts("softplus")
def softplus(n: Node, x: Instruction, beta: Scalar = 1, threshold: Scalar = 20) -> Instruction:
    factor, limit = (n.filled(x.shape.dims, number, x.shape.dtype) for number in (beta, threshold))
    one = isinstance(beta, (int, float)) and beta == 1
    inner = x if one else n.add("mul", x, factor)
    out = n.add("softplus", inner)
    if not one:
        out = n.add("div", out, factor)
    return n.add("where", n.add("greater", inner, limit), x, out)


@converts("threshold")
def threshold(n: Node, x: Instruction, limit: Scalar, value: Scalar) -> Instruction:
    xs = n.tensors((limit, value), x.shape.dtype)
    bound, other = (n.broadcast_to(i, x.shape.dims) for i in xs)
    return n.add("where", n.add("less_or_equal", x, bound), other, x)


@converts("softshrink")
def softshrink(n: Node, x: Instruction, lambd: float = 0.5) -> Instruction:
    return n.add("shrink", x, lambd=n.fixed_number(lambd, "lambda"), bias=n.fixed_number(lambd, "lambda"))


@converts("hardshrink")
def hardshrink(n: Node, x: Instruction, lambd: float = 0.5) -> Instruction:
    return n.add("shrink", x, lambd=n.fixed_number(lambd, "lambda"))


@converts("prelu", "_prelu_kernel")
def prelu(n: Node, x: Instruction, weight: Instruction) -> Instruction:
    if weight.shape.rank == 1 and x.shape.rank > 2 and weight.shape.dims != (1,):
        weight = n.unsqueeze(weight, range(1, x.shape.rank - 1))
    return n.pointwise("prelu", x, weight)


@converts("glu")
def glu(n: Node, x: Instruction, dim: int = -1) -> Instruction:
    axis = n.axis(dim, x.shape.rank)
    d = x.shape.dims[axis]
    half = d // 2
    return n.add("mul", n.slice(x, [axis], [0], [half]), n.add("sigmoid", n.slice(x, [axis], [half], [d])))


def normalized(name: str) -> Converter:
    def convert(n: Node, x: Instruction, dim: int, *_: Any, **given: Any) -> Instruction:
        x = n.convert(x, n.dtype)
        if not x.shape.rank:
            return n.squeeze(n.add(name, n.unsqueeze(x, [0]), axis=0), [0])
        return n.add(name, x, axis=n.axis(dim, x.shape.rank))

    return convert


converts("softmax", "_softmax")(normalized("softmax"))


@converts("_safe_softmax")
def safe_softmax(n: Node, x: Instruction, dim: int, *_: Any) -> Instruction:
    """Returns the softmax; rows of -inf become zeros."""
    x = n.convert(x, n.dtype)
    axis = n.axis(dim, x.shape.rank)
    empty = n.add("equal", x, n.full_like(x, float("-inf")))
    empty = n.broadcast_to(n.reduce("reduce_all", empty, [axis], True), x.shape.dims)
    return n.add("where", empty, n.full_like(x, 0), n.add("softmax", x, axis=axis))


converts("log_softmax", "_log_softmax")(normalized("logsoftmax"))
