"""Range analysis that keeps integral values as floats: simplifies requantization of bytes.

Between two quantized ops, a graph rounds, adds a zero point, clamps, converts to bytes, converts back and subtracts the zero
point.  If a value's range is known, only the rounding and the clamp remain, and remaining conversions need no saturation.
"""

from __future__ import annotations

import math
from typing import Final

from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple

from .graph import Graph, Node, number, walk

__all__ = ["INTEGRAL", "keep_integral"]

INTEGRAL: Final = {
    dt.int8: "whole_int8",
    dt.uint8: "whole_uint8",
}  # conversions of integral floats within the type's range
EXACT: Final = float(1 << 24)  # float32 represents all integers up to this one exactly


class _Range(NamedTuple):
    """Bounds of a value if it is not NaN; whole: it is integral (or infinite); nan: it may be NaN."""

    low: float
    high: float
    whole: bool
    nan: bool


ANY: Final = _Range(-math.inf, math.inf, False, True)


def keep_integral(graph: Graph) -> None:
    """Removes redundant conversions to bytes and back, zero points that cancel, and saturation that the range makes redundant."""
    _Rewriting(graph).run()


class _Rewriting:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[int, _Range] = {}

    def run(self) -> None:
        if not any(n.kind == "convert" and n.dtype in INTEGRAL for n in walk(self.graph.outputs)):
            return
        rewritten: dict[int, Node] = {}
        for node in list(walk(self.graph.outputs)):
            args = tuple(rewritten[a.ident] for a in node.args)
            made = node
            if any(a is not b for a, b in zip(args, node.args, strict=True)):
                made = self.graph.node(node.kind, node.dtype, args, node.word, node.axes, node.level)
            rewritten[node.ident] = self.learned(self.simpler(made))
        self.graph.outputs = [rewritten[o.ident] for o in self.graph.outputs]

    def learned(self, node: Node) -> Node:
        if node.ident not in self.known:
            self.known[node.ident] = _range(node, [self.known.get(a.ident, ANY) for a in node.args])
        return node

    def simpler(self, node: Node) -> Node:
        if node.kind == "convert":
            (x,) = node.args
            if node.dtype is dt.float32 and x.kind == "prim" and x.word in INTEGRAL.values():
                return x.args[0]
            found = self.known.get(x.ident, ANY)
            to = next((d for d in INTEGRAL if d.name == node.word), None)
            if (
                to is not None
                and x.dtype is dt.float32
                and found.whole
                and to.lowest <= found.low
                and found.high <= to.highest
            ):
                if found.nan:
                    x = self.learned(self.bounded_number(x) or self.graph.prim("number", dt.float32, (x,)))
                return self.graph.node("prim", to, (x,), INTEGRAL[to], x.axes, x.level)
        if (
            node.kind == "prim"
            and node.word in ("sub", "add")
            and node.dtype is dt.float32
            and node.args[1].kind == "const"
        ):
            term = float(number(node.args[1]))
            return self.shifted(node.args[0], -term if node.word == "sub" else term) or node
        return node

    def bounded_number(self, x: Node) -> Node | None:
        """Returns x = min(max(y, 0), b) with NaN replaced by 0; None if x has another form."""
        if not (x.kind == "prim" and x.word == "min" and x.args[1].kind == "const"):
            return None
        inner, top = x.args
        if not (inner.kind == "prim" and inner.word == "max" and inner.args[1].kind == "const"):
            return None
        if float(number(inner.args[1])) != 0.0:
            return None
        low = self.learned(self.graph.prim("max_number", dt.float32, inner.args))
        return self.graph.prim("min", dt.float32, (low, top))

    def shifted(self, x: Node, term: float) -> Node | None:
        """Returns x + term without an addition, if x is an integral y - term, possibly clamped; None otherwise."""
        found = self.known.get(x.ident, ANY)
        if not found.whole or found.nan or not term.is_integer() or _size(found) + abs(term) > EXACT:
            return None
        return self.moved(x, term)

    def moved(self, x: Node, term: float) -> Node | None:
        """Recursive part of `shifted`: inexact values, beyond 2^24, are clamped by the bounds around this node."""
        if x.kind != "prim" or len(x.args) != 2 or x.args[1].kind != "const":
            return None
        inner, by = x.args[0], float(number(x.args[1]))
        if x.word in ("add", "sub"):
            cancels = (by if x.word == "add" else -by) == -term
            return inner if cancels and self.known.get(inner.ident, ANY).whole else None
        moved = self.moved(inner, term) if x.word in ("max", "min", "max_number") else None
        if moved is None:
            return None
        return self.learned(self.graph.prim(x.word, dt.float32, (moved, self.graph.const(by + term, dt.float32))))


def _size(found: _Range) -> float:
    return max(abs(found.low), abs(found.high))


def _range(node: Node, args: list[_Range]) -> _Range:
    if node.kind in ("load", "convert") and node.dtype.is_integer and node.dtype.bits <= 16:
        return _Range(node.dtype.lowest, node.dtype.highest, True, False)
    if node.kind == "const" and node.dtype is dt.float32:
        value = float(number(node))
        return _Range(value, value, value.is_integer(), False) if math.isfinite(value) else ANY
    if node.kind == "convert":
        return args[0] if node.dtype is dt.float32 and node.args[0].dtype.is_integer else ANY
    if node.kind != "prim":
        return ANY
    if node.word in INTEGRAL.values():
        return args[0]
    return _of_primitive(node, args) if node.dtype is dt.float32 else ANY


def _of_primitive(node: Node, args: list[_Range]) -> _Range:
    x, y = args[0], args[-1]
    whole, nan = all(a.whole for a in args), any(a.nan for a in args)
    bounded = all(math.isfinite(_size(a)) for a in args)
    match node.word:
        case "add" | "sub" if bounded:
            low, high = (x.low + y.low, x.high + y.high) if node.word == "add" else (x.low - y.high, x.high - y.low)
            return _widened(low, high, whole, nan)
        case "mul" if bounded:
            ends = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
            return _widened(min(ends), max(ends), whole, nan)
        case "div" | "exact_div" if bounded and y.low == y.high and y.low:
            ends = [x.low / y.low, x.high / y.low]
            return _widened(min(ends) - 1, max(ends) + 1, False, nan)
        case "add" | "sub":  # one range is unbounded: infinities and integral values remain so
            return _Range(-math.inf, math.inf, whole, nan or not (math.isfinite(_size(x)) or math.isfinite(_size(y))))
        case "round" | "floor" | "ceil" | "trunc":
            return _Range(x.low - 1, x.high + 1, True, x.nan)
        case "max_number":
            return _Range(max(x.low, y.low), max(x.high, y.high), whole, False)
        case "max":
            return _Range(max(x.low, y.low), max(x.high, y.high), whole, nan)
        case "min":
            return _Range(min(x.low, y.low), min(x.high, y.high), whole, nan)
        case "number":
            return _Range(min(x.low, 0.0), max(x.high, 0.0), x.whole, False)
        case "neg":
            return _Range(-x.high, -x.low, x.whole, x.nan)
    return ANY


def _widened(low: float, high: float, whole: bool, nan: bool) -> _Range:
    """Returns a range widened by rounding errors; `ANY` near float32's overflow threshold."""
    if max(abs(low), abs(high)) > 1e30:
        return ANY
    slack = 1e-6 * max(abs(low), abs(high))
    exact = whole and max(abs(low), abs(high)) <= EXACT
    return _Range(low, high, True, nan) if exact else _Range(low - slack, high + slack, False, nan)
