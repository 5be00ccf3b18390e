"""Pseudo-random tensors: a seed as a value, and deterministic functions of it."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dtype import DType
from ..types.shape import Shape
from .declaration import op
from .extents import scalar_operand
from .operation import Operation
from .scalar import convert, widen

__all__ = ["Multinomial", "RandomNormal", "RandomSeed", "RandomUniform"]


@op("random_seed", random=True)
class RandomSeed(Operation):
    """A seed that differs from run to run.

    -> dtype [1].  Errors: ParameterError unless dtype is an integer type.  Source: MIGraphX random_seed.
    """

    dtype: DType = dt.uint64

    def check(self) -> None:
        if not self.dtype.is_integer:
            raise ParameterError(f"{self.name}: dtype must be an integer type, got {self.dtype}")

    def infer(self) -> Shape:
        return Shape.of(self.dtype, (1,))

    def compute(self) -> Array:
        import secrets  # imports libraries that only this op needs

        return np.array([secrets.randbits(self.dtype.bits - 1)]).astype(self.dtype.numpy)


def _generator(seed: Array) -> np.random.Generator:
    value = widen(seed).reshape(-1)[0]
    bits = np.asarray(value).tobytes() if value.dtype.kind == "f" else int(value).to_bytes(16, "little", signed=True)
    return np.random.Generator(np.random.PCG64(int.from_bytes(bits, "little")))


@op("random_uniform")
class RandomUniform(Operation):
    """Uniform random numbers in [0, 1); for integer types, over all non-negative values.

    seed: number, one element; like: number [..], of which only type and extents are used -> like's shape.
    Errors: ShapeError for other types.  Source: MIGraphX random_uniform.
    """

    def infer(self, seed: Shape, like: Shape) -> Shape:
        if not scalar_operand(seed, "seed").dtype.is_number or not like.dtype.is_number:
            raise ShapeError(f"seed and like must be numbers, got {seed} and {like}")
        return like.as_standard()

    def compute(self, seed: Array, like: Array) -> Array:
        dtype, random = dt.of(like.dtype), _generator(seed)
        if dtype.is_integer:
            return random.integers(0, dtype.highest, like.shape, np.uint64, endpoint=True).astype(dtype.numpy)
        out = random.random(like.shape)
        if dtype.bits < 64:  # rounding up to 1 is not allowed
            out = np.floor(out / dtype.epsilon) * dtype.epsilon
        return convert(np.asarray(out), dtype)


@op("random_normal")
class RandomNormal(Operation):
    """Random numbers of the standard normal distribution.

    seed: number, one element; like: float [..], of which only type and extents are used -> like's shape.
    Errors: ShapeError for other types.  Source: ONNX RandomNormal-22.
    """

    def infer(self, seed: Shape, like: Shape) -> Shape:
        if not scalar_operand(seed, "seed").dtype.is_number or not like.dtype.is_float:
            raise ShapeError(f"seed must be a number and like of a float type, got {seed} and {like}")
        return like.as_standard()

    def compute(self, seed: Array, like: Array) -> Array:
        return convert(np.asarray(_generator(seed).standard_normal(like.shape)), dt.of(like.dtype))


@op("multinomial")
class Multinomial(Operation):
    """Samples categories: for each draw, the first category whose normalized running total exceeds it.

    totals: float [b, categories], running sums of weights; draws: float [.., samples] in 0..1, one row, or one per batch
    entry -> dtype [b, samples].  Errors: ShapeError for other ranks.  Source: MIGraphX multinomial.
    """

    dtype: DType = dt.int32

    def infer(self, totals: Shape, draws: Shape) -> Shape:
        if totals.rank != 2 or draws.rank < 1 or not (totals.dtype.is_float and draws.dtype.is_float):
            raise ShapeError(f"totals must be a float matrix and draws floats, got {totals} and {draws}")
        return Shape.of(self.dtype, (totals.dims[0], draws.dims[-1]))

    def compute(self, totals: Array, draws: Array) -> Array:
        batch, categories = totals.shape
        if not categories and batch:
            raise ShapeError("at least one category is required")
        wide = widen(totals)
        lines = math.prod(draws.shape[:-1])
        rows = np.broadcast_to(widen(draws).reshape(lines, draws.shape[-1]), (batch, draws.shape[-1]))
        out = np.empty(rows.shape, self.dtype.numpy)
        for b in range(batch):
            at = np.searchsorted(wide[b], rows[b] * wide[b, -1], side="right")
            out[b] = np.minimum(at, categories - 1)
        return out
