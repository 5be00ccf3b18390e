"""Random numbers of exported programs: new in each run, and not those of torch's generator.

Under ``torch.compile`` these operators run in torch, with its generator.
"""

from __future__ import annotations

from typing import Any

from mgx_core import DType, Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node, Scalar

__all__: list[str] = []


def drawn(n: Node, op: str, dtype: DType | None = None) -> Instruction:
    """Returns random numbers with the result's extents, and its type by default."""
    return n.add(op, n.add("random_seed"), n.filled(n.result_dims(), 0, dtype or n.dtype))


@converts("rand", "rand_like")
def rand(n: Node, *_: Any) -> Instruction:
    return drawn(n, "random_uniform")


@converts("randn", "randn_like")
def randn(n: Node, *_: Any) -> Instruction:
    return drawn(n, "random_normal")


@converts("uniform")
def uniform(n: Node, x: Instruction, low: Scalar = 0.0, high: Scalar = 1.0) -> Instruction:
    return between(n, low, high, n.dtype)


def between(n: Node, low: Scalar, high: Scalar, dtype: DType) -> Instruction:
    """Returns uniform random numbers in [low, high)."""
    unit, first, end = n.tensors([drawn(n, "random_uniform", dtype), low, high], dtype)
    return n.add("add", n.add("mul", unit, n.add("sub", end, first)), first)


@converts("randint.default", "randint.generator")
def randint(n: Node, high: Scalar, *_: Any) -> Instruction:
    return randint_from(n, 0, high)


@converts("randint.low", "randint.low_generator")
def randint_from(n: Node, low: Scalar, high: Scalar, *_: Any) -> Instruction:
    return n.convert(n.add("floor", between(n, low, high, dt.float64)), n.dtype)


@converts("randint_like.default")
def randint_like(n: Node, x: Instruction, high: Scalar) -> Instruction:
    return randint_from(n, 0, high)


@converts("randint_like.low_dtype")
def randint_like_from(n: Node, x: Instruction, low: Scalar, high: Scalar) -> Instruction:
    return randint_from(n, low, high)


@converts("randperm")
def randperm(n: Node, count: Any) -> Instruction:
    keys = drawn(n, "random_uniform", dt.float64)
    return n.convert(n.get(n.add("topk", keys, k=n.result_dims()[0], axis=0), 1), n.dtype)


@converts("normal")
def normal(n: Node, mean: Scalar, deviation: Scalar, *_: Any) -> Instruction:
    unit, center, spread = n.tensors([drawn(n, "random_normal"), mean, deviation], n.dtype)
    return n.add("add", n.add("mul", unit, spread), center)


@converts("normal_functional")
def normal_functional(n: Node, x: Instruction, mean: Scalar = 0.0, deviation: Scalar = 1.0) -> Instruction:
    return normal(n, mean, deviation)


@converts("exponential")
def exponential(n: Node, x: Instruction, rate: Scalar = 1.0) -> Instruction:
    unit, one, wide = n.tensors([drawn(n, "random_uniform"), 1, rate], n.dtype)
    return n.add("neg", n.add("div", n.add("log", n.add("sub", one, unit)), wide))


@converts("bernoulli.default")
def bernoulli(n: Node, probability: Instruction) -> Instruction:
    return n.convert(below(n, probability), n.dtype)


@converts("bernoulli.p", "bernoulli.Tensor")
def bernoulli_of(n: Node, x: Instruction, probability: Scalar) -> Instruction:
    return n.convert(below(n, probability), n.dtype)


def below(n: Node, probability: Scalar) -> Instruction:
    """Returns Bernoulli samples; the probability is a number or per element."""
    wide = dt.float64 if n.dtype is dt.float64 else dt.float32
    return n.add("less", *n.tensors([drawn(n, "random_uniform", wide), probability], wide))


@converts("native_dropout")
def native_dropout(n: Node, x: Instruction, p: float, train: bool | None) -> tuple[Instruction, Instruction]:
    """Returns dropout's result and mask; `train` is True by default, as in torch."""
    if train is False or p == 0:
        return x, n.filled(x.shape.dims, True, dt.bool_)
    kept = below(n, 1 - p)
    scaled = n.add("mul", x, n.full_like(x, 0 if p == 1 else 1 / (1 - p)))
    return n.add("where", kept, scaled, n.full_like(x, 0)), kept


@converts("multinomial")
def multinomial(n: Node, x: Instruction, count: int, replacement: bool = False) -> Instruction:
    """Samples categories by weight; without replacement those of greatest log(u) / weight (Efraimidis and Spirakis)."""
    weights = n.convert(x, dt.float64)
    axis = x.shape.rank - 1
    seed = n.add("random_seed")
    if not replacement:
        unit = n.add("random_uniform", seed, n.full_like(weights, 0))
        return n.get(n.add("topk", n.add("div", n.add("log", unit), weights), k=count, axis=axis), 1)
    rows = weights if axis else n.unsqueeze(weights, [0])
    draws = n.add("random_uniform", seed, n.filled((rows.shape.dims[0], count), 0, dt.float64))
    found = n.add("multinomial", n.add("prefix_scan_sum", rows, axis=1), draws, dtype=dt.int64)
    return found if axis else n.squeeze(found, [0])
