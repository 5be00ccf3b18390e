"""Layer, RMS, group and instance normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import Dim, may_equal, product
from ..types.dtype import DType, float32, of
from ..types.shape import Shape
from .axes import normalize
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .convert import Convert
from .declaration import op
from .operation import Operation
from .pointwise import Add, Mul, Rsqrt, Sub
from .reduce import ReduceMean
from .reshape import Reshape
from .scalar import convert, widen

__all__ = ["NORMS", "GroupNorm", "InstanceNorm", "LayerNorm", "Parts", "RmsNorm"]


def floats(x: Shape, least: int, *factors: Shape | None) -> None:
    """Errors: ShapeError unless x is float of rank `least` or more and the factors are floats."""
    if not x.dtype.is_float or x.rank < least:
        raise ShapeError(f"x must be of a float type and of rank {least} or more, got {x}")
    for f in factors:
        if f is not None and not f.dtype.is_float:
            raise ShapeError(f"scale and bias must be of a float type, got {f}")


def normalized(x: Array, axes: tuple[int, ...], epsilon: float, center: bool = True) -> Array:
    """Returns x divided by its root mean square along some axes, after subtracting the mean if `center`."""
    if center:
        x = x - x.mean(axes, keepdims=True)
    power = np.mean(np.square(x), axes, keepdims=True)
    return np.asarray(x / np.sqrt(power + power.dtype.type(epsilon)))


class Trailing(Operation):
    """Shared part of layernorm and rmsnorm: axes from `axis` on, a scale and a bias that broadcast to them."""

    __slots__ = ()

    axis: int
    epsilon: float

    def fit(self, x: Shape, factors: Sequence[Shape | None]) -> Shape:
        floats(x, 1, *factors)
        count = x.rank - normalize(self.axis, x.rank)
        for f in factors:
            if f is None:
                continue
            if f.rank > x.rank:
                raise ShapeError(f"scale and bias must broadcast to x {x}, got {f}")
            for d, wanted in zip(reversed(f.dims), reversed(x.dims), strict=False):
                if not may_equal(d, 1) and not may_equal(d, wanted):
                    raise ShapeError(f"scale and bias must broadcast to the last {count} axes of x {x}, got {f}")
        return x.as_standard()

    def reduced_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(normalize(self.axis, rank), rank))

    def run(self, x: Array, center: bool, scale: Array | None, bias: Array | None) -> Array:
        if x.size == 0:
            return x.copy()
        wide = widen(x)
        out = normalized(wide, self.reduced_axes(x.ndim), self.epsilon, center)
        if scale is not None:
            out = out * widen(scale).astype(out.dtype, copy=False)
        if bias is not None:
            out = out + widen(bias).astype(out.dtype, copy=False)
        return convert(out, of(x.dtype))


@op("layernorm")
class LayerNorm(Trailing):
    """Normalizes to mean 0 and variance 1 over the axes from `axis` on, then scales and shifts.

    x: float [.., *d], scale and bias that broadcast to it -> x's shape.  Errors: ShapeError if they do not fit.
    Source: ONNX LayerNormalization-17.
    """

    axis: int = -1
    epsilon: float = 1e-5

    def infer(self, x: Shape, scale: Shape | None = None, bias: Shape | None = None) -> Shape:
        return self.fit(x, (scale, bias))

    def compute(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        return self.run(x, True, scale, bias)

    def decompose(self, b: Builder, x: Operand, scale: Operand | None = None, bias: Operand | None = None) -> Operand:
        parts = Parts(b, x)
        axes = self.reduced_axes(x.shape.rank)
        return parts.finish(parts.normalized(parts.wide(x), axes, self.epsilon, True), scale, bias)


@op("rmsnorm")
class RmsNorm(Trailing):
    """Normalizes to root mean square 1 over the axes from `axis` on, then scales.

    x: float [.., *d], scale that broadcasts to it -> x's shape.  Errors: ShapeError if they do not fit.
    Source: ONNX RMSNormalization-23.
    """

    axis: int = -1
    epsilon: float = 1e-5

    def infer(self, x: Shape, scale: Shape | None = None) -> Shape:
        return self.fit(x, (scale,))

    def compute(self, x: Array, scale: Array | None = None) -> Array:
        return self.run(x, False, scale, None)

    def decompose(self, b: Builder, x: Operand, scale: Operand | None = None) -> Operand:
        parts = Parts(b, x)
        axes = self.reduced_axes(x.shape.rank)
        return parts.finish(parts.normalized(parts.wide(x), axes, self.epsilon, False), scale, None)


def per_channel(x: Shape, factors: Sequence[Shape | None]) -> None:
    """Errors: ShapeError unless x is float [n, c, ..] and the factors [c]."""
    floats(x, 2, *factors)
    for f in factors:
        if f is not None and (f.rank != 1 or not may_equal(f.dims[0], x.dims[1])):
            raise ShapeError(f"scale and bias must have dims [{x.dims[1]}], got {f}")


def scaled(x: Array, scale: Array | None, bias: Array | None) -> Array:
    """Scales and shifts each channel of x [n, c, ..]."""
    lead = (-1, *(1,) * (x.ndim - 2))
    if scale is not None:
        x = x * widen(scale).astype(x.dtype, copy=False).reshape(lead)
    return x if bias is None else x + widen(bias).astype(x.dtype, copy=False).reshape(lead)


@op("groupnorm")
class GroupNorm(Operation):
    """Normalizes each group of channels of each image to mean 0 and variance 1, then scales and shifts each channel.

    x: float [n, c, ..], scale and bias [c] -> x's shape.  Errors: ShapeError if c does not divide into `num_groups`.
    Source: ONNX GroupNormalization-21.
    """

    num_groups: int
    epsilon: float = 1e-5

    def check(self) -> None:
        if self.num_groups < 1:
            raise ParameterError(f"num_groups must be at least 1, got {self.num_groups}")

    def infer(self, x: Shape, scale: Shape | None = None, bias: Shape | None = None) -> Shape:
        per_channel(x, (scale, bias))
        if isinstance(x.dims[1], int) and x.dims[1] % self.num_groups:
            raise ShapeError(f"{x.dims[1]} channels do not divide into {self.num_groups} groups")
        return x.as_standard()

    def compute(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        if x.size == 0:
            return x.copy()
        groups = widen(x).reshape(x.shape[0], self.num_groups, -1)
        return convert(scaled(normalized(groups, (2,), self.epsilon).reshape(x.shape), scale, bias), of(x.dtype))

    def decompose(self, b: Builder, x: Operand, scale: Operand | None = None, bias: Operand | None = None) -> Operand:
        parts = Parts(b, x)
        dims = x.shape.dims
        if self.num_groups == 1:  # in place, so that no layout of x needs a copy
            out = parts.normalized(parts.wide(x), tuple(range(1, len(dims))), self.epsilon, True)
        else:
            inner = [dims[1] // self.num_groups, *dims[2:]]
            groups = parts.reshape(parts.wide(x), [dims[0], self.num_groups, product(inner)])
            out = parts.reshape(parts.normalized(groups, (2,), self.epsilon, True), dims)
        return parts.finish(out, parts.channels(scale), parts.channels(bias))


@op("instancenorm")
class InstanceNorm(Operation):
    """Normalizes each channel of each image to mean 0 and variance 1, then scales and shifts it.

    x: float [n, c, *s], scale and bias [c] -> x's shape.  Errors: ShapeError if they do not fit.
    Source: ONNX InstanceNormalization-22.
    """

    epsilon: float = 1e-5

    def infer(self, x: Shape, scale: Shape | None = None, bias: Shape | None = None) -> Shape:
        per_channel(x, (scale, bias))
        return x.as_standard()

    def compute(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        if x.size == 0:
            return x.copy()
        axes = tuple(range(2, x.ndim))
        return convert(scaled(normalized(widen(x), axes, self.epsilon), scale, bias), of(x.dtype))

    def decompose(self, b: Builder, x: Operand, scale: Operand | None = None, bias: Operand | None = None) -> Operand:
        parts = Parts(b, x)
        out = parts.normalized(parts.wide(x), tuple(range(2, x.shape.rank)), self.epsilon, True)
        return parts.finish(out, parts.channels(scale), parts.channels(bias))


# decompositions into reductions and pointwise ops, which fuse with the surrounding ops
NORMS: Final = frozenset({LayerNorm, RmsNorm, GroupNorm, InstanceNorm})


class Parts:
    """Building blocks of the decompositions; computed in float32 if x is narrower."""

    def __init__(self, b: Builder, x: Operand) -> None:
        self.b = b
        self.dims = x.shape.dims
        self.dtype = x.shape.dtype
        self.computed: DType = float32 if x.shape.dtype.bits < 32 else x.shape.dtype

    def wide(self, x: Operand) -> Operand:
        return x if x.shape.dtype is self.computed else self.b.add(Convert(target_type=self.computed), x)

    def reshape(self, x: Operand, dims: Sequence[Dim]) -> Operand:
        return self.b.add(Reshape(dims=tuple(dims)), x)

    def spread(self, x: Operand, dims: Sequence[Dim]) -> Operand:
        return x if list(x.shape.dims) == list(dims) else self.b.add(Multibroadcast(out_lens=tuple(dims)), x)

    def normalized(self, x: Operand, axes: tuple[int, ...], epsilon: float, center: bool) -> Operand:
        dims = x.shape.dims
        if center:
            x = self.b.add(Sub(), x, self.spread(self.b.add(ReduceMean(axes=axes), x), dims))
        power = self.b.add(ReduceMean(axes=axes), self.b.add(Mul(), x, x))
        least = self.spread(self.b.literal(np.asarray(epsilon, self.computed.numpy)), power.shape.dims)
        return self.b.add(Mul(), x, self.spread(self.b.add(Rsqrt(), self.b.add(Add(), power, least)), dims))

    def channels(self, factor: Operand | None) -> Operand | None:
        """Returns a factor [c] as [c, 1, ..], with x's c: a factor with one element must be refused, not broadcast."""
        return factor if factor is None else self.reshape(factor, [self.dims[1], *(1,) * (len(self.dims) - 2)])

    def finish(self, x: Operand, scale: Operand | None, bias: Operand | None) -> Operand:
        if scale is not None:
            x = self.b.add(Mul(), x, self.spread(self.wide(scale), self.dims))
        if bias is not None:
            x = self.b.add(Add(), x, self.spread(self.wide(bias), self.dims))
        return x if self.dtype is self.computed else self.b.add(Convert(target_type=self.dtype), x)
