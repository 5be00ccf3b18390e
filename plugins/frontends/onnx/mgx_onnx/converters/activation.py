"""ONNX's activation functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim

from ..converter import Converter, converts
from ..node import Node
from .elementwise import operands
from .precision import as_float, widened

__all__: list[str] = []

# operator -> (op, attributes by name with their defaults)
SIMPLE: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ("hard_swish", {}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Mish": ("mish", {}),
    "Relu": ("relu", {}),
    "Sigmoid": ("sigmoid", {}),
    "Softplus": ("softplus", {}),
    "Softsign": ("softsign", {}),
    "Swish": ("swish", {"alpha": 1.0}),
}


def _simple(name: str, defaults: Mapping[str, float]) -> Converter:
    def convert(n: Node, x: Instruction) -> Instruction:
        options: dict[str, Any] = {key: float(n.attr(key, value)) for key, value in defaults.items()}
        return n.add(name, x, **options)

    return convert


for _onnx, (_name, _defaults) in SIMPLE.items():
    converts(_onnx)(_simple(_name, _defaults))


@converts("Selu")
def selu(n: Node, x: Instruction) -> Instruction:
    old = n.version < 6
    alpha = n.attr("alpha", 1.6732 if old else 1.67326319217681884765625)
    return n.add("selu", x, alpha=alpha, gamma=n.attr("gamma", 1.0507 if old else 1.05070102214813232421875))


@converts("PRelu")
def prelu(n: Node, x: Instruction, slope: Instruction) -> Instruction:
    """Broadcasts the slope to x; before opset 7 a vector is per channel."""
    if n.version < 7 and slope.shape.rank == 1 and x.shape.rank > 2 and slope.shape.dims != (1,):
        slope = n.reshape(slope, (*slope.shape.dims, *[1] * (x.shape.rank - 2)))
    if slope.shape.rank > x.shape.rank:
        raise n.error(f"slope {slope.shape} does not broadcast to {x.shape}")
    return n.add("prelu", *operands(n, x, slope))


@converts("Shrink")
def shrink(n: Node, x: Instruction) -> Instruction:
    out = n.add("shrink", as_float(n, x), lambd=float(n.attr("lambd", 0.5)), bias=float(n.attr("bias", 0.0)))
    return n.convert(out, x.shape.dtype)


@converts("ThresholdedRelu")
def thresholded_relu(n: Node, x: Instruction) -> Instruction:
    out = n.add("thresholded_relu", as_float(n, x), alpha=float(n.attr("alpha", 1.0)))
    return n.convert(out, x.shape.dtype)


@converts("Gelu")
def gelu(n: Node, x: Instruction) -> Instruction:
    approximate = n.attr("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise n.error(f"approximate must be none or tanh, got {approximate!r}")
    return n.add("gelu_tanh" if approximate == "tanh" else "gelu_erf", x)


@converts("SwiGLU")
def swiglu(n: Node, a: Instruction, b: Instruction) -> Instruction:
    out = n.add("mul", n.add("swish", widened(n, a), alpha=float(n.attr("alpha", 1.0))), widened(n, b))
    return n.convert(out, a.shape.dtype)


@converts("Dropout")
def dropout(
    n: Node, x: Instruction, ratio: Instruction | None = None, training: Instruction | None = None
) -> tuple[Instruction, ...]:
    """Returns the identity unless `training` is given (opset 12); older opsets are treated as inference."""
    mode = n.constant(training)
    if training is None or (mode is not None and not mode.reshape(-1)[0]):
        if not n.output_used(1):
            return (x,)
        return x, n.full_like(n.convert(x, x.shape.dtype if n.version < 10 else dt.bool_), 1)
    made = n.add("dropout", x, n.literal(0.5) if ratio is None else ratio, training, seed=n.attr("seed", None))
    return n.items(made)


# com.microsoft operators


@converts("Gelu", domain="com.microsoft")
def contributed_gelu(n: Node, x: Instruction) -> Instruction:
    return n.add("gelu_erf", x)


@converts("QuickGelu", domain="com.microsoft")
def quick_gelu(n: Node, x: Instruction) -> Instruction:
    return n.add("quick_gelu", x, alpha=float(n.attr("alpha", 1.702)))


def _biased(name: str) -> Converter:
    def convert(n: Node, x: Instruction, bias: Instruction | None = None) -> Instruction:
        if bias is None:
            return n.add(name, x)
        if bias.shape.rank != 1:
            raise n.error(f"the bias must be a vector, got {bias.shape}")
        return n.convert(n.add(name, n.pointwise("add", widened(n, x), widened(n, bias))), x.shape.dtype)

    return convert


converts("BiasGelu", domain="com.microsoft")(_biased("gelu_erf"))
converts("FastGelu", domain="com.microsoft")(_biased("gelu_tanh"))


@converts("BiasSplitGelu", domain="com.microsoft")
def bias_split_gelu(n: Node, x: Instruction, bias: Instruction) -> Instruction:
    """Returns the first half of the last axis times gelu of the second."""
    total = n.pointwise("add", widened(n, x), widened(n, bias))
    last = total.shape.rank - 1
    width: Dim = total.shape.dims[last]
    if isinstance(width, int) and width % 2:
        raise n.error(f"the last extent must be even, got {width}")
    half = width // 2
    left = n.slice(total, [last], [0], [half])
    right = n.slice(total, [last], [half], [width])
    return n.convert(n.add("mul", left, n.add("gelu_erf", right)), x.shape.dtype)
