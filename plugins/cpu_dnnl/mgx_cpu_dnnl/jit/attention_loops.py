"""The code of attention kernels.

An item is a chunk of query rows of one head.  Keys (turned) and values are copied to scratch a block at a time; a register
tile of `rows` x (vectors of keys) accumulates scores, the pointwise part runs on them, maxima and sums of the rows are taken
together, and a register tile of rows x (vectors of the head) accumulates results.  A single row reads keys and values where
they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import math as fast
from .attention_plan import KEYS, Plan
from .code import Code, V
from .graph import Graph, Node
from .primitive import MEMORY, from_memory, to_memory
from .scope import Scope
from .space import items
from .tile import transposed

__all__ = ["write"]

NEGATIVE = -math.inf
GROUP = 8  # vectors whose lanes are combined together
UNROLL = 4  # elements of a head, or keys, in a trip of an innermost loop


def write(c: Code, plan: Plan) -> None:
    """The body of the kernel that a plan describes."""
    _Writer(c, plan).write()


class _Writer:
    def __init__(self, c: Code, plan: Plan) -> None:
        self.c = c
        self.plan = plan
        self.lanes = c.lanes
        self.vectors = 4 if c.wide else 2
        self.tile = self.lanes * self.vectors
        self.zero, self.one = V("0", "i64", 0), V("1", "i64", 0)
        self.rank = plan.q.rank
        self.elem = {w: MEMORY[s.dtype] for w, s in (("q", plan.q), ("k", plan.k), ("v", plan.v), ("o", plan.out))}

    def number(self, value: int) -> V:
        return V(str(value), "i64", 0)

    def arg(self, name: str) -> V:
        return self.refs[self.plan.slots[name]]

    def write(self) -> None:
        c, plan = self.c, self.plan
        buffers, scratch = V("%buffers", "ptr", 0), V("%scratch", "ptr", 0)
        self.bases = [c.load(c.gep(buffers, i, "ptr"), "ptr", 0) for i in range(3 + len(plan.extra) + 1)]
        self.refs = plan.args.load(c)
        self.m, self.n, self.d, self.e = (self.arg(w) for w in "mnde")
        self.wide, chunk = self.arg("wide"), self.arg("chunk")
        names = ("keys", "values", "weights", "lanes", "tops", "sums", "safe", "shrink", "result")
        self.part = {name: c.gep(scratch, self.arg(name), "float") for name in names}
        blocks = c.op("udiv", c.op("add", self.m, c.op("sub", chunk, self.one)), chunk)
        extents = [self.arg(f"b{i}") for i in range(self.rank - 2)]
        items(c, [*extents, blocks], self.item)

    def item(self, index: list[V], _: V) -> None:
        c, plan = self.c, self.plan
        batch, block = index[:-1], index[-1]
        chunk = self.arg("chunk")
        self.here = {}
        for i, word in enumerate("qkvo"):
            base = self.bases[i if word != "o" else -1]
            for axis, x in enumerate(batch):
                base = c.gep(base, c.op("mul", x, self.arg(f"{word}{axis}")), self.elem[word])
            self.here[word] = base
        self.extra = []
        for j, node in enumerate(plan.loads):
            base = self.bases[3 + node.extra[0] - 1]
            for axis, x in enumerate(batch):
                if node.extra[1][axis]:
                    base = c.gep(base, c.op("mul", x, self.arg(f"x{j}.{axis}")), MEMORY[node.dtype])
            self.extra.append(base)
        self.first = c.op("mul", block, chunk)
        count = c.intrinsic("smin", chunk, c.op("sub", self.m, self.first))
        self._clear(count)
        last = self.n
        if plan.causal:  # keys that none of the rows sees are left out
            seen = c.op("add", c.op("add", self.first, count), self.arg("offset"))
            last = c.intrinsic("smin", self.n, c.intrinsic("smax", seen, self.zero))

        def keys(n0: V, _: list[V]) -> list[V]:
            here = c.intrinsic("smin", self.arg("block"), c.op("sub", self.n, n0))
            if plan.packed:
                self._copy_keys(n0, here)
                self._copy_values(n0, here)

            def group(g: V, _: list[V]) -> list[V]:
                self._group(n0, here, g, count)
                return []

            c.loop(self.zero, count, plan.rows, group)
            return []

        c.loop(self.zero, last, self.arg("block"), keys)
        c.loop(self.zero, count, 1, lambda r, _: self._finish(r))

    def _clear(self, count: V) -> None:
        c, n = self.c, self.lanes
        nothing = V("zeroinitializer", "float", n)
        low = c.const(NEGATIVE, nothing)

        def rows(r: V, _: list[V]) -> list[V]:
            c.store(c.gep(self.part["sums"], r, "float"), nothing)
            c.store(c.gep(self.part["tops"], r, "float"), low)
            return []

        def results(i: V, _: list[V]) -> list[V]:
            c.store(c.gep(self.part["result"], i, "float"), nothing)
            return []

        c.loop(self.zero, count, n, rows)
        c.loop(self.zero, c.op("mul", count, self.wide), n, results)

    # blocks of keys and values

    def _up(self, x: V, k: int) -> V:
        """x rounded up to a multiple of k."""
        c = self.c
        return c.op("mul", c.op("udiv", c.op("add", x, self.number(k - 1)), self.number(k)), self.number(k))

    def _copy_keys(self, n0: V, here: V) -> None:
        """The block's keys in scratch as float32, turned; lanes past the last key hold another key."""
        c, plan, n = self.c, self.plan, self.lanes
        key_step, d_step = self.arg(f"k{self.rank - 2}"), self.arg(f"k{self.rank - 1}")
        elem = self.elem["k"]
        base = c.gep(self.here["k"], c.op("mul", n0, key_step), elem)
        end = self._up(here, n)
        if plan.turned:

            def line(i: V, _: list[V]) -> list[V]:
                source = c.gep(base, c.op("mul", i, d_step), elem)

                def copy(j: V, _: list[V]) -> list[V]:
                    raw = c.load(c.gep(source, j, elem), elem, n, c.first(c.op("sub", here, j), n))
                    c.store(self._key(i, j), from_memory(c, raw, plan.k.dtype))
                    return []

                c.loop(self.zero, end, n, copy)
                return []

            c.loop(self.zero, self.d, 1, line)
            return
        last = c.op("sub", here, self.one)
        contiguous = plan.k.strides()[-1] == 1

        def across(j: V, _: list[V]) -> list[V]:
            lines = [
                c.gep(base, c.op("mul", c.intrinsic("smin", c.op("add", j, self.number(r)), last), key_step), elem)
                for r in range(n)
            ]

            def along(i: V, _: list[V]) -> list[V]:
                mask = c.first(c.op("sub", self.d, i), n)
                rows = []
                for line in lines:
                    if contiguous:
                        raw = c.load(c.gep(line, i, elem), elem, n, mask)
                    else:
                        raw = c.gather(c.gep(line, c.op("mul", i, d_step), elem), c.offsets(d_step, n), elem, mask)
                    rows.append(from_memory(c, raw, plan.k.dtype))
                start = self._key(i, j)
                for r, row in enumerate(transposed(c, rows)):
                    c.store(c.gep(start, r * self.tile, "float"), row)
                return []

            c.loop(self.zero, self.d, n, along)
            return []

        c.loop(self.zero, end, n, across)

    def _key(self, i: V, j: V) -> V:
        """Returns the address of element i of key j of the block: [.., d, tile] as the register tiles read them."""
        c = self.c
        within = c.op("and", j, self.number(self.tile - 1))
        panel = c.op("mul", c.op("sub", j, within), self.d)
        at = c.op("add", panel, c.op("add", c.op("mul", i, self.number(self.tile)), within))
        return c.gep(self.part["keys"], at, "float")

    def _copy_values(self, n0: V, here: V) -> None:
        """The block's values as [KEYS, wide] float32 in scratch, zeros past the end of the head."""
        c, plan, n = self.c, self.plan, self.lanes
        step = self.arg(f"v{self.rank - 2}")
        elem = self.elem["v"]
        base = c.gep(self.here["v"], c.op("mul", n0, step), elem)

        def line(i: V, _: list[V]) -> list[V]:
            source = c.gep(base, c.op("mul", i, step), elem)
            target = c.gep(self.part["values"], c.op("mul", i, self.wide), "float")

            def copy(x: V, _: list[V]) -> list[V]:
                left = c.intrinsic("smax", c.op("sub", self.e, x), self.zero)
                raw = c.load(c.gep(source, x, elem), elem, n, None if plan.even else c.first(left, n))
                c.store(c.gep(target, x, "float"), from_memory(c, raw, plan.v.dtype))
                return []

            c.loop(self.zero, self.wide, n, copy)
            return []

        c.loop(self.zero, here, 1, line)

    # a few rows against one block

    def _group(self, n0: V, here: V, g: V, count: V) -> None:
        c, plan, n = self.c, self.plan, self.lanes
        last = c.op("sub", count, self.one)
        rows = [c.intrinsic("smin", c.op("add", g, self.number(r)), last) if r else g for r in range(plan.rows)]
        self.rows = [c.op("add", self.first, r) for r in rows]
        q_step = self.arg(f"q{self.rank - 2}")
        queries = [c.gep(self.here["q"], c.op("mul", r, q_step), self.elem["q"]) for r in self.rows]
        low = c.const(NEGATIVE, V("", "float", n))
        for r in range(plan.rows):
            c.store(c.gep(self.part["lanes"], r * n, "float"), low)
        if plan.packed:

            def tile(j: V, _: list[V]) -> list[V]:
                self._scores(n0, here, j, queries, self.vectors)
                return []

            def narrow(j: V, _: list[V]) -> list[V]:
                self._scores(n0, here, j, queries, 1)
                return []

            at = c.loop(self.zero, here, self.tile, tile, ahead=self.tile - 1)[0]
            c.loop(at, here, n, narrow)
        else:
            c.loop(self.zero, here, n, lambda j, _: self._dots(n0, here, j, queries[0]))
        self._softmax(g, here)
        shrink = [c.load(c.gep(self.part["shrink"], r, "float"), "float", 0) for r in range(plan.rows)]
        if plan.packed:
            values, step, kind = self.part["values"], self.wide, "float"
        else:
            step, kind = self.arg(f"v{self.rank - 2}"), self.elem["v"]
            values = c.gep(self.here["v"], c.op("mul", n0, step), kind)

        def columns(x: V, _: list[V]) -> list[V]:
            self._values(values, step, kind, here, g, x, shrink)
            return []

        c.loop(self.zero, self.e, n * plan.across, columns)

    def _scores(self, n0: V, here: V, j: V, queries: list[V], vectors: int) -> None:
        """Scores of all rows and some vectors of keys from j on."""
        c, plan, n = self.c, self.plan, self.lanes
        keys = self._key(self.zero, j)
        elem = self.elem["q"]
        d_step = self.arg(f"q{self.rank - 1}")
        unit = plan.q.strides()[-1] == 1
        start = [V("zeroinitializer", "float", n)] * (plan.rows * vectors)

        def step(i: V, total: list[V], count: int) -> list[V]:
            line = c.gep(keys, c.op("mul", i, self.number(self.tile)), "float")
            for u in range(count):
                some = [c.load(c.gep(line, u * self.tile + v * n, "float"), "float", n) for v in range(vectors)]
                out = []
                for r, query in enumerate(queries):
                    if unit:
                        at = c.gep(c.gep(query, i, elem), u, elem)
                    else:
                        at = c.gep(query, c.op("mul", c.op("add", i, self.number(u)), d_step), elem)
                    many = c.splat(from_memory(c, c.load(at, elem, 0), plan.q.dtype), n)
                    out += [c.fma(many, x, total[r * vectors + v]) for v, x in enumerate(some)]
                total = out
            return total

        totals = self._unrolled(self.d, step, start)
        mask = c.first(c.op("sub", here, j), n) if vectors == 1 else None
        shared: dict[tuple[int, int], V] = {}
        for r in range(plan.rows):
            made = [self._score(totals[r * vectors + v], r, v, n0, j, mask, shared) for v in range(vectors)]
            self._keep(made, r, j)

    def _unrolled(self, end: V, trip: Callable[[V, list[V], int], list[V]], start: list[V]) -> list[V]:
        """Sums over 0 .. end, several terms a trip."""
        c = self.c
        at, *totals = c.loop(self.zero, end, UNROLL, lambda i, t: trip(i, t, UNROLL), start, ahead=UNROLL - 1)
        return c.loop(at, end, 1, lambda i, t: trip(i, t, 1), totals)[1:]

    def _dots(self, n0: V, here: V, j: V, query: V) -> list[V]:
        """Scores of one row and one vector of keys, each key read where it is."""
        c, plan, n = self.c, self.plan, self.lanes
        step = self.arg(f"k{self.rank - 2}")
        elem = self.elem["k"]
        q_elem, q_step = self.elem["q"], self.arg(f"q{self.rank - 1}")
        base = c.gep(self.here["k"], c.op("mul", n0, step), elem)
        last = c.op("sub", here, self.one)
        lines = [
            c.gep(base, c.op("mul", c.intrinsic("smin", c.op("add", j, self.number(r)), last), step), elem)
            for r in range(n)
        ]

        def along(i: V, total: list[V]) -> list[V]:
            mask = c.first(c.op("sub", self.d, i), n)
            if plan.q.strides()[-1] == 1:
                raw = c.load(c.gep(query, i, q_elem), q_elem, n, mask)
            else:
                raw = c.gather(c.gep(query, c.op("mul", i, q_step), q_elem), c.offsets(q_step, n), q_elem, mask)
            x = from_memory(c, raw, plan.q.dtype)
            out = []
            for line, acc in zip(lines, total, strict=True):
                y = from_memory(c, c.load(c.gep(line, i, elem), elem, n, mask), plan.k.dtype)
                out.append(c.fma(x, y, acc))
            return out

        totals = c.loop(self.zero, self.d, n, along, [V("zeroinitializer", "float", n)] * n)[1:]
        value = _lanes(c, totals, lambda a, b: c.op("fadd", a, b))
        mask = c.first(c.op("sub", here, j), n)
        self._keep([self._score(value, 0, 0, n0, j, mask, {})], 0, j)
        return []

    def _keep(self, made: list[V], r: int, j: V) -> None:
        """Store scores, and take their maximum lane by lane."""
        c, n = self.c, self.lanes
        line = c.gep(c.gep(self.part["weights"], r * KEYS, "float"), j, "float")
        for v, value in enumerate(made):
            c.store(c.gep(line, v * n, "float"), value)
        home = c.gep(self.part["lanes"], r * n, "float")
        best = c.load(home, "float", n)
        for value in made:
            best = _larger(c, best, value)
        c.store(home, best)

    def _score(self, value: V, r: int, v: int, n0: V, j: V, mask: V | None, shared: dict[tuple[int, int], V]) -> V:
        """The pointwise part on one vector of scores; lanes without a key become -infinity."""
        c, plan, n = self.c, self.plan, self.lanes
        at = c.op("add", j, self.number(v * n)) if v else j
        key = c.op("add", n0, at)
        if plan.graph is not None:
            value = self._pointwise(plan.graph, value, r, v, key, mask, shared)
        if plan.causal:
            seen = c.op("sub", c.op("add", self.rows[r], c.op("add", self.arg("offset"), self.one)), key)
            inside = c.first(c.intrinsic("smax", seen, self.zero), n)
            mask = inside if mask is None else c.op("and", inside, mask)
        return value if mask is None else c.select(mask, value, c.const(NEGATIVE, value))

    def _pointwise(
        self, graph: Graph, value: V, r: int, v: int, key: V, mask: V | None, shared: dict[tuple[int, int], V]
    ) -> V:
        c, plan, n = self.c, self.plan, self.lanes
        number = {x.ident: i for i, x in enumerate(plan.loads)}
        row_axis, key_axis = self.rank - 2, self.rank - 1

        def load(node: Node) -> V:
            if node.extra[0] == 0:
                return value
            k = number[node.ident]
            elem = MEMORY[node.dtype]
            by_row, by_key = node.extra[1][row_axis], node.extra[1][key_axis]
            found = None if by_row else shared.get((k, v if by_key else -1))
            if found is not None:
                return found
            at = self.extra[k]
            if by_row:
                at = c.gep(at, c.op("mul", self.rows[r], self.arg(f"x{k}.{row_axis}")), elem)
            if not by_key:
                out = c.splat(from_memory(c, c.load(at, elem, 0), node.dtype), n)
            else:
                step = self.arg(f"x{k}.{key_axis}")
                if by_key == 1:
                    raw = c.load(c.gep(at, key, elem), elem, n, mask)
                else:
                    raw = c.gather(c.gep(at, c.op("mul", key, step), elem), c.offsets(step, n), elem, mask)
                out = from_memory(c, raw, node.dtype)
            if not by_row:
                shared[k, v if by_key else -1] = out
            return out

        return Scope(c, n, load).value(graph.outputs[0])

    def _softmax(self, g: V, here: V) -> None:
        """Scores to weights; keeps the rows' maxima and sums, and the factors by which earlier results shrink."""
        c, plan, n = self.c, self.plan, self.lanes
        homes = [c.gep(self.part["lanes"], min(r, plan.rows - 1) * n, "float") for r in range(GROUP)]
        rows = V("<" + ", ".join(f"i1 {'true' if i < plan.rows else 'false'}" for i in range(n)) + ">", "i1", n)
        best = _lanes(c, [c.load(h, "float", n) for h in homes], lambda a, b: _larger(c, a, b))
        tops, sums = (c.gep(self.part[w], g, "float") for w in ("tops", "sums"))
        old = c.load(tops, "float", n)
        new = _larger(c, old, best)
        none = c.compare("oeq", new, c.const(NEGATIVE, new))
        safe = c.select(none, c.const(0.0, new), new)
        shrink = fast.exp_negative(c, c.op("fsub", old, safe))
        c.store(tops, new, rows)
        c.store(self.part["safe"], safe)
        c.store(self.part["shrink"], shrink)

        def row(r: V, _: list[V]) -> list[V]:
            line = c.gep(self.part["weights"], c.op("mul", r, self.number(KEYS)), "float")
            top = c.splat(c.load(c.gep(self.part["safe"], r, "float"), "float", 0), n)

            def weigh(j: V, carried: list[V]) -> list[V]:
                at = c.gep(line, j, "float")
                w = fast.exp_negative(c, c.op("fsub", c.load(at, "float", n), top))
                c.store(at, w)
                return [c.op("fadd", carried[0], w)]

            total = c.loop(self.zero, here, n, weigh, [V("zeroinitializer", "float", n)])[1]
            c.store(c.gep(self.part["lanes"], c.op("mul", r, self.number(n)), "float"), total)
            return []

        c.loop(self.zero, self.number(plan.rows), 1, row)
        total = _lanes(c, [c.load(h, "float", n) for h in homes], lambda a, b: c.op("fadd", a, b))
        c.store(sums, c.fma(c.load(sums, "float", n), shrink, total), rows)

    def _values(self, values: V, step: V, elem: str, here: V, g: V, x: V, shrink: list[V]) -> None:
        """The weights times the values, added to the results so far."""
        c, plan, n = self.c, self.plan, self.lanes
        masks: list[V | None] = [None] * plan.across
        if not plan.even and not plan.packed:
            left = [c.op("sub", self.e, c.op("add", x, self.number(v * n))) for v in range(plan.across)]
            masks = [c.first(c.intrinsic("smax", k, self.zero), n) for k in left]
        line = c.gep(c.gep(self.part["result"], c.op("mul", g, self.wide), "float"), x, "float")
        homes, start = [], []
        for r in range(plan.rows):
            home = c.gep(line, c.op("mul", self.number(r), self.wide), "float")
            for v in range(plan.across):
                at = c.gep(home, v * n, "float")
                homes.append(at)
                start.append(c.op("fmul", c.load(at, "float", n), c.splat(shrink[r], n)))
        base = c.gep(values, x, elem)

        def some_keys(i: V, total: list[V], count: int) -> list[V]:
            at = c.gep(base, c.op("mul", i, step), elem)
            for u in range(count):
                some = []
                for v in range(plan.across):
                    raw = c.load(c.gep(at, v * n, elem), elem, n, masks[v])
                    some.append(raw if plan.packed else from_memory(c, raw, plan.v.dtype))
                out = []
                for r in range(plan.rows):
                    weight = c.load(c.gep(c.gep(self.part["weights"], r * KEYS + u, "float"), i, "float"), "float", 0)
                    many = c.splat(weight, n)
                    out += [c.fma(many, y, total[r * plan.across + v]) for v, y in enumerate(some)]
                total = out
                at = c.gep(at, step, elem)
            return total

        totals = self._unrolled(here, some_keys, start)
        for at, total in zip(homes, totals, strict=True):
            c.store(at, total)

    def _finish(self, r: V) -> list[V]:
        """Divides one row's results by its sum and stores them."""
        c, plan, n = self.c, self.plan, self.lanes
        total = c.load(c.gep(self.part["sums"], r, "float"), "float", 0)
        inverse = c.splat(c.op("fdiv", c.const(1.0, total), total), n)
        right = c.compare("ogt", total, c.const(0.0, total))
        row = c.op("mul", c.op("add", self.first, r), self.arg(f"o{self.rank - 2}"))
        target = c.gep(self.here["o"], row, self.elem["o"])
        source = c.gep(self.part["result"], c.op("mul", r, self.wide), "float")

        def step(i: V, _: list[V]) -> list[V]:
            mask = None if plan.even else c.first(c.op("sub", self.e, i), n)
            value = c.op("fmul", c.load(c.gep(source, i, "float"), "float", n), inverse)
            if plan.guarded:
                value = c.select(right, value, c.const(0.0, value))
            c.store(c.gep(target, i, self.elem["o"]), to_memory(c, value, plan.out.dtype), mask)
            return []

        c.loop(self.zero, self.e, n, step)
        return []


def _larger(c: Code, a: V, b: V) -> V:
    """The larger, lane by lane; a NaN is passed over and comes back through the exponential."""
    return c.select(c.compare("ogt", a, b), a, b)


def _lanes(c: Code, rows: Sequence[V], combine: Callable[[V, V], V]) -> V:
    """Lane i of the result: all lanes of vector i combined (8, or as many vectors as lanes)."""
    level = list(rows)
    n = level[0].n
    step = len(level) // 2
    while step:
        take_a = [lane if not lane & step else n + lane - step for lane in range(n)]
        take_b = [lane + step if not lane & step else n + lane for lane in range(n)]
        level = [
            combine(c.shuffle(a, b, take_a), c.shuffle(a, b, take_b))
            for a, b in zip(level[:step], level[step:], strict=True)
        ]
        step //= 2
    total = level[0]
    width = len(rows)
    while width < n:
        total = combine(total, c.shuffle(total, total, [(lane + width) % n for lane in range(n)]))
        width *= 2
    return total
