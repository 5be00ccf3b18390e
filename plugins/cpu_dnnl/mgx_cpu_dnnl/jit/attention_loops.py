"""Code generator for attention kernels.

A work item is a chunk of query rows of one head.  Keys (transposed) and values are packed into scratch memory block by block.
For each block, register tiles of `rows` x (vectors of keys) accumulate scores, the pointwise ops run on them, maxima and sums
of the rows are updated, and register tiles of rows x (vectors of the head) accumulate results.  A single row reads keys and
values in place.
"""

from __future__ import annotations

from mgx_core import dtype as dt

from . import math as fast
from .attention_blocks import Blocks
from .attention_item import Item
from .attention_plan import KEYS, Plan
from .attention_scores import NEGATIVE, Group, Scores, larger
from .code import Code, V, i64
from .element import MEMORY, from_memory, to_memory
from .space import items, unrolled
from .tile import combined

__all__ = ["write"]

GROUP = 8  # vectors whose lanes are reduced together


def write(c: Code, plan: Plan) -> None:
    """Generates the kernel of a plan."""
    item = Item(c, plan)
    items(c, item.extents(), _Writer(item).write)


class _Writer:
    def __init__(self, item: Item) -> None:
        self.item = item
        self.c, self.plan, self.lanes = item.c, item.plan, item.c.lanes
        self.blocks = Blocks(item)
        self.scores = Scores(item, self.blocks)

    def write(self, index: list[V], _: V) -> None:
        c, plan, item = self.c, self.plan, self.item
        item.enter(index)
        self._clear()
        last = item.valid
        if plan.causal:  # skips keys to which none of the rows attends
            visible = c.op("add", c.op("add", item.first, item.count), item.arg("offset"))
            last = c.intrinsic("smin", last, c.intrinsic("smax", visible, item.zero))

        def block(key0: V, _: list[V]) -> list[V]:
            keys = c.intrinsic("smin", item.arg("block"), c.op("sub", item.valid, key0))
            if plan.packed:
                self.blocks.copy_keys(key0, keys)
                self.blocks.copy_values(key0, keys)

            def group(r: V, _: list[V]) -> list[V]:
                self._group(key0, keys, r)
                return []

            c.loop(item.zero, item.count, plan.rows, group)
            return []

        c.loop(item.zero, last, item.arg("block"), block)
        c.loop(item.zero, item.count, 1, lambda r, _: self._finish(r))

    def _clear(self) -> None:
        """Initializes the maxima, sums and results of the item's rows."""
        c, n = self.c, self.lanes
        nothing = V("zeroinitializer", "float", n)
        total, top = nothing, c.const(NEGATIVE, nothing)
        if self.item.sink is not None:  # the first score, whose weight is 1 and whose value is 0
            total, top = c.const(1.0, nothing), c.splat(c.load(self.item.sink, "float", 0), n)

        def rows(r: V, _: list[V]) -> list[V]:
            c.store(c.gep(self.item.part["sums"], r, "float"), total)
            c.store(c.gep(self.item.part["tops"], r, "float"), top)
            return []

        def results(i: V, _: list[V]) -> list[V]:
            c.store(c.gep(self.item.part["result"], i, "float"), nothing)
            return []

        c.loop(self.item.zero, self.item.count, n, rows)
        c.loop(self.item.zero, c.op("mul", self.item.count, self.item.wide), n, results)

    def _group(self, key0: V, keys: V, first: V) -> None:
        """Processes the rows of a register tile and one block of keys; first: index of the first row in the item."""
        c, plan, n, item = self.c, self.plan, self.lanes, self.item
        last = c.op("sub", item.count, item.one)
        here = [c.intrinsic("smin", c.op("add", first, i64(r)), last) if r else first for r in range(plan.rows)]
        rows = [c.op("add", item.first, r) for r in here]
        q_step = item.arg(f"q{item.rank - 2}")
        g = Group(rows, [c.gep(item.here["q"], c.op("mul", r, q_step), item.elem["q"]) for r in rows], key0, keys)
        low = c.const(NEGATIVE, V("", "float", n))
        for r in range(plan.rows):
            c.store(c.gep(item.part["lanes"], r * n, "float"), low)
        self._all_scores(g)
        self._softmax(first, keys)
        shrink = [c.load(c.gep(item.part["shrink"], r, "float"), "float", 0) for r in range(plan.rows)]
        if plan.packed:
            values, step, kind = item.part["values"], item.wide, "float"
        else:
            step, kind = item.arg(f"v{item.rank - 2}"), item.elem["v"]
            values = c.gep(item.here["v"], c.op("mul", key0, step), kind)

        def columns(x: V, _: list[V]) -> list[V]:
            self._values(values, step, kind, keys, first, x, shrink)
            return []

        c.loop(item.zero, item.e, n * plan.across, columns)

    def _all_scores(self, g: Group) -> None:
        c, n, item = self.c, self.lanes, self.item
        if not self.plan.packed:
            c.loop(item.zero, g.keys, n, lambda j, _: self.scores.dots(g, j))
            return

        def tiles(first: V, vectors: int, whole: int, ahead: int) -> V:
            def tile(j: V, _: list[V]) -> list[V]:
                self.scores.tiles(g, j, vectors, whole)
                return []

            return c.loop(first, g.keys, vectors * n, tile, ahead=ahead)[0]

        most = self.plan.abreast
        done = tiles(item.zero, most, most, item.tile - 1)
        done = tiles(done, most, most // 2, item.half)
        tiles(done, 1, 0, 0)

    def _softmax(self, g: V, here: V) -> None:
        """Turns scores into weights; updates the rows' maxima and sums, and stores the factors that rescale earlier results."""
        c, plan, n = self.c, self.plan, self.lanes
        homes = [c.gep(self.item.part["lanes"], min(r, plan.rows - 1) * n, "float") for r in range(GROUP)]
        rows = V("<" + ", ".join(f"i1 {'true' if i < plan.rows else 'false'}" for i in range(n)) + ">", "i1", n)
        best = combined(c, [c.load(h, "float", n) for h in homes], lambda a, b: larger(c, a, b))
        tops, sums = (c.gep(self.item.part[w], g, "float") for w in ("tops", "sums"))
        old = c.load(tops, "float", n)
        new = larger(c, old, best)
        none = c.compare("oeq", new, c.const(NEGATIVE, new))
        safe = c.select(none, c.const(0.0, new), new)
        shrink = fast.exp_negative(c, c.op("fsub", old, safe))
        c.store(tops, new, rows)
        c.store(self.item.part["safe"], safe)
        c.store(self.item.part["shrink"], shrink)

        def row(r: V, _: list[V]) -> list[V]:
            line = c.gep(self.item.part["weights"], c.op("mul", r, i64(KEYS)), "float")
            top = c.splat(c.load(c.gep(self.item.part["safe"], r, "float"), "float", 0), n)

            def weigh(j: V, carried: list[V]) -> list[V]:
                at = c.gep(line, j, "float")
                w = fast.exp_negative(c, c.op("fsub", c.load(at, "float", n), top))
                if plan.paired:  # in place: the weights are stored before the scores that are still to be read
                    c.store(c.gep(line, j, MEMORY[dt.bfloat16]), to_memory(c, w, dt.bfloat16))
                else:
                    c.store(at, w)
                return [c.op("fadd", carried[0], w)]

            total = c.loop(self.item.zero, here, n, weigh, [V("zeroinitializer", "float", n)])[1]
            c.store(c.gep(self.item.part["lanes"], c.op("mul", r, i64(n)), "float"), total)
            return []

        c.loop(self.item.zero, i64(plan.rows), 1, row)
        total = combined(c, [c.load(h, "float", n) for h in homes], lambda a, b: c.op("fadd", a, b))
        c.store(sums, c.fma(c.load(sums, "float", n), shrink, total), rows)

    def _values(self, values: V, step: V, elem: str, here: V, g: V, x: V, shrink: list[V]) -> None:
        """Accumulates the weights times the values."""
        c, plan, n = self.c, self.plan, self.lanes
        masks: list[V | None] = [None] * plan.across
        if not plan.even and not plan.packed:
            left = [c.op("sub", self.item.e, c.op("add", x, i64(v * n))) for v in range(plan.across)]
            masks = [c.first(c.intrinsic("smax", k, self.item.zero), n) for k in left]
        line = c.gep(c.gep(self.item.part["result"], c.op("mul", g, self.item.wide), "float"), x, "float")
        homes, start = [], []
        for r in range(plan.rows):
            home = c.gep(line, c.op("mul", i64(r), self.item.wide), "float")
            for v in range(plan.across):
                at = c.gep(home, v * n, "float")
                homes.append(at)
                start.append(c.op("fmul", c.load(at, "float", n), c.splat(shrink[r], n)))
        base = c.gep(values, x, elem)

        kind = "i32" if plan.paired else elem
        add = c.add_pairs if plan.paired else c.fma

        def some_keys(i: V, total: list[V], count: int) -> list[V]:
            at = c.gep(base, c.op("mul", i, step), elem)
            for u in range(count):
                some = []
                for v in range(plan.across):
                    raw = c.load(c.gep(at, v * n, elem), kind, n, masks[v])
                    some.append(raw if plan.packed else from_memory(c, raw, plan.v.dtype))
                out = []
                for r in range(plan.rows):
                    weights = c.gep(self.item.part["weights"], r * KEYS + u, "float")
                    many = c.splat(c.load(c.gep(weights, i, "float"), "i32" if plan.paired else "float", 0), n)
                    out += [add(many, y, total[r * plan.across + v]) for v, y in enumerate(some)]
                total = out
                at = c.gep(at, step, elem)
            return total

        terms = c.op("lshr", c.op("add", here, self.item.one), self.item.one) if plan.paired else here
        totals = unrolled(c, terms, some_keys, start)
        for at, total in zip(homes, totals, strict=True):
            c.store(at, total)

    def _finish(self, r: V) -> list[V]:
        """Normalizes a row of results and stores it."""
        c, plan, n = self.c, self.plan, self.lanes
        total = c.load(c.gep(self.item.part["sums"], r, "float"), "float", 0)
        inverse = c.splat(c.op("fdiv", c.const(1.0, total), total), n)
        guarded = plan.guarded or plan.closes
        right = c.compare("ogt" if plan.guarded else "une", total, c.const(0.0, total))
        row = c.op("mul", c.op("add", self.item.first, r), self.item.arg(f"o{self.item.rank - 2}"))
        target = c.gep(self.item.here["o"], row, self.item.elem["o"])
        source = c.gep(self.item.part["result"], c.op("mul", r, self.item.wide), "float")

        def step(i: V, _: list[V]) -> list[V]:
            mask = None if plan.even else c.first(c.op("sub", self.item.e, i), n)
            value = c.op("fmul", c.load(c.gep(source, i, "float"), "float", n), inverse)
            if guarded:
                value = c.select(right, value, c.const(0.0, value))
            c.store(c.gep(target, i, self.item.elem["o"]), to_memory(c, value, plan.out.dtype), mask)
            return []

        c.loop(self.item.zero, self.item.e, n, step)
        return []
