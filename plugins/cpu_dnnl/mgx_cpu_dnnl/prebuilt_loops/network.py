"""Builder of small sample networks, with the instructions that frontends produce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mgx_core as mgx

__all__ = ["ACTIVATIONS", "Network", "Value"]

Value = mgx.Instruction


class Network:
    """A program under construction; operands are broadcast to common extents."""

    def __init__(self) -> None:
        self.program = mgx.Program()
        self.module = self.program.get_main_module()
        self._numbers = np.random.default_rng(0)
        self._inputs = 0

    def input(self, *lens: int, type: str = "float") -> Value:
        self._inputs += 1
        return self.module.add_parameter(f"x{self._inputs}", mgx.Shape(mgx.dtype.of(type), lens))

    def weights(self, *lens: int) -> Value:
        """Returns constants that no rule simplifies."""
        return self.module.add_literal(self._numbers.standard_normal(lens).astype(np.float32))

    def number(self, value: float) -> Value:
        return self.module.add_literal(np.asarray(value, np.float32))

    def add(self, name: str, *operands: Value, **attributes: Any) -> Value:
        """Adds an op without broadcasting its operands."""
        return self.module.add(mgx.op(name, **attributes), *operands)

    def each(self, name: str, *operands: Value | float, **attributes: Any) -> Value:
        """Adds a pointwise op; operands are broadcast and may be numbers."""
        values = [x if isinstance(x, Value) else self.number(x) for x in operands]
        lens = list(np.broadcast_shapes(*(v.shape.lens() for v in values)))
        return self.add(name, *(self.spread(v, lens) for v in values), **attributes)

    def spread(self, value: Value, lens: Sequence[int]) -> Value:
        if value.shape.lens() == list(lens):
            return value
        return self.add("multibroadcast", value, out_lens=tuple(lens))

    def reshape(self, value: Value, *dims: int) -> Value:
        return self.add("reshape", value, dims=dims)

    def transpose(self, value: Value, *permutation: int) -> Value:
        return self.add("transpose", value, permutation=permutation)

    def linear(self, x: Value, columns: int, bias: bool = True) -> Value:
        """Returns x [.., k] times constant weights."""
        lens = x.shape.lens()
        weights = self.spread(self.weights(lens[-1], columns), [*lens[:-2], lens[-1], columns])
        made = self.add("dot", x, weights)
        return self.each("add", made, self.weights(columns)) if bias else made

    def convolution(self, x: Value, channels: int, window: int = 1, stride: int = 1, group: int = 1) -> Value:
        """Returns a convolution with a bias of images [b, c, h, w], padded so that a stride of 1 keeps their extents."""
        weights = self.weights(channels, x.shape.lens()[1] // group, window, window)
        made = self.add(
            "convolution", x, weights, padding=(window // 2,) * 4, stride=(stride,) * 2, dilation=(1, 1), group=group
        )
        return self.each("add", made, self.weights(channels, 1, 1))

    def coded(self, name: str, x: Value, scale: float, zero: int, type: str = "uint8") -> Value:
        """Returns x after the op quantizelinear or dequantizelinear; type: of the codes."""
        numbers = (np.asarray(scale, np.float32), np.asarray(zero, type))
        return self.add(name, x, *(self.spread(self.module.add_literal(v), x.shape.lens()) for v in numbers))

    def layer_norm(self, x: Value, epsilon: float = 1e-5) -> Value:
        n = x.shape.lens()[-1]
        return self.add("layernorm", x, self.weights(n), self.weights(n), epsilon=epsilon)

    def rms_norm(self, x: Value, epsilon: float = 1e-6) -> Value:
        return self.add("rmsnorm", x, self.weights(x.shape.lens()[-1]), epsilon=epsilon)

    def normalized(self, x: Value, epsilon: float = 1e-5) -> Value:
        """Normalizes rows to mean 0 and variance 1 without scale and shift, as group norms do."""
        middle = self.each("sub", x, self._mean(x))
        return self.each(
            "div", middle, self.each("sqrt", self.each("add", self._mean(self.each("mul", middle, middle)), epsilon))
        )

    def _mean(self, x: Value) -> Value:
        return self.add("reduce_mean", x, axes=(x.shape.rank - 1,))

    def finished(self, *results: Value) -> mgx.Program:
        self.module.add_return(results)
        return self.program


def _sigmoid_linear(n: Network, x: Value) -> Value:
    return n.each("mul", x, n.each("sigmoid", x))


# Activations after products, convolutions and sums.
ACTIVATIONS: dict[str, Callable[[Network, Value], Value]] = {
    "none": lambda n, x: x,
    "relu": lambda n, x: n.each("relu", x),
    "relu6": lambda n, x: n.each("clip", x, 0.0, 6.0),
    "leaky": lambda n, x: n.each("leaky_relu", x, alpha=0.1),
    "leaky 0.2": lambda n, x: n.each("leaky_relu", x, alpha=0.2),
    "leaky 0.01": lambda n, x: n.each("leaky_relu", x, alpha=0.01),
    "sigmoid": lambda n, x: n.each("sigmoid", x),
    "silu": _sigmoid_linear,
    "tanh": lambda n, x: n.each("tanh", x),
    "gelu": lambda n, x: n.each("gelu_erf", x),
    "gelu tanh": lambda n, x: n.each("gelu_tanh", x),
    "gelu quick": lambda n, x: n.each("mul", x, n.each("sigmoid", n.each("mul", x, 1.702))),
    "hard swish": lambda n, x: n.each("hard_swish", x),
    "hard sigmoid": lambda n, x: n.each("hard_sigmoid", x),
    "hard sigmoid 1/6": lambda n, x: n.each("hard_sigmoid", x, alpha=1 / 6),
    "mish": lambda n, x: n.each("mish", x),
    "elu": lambda n, x: n.each("elu", x),
    "softplus": lambda n, x: n.each("softplus", x),
}
