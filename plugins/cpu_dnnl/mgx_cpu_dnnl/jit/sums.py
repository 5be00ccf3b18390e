"""Simplifies affine expressions whose results are rounded to bytes.

Divisions by constants become products, constant factors and terms are folded, and products feed fused multiply-adds.  Sums change
in the last places, hence a rounded result by one unit if the sum is close to halfway between two integers.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple

from .graph import Graph, Node, number, walk
from .integral_floats import INTEGRAL

__all__ = ["combine_sums"]

SMALL: Final = 1e-18
LARGE: Final = 1e6  # bounds of constants: folded ones stay within float32's range and precision


class _Sum(NamedTuple):
    """A linear combination of nodes plus a constant."""

    terms: dict[int, tuple[Node, float]]
    constant: float

    def times(self, factor: float) -> _Sum:
        return _Sum({k: (n, f * factor) for k, (n, f) in self.terms.items()}, self.constant * factor)

    def plus(self, other: _Sum) -> _Sum:
        terms = dict(self.terms)
        for key, (node, factor) in other.terms.items():
            terms[key] = node, factor + terms.get(key, (node, 0.0))[1]
        return _Sum(terms, self.constant + other.constant)


def combine_sums(graph: Graph) -> None:
    """Rewrites the graph if all outputs are bytes; otherwise leaves it unchanged."""
    if all(o.dtype in (dt.int8, dt.uint8) for o in graph.outputs):
        combining = _Combining(graph)
        graph.outputs = [_saturated(graph, combining.value(o)) for o in graph.outputs]


class _Combining:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: dict[int, Node] = {}
        self.sums: dict[int, _Sum] = {}

    def value(self, node: Node) -> Node:
        """Returns the rewritten node."""
        for below in walk([node]):
            if below.ident in self.made:
                continue
            found = self.sum_of(below)
            if found is None:
                args = tuple(self.made[a.ident] for a in below.args)
                word = below.word
                bounded = below.kind == "prim" and word in ("max", "min") and args[1].kind == "const"
                if bounded and below.dtype.is_float:
                    word += "_const"
                self.made[below.ident] = (
                    self.graph.node(below.kind, below.dtype, args, word, below.axes, below.level) if args else below
                )
            else:
                self.sums[below.ident] = found
                self.made[below.ident] = self.written(found, below)
        return self.made[node.ident]

    def sum_of(self, node: Node) -> _Sum | None:
        """Returns a sum, a difference, or a product or quotient with a constant as a linear combination; else None."""
        if node.kind != "prim" or node.dtype is not dt.float32:
            return None
        if node.word in ("add", "sub"):
            a, b = (self.known(x) for x in node.args)
            return a.plus(b.times(-1.0 if node.word == "sub" else 1.0))
        if node.word in ("mul", "div", "exact_div"):
            x, by = node.args if node.args[1].kind == "const" or node.word != "mul" else node.args[::-1]
            factor = float(number(by)) if by.kind == "const" else 0.0
            if 1 / LARGE < abs(factor) < LARGE:
                return self.known(x).times(factor if node.word == "mul" else 1 / factor)
        return None

    def known(self, node: Node) -> _Sum:
        if node.kind == "const" and abs(float(number(node))) < LARGE:
            return _Sum({}, float(number(node)))
        found = self.sums.get(node.ident)
        if found is None or any(not SMALL < abs(f) < 1 / SMALL for _, f in found.terms.values()):
            made = self.made[node.ident]
            return _Sum({made.ident: (made, 1.0)}, 0.0)
        return found

    def written(self, found: _Sum, node: Node) -> Node:
        """Returns the nodes that compute a linear combination; `node` if it is a constant."""
        terms = list(found.terms.values())
        if not terms:
            return node
        terms.sort(key=lambda t: _is_product(t[0]))
        factors = {f for _, f in terms}
        if len(factors) == 1:
            total: Node | None = None
            for term, _ in terms:
                total = self.added(term, 1.0, total)
            assert total is not None
            constant = self.constant(found.constant) if found.constant else None
            return self.added(total, factors.pop(), constant)
        result = self.constant(found.constant) if found.constant else None
        for term, factor in terms:
            result = self.added(term, factor, result)
        assert result is not None
        return result

    def added(self, x: Node, factor: float, to: Node | None) -> Node:
        """Returns x times a factor, plus another node."""
        graph = self.graph
        if to is None:
            return x if factor == 1.0 else graph.prim("mul", dt.float32, (x, self.constant(factor)))
        if factor == 1.0:
            if _is_product(x):
                return graph.prim("fma", dt.float32, (*x.args, to))
            return graph.prim("add", dt.float32, (x, to))
        return graph.prim("fma", dt.float32, (x, self.constant(factor), to))

    def constant(self, value: float) -> Node:
        return self.graph.const(float(np.float32(value)), dt.float32)


def _saturated(graph: Graph, node: Node) -> Node:
    """Fuses a saturated byte round(x) + z into one primitive of x and z; returns other nodes unchanged."""
    dtype = next((d for d, word in INTEGRAL.items() if node.word == word), None)
    if dtype is None:
        return node
    below = node.args[0].args[0] if node.args[0].word == "number" else node.args[0]
    inner = _bounded(_bounded(below, ("min_const",), dtype.highest), ("max_const", "max_number"), dtype.lowest)
    if inner is None:
        return node
    zero = graph.const(0.0, dt.float32)
    if inner.kind == "prim" and inner.word == "add" and inner.args[1].kind == "const":
        inner, zero = inner.args
    if not (inner.kind == "prim" and inner.word == "round") or not dtype.lowest <= float(number(zero)) <= dtype.highest:
        return node
    (x,) = inner.args
    return graph.node("prim", dtype, (x, zero), f"rounded_{dtype}", x.axes, x.level)


def _bounded(node: Node | None, kinds: tuple[str, ...], bound: float) -> Node | None:
    """Returns the operand of a clamp by a constant; None for other nodes."""
    if node is None or node.kind != "prim" or node.word not in kinds or node.args[1].kind != "const":
        return None
    return node.args[0] if float(number(node.args[1])) == bound else None


def _is_product(node: Node) -> bool:
    return node.kind == "prim" and node.word == "mul"
