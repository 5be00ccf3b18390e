"""Optimizer steps: update weights and statistics from gradients.

Several tensors are optimized at once. Inputs are all weights, all gradients, then all of each statistic; outputs are all new
weights, then all of each new statistic.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.elementwise import same_dims
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.shape import Shape, TupleShape

__all__ = ["Optimizer"]


class Optimizer(Operation):
    """Base of optimizers; groups inputs, `group` per tensor."""

    __slots__ = ()

    group: ClassVar[int] = 0

    def infer(self, r: Shape, t: Shape, *inputs: Shape) -> TupleShape:
        if r.dtype not in (dt.float32, dt.float64) or t.dtype is not dt.int64:
            raise ShapeError(
                f"the learning rate must be float32 or float64 and the count int64, got {r.dtype} and {t.dtype}"
            )
        count, rest = divmod(len(inputs), self.group)
        if rest or not count:
            raise ShapeError(f"inputs after the count must come in groups of {self.group}, got {len(inputs)}")
        for i, x in enumerate(inputs):
            weight = inputs[i % count]
            if x.dtype not in (dt.float32, dt.float64):
                raise ShapeError(f"optimized tensors must be float32 or float64, got {x.dtype}")
            if x.dtype is not weight.dtype or not same_dims(x.dims, weight.dims):
                raise ShapeError(f"gradient and statistics must have their tensor's type {weight}, got {x}")
        return TupleShape([*inputs[:count], *inputs[2 * count :]])

    def compute(self, r: Array, t: Array, *inputs: Array) -> tuple[Array, ...]:
        count = len(inputs) // self.group
        steps = [self.step(float(r.reshape(-1)[0]), int(t.reshape(-1)[0]), *inputs[i::count]) for i in range(count)]
        columns = zip(*steps, strict=True)
        return tuple(n.astype(x.dtype, copy=False) for column in columns for n, x in zip(column, inputs, strict=False))

    def step(self, r: float, t: int, *tensors: Array) -> tuple[Array, ...]:
        """Returns one tensor's new weights and statistics."""
        raise NotImplementedError


@op("adagrad")
class Adagrad(Optimizer):
    """Steps scaled by the root of the accumulated squared gradient.

    r: float scalar, t: int64 scalar, x.., g.., h.. -> new x.., new h...
    Errors: ShapeError for groups that do not match.  Source: ONNX training preview Adagrad-1.
    """

    group: ClassVar[int] = 3
    decay_factor: float = 0.0
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0

    def step(self, r: float, t: int, *tensors: Array) -> tuple[Array, ...]:
        x, g, h = tensors
        g = self.norm_coefficient * x + g
        h = h + g * g
        return x - r / (1 + t * self.decay_factor) * g / (np.sqrt(h) + self.epsilon), h


@op("adam")
class Adam(Optimizer):
    """Steps along the averaged gradient, scaled by the root of the averaged squared gradient.

    r: float scalar, t: int64 scalar, x.., g.., v.., h.. -> new x.., new v.., new h...
    Errors: ShapeError for groups that do not match.  Source: ONNX training preview Adam-1.
    """

    group: ClassVar[int] = 4
    alpha: float = 0.9
    beta: float = 0.999
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0

    def step(self, r: float, t: int, *tensors: Array) -> tuple[Array, ...]:
        x, g, v, h = tensors
        g = self.norm_coefficient * x + g
        v = self.alpha * v + (1 - self.alpha) * g
        h = self.beta * h + (1 - self.beta) * g * g
        if t > 0:
            r = r * float(np.sqrt(1 - self.beta**t)) / (1 - self.alpha**t)
        return (1 - self.norm_coefficient_post) * (x - r * v / (np.sqrt(h) + self.epsilon)), v, h


@op("momentum")
class Momentum(Optimizer):
    """Steps along the accumulated gradient.

    r: float scalar, t: int64 scalar, x.., g.., v.. -> new x.., new v...
    Errors: ShapeError for groups that do not match.  Source: ONNX training preview Momentum-1.
    """

    group: ClassVar[int] = 3
    alpha: float
    beta: float
    mode: Literal["standard", "nesterov"]
    norm_coefficient: float

    def step(self, r: float, t: int, *tensors: Array) -> tuple[Array, ...]:
        x, g, v = tensors
        g = self.norm_coefficient * x + g
        v = self.alpha * v + (self.beta if t > 0 else 1.0) * g
        return x - r * (g + self.alpha * v if self.mode == "nesterov" else v), v
