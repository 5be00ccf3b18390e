"""The spread of results under random rounding errors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from mgx_core import Operation, Pointwise, dtype, scalar
from mgx_core.errors import MgxError
from mgx_core.types.argument import shape_of

from .primitive_errors import SAFETY, cost, ulps
from .rounding import deviation, rounding, unit, widened

__all__ = ["internal_spread", "spread"]

SAMPLES: Final = 4


def spread(
    op: Operation, xs: Sequence[Any], outs: Sequence[Any], rng: np.random.Generator, steering: Collection[int]
) -> list[Any]:
    """Returns the largest deviation of each result under random rounding errors; None if none could be sampled."""
    if op.linear:
        return [None] * len(outs)

    def draw(source: np.random.Generator | None) -> list[Any] | None:
        return (
            _pointwise_sample(op, xs, source) if isinstance(op, Pointwise) else _moved_sample(op, xs, source, steering)
        )

    base = draw(None)
    if base is None:
        return [None] * len(outs)
    spreads = [np.zeros(np.shape(b)) for b in base]
    for _ in range(SAMPLES):
        sample = draw(rng)
        for i, (b, s) in enumerate(zip(base, sample or base, strict=True)):
            spreads[i] = np.maximum(spreads[i], deviation(b, s)) if np.shape(b) == np.shape(s) else spreads[i] + np.inf
    return [s if np.shape(s) == np.shape(o) else None for s, o in zip(spreads, outs, strict=True)]


def internal_spread(op: Operation, xs: Sequence[Any], rng: np.random.Generator) -> Any:
    """Returns the spread of a scalar expression's results under internal rounding errors; None for other ops and single
    primitives.
    """
    if not isinstance(op, Pointwise) or ulps(op.__class__) == 0:
        return None
    base = _pointwise_sample(op, xs, None)
    if base is None:
        return None
    spread = np.zeros(np.shape(base[0]))
    for _ in range(2):
        sample = _pointwise_sample(op, xs, rng)
        assert sample is not None
        spread = np.maximum(spread, deviation(base[0], sample[0]))
    return np.where(np.isfinite(spread), SAFETY * spread, 0.0)


def _pointwise_sample(op: Operation, xs: Sequence[Any], rng: np.random.Generator | None) -> list[Any] | None:
    """Returns the scalar expression in float64, with each primitive's result perturbed by its error."""
    assert isinstance(op, Pointwise)
    floats = [dtype.of(x.dtype) for x in xs if isinstance(x, np.ndarray) and x.dtype != object]
    floats = [t for t in floats if t.kind in "fc"]
    if not floats or ulps(op.__class__) == 0:
        return None
    u = max(map(unit, floats))
    wide = [widened(x) for x in xs]
    like = next(w.dtype for w in wide if w.dtype.kind in "fc")

    def leaf(e: Any) -> Any:
        if isinstance(e, scalar.Input):
            return wide[e.index]
        value = e.value if isinstance(e, scalar.Const) else getattr(op, e.name)
        return value if isinstance(value, bool) else np.asarray(value).astype(like)

    def node(e: Any, args: list[Any]) -> Any:
        value = np.asarray(scalar.NUMPY[e.primitive](*args))
        weight = cost(e.primitive)
        if rng is None or not weight or value.dtype.kind not in "fc":
            return value
        return value * (1 + weight * u * rng.uniform(-1, 1, value.shape))

    def cast(e: Any, value: Any) -> Any:
        to = getattr(op, e.to) if isinstance(e.to, str) else e.to
        return widened(scalar.convert(np.asarray(value), to))

    with np.errstate(all="ignore"):
        return [np.asarray(scalar.fold(type(op).scalar, leaf, node, cast))]


def _moved_sample(
    op: Operation, xs: Sequence[Any], rng: np.random.Generator | None, steering: Collection[int]
) -> list[Any] | None:
    """Returns the op on inputs perturbed by one rounding unit, in float64 if the op accepts it."""
    arrays = [x for x in xs if isinstance(x, np.ndarray) and x.dtype != object and dtype.of(x.dtype).kind in "fc"]
    if not arrays or op.takes_modules:
        return None
    u = max(unit(dtype.of(x.dtype)) for x in arrays)
    for wide in (True, False):
        moved = [_moved(x, u, None if i in steering else rng, wide and i not in steering) for i, x in enumerate(xs)]
        try:
            op.result([None if x is None else shape_of(x) for x in moved])
            with np.errstate(all="ignore"):
                value = op.evaluate(moved)
        except MgxError:
            continue
        return list(value) if isinstance(value, tuple) else [value]
    return None


def _moved(x: Any, u: float, rng: np.random.Generator | None, wide: bool) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype == object or dtype.of(x.dtype).kind not in "fc":
        return x
    y = widened(x)
    if not wide:
        u = max(u, rounding(dtype.of(x.dtype)))
    if rng is not None:
        with np.errstate(all="ignore"):
            y = y * (1 + u * rng.uniform(-1, 1, y.shape))
    return y if wide else y.astype(x.dtype)
