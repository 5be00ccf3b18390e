"""Computes the scores of a few query rows and a block of keys, and applies the pointwise ops."""

from __future__ import annotations

import math
from typing import Final

from mgx_core.named_tuples import NamedTuple

from .attention_blocks import Blocks
from .attention_item import Item
from .attention_plan import KEYS
from .code import Code, V, i64
from .element import MEMORY, from_memory
from .graph import Graph, Node
from .scope import Scope
from .space import unrolled
from .tile import combined

__all__ = ["NEGATIVE", "Group", "Scores", "larger"]

NEGATIVE: Final = -math.inf


class Group(NamedTuple):
    """The query rows of a register tile and the current block of keys."""

    rows: list[V]
    queries: list[V]  # address of each row
    key0: V  # the block's first key
    keys: V  # number of keys in the block


class Scores:
    """Stores scores to scratch memory and accumulates their lane-wise maxima."""

    def __init__(self, item: Item, blocks: Blocks) -> None:
        self.item, self.blocks = item, blocks
        self.c, self.plan, self.lanes, self.tile = item.c, item.plan, item.c.lanes, item.tile

    def tiles(self, g: Group, j: V, vectors: int, whole: int) -> None:
        """Computes scores of all rows and some vectors of keys from j on; the first `whole` vectors are full."""
        c, plan, n = self.c, self.plan, self.lanes
        keys = self.blocks.key(self.item.zero, j)
        elem = self.item.elem["q"]
        d_step = self.item.arg(f"q{self.item.rank - 1}")
        unit = plan.q.strides()[-1] == 1
        start = [V("zeroinitializer", "float", n)] * (plan.rows * vectors)

        def step(i: V, total: list[V], count: int) -> list[V]:
            line = c.gep(keys, c.op("mul", i, i64(self.tile)), "float")
            for u in range(count):
                kind = "i32" if plan.paired else "float"
                some = [c.load(c.gep(line, u * self.tile + v * n, "float"), kind, n) for v in range(vectors)]
                out = []
                for r, query in enumerate(g.queries):
                    if plan.paired:
                        at = c.gep(c.gep(query, i, "i32"), u, "i32")
                        pair = c.splat(c.reinterpret(c.load(at, elem, 2), "i32", 0), n)
                        out += [c.add_pairs(pair, x, total[r * vectors + v]) for v, x in enumerate(some)]
                        continue
                    if unit:
                        at = c.gep(c.gep(query, i, elem), u, elem)
                    else:
                        at = c.gep(query, c.op("mul", c.op("add", i, i64(u)), d_step), elem)
                    many = c.splat(from_memory(c, c.load(at, elem, 0), plan.q.dtype), n)
                    out += [c.fma(many, x, total[r * vectors + v]) for v, x in enumerate(some)]
                total = out
            return total

        totals = unrolled(c, self.item.depth, step, start)
        left = c.op("sub", g.keys, j)
        masks = [None if v < whole else self._first(left, v * n) for v in range(vectors)]
        shared: dict[tuple[int, int], V] = {}
        for r in range(plan.rows):
            made = [self._score(totals[r * vectors + v], g, r, v, j, masks[v], shared) for v in range(vectors)]
            self._keep(made, r, j)

    def _first(self, left: V, before: int) -> V:
        """Returns the mask of a vector's valid lanes, given the remaining keys and the vectors before it."""
        c = self.c
        here = c.intrinsic("smax", c.op("sub", left, i64(before)), self.item.zero) if before else left
        return c.first(here, self.lanes)

    def dots(self, g: Group, j: V) -> list[V]:
        """Returns scores of one row and one vector of keys, which are read in place."""
        c, plan, n = self.c, self.plan, self.lanes
        step = self.item.arg(f"k{self.item.rank - 2}")
        elem = self.item.elem["k"]
        q_elem, q_step = self.item.elem["q"], self.item.arg(f"q{self.item.rank - 1}")
        base = c.gep(self.item.here["k"], c.op("mul", g.key0, step), elem)
        last = c.op("sub", g.keys, self.item.one)
        lines = [
            c.gep(base, c.op("mul", c.intrinsic("smin", c.op("add", j, i64(r)), last), step), elem) for r in range(n)
        ]

        def along(i: V, total: list[V]) -> list[V]:
            mask = c.first(c.op("sub", self.item.d, i), n)
            if plan.q.strides()[-1] == 1:
                raw = c.load(c.gep(g.queries[0], i, q_elem), q_elem, n, mask)
            else:
                raw = c.gather(c.gep(g.queries[0], c.op("mul", i, q_step), q_elem), c.offsets(q_step, n), q_elem, mask)
            x = from_memory(c, raw, plan.q.dtype)
            out = []
            for line, acc in zip(lines, total, strict=True):
                y = from_memory(c, c.load(c.gep(line, i, elem), elem, n, mask), plan.k.dtype)
                out.append(c.fma(x, y, acc))
            return out

        totals = c.loop(self.item.zero, self.item.d, n, along, [V("zeroinitializer", "float", n)] * n)[1:]
        value = combined(c, totals, lambda a, b: c.op("fadd", a, b))
        mask = c.first(c.op("sub", g.keys, j), n)
        self._keep([self._score(value, g, 0, 0, j, mask, {})], 0, j)
        return []

    def _keep(self, made: list[V], r: int, j: V) -> None:
        """Stores scores and updates the lane-wise maximum."""
        c, n = self.c, self.lanes
        line = c.gep(c.gep(self.item.part["weights"], r * KEYS, "float"), j, "float")
        for v, value in enumerate(made):
            c.store(c.gep(line, v * n, "float"), value)
        home = c.gep(self.item.part["lanes"], r * n, "float")
        best = c.load(home, "float", n)
        for value in made:
            best = larger(c, best, value)
        c.store(home, best)

    def _score(self, value: V, g: Group, r: int, v: int, j: V, mask: V | None, shared: dict[tuple[int, int], V]) -> V:
        """Applies the pointwise ops to a vector of scores; lanes without a key become -infinity."""
        c, plan, n = self.c, self.plan, self.lanes
        at = c.op("add", j, i64(v * n)) if v else j
        key = c.op("add", g.key0, at)
        if plan.graph is not None:
            value = self._pointwise(plan.graph, value, g.rows[r], v, key, mask, shared)
        if plan.causal:
            visible = c.op("sub", c.op("add", g.rows[r], c.op("add", self.item.arg("offset"), self.item.one)), key)
            inside = c.first(c.intrinsic("smax", visible, self.item.zero), n)
            mask = inside if mask is None else c.op("and", inside, mask)
        return value if mask is None else c.select(mask, value, c.const(NEGATIVE, value))

    def _pointwise(
        self, graph: Graph, value: V, row: V, v: int, key: V, mask: V | None, shared: dict[tuple[int, int], V]
    ) -> V:
        c, plan, n = self.c, self.plan, self.lanes
        number = {x.ident: i for i, x in enumerate(plan.loads)}
        row_axis, key_axis = self.item.rank - 2, self.item.rank - 1

        def load(node: Node) -> V:
            if node.parameter == 0:
                return value
            k = number[node.ident]
            elem = MEMORY[node.dtype]
            by_row, by_key = node.strides[-2:]
            found = None if by_row else shared.get((k, v if by_key else -1))
            if found is not None:
                return found
            at = self.item.extra[k]
            if by_row:
                at = c.gep(at, c.op("mul", row, self.item.arg(f"x{k}.{row_axis}")), elem)
            if not by_key:
                out = c.splat(from_memory(c, c.load(at, elem, 0), node.dtype), n)
            else:
                step = self.item.arg(f"x{k}.{key_axis}")
                if by_key == 1:
                    raw = c.load(c.gep(at, key, elem), elem, n, mask)
                else:
                    raw = c.gather(c.gep(at, c.op("mul", key, step), elem), c.offsets(step, n), elem, mask)
                out = from_memory(c, raw, node.dtype)
            if not by_row:
                shared[k, v if by_key else -1] = out
            return out

        scope = Scope(c, n, load)
        for node, given in self.item.given:
            scope.set(node, given)
        return scope.value(graph.outputs[0])


def larger(c: Code, a: V, b: V) -> V:
    """Returns the lane-wise maximum; ignores NaN, which reappears in the exponential."""
    return c.select(c.compare("ogt", a, b), a, b)
