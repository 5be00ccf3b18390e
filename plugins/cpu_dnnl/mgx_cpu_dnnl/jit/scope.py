"""Emits graph nodes at one level of a loop nest; loop-invariant nodes come from the enclosing scopes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from mgx_core import dtype as dt

from .code import Code, V, constant
from .element import computed, convert, elem_of
from .float_steps import divisor_scale
from .graph import Node, bounded, number
from .primitive import apply

__all__ = ["Scope"]


class Scope:
    """Values of nodes in vectors of `n` lanes (0: scalars).

    load: emits a ``load`` node; outer: the enclosing scope, whose values are broadcast to the lanes.
    """

    def __init__(self, c: Code, n: int, load: Callable[[Node], V], outer: Scope | None = None) -> None:
        self.c = c
        self.n = n
        self.load = load
        self.outer = outer
        self.known: dict[int, V] = {}
        self.inverses: dict[int, tuple[V, V]] = {}

    def set(self, node: Node, value: V) -> None:
        self.known[node.ident] = value

    def lookup(self, node: Node) -> V | None:
        """Returns the value if this scope or an enclosing one has computed it."""
        found = self.known.get(node.ident)
        return found if found is not None or self.outer is None else self.outer.lookup(node)

    def value(self, node: Node) -> V:
        found = self.lookup(node)
        if found is None:
            found = self._make(node)
        elif found.n != self.n:
            found = self.c.splat(found, self.n)
        self.known[node.ident] = found
        return found

    def prepare(self, inner: Iterable[Node], varies: Callable[[Node], bool]) -> None:
        """Hoists values out of an inner loop: computes the operands of its nodes that do not vary in it."""
        for node in inner:
            if not varies(node):
                if node.kind != "const":
                    self.value(node)
                continue
            for a in node.args:
                if not varies(a) and a.kind != "const":
                    self.value(a)
            if _divides(node) and not varies(node.args[1]) and node.args[1].kind != "const":
                self._inverse(node.args[1])

    def _inverse(self, node: Node) -> None:
        """Computes s, a power of two, and 1 / (x s), so that a / x = (a s) / (x s) without intermediate overflow."""
        if node.ident in self.inverses:
            return
        c, x = self.c, self.value(node)
        if node.kind == "reduce" and node.word == "total":
            one = c.const(1.0, x)
            self.inverses[node.ident] = one, c.op("fdiv", one, x)
            return
        s = divisor_scale(c, x)
        self.inverses[node.ident] = s, c.op("fdiv", c.const(1.0, x), c.op("fmul", x, s))

    def find_inverse(self, node: Node) -> tuple[V, V] | None:
        found = self.inverses.get(node.ident)
        if found is None and self.outer is not None:
            found = self.outer.find_inverse(node)
        return found

    def _make(self, node: Node) -> V:
        c = self.c
        match node.kind:
            case "const":
                return constant(number(node), elem_of(node.dtype), self.n)
            case "load":
                return self.load(node)
            case "convert":
                x = self.value(node.args[0])
                return convert(c, x, computed(node.args[0].dtype), dt.of(node.word))
            case "prim":
                if _divides(node):
                    quick = self._quick_division(node)
                    if quick is not None:
                        return quick
                name, args = bounded(node)
                kind = args[-1].dtype if name == "where" else args[0].dtype
                return apply(c, name, computed(kind), [self.value(a) for a in args])
        raise AssertionError(f"the enclosing loops must compute a {node.kind} first")

    def _quick_division(self, node: Node) -> V | None:
        c, (a, b) = self.c, node.args
        if b.kind == "const":
            by = float(number(b))
            x = self.value(a)
            if by != 0 and math.isfinite(by) and 1e-30 < abs(by) < 1e30 and (self.n or math.frexp(by)[0] == 0.5):
                return c.op("fmul", x, c.const(1.0 / by, x))
            return None
        found = self.find_inverse(b) if self.n else None
        if found is None:
            return None
        if b.kind == "reduce" and b.word == "total":  # at least 1: its reciprocal is a normal number
            return c.op("fmul", self.value(a), c.splat(found[1], self.n))
        s, r = (c.splat(v, self.n) for v in found)
        return c.op("fmul", c.op("fmul", self.value(a), s), r)


def _divides(node: Node) -> bool:
    return node.kind == "prim" and node.word == "div" and node.dtype is dt.float32
