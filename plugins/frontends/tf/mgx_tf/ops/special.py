"""Special functions and random distributions that the standard set lacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from mgx_core import Shape, UnsupportedError
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array

from .bessel import FUNCTIONS, polygamma

__all__: list[str] = []


def _digamma(x: float) -> float:
    if x <= 0 and x == math.floor(x):
        return math.nan
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    inverse = 1 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return total + math.log(x) - 0.5 / x - series


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except ValueError:
        return math.inf


def _erfinv(x: float) -> float:
    if abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    found = NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2)
    for _ in range(2):
        found -= (math.erf(found) - x) / (2 / math.sqrt(math.pi) * math.exp(-found * found))
    return found


def _bessel(order: int, x: float, scaled: bool) -> float:
    if abs(x) > 700:  # leading terms of the asymptotic expansion
        mu = 4 * order * order
        z = abs(x)
        value = (1 - (mu - 1) / (8 * z) + (mu - 1) * (mu - 9) / (2 * (8 * z) ** 2)) / math.sqrt(2 * math.pi * z)
        value = value if scaled else math.inf
        return -value if order and x < 0 else value
    half, term, total, k = x / 2, (x / 2) ** order, 0.0, 0
    while True:
        total += term
        k += 1
        term *= half * half / (k * (k + order))
        if abs(term) <= 1e-17 * abs(total):
            break
    return total * math.exp(-abs(x)) if scaled else total


@cache
def _functions() -> dict[str, Callable[..., float]]:
    return {
        "lgamma": _lgamma,
        "digamma": _digamma,
        "erfinv": _erfinv,
        "besseli0": lambda x: _bessel(0, x, False),
        "besseli1": lambda x: _bessel(1, x, False),
        "besseli0e": lambda x: _bessel(0, x, True),
        "besseli1e": lambda x: _bessel(1, x, True),
        "nextafter": math.nextafter,
        "polygamma": lambda k, x: _digamma(x) if k == 0 else polygamma(k, x),
        **FUNCTIONS,
    }


@op("tf_special")
class Special(Operation):
    """A special function of each element, selected by `function`.

    xs: float, of equal shapes -> that shape.  Errors: UnsupportedError for an unknown function.
    Source: TensorFlow's operators of these names.
    """

    function: str

    def check(self) -> None:
        if self.function not in _functions():
            raise UnsupportedError(f"unknown special function {self.function!r}")

    def infer(self, *xs: Shape) -> Shape:
        if not xs or any(x.dtype is not xs[0].dtype or not x.dtype.is_float for x in xs):
            raise ShapeError(f"floats of one type are required, got {', '.join(map(str, xs))}")
        return xs[0].as_standard()

    def compute(self, *xs: Array) -> Array:
        kind = xs[0].dtype
        if self.function == "nextafter":
            return np.nextafter(*xs)
        made: Any = np.frompyfunc(self._value, len(xs), 1)(*(x.astype(np.float64) for x in xs))
        return np.asarray(made).astype(np.float64).astype(kind)

    def _value(self, *xs: float) -> float:
        """Returns the function of one element; NaN outside its domain."""
        try:
            return math.nan if any(map(math.isnan, xs)) else _functions()[self.function](*xs)
        except (ArithmeticError, ValueError):
            return math.nan


@op("tf_truncated_normal")
class TruncatedNormal(Operation):
    """Samples of the normal distribution, truncated to two standard deviations.

    seed: number, one element; like: float [..], which provides type and extents -> like's shape.
    Errors: none.  Source: TensorFlow TruncatedNormal.
    """

    def infer(self, seed: Shape, like: Shape) -> Shape:
        return like.as_standard()

    def compute(self, seed: Array, like: Array) -> Array:
        value = int(np.asarray(seed).reshape(-1)[0]) & ((1 << 64) - 1)
        random = np.random.Generator(np.random.PCG64(value))
        out = random.standard_normal(like.shape)
        while (far := np.abs(out) > 2).any():
            out = np.where(far, random.standard_normal(like.shape), out)
        return np.asarray(out).astype(like.dtype)


@op("tf_random_between", exact=True)
class RandomBetween(Operation):
    """Integers uniformly distributed over [low, high), or [low, high] if `closed`.

    seed: number, one element; low, high: integer, one element; like: integer [..], which provides type and extents
    -> like's shape.  Errors: ShapeError unless low < high.  Source: TensorFlow RandomUniformInt, StatelessRandomUniformFullInt.
    """

    closed: bool = False

    def infer(self, seed: Shape, low: Shape, high: Shape, like: Shape) -> Shape:
        if not like.dtype.is_integer or low.dtype is not like.dtype or high.dtype is not like.dtype:
            raise ShapeError(f"integers of one type are required, got {low}, {high} and {like}")
        return like.as_standard()

    def compute(self, seed: Array, low: Array, high: Array, like: Array) -> Array:
        value = int(np.asarray(seed).reshape(-1)[0]) & ((1 << 64) - 1)
        first, last = (int(np.asarray(v).reshape(-1)[0]) for v in (low, high))
        if first >= last + self.closed:
            raise ShapeError(f"the range must not be empty, got {first} to {last}")
        random = np.random.Generator(np.random.PCG64(value))
        return np.asarray(random.integers(first, last, like.shape, like.dtype, endpoint=self.closed))


@op("tf_gamma")
class Gamma(Operation):
    """Samples of gamma distributions of scale 1.

    seed: number, one element; shape: float [..] > 0, the shape parameter of each -> shape's extents.
    Errors: none.  Source: TensorFlow RandomGamma.
    """

    def infer(self, seed: Shape, shape: Shape) -> Shape:
        return shape.as_standard()

    def compute(self, seed: Array, shape: Array) -> Array:
        value = int(np.asarray(seed).reshape(-1)[0]) & ((1 << 64) - 1)
        random = np.random.Generator(np.random.PCG64(value))
        return random.standard_gamma(np.maximum(shape.astype(np.float64), 0)).astype(shape.dtype)
