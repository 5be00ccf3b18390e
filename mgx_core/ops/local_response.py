"""Local response normalization."""

from __future__ import annotations

import numpy as np

from ..errors import ParameterError
from ..types.argument import Array
from ..types.dim import product
from ..types.dtype import of
from ..types.shape import Shape
from .builder import Builder, Operand
from .declaration import op
from .norm import Parts, floats
from .operation import Operation
from .pointwise import Add, Mul, Pow
from .pooling import Pooling
from .scalar import convert, widen

__all__ = ["Lrn"]


@op("lrn")
class Lrn(Operation):
    """Divides x by a power of the mean square of neighboring channels.

    x: float [n, c, ..] -> the same shape; x / (bias + alpha / size * sum over `size` channels around of x**2)**beta.
    Errors: ShapeError for lower ranks, ParameterError for a size below 1.  Source: ONNX LRN-13.
    """

    alpha: float = 0.0001
    beta: float = 0.75
    bias: float = 1.0
    size: int = 1

    def check(self) -> None:
        if self.size < 1:
            raise ParameterError(f"size must be at least 1, got {self.size}")

    def infer(self, x: Shape) -> Shape:
        floats(x, 2)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        wide = widen(x)
        channels = x.shape[1]
        before, after = (self.size - 1) // 2, self.size // 2
        power = np.zeros((x.shape[0], channels + self.size - 1, *x.shape[2:]), wide.dtype)
        power[:, before : before + channels] = np.square(wide)
        total = power[:, :channels].copy()
        for i in range(1, before + after + 1):
            total += power[:, i : i + channels]
        kind = wide.dtype.type
        base = kind(self.bias) + kind(self.alpha / self.size) * total
        return convert(wide / base ** kind(self.beta), of(x.dtype))

    def decompose(self, b: Builder, x: Operand) -> Operand:
        parts = Parts(b, x)
        wide, dims = parts.wide(x), x.shape.dims
        image = parts.reshape(b.add(Mul(), wide, wide), (dims[0], 1, dims[1], product(dims[2:])))
        around = ((self.size - 1) // 2, 0, self.size // 2, 0)
        window = Pooling(mode="average", lengths=(self.size, 1), stride=(1, 1), padding=around, count_include_pad=True)
        mean = parts.reshape(b.add(window, image), dims)

        def number(value: float) -> Operand:
            return parts.spread(b.literal(np.asarray(value, parts.computed.numpy)), dims)

        base = b.add(Add(), b.add(Mul(), mean, number(self.alpha)), number(self.bias))
        return parts.finish(b.add(Mul(), wide, b.add(Pow(), base, number(-self.beta))), None, None)
