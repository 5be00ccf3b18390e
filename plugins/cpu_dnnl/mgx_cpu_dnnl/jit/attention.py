"""Attention in blocks: scores of a few rows against a block of keys, softmax as it goes, times the values.

Per item: a chunk of query rows of one head.  Keys are turned into scratch a block at a time; a register tile of `rows` x
(vectors of keys) accumulates scores, the pointwise part (scale, mask, bias) runs on them, exponentials and sums are kept per
row, and a register tile of rows x (vectors of the head) accumulates the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from mgx_core import dtype as dt
from mgx_core.ir.module import Module
from mgx_core.kernel import No
from mgx_core.shape import Shape

from . import math as fast
from .code import Code, V
from .engine import Engine
from .graph import Graph, Node, Refused, read, walk
from .kernel import JitKernel
from .primitive import MEMORY, from_memory, to_memory
from .scope import Scope
from .space import Args, items
from .tile import transposed

__all__ = ["compile_attention"]

KEYS = 128  # keys of a block: its turned copy and the values fit the second-level cache with room
CHUNK = 192  # query rows of an item: turning keys is paid for by as many rows
NEGATIVE = -math.inf
FLOATS = (dt.float32, dt.float16, dt.bfloat16)


@dataclass
class _Plan:
    """What the code depends on is in `key`; extents and steps are args."""

    q: Shape
    k: Shape
    v: Shape
    out: Shape
    extra: Sequence[Shape]
    graph: Graph | None
    loads: list[Node]
    rows: int
    causal: bool
    turned: bool  # keys lie as [.., d, n] in memory
    even: bool  # the values' head extent is a whole number of tiles
    guarded: bool
    args: Args = field(default_factory=Args)
    slots: dict[str, int] = field(default_factory=dict)
    key: str = ""


def compile_attention(
    q: Shape,
    k: Shape,
    v: Shape,
    out: Shape,
    engine: Engine,
    score: Module | None = None,
    extra: Sequence[Shape] = (),
    causal: bool = False,
    offset: int | None = None,
    name: str = "attention",
    guarded: bool = False,
) -> JitKernel | No:
    """softmax(score(q k^T)) v.

    q [b.., m, d], k [b.., n, d], v [b.., n, e], out [b.., m, e], any strides, but v and out contiguous in e; batch axes are
    equal (repeat heads by a stride of 0).  score: a module of pointwise ops and views whose first parameter is the scores
    [b.., m, n], the others `extra` (kernel inputs after q, k, v).  causal: row i sees keys up to i + offset (default n - m).
    guarded: rows whose weights are NaN (all keys masked) count as weights of 0.
    """
    shapes = (q, k, v, out)
    if any(s.dtype not in FLOATS for s in shapes) or len({s.rank for s in shapes}) != 1 or q.rank < 2:
        return No(f"attention of {', '.join(map(str, shapes))}")
    batch, (m, d) = q.lens()[:-2], q.lens()[-2:]
    n, e = v.lens()[-2:]
    if k.lens() != [*batch, n, d] or v.lens() != [*batch, n, e] or out.lens() != [*batch, m, e]:
        return No(f"extents that do not fit: {', '.join(map(str, shapes))}")
    if (v.strides()[-1] != 1 and e > 1) or (out.strides()[-1] != 1 and e > 1):
        return No(f"values or results that are not contiguous along the head: {v}, {out}")
    if 0 in (d, n):
        return No("no keys, or heads without elements")
    graph = None
    loads: list[Node] = []
    if score is not None:
        try:
            graph = read(score, [Shape(dt.float32, [*batch, m, n]), *extra], [*batch, m, n])
        except Refused as error:
            return No(str(error))
        nodes = list(walk(graph.outputs))
        loads = [node for node in nodes if node.kind == "load" and node.extra[0] != 0]
        if len(graph.outputs) != 1 or not graph.outputs[0].dtype.is_float:
            return No("scores of another type")
    tile = engine.lanes * (4 if engine.wide else 2)
    plan = _Plan(
        q, k, v, out, extra, graph, loads,
        rows=_rows(m, engine), causal=causal, turned=k.strides()[-2] == 1 and n > 1 and k.strides()[-1] != 1,
        even=e % tile == 0, guarded=guarded,
    )  # fmt: skip
    _number(plan, batch, m, n, d, e, n - m if offset is None else offset)
    plan.key = _key(plan)
    chunk = _chunk(plan, m, math.prod(batch))
    plan.args.values[plan.slots["chunk"]] = chunk
    heads = math.prod(batch) if m and e else 0
    return JitKernel(
        name=name,
        code=engine.function(plan.key, lambda c: _Writer(c, plan).write()),
        work=heads * -(-m // chunk),
        grain=1 if n * d * min(chunk, m) > 8192 else max(1, 16384 // max(1, n * d * min(chunk, m))),
        args=tuple(plan.args.values),
        scratch_bytes=4 * _scratch(plan, chunk, engine.lanes, d, e)[-1],
        inputs=3 + len(extra),
        outputs=1,
        flops=2 * heads * m * n * (d + e),
        bytes=sum(s.element_space() * s.dtype.size for s in (*shapes, *extra)),
    )


def _rows(m: int, engine: Engine) -> int:
    """Rows of a register tile."""
    if m <= 2:
        return m or 1
    return 6 if engine.wide else 4


def _chunk(plan: _Plan, m: int, heads: int) -> int:
    most = CHUNK if heads >= 2 else -(-m // 2)
    pieces = -(-m // max(1, min(CHUNK, most)))
    each = -(-m // max(pieces, 1))
    return max(plan.rows, -(-each // plan.rows) * plan.rows)


def _scratch(plan: _Plan, chunk: int, lanes: int, d: int, e: int) -> list[int]:
    """Where the parts of scratch start, in floats, and its size: turned keys, weights, sums, maxima, shrinking, results."""
    wide = -(-e // (4 * lanes)) * 4 * lanes
    sizes = [(-(-d // lanes) * lanes) * KEYS, plan.rows * KEYS, chunk, chunk, 16, (chunk + plan.rows) * wide]
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // 16) * 16)
    return starts


def _number(plan: _Plan, batch: Sequence[int], m: int, n: int, d: int, e: int, offset: int) -> None:
    add = plan.args.add

    def slot(name: str, value: int) -> None:
        plan.slots[name] = add(value)

    for name, value in (("m", m), ("n", n), ("d", d), ("e", e), ("offset", offset), ("chunk", 0)):
        slot(name, value)
    for i, extent in enumerate(batch):
        slot(f"b{i}", extent)
    for word, shape in (("q", plan.q), ("k", plan.k), ("v", plan.v), ("o", plan.out)):
        for i, step in enumerate(shape.strides()):
            slot(f"{word}{i}", step)
    for j, node in enumerate(plan.loads):
        for i, step in enumerate(node.extra[1]):
            slot(f"x{j}.{i}", step)


def _key(plan: _Plan) -> str:
    words = [
        f"attention rank={plan.q.rank} rows={plan.rows} causal={plan.causal} turned={plan.turned} even={plan.even}"
    ]
    words.append(f"guarded={plan.guarded}")
    words.append(" ".join(str(s.dtype) for s in (plan.q, plan.k, plan.v, plan.out)))
    words.append(str((plan.k.strides()[-1] == 1, plan.q.strides()[-1] == 1, KEYS)))
    if plan.graph is not None:
        nodes = list(walk(plan.graph.outputs))
        number = {x.ident: i for i, x in enumerate(nodes)}
        for i, x in enumerate(nodes):
            extra = (x.extra[0], [min(s, 2) for s in x.extra[1]]) if x.kind == "load" else x.extra
            words.append(f"{i} {x.kind} {x.dtype} {extra} {[number[a.ident] for a in x.args]}")
    return "\n".join(words)


class _Writer:
    def __init__(self, c: Code, plan: _Plan) -> None:
        self.c = c
        self.plan = plan
        self.lanes = c.lanes
        self.vectors = 4 if c.wide else 2
        self.tile = self.lanes * self.vectors
        self.zero, self.one = V("0", "i64", 0), V("1", "i64", 0)
        self.rank = plan.q.rank

    def number(self, value: int) -> V:
        return V(str(value), "i64", 0)

    def arg(self, name: str) -> V:
        return self.refs[self.plan.slots[name]]

    def up(self, x: V, k: int) -> V:
        """x rounded up to a multiple of k."""
        c = self.c
        return c.op("mul", c.op("udiv", c.op("add", x, self.number(k - 1)), self.number(k)), self.number(k))

    def write(self) -> None:
        c, plan = self.c, self.plan
        buffers = V("%buffers", "ptr", 0)
        count = 3 + len(plan.extra) + 1
        self.bases = [c.load(c.gep(buffers, i, "ptr"), "ptr", 0) for i in range(count)]
        self.refs = plan.args.load(c)
        self.m, self.n, self.d, self.e = (self.arg(w) for w in "mnde")
        chunk = self.arg("chunk")
        scratch = V("%scratch", "ptr", 0)
        parts = [
            c.op("mul", self.up(self.d, self.lanes), self.number(KEYS)),
            self.number(-(-plan.rows * KEYS // 16) * 16),
            self.up(chunk, 16),
            self.up(chunk, 16),
            self.number(16),
        ]
        self.e_wide = self.up(self.e, 4 * self.lanes)
        self.turned = scratch
        at = scratch
        starts = []
        for part in parts:
            at = c.gep(at, part, "float")
            starts.append(at)
        self.weights, self.sums, self.tops, self.shrinks, self.result = starts
        blocks = c.op("udiv", c.op("add", self.m, c.op("sub", chunk, self.one)), chunk)
        extents = [self.arg(f"b{i}") for i in range(self.rank - 2)]
        items(c, [*extents, blocks], self.item)

    def moved(self, word: str, base: V, elem: str, index: Sequence[V]) -> V:
        """The address at leading indices."""
        c = self.c
        for i, x in enumerate(index):
            base = c.gep(base, c.op("mul", x, self.arg(f"{word}{i}")), elem)
        return base

    def item(self, index: list[V]) -> None:
        c, plan = self.c, self.plan
        batch, block = index[:-1], index[-1]
        chunk = self.arg("chunk")
        elem = {w: MEMORY[s.dtype] for w, s in (("q", plan.q), ("k", plan.k), ("v", plan.v), ("o", plan.out))}
        self.elem = elem
        self.here = {
            w: self.moved(w, self.bases[i if w != "o" else -1], elem[w], batch)
            for i, w in enumerate(("q", "k", "v", "o"))
        }
        self.extra = []
        for j, node in enumerate(plan.loads):
            base = self.bases[3 + node.extra[0] - 1]
            kind = MEMORY[node.dtype]
            for i, x in enumerate(batch):
                if node.extra[1][i]:
                    base = c.gep(base, c.op("mul", x, self.arg(f"x{j}.{i}")), kind)
            self.extra.append(base)
        self.first = c.op("mul", block, chunk)
        count = c.intrinsic("smin", chunk, c.op("sub", self.m, self.first))
        self._clear(count)
        last = self.n
        if plan.causal:  # keys that none of the rows sees are left out
            seen = c.op("add", c.op("add", self.first, count), self.arg("offset"))
            last = c.intrinsic("smin", self.n, c.intrinsic("smax", seen, self.zero))

        def keys(n0: V, _: list[V]) -> list[V]:
            here = c.intrinsic("smin", self.number(KEYS), c.op("sub", self.n, n0))
            self._turn(n0, here)

            def group(g: V, _: list[V]) -> list[V]:
                self._group(n0, here, g, count)
                return []

            c.loop(self.zero, count, plan.rows, group)
            return []

        c.loop(self.zero, last, KEYS, keys)
        c.loop(self.zero, count, 1, lambda r, _: self._finish(r))

    def _clear(self, count: V) -> None:
        c = self.c
        nothing = V("zeroinitializer", "float", self.lanes)

        def row(r: V, _: list[V]) -> list[V]:
            c.store(c.gep(self.sums, r, "float"), V("0.0", "float", 0))
            c.store(c.gep(self.tops, r, "float"), c.const(NEGATIVE, V("", "float", 0)))
            return []

        def step(i: V, _: list[V]) -> list[V]:
            c.store(c.gep(self.result, i, "float"), nothing)
            return []

        c.loop(self.zero, count, 1, row)
        c.loop(self.zero, c.op("mul", count, self.e_wide), self.lanes, step)

    def _turn(self, n0: V, here: V) -> None:
        """The block's keys as [d, KEYS] float32 in scratch; lanes past the last key hold some other key."""
        c, plan, n = self.c, self.plan, self.lanes
        key_step = self.arg(f"k{self.rank - 2}")
        d_step = self.arg(f"k{self.rank - 1}")
        elem = self.elem["k"]
        base = c.gep(self.here["k"], c.op("mul", n0, key_step), elem)
        keys = self.number(KEYS)
        if plan.turned:

            def line(i: V, _: list[V]) -> list[V]:
                source = c.gep(base, c.op("mul", i, d_step), elem)
                target = c.gep(self.turned, c.op("mul", i, keys), "float")

                def copy(j: V, _: list[V]) -> list[V]:
                    mask = c.first(c.intrinsic("smax", c.op("sub", here, j), self.zero), n)
                    raw = c.load(c.gep(source, j, elem), elem, n, mask)
                    c.store(c.gep(target, j, "float"), from_memory(c, raw, plan.k.dtype))
                    return []

                end = c.op(
                    "mul",
                    c.op("udiv", c.op("add", here, self.number(self.tile - 1)), self.number(self.tile)),
                    self.number(self.tile),
                )
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
                        steps = c.op("mul", c.iota("i64", n), c.splat(d_step, n))
                        raw = c.gather(c.gep(line, c.op("mul", i, d_step), elem), steps, elem, mask)
                    rows.append(from_memory(c, raw, plan.k.dtype))
                start = c.gep(self.turned, c.op("add", c.op("mul", i, keys), j), "float")
                for r, row in enumerate(transposed(c, rows)):
                    c.store(c.gep(start, r * KEYS, "float"), row)
                return []

            c.loop(self.zero, self.d, n, along)
            return []

        end = c.op(
            "mul",
            c.op("udiv", c.op("add", here, self.number(self.tile - 1)), self.number(self.tile)),
            self.number(self.tile),
        )
        c.loop(self.zero, end, n, across)

    def _group(self, n0: V, here: V, g: V, count: V) -> None:
        """A few rows against one block of keys."""
        c, plan = self.c, self.plan
        last = c.op("sub", count, self.one)
        rows = [c.intrinsic("smin", c.op("add", g, self.number(r)), last) if r else g for r in range(plan.rows)]
        self.rows = [c.op("add", self.first, r) for r in rows]
        q_step = self.arg(f"q{self.rank - 2}")
        queries = [c.gep(self.here["q"], c.op("mul", r, q_step), self.elem["q"]) for r in self.rows]

        def tile(j: V, _: list[V]) -> list[V]:
            self._scores(n0, here, j, queries)
            return []

        c.loop(self.zero, here, self.tile, tile)

        def soft(r: V, _: list[V]) -> list[V]:
            self._softmax(r, c.op("add", g, r), here)
            return []

        c.loop(self.zero, self.number(plan.rows), 1, soft)
        shrink = [c.load(c.gep(self.shrinks, r, "float"), "float", 0) for r in range(plan.rows)]
        value_step = self.arg(f"v{self.rank - 2}")
        values = c.gep(self.here["v"], c.op("mul", n0, value_step), self.elem["v"])

        def columns(x: V, _: list[V]) -> list[V]:
            self._values(values, value_step, here, g, x, shrink)
            return []

        c.loop(self.zero, self.e, self.tile, columns)

    def _scores(self, n0: V, here: V, j: V, queries: list[V]) -> None:
        c, plan, n = self.c, self.plan, self.lanes
        keys = c.gep(self.turned, j, "float")
        elem = self.elem["q"]
        d_step = self.arg(f"q{self.rank - 1}")
        unit = plan.q.strides()[-1] == 1
        start = [V("zeroinitializer", "float", n)] * (plan.rows * self.vectors)

        def step(i: V, total: list[V]) -> list[V]:
            line = c.gep(keys, c.op("mul", i, self.number(KEYS)), "float")
            vectors = [c.load(c.gep(line, v * n, "float"), "float", n) for v in range(self.vectors)]
            out = []
            at = i if unit else c.op("mul", i, d_step)
            for r, query in enumerate(queries):
                one = from_memory(c, c.load(c.gep(query, at, elem), elem, 0), plan.q.dtype)
                many = c.splat(one, n)
                out += [c.fma(many, x, total[r * self.vectors + v]) for v, x in enumerate(vectors)]
            return out

        totals = c.loop(self.zero, self.d, 1, step, start)[1:]
        shared: dict[tuple[int, int], V] = {}
        for r in range(plan.rows):
            for v in range(self.vectors):
                at = c.op("add", j, self.number(v * n)) if v else j
                value = totals[r * self.vectors + v]
                key = c.op("add", n0, at)
                if plan.graph is not None:
                    value = self._score(plan.graph, value, r, v, key, shared)
                inside = c.op("sub", here, at)
                if plan.causal:
                    seen = c.op("add", self.rows[r], c.op("add", self.arg("offset"), self.one))
                    inside = c.intrinsic("smin", inside, c.op("sub", seen, key))
                inside = c.first(c.intrinsic("smax", inside, self.zero), n)
                value = c.select(inside, value, c.const(NEGATIVE, value))
                c.store(c.gep(c.gep(self.weights, r * KEYS, "float"), at, "float"), value)

    def _score(self, graph: Graph, value: V, r: int, v: int, key: V, shared: dict[tuple[int, int], V]) -> V:
        """The pointwise part on one vector of scores."""
        c, plan, n = self.c, self.plan, self.lanes
        number = {x.ident: i for i, x in enumerate(plan.loads)}
        row_axis, key_axis = self.rank - 2, self.rank - 1

        def load(node: Node) -> V:
            if node.extra[0] == 0:
                return value
            k = number[node.ident]
            elem = MEMORY[node.dtype]
            steps = node.extra[1]
            found = None if steps[row_axis] else shared.get((k, v if steps[key_axis] else -1))
            if found is not None:
                return found
            at = self.extra[k]
            if steps[row_axis]:
                at = c.gep(at, c.op("mul", self.rows[r], self.arg(f"x{k}.{row_axis}")), elem)
            if not steps[key_axis]:
                out = c.splat(from_memory(c, c.load(at, elem, 0), node.dtype), n)
            else:
                step = self.arg(f"x{k}.{key_axis}")
                mask = c.first(c.intrinsic("smax", c.op("sub", self.n, key), self.zero), n)
                if steps[key_axis] == 1:
                    raw = c.load(c.gep(at, key, elem), elem, n, mask)
                else:
                    offsets = c.op("mul", c.iota("i64", n), c.splat(step, n))
                    raw = c.gather(c.gep(at, c.op("mul", key, step), elem), offsets, elem, mask)
                out = from_memory(c, raw, node.dtype)
            if not steps[row_axis]:
                shared[k, v if steps[key_axis] else -1] = out
            return out

        return Scope(c, n, load).value(graph.outputs[0])

    def _softmax(self, r: V, row: V, here: V) -> None:
        """Scores of one row to weights; keeps its maximum and sum, and what results so far shrink by."""
        c, n = self.c, self.lanes
        line = c.gep(self.weights, c.op("mul", r, self.number(KEYS)), "float")
        low = c.const(NEGATIVE, V("", "float", n))
        wide = self.tile

        def top(j: V, carried: list[V]) -> list[V]:
            out = []
            for v, best in enumerate(carried):
                x = c.load(c.gep(c.gep(line, j, "float"), v * n, "float"), "float", n)
                out.append(c.select(c.compare("ogt", best, x), best, x))
            return out

        bests = c.loop(self.zero, here, wide, top, [low] * self.vectors)[1:]
        best = _tree(c, bests, lambda a, b: c.select(c.compare("ogt", a, b), a, b))
        old = c.load(c.gep(self.tops, row, "float"), "float", 0)
        new = c.select(c.compare("ogt", old, best), old, best)
        none = c.compare("oeq", new, c.const(NEGATIVE, new))
        safe = c.select(none, c.const(0.0, new), new)
        spread = c.splat(safe, n)
        nothing = V("zeroinitializer", "float", n)

        def weigh(j: V, carried: list[V]) -> list[V]:
            out = []
            for v, total in enumerate(carried):
                at = c.gep(c.gep(line, j, "float"), v * n, "float")
                w = fast.exp_negative(c, c.op("fsub", c.load(at, "float", n), spread))
                c.store(at, w)
                out.append(c.op("fadd", total, w))
            return out

        totals = c.loop(self.zero, here, wide, weigh, [nothing] * self.vectors)[1:]
        total = _tree(c, totals, lambda a, b: c.op("fadd", a, b))
        shrink = fast.exp_negative(c, c.op("fsub", old, safe))
        at = c.gep(self.sums, row, "float")
        c.store(at, c.op("fadd", c.op("fmul", c.load(at, "float", 0), shrink), total))
        c.store(c.gep(self.tops, row, "float"), new)
        c.store(c.gep(self.shrinks, r, "float"), shrink)

    def _values(self, values: V, step: V, here: V, g: V, x: V, shrink: list[V]) -> None:
        """The weights times the values, added to what results there are."""
        c, plan, n = self.c, self.plan, self.lanes
        elem = self.elem["v"]
        masks = None
        if not plan.even:
            left = [c.op("sub", self.e, c.op("add", x, self.number(v * n))) for v in range(self.vectors)]
            masks = [c.first(c.intrinsic("smax", k, self.zero), n) for k in left]
        line = c.gep(c.gep(self.result, c.op("mul", g, self.e_wide), "float"), x, "float")
        homes, start = [], []
        for r in range(plan.rows):
            home = c.gep(line, c.op("mul", self.number(r), self.e_wide), "float")
            for v in range(self.vectors):
                at = c.gep(home, v * n, "float")
                homes.append(at)
                start.append(c.op("fmul", c.load(at, "float", n), c.splat(shrink[r], n)))
        base = c.gep(values, x, elem)

        def one(i: V, total: list[V]) -> list[V]:
            at = c.gep(base, c.op("mul", i, step), elem)
            vectors = []
            for v in range(self.vectors):
                raw = c.load(c.gep(at, v * n, elem), elem, n, masks[v] if masks else None)
                vectors.append(from_memory(c, raw, plan.v.dtype))
            out = []
            for r in range(plan.rows):
                weight = c.load(c.gep(c.gep(self.weights, r * KEYS, "float"), i, "float"), "float", 0)
                many = c.splat(weight, n)
                out += [c.fma(many, y, total[r * self.vectors + v]) for v, y in enumerate(vectors)]
            return out

        totals = c.loop(self.zero, here, 1, one, start)[1:]
        for at, total in zip(homes, totals, strict=True):
            c.store(at, total)

    def _finish(self, r: V) -> list[V]:
        """One row's results over its sum, to where they belong."""
        c, plan, n = self.c, self.plan, self.lanes
        total = c.load(c.gep(self.sums, r, "float"), "float", 0)
        inverse = c.splat(c.op("fdiv", c.const(1.0, total), total), n)
        right = c.compare("ogt", total, c.const(0.0, total))
        row = c.op("mul", c.op("add", self.first, r), self.arg(f"o{self.rank - 2}"))
        target = c.gep(self.here["o"], row, self.elem["o"])
        source = c.gep(self.result, c.op("mul", r, self.e_wide), "float")

        def step(i: V, _: list[V]) -> list[V]:
            mask = c.first(c.op("sub", self.e, i), n)
            value = c.op("fmul", c.load(c.gep(source, i, "float"), "float", n), inverse)
            if plan.guarded:
                value = c.select(right, value, c.const(0.0, value))
            c.store(c.gep(target, i, self.elem["o"]), to_memory(c, value, plan.out.dtype), mask)
            return []

        c.loop(self.zero, self.e, n, step)
        return []


def _tree(c: Code, parts: Sequence[V], combine: object) -> V:
    """Vectors combined pairwise, then their lanes, into a scalar."""
    join = combine
    assert callable(join)
    level = list(parts)
    while len(level) > 1:
        level = [join(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    total: V = level[0]
    width = total.n
    while width > 1:
        half = width // 2
        total = join(c.shuffle(total, total, range(half)), c.shuffle(total, total, range(half, width)))
        width = half
    return c.splat(total, 0)
