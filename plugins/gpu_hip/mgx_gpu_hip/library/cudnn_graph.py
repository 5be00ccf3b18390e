"""Operation graphs of cuDNN's backend API as plain data, before descriptors are created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mgx_core import dtype
from mgx_core.types.dtype import DType

from .epilogue import Activation

__all__ = ["Convolve", "Graph", "MatMul", "Node", "Pointwise", "Reduce", "Tensor", "packed"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the graph.

    id: unique in its graph; virtual: only passed between nodes, never in memory; value: of a scalar passed by value.
    """

    id: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    virtual: bool = False
    value: float | int | None = None
    align: int = 16


@dataclass(frozen=True, slots=True)
class Convolve:
    """y = cross-correlation of x and w; pads: before and after each image axis."""

    x: Tensor
    w: Tensor
    y: Tensor
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    compute: DType


@dataclass(frozen=True, slots=True)
class Pointwise:
    """y = mode(x, b, t); parameters by attribute name."""

    mode: str
    x: Tensor
    y: Tensor
    b: Tensor | None = None
    t: Tensor | None = None
    compute: DType = dtype.float32
    axis: int | None = None
    activation: Activation | None = None


@dataclass(frozen=True, slots=True)
class MatMul:
    """c = a b over the last two axes."""

    a: Tensor
    b: Tensor
    c: Tensor
    compute: DType


@dataclass(frozen=True, slots=True)
class Reduce:
    """y = mode of x along the axes where y has extent 1."""

    mode: str
    x: Tensor
    y: Tensor
    compute: DType


Node: TypeAlias = "Convolve | Pointwise | MatMul | Reduce"


def packed(dims: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides."""
    strides, step = [], 1
    for n in reversed(dims):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


@dataclass
class Graph:
    """Nodes in topological order; builder methods return the tensor a node computes.

    names: id of each operand or result in memory, by launch parameter.
    """

    nodes: list[Node] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    values: list[Tensor] = field(default_factory=list)
    compute: DType = dtype.float32
    count: int = 0

    def tensor(self, dims: Sequence[int], strides: Sequence[int], of: DType, **more: Any) -> Tensor:
        self.count += 1
        return Tensor(self.count, tuple(dims), tuple(strides), of, **more)

    def operand(self, name: str, dims: Sequence[int], strides: Sequence[int], of: DType, align: int = 16) -> Tensor:
        """Returns a tensor in memory, passed at launch under this name."""
        made = self.tensor(dims, strides, of, align=align)
        self.names[name] = made.id
        return made

    def number(self, value: float | int, of: DType, rank: int) -> Tensor:
        """Returns a scalar passed by value."""
        made = self.tensor((1,) * rank, (1,) * rank, of, value=value)
        self.values.append(made)
        return made

    def like(self, x: Tensor, of: DType | None = None) -> Tensor:
        """Returns a virtual tensor with the extents of x."""
        return self.tensor(x.dims, x.strides, of or self.compute, virtual=True)

    def pointwise(
        self,
        mode: str,
        x: Tensor,
        b: Tensor | None = None,
        t: Tensor | None = None,
        *,
        y: Tensor | None = None,
        **more: Any,
    ) -> Tensor:
        made = y if y is not None else self.like(x)
        self.nodes.append(Pointwise(mode, x, made, b, t, **({"compute": self.compute} | more)))
        return made

    def activate(self, activation: Activation, x: Tensor, y: Tensor | None = None) -> Tensor:
        if activation.kind == "relu" and activation.high is not None:
            # with an upper clip, the activation node selects an engine 5 to 200 times slower than two separate nodes
            x = self.pointwise("relu", x, activation=replace(activation, high=None))
            return self.pointwise("min", x, self.number(activation.high, self.compute, len(x.dims)), y=y)
        return self.pointwise(activation.kind, x, y=y, activation=activation)

    def reduce(self, mode: str, x: Tensor, axis: int) -> Tensor:
        dims = tuple(1 if i == axis % len(x.dims) else n for i, n in enumerate(x.dims))
        made = self.tensor(dims, packed(dims), self.compute, virtual=True)
        self.nodes.append(Reduce(mode, x, made, self.compute))
        return made

    def matmul(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        self.nodes.append(MatMul(a, b, c, self.compute))
        return c

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor once, in order of first use."""
        found: dict[int, Tensor] = {}
        for node in self.nodes:
            for name in node.__slots__:
                value = getattr(node, name)
                if isinstance(value, Tensor):
                    found.setdefault(value.id, value)
        return list(found.values())
