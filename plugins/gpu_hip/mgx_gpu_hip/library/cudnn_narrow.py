"""Low-precision products and convolutions (int8, fp8) by cuDNN's fusion engines, with pointwise epilogues."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from mgx_core import dtype
from mgx_core.types.dtype import DType

from ..approximate_gelu import ERF, SATURATED
from .convolution import channels_last
from .cudnn_graph import Convolve, Graph, MatMul, Tensor, packed
from .epilogue import Activation

__all__ = ["NarrowProblem", "Operand", "Source", "Step", "gelu_by_tanh", "narrow_graph"]

Step: TypeAlias = "tuple[str, Source, Source | None]"  # mode of a pointwise node, or kind of activation
Source: TypeAlias = "int | float | str"  # an earlier step (-1: the sums), a scalar, an operand by name


@dataclass(frozen=True)
class Operand:
    """A tensor that a step reads; it is broadcast to the sums."""

    name: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class NarrowProblem:
    """y = steps(sums of x and w); the last step writes y, rounded and saturated; without steps y are the sums.

    x [1, m, k] and w [1, k, n] with k innermost; or, with a window, x [n, c, ..] and w [o, c, ..], channels last.
    """

    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    types: tuple[DType, DType, DType]  # of x, w, y
    steps: tuple[Step, ...]
    operands: tuple[Operand, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    pads: tuple[tuple[int, int], ...] = ()

    @property
    def dtype(self) -> DType:
        return self.types[0]

    @property
    def is_window(self) -> bool:
        return bool(self.stride)

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.y) * (math.prod(self.w[1:]) if self.is_window else self.x[-1])

    @property
    def numbers(self) -> list[float]:
        """The scalars of the steps, in the order of the graph's values."""
        return [s for _, *sources in self.steps for s in sources if isinstance(s, float)]

    def numberless(self) -> NarrowProblem:
        """Returns the problem with other scalars: those of layers differ, and plans take them at launch."""
        return replace(self, steps=tuple((mode, _slot(left), _slot(right)) for mode, left, right in self.steps))

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each tensor in memory, by launch parameter."""
        given = zip("xwy", (self.x, self.w, self.y), self.types, strict=True)
        own = {word: math.prod(dims) * of.size for word, dims, of in given}
        return own | {o.name: math.prod(o.dims) * o.dtype.size for o in self.operands}

    def __str__(self) -> str:
        def joined(dims: tuple[int, ...]) -> str:
            return "x".join(map(str, dims))

        return f"{joined(self.x)} {joined(self.w)} {self.types[0].name}+{len(self.steps)}"


def _slot(source: Any) -> Any:
    return 1.0 if isinstance(source, float) else source


def gelu_by_tanh(x: Source, first: int) -> list[Step]:
    """Returns the steps of GELU, numbered from `first`, approximated by tanh with an error of 2.5e-5.

    For 8-bit results: cuDNN's erf takes 20 us of a product of 4096 x 768 x 3072 bytes on an H200, this 8.
    """
    square, a, b, c = first + 1, *ERF
    return [
        ("mul", x, x),
        ("min", first, SATURATED),
        ("mul", square, c),
        ("add", first + 2, b),
        ("mul", first + 3, square),
        ("add", first + 4, a),
        ("mul", first + 5, x),
        ("tanh", first + 6, None),
        ("mul", x, 0.5),
        ("mul", first + 8, first + 7),
        ("add", first + 9, first + 8),
    ]


def narrow_graph(p: NarrowProblem) -> Graph:
    """Returns the operation graph: the product and a pointwise node per step."""
    graph = Graph()

    def laid(dims: tuple[int, ...]) -> tuple[int, ...]:
        return channels_last(dims, 0) if p.is_window else packed(dims)

    x = graph.operand("x", p.x, laid(p.x), p.types[0])
    w = graph.operand("w", p.w, laid(p.w) if p.is_window else (p.w[1] * p.w[2], 1, p.w[1]), p.types[1])
    y = graph.operand("y", p.y, laid(p.y), p.types[2])
    whole = p.types[0].is_integer
    compute = dtype.int32 if whole else dtype.float32
    sums = graph.tensor(p.y, laid(p.y), compute, virtual=True) if p.steps else y
    if p.is_window:
        graph.nodes.append(Convolve(x, w, sums, p.stride, p.dilation, p.pads, compute))
    else:
        graph.nodes.append(MatMul(x, w, sums, compute))
    tensors = {o.name: graph.operand(o.name, o.dims, o.strides, o.dtype) for o in p.operands}
    made: dict[int, Tensor] = {-1: sums}

    def source(of: Source | None) -> Tensor | None:
        if of is None:
            return None
        if isinstance(of, str):
            return tensors[of]
        return made[of] if isinstance(of, int) else graph.number(of, dtype.float32, len(p.y))

    for n, (mode, left, right) in enumerate(p.steps):
        out = y if n == len(p.steps) - 1 else graph.tensor(p.y, laid(p.y), dtype.float32, virtual=True)
        first = source(left)
        assert first is not None
        if right is None and mode != "identity":
            made[n] = graph.pointwise(mode, first, y=out, activation=Activation(mode))
        else:
            made[n] = graph.pointwise(mode, first, source(right), y=out)
    return graph
