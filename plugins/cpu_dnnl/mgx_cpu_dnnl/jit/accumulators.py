"""Accumulators of reductions: identity, combination, and horizontal reduction of lanes."""

from __future__ import annotations

import math
from collections.abc import Callable

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

from .code import Code, V, constant
from .element import computed, elem_of
from .graph import Node
from .primitive import apply

__all__ = ["reduce_lanes", "combine", "identity", "to_accumulator"]


def to_accumulator(c: Code, value: V) -> V:
    """Returns an operand in its accumulator type: bool as bytes."""
    return c.cast("zext", value, "i8") if value.elem == "i1" else value


def identity(r: Node, n: int) -> V:
    """Returns the identity element of a reduction, in n lanes."""
    elem = "i8" if r.dtype is dt.bool_ else elem_of(r.dtype)
    dtype: DType = r.dtype
    match r.word:
        case "sum" | "total" | "mean":
            return constant(0, elem, n)
        case "prod":
            return constant(1, elem, n)
        case "max" | "top":
            return constant(-math.inf if dtype.is_float else dtype.lowest, elem, n)
    return constant(math.inf if dtype.is_float else dtype.highest, elem, n)


def combine(c: Code, r: Node, a: V, b: V) -> V:
    """Combines two accumulators."""
    dtype = dt.uint8 if r.dtype is dt.bool_ else computed(r.dtype)
    if r.word == "top":
        return c.select(c.compare("ogt", a, b), a, b)
    name = {"sum": "add", "total": "add", "mean": "add", "prod": "mul"}.get(r.word, r.word)
    return apply(c, name, dtype, [a, b])


def reduce_lanes(c: Code, r: Node, total: V) -> V:
    """Reduces the lanes of a vector to a scalar."""
    if r.word in ("max", "min") and total.elem in ("float", "double"):
        return _extreme_lane(c, r.word, total)
    return _halved(c, total, lambda low, high: combine(c, r, low, high))


def _extreme_lane(c: Code, name: str, total: V) -> V:
    """Returns the extreme of all lanes, NaN if any is NaN: tests all lanes once instead of at every halving."""
    how = "ogt" if name == "max" else "olt"
    best = _halved(c, total, lambda low, high: c.select(c.compare(how, low, high), low, high))
    if total.n < 2:
        return best
    missing = c.compare("uno", total, total)
    lanes = c.make(f"bitcast {missing.type} {missing.ref} to i{total.n}", f"i{total.n}", 0)
    return c.select(c.compare("ne", lanes, c.const(0, lanes)), c.const(math.nan, best), best)


def _halved(c: Code, total: V, join: Callable[[V, V], V]) -> V:
    """Reduces a vector to a scalar by repeatedly combining its upper and lower halves."""
    n = total.n
    while n > 1:
        half = n // 2
        low = c.shuffle(total, total, range(half))
        high = c.shuffle(total, total, range(half, n))
        total = join(low, high)
        n = half
    return c.make(f"extractelement {total.type} {total.ref}, i32 0", total.elem, 0)
