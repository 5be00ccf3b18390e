"""Accumulators of reductions: what they start from, how a value is taken in, and how lanes become one value."""

from __future__ import annotations

import math

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

from .code import Code, V, constant
from .element import computed, elem_of
from .graph import Node
from .primitive import apply

__all__ = ["across", "combine", "identity", "taken"]


def taken(c: Code, r: Node, value: V) -> V:
    """Returns an operand as it is accumulated: bool as bytes."""
    return c.cast("zext", value, "i8") if value.elem == "i1" else value


def identity(r: Node, n: int) -> V:
    """Returns the result of a reduction of nothing, in n lanes."""
    elem = "i8" if r.dtype is dt.bool_ else elem_of(r.dtype)
    dtype: DType = r.dtype
    match r.extra:
        case "sum" | "total" | "mean":
            return constant(0, elem, n)
        case "prod":
            return constant(1, elem, n)
        case "max" | "top":
            return constant(-math.inf if dtype.is_float else dtype.lowest, elem, n)
    return constant(math.inf if dtype.is_float else dtype.highest, elem, n)


def combine(c: Code, r: Node, a: V, b: V) -> V:
    """Returns one accumulator made of two."""
    dtype = dt.uint8 if r.dtype is dt.bool_ else computed(r.dtype)
    if r.extra == "top":
        return c.select(c.compare("ogt", a, b), a, b)
    name = {"sum": "add", "total": "add", "mean": "add", "prod": "mul"}.get(r.extra, r.extra)
    return apply(c, name, dtype, [a, b])


def across(c: Code, r: Node, total: V) -> V:
    """Returns all lanes combined into a scalar."""
    n = total.n
    while n > 1:
        half = n // 2
        low = c.shuffle(total, total, range(half))
        high = c.shuffle(total, total, range(half, n))
        total = combine(c, r, low, high)
        n = half
    return c.make(f"extractelement {total.type} {total.ref}, i32 0", total.elem, 0)
