"""The code of products with packed weights.

An item is a block of rows times a group of panels; a register tile takes some rows and one panel, or half of one at the end.
Where the depth is worked through in one piece, a tile's sums go through the pointwise part at once.  Else sums lie in scratch
while one piece follows the other, and the pointwise part runs over them at the end, row by row.  The panels and the block's
rows stay in the second-level cache; the next panel is prefetched meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from mgx_core import dtype as dt

from .code import Code, V
from .flushing import flushed
from .gemm_plan import UNROLL, VECTORS, GemmPlan
from .gemm_results import Results
from .gemm_tiles import tiles
from .primitive import MEMORY, from_memory
from .space import items

__all__ = ["write"]

AHEAD = 1024  # bytes of prefetch distance for bfloat16 weights that are read only once; float32 is as fast without


def write(c: Code, plan: GemmPlan) -> None:
    """The body of the kernel that a plan describes."""
    c.opaque_counters = True
    flushed(c, _Writer(c, plan).write)


class _Writer:
    def __init__(self, c: Code, plan: GemmPlan) -> None:
        self.c = c
        self.plan = plan
        self.lanes = c.lanes
        self.width = VECTORS * c.lanes
        self.zero, self.one = V("0", "i64", 0), V("1", "i64", 0)
        self.nothing = V("zeroinitializer", "float", c.lanes)
        self.elem = MEMORY[plan.weights]

    def number(self, value: int) -> V:
        return V(str(value), "i64", 0)

    def arg(self, name: str) -> V:
        return self.refs[self.plan.slots[name]]

    def write(self) -> None:
        c, plan = self.c, self.plan
        buffers = V("%buffers", "ptr", 0)
        bases = [
            c.load(c.gep(buffers, i, "ptr"), "ptr", 0) for i in range(2 + plan.ragged + plan.extra + len(plan.outs))
        ]
        self.a, self.weights = bases[0], bases[1]
        self.tail = bases[2]  # the last panel, if that is not full
        self.sums = V("%scratch", "ptr", 0)
        self.refs = plan.args.load(c)
        named = {word: self.refs[at] for word, at in plan.slots.items()}
        rest = bases[2 + plan.ragged :]
        self.results = Results(c, plan, named, rest[: plan.extra], rest[plan.extra :])
        self.panel = c.gep(self.sums, self.arg("panel"), "float")
        self.pitch = c.op("mul", self.arg("group"), self.number(self.width))
        outer = [self.arg("groups"), self.arg("blocks")]  # so that each thread reads weights of its own
        items(c, outer[::-1] if plan.rows_first else outer, self.item)

    def item(self, index: list[V], _: V) -> None:
        c = self.c
        index = index[::-1] if self.plan.rows_first else index
        self.row0 = c.op("mul", index[1], self.arg("rows"))
        self.rows = c.intrinsic("smin", self.arg("rows"), c.op("sub", self.arg("m"), self.row0))
        self.panel0 = c.op("mul", index[0], self.arg("group"))
        self.panels = c.intrinsic("smin", self.arg("group"), c.op("sub", self.arg("panels"), self.panel0))
        self.last = c.op("sub", self.rows, self.one)
        self.left = c.gep(self.a, c.op("mul", self.row0, self.arg("lda")), "float")
        if self.plan.whole:
            self._whole_depth()
            return
        if len(self.plan.heights) == 1:
            c.loop(self.zero, self.panels, 1, lambda p, _: self._whole_panel(p))
        else:
            self._clear()
            c.loop(self.zero, self.arg("k"), self.arg("depth"), lambda k0, _: self._piece(k0))
        column0 = c.op("mul", self.panel0, self.number(self.width))
        columns = c.op("mul", self.panels, self.number(self.width))
        if self.plan.ragged:
            columns = c.intrinsic("smin", columns, c.op("sub", self.arg("n"), column0))
        self.results.rows(self.sums, self.pitch, self.row0, self.rows, column0, columns, self.plan.ragged)

    def _panel(self, p: V) -> V:
        """Returns the address of a panel of the group."""
        c = self.c
        number = c.op("add", self.panel0, p)
        size = c.op("mul", self.arg("k"), self.number(self.width))
        panel = c.gep(self.weights, c.op("mul", number, size), self.elem)
        if not self.plan.ragged:
            return panel
        return c.select(c.compare("eq", number, c.op("sub", self.arg("panels"), self.one)), self.tail, panel)

    # a few rows: each panel is read once from end to end

    def _whole_panel(self, p: V) -> list[V]:
        c, h = self.c, self.plan.heights[0]
        panel = self._panel(p)
        lines = [c.gep(self.left, c.op("mul", self.number(r), self.arg("lda")), "float") for r in range(h)]
        start = [self.nothing] * (self.plan.chains * h * VECTORS)
        totals = self._accumulate(lines, panel, self.arg("k"), start, 8)
        tile = h * VECTORS
        while len(totals) > tile:
            half = len(totals) // 2
            totals = [c.op("fadd", a, b) for a, b in zip(totals[:half], totals[half:], strict=True)]
        home = c.gep(self.sums, c.op("mul", p, self.number(self.width)), "float")
        for r in range(h):
            line = c.gep(home, c.op("mul", self.number(r), self.pitch), "float")
            for v in range(VECTORS):
                c.store(c.gep(line, v * self.lanes, "float"), totals[r * VECTORS + v])
        return []

    # many rows

    def _clear(self) -> None:
        c = self.c
        size = c.op("mul", c.op("add", self.rows, self.number(self.plan.heights[0])), self.pitch)

        def clear(i: V, _: list[V]) -> list[V]:
            c.store(c.gep(self.sums, i, "float"), self.nothing)
            return []

        c.loop(self.zero, size, self.lanes, clear)

    def _piece(self, k0: V) -> list[V]:
        """All rows of the block times `depth` rows of the group's panels."""
        c, plan = self.c, self.plan
        depth = c.intrinsic("smin", self.arg("depth"), c.op("sub", self.arg("k"), k0))
        left = c.gep(self.left, k0, "float")
        size = c.op("mul", self.arg("k"), self.number(self.width))

        def one_panel(p: V, _: list[V]) -> list[V]:
            panel = c.gep(self._panel(p), c.op("mul", k0, self.number(self.width)), self.elem)
            following = c.gep(panel, size, self.elem)
            if plan.widened:
                self._widen(panel, depth)
                panel = self.panel
            home = c.gep(self.sums, c.op("mul", p, self.number(self.width)), "float")

            def tile(height: int, first: V, t: V) -> None:
                self._tile(height, first, left, panel, home, depth, self._next_line(following, panel, depth, t))

            tiles(self.c, plan.heights, self.rows, tile)
            return []

        c.loop(self.zero, self.panels, 1, one_panel)
        return []

    def _whole_depth(self) -> None:
        """All rows of the block times the group's panels, each tile's sums finished at once."""
        c, plan = self.c, self.plan
        k = self.arg("k")
        size = c.op("mul", k, self.number(self.width))
        ends = c.op("add", self.panel0, self.panels)
        last = c.compare("eq", ends, self.arg("panels"))
        full = c.op("sub", self.panels, c.cast("zext", last, "i64")) if plan.ragged else self.panels

        def tile(p: V, vectors: int, ragged: bool, height: int, first: V, t: V) -> None:
            number = c.op("add", self.panel0, p)
            panel = self.tail if ragged else c.gep(self.weights, c.op("mul", number, size), self.elem)
            count = c.intrinsic("smin", self.number(height), c.op("sub", self.rows, first))
            following = None
            if not plan.near:
                following = self._next_line(c.gep(panel, size, self.elem), panel, k, t)
            lines = self._lines(height, first, self.left, k)
            totals = self._accumulate(lines, panel, k, [self.nothing] * (height * vectors), UNROLL, following)
            for i, total in enumerate(totals):
                c.store(c.gep(self.sums, i * self.lanes, "float"), total)
            column0 = c.op("mul", number, self.number(self.width))
            row0 = c.op("add", self.row0, first)
            pitch = self.number(vectors * self.lanes)
            self.results.rows(self.sums, pitch, row0, count, column0, vectors * self.lanes, ragged)

        def panels(body: Callable[[V, int, bool], None]) -> None:
            def one(p: V, _: list[V]) -> list[V]:
                body(p, VECTORS, False)
                return []

            c.loop(self.zero, full, 1, one)
            if plan.ragged:
                c.when(last, lambda: body(full, 1 if plan.narrow else VECTORS, True))

        if plan.near:
            tiles(
                c,
                plan.heights,
                self.rows,
                lambda height, first, t: panels(lambda p, v, r: tile(p, v, r, height, first, t)),
            )
        else:
            panels(
                lambda p, v, r: tiles(
                    c, plan.heights, self.rows, lambda height, first, t: tile(p, v, r, height, first, t)
                )
            )

    def _widen(self, panel: V, depth: V) -> None:
        """A piece of a panel as float32 in scratch."""
        c = self.c

        def line(i: V, _: list[V]) -> list[V]:
            raw = c.load(c.gep(panel, i, self.elem), self.elem, self.lanes)
            c.store(c.gep(self.panel, i, "float"), from_memory(c, raw, self.plan.weights))
            return []

        c.loop(self.zero, c.op("mul", depth, self.number(self.width)), self.lanes, line)

    def _next_line(self, following: V, panel: V, depth: V, t: V) -> V:
        """Returns what tile t prefetches from: the next panel, some lines a trip; after its last, the panel in use."""
        c = self.c
        bytes_ = c.op("mul", depth, self.number(self.width * (2 if self.elem == "i16" else 4)))
        done = c.op("mul", t, c.op("mul", depth, self.number(64 * self.plan.ahead // UNROLL)))
        return c.select(c.compare("ult", done, bytes_), c.gep(following, done, "i8"), panel)

    def _prefetch(self, at: V) -> None:
        self.c.declared["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)"
        self.c.emit(f"call void @llvm.prefetch.p0(ptr {at.ref}, i32 0, i32 2, i32 1)")

    def _tile(self, height: int, first: V, left: V, panel: V, home: V, depth: V, prefetch: V) -> None:
        """Some rows times a piece of a panel, added to their sums; rows past the last repeat it."""
        c = self.c
        lines = self._lines(height, first, left, depth)
        totals = self._accumulate(lines, panel, depth, [self.nothing] * (height * VECTORS), UNROLL, prefetch)
        for r in range(height):
            line = c.gep(home, c.op("mul", c.op("add", first, self.number(r)), self.pitch), "float")
            for v in range(VECTORS):
                at = c.gep(line, v * self.lanes, "float")
                c.store(at, c.op("fadd", c.load(at, "float", self.lanes), totals[r * VECTORS + v]))

    def _ends_at_zero(self, unroll: int) -> bool:
        """True if the innermost loop counts from -depth up to 0, so that no register holds its end; rows are named by theirs."""
        return self.plan.even and unroll == UNROLL

    def _lines(self, height: int, first: V, left: V, depth: V) -> list[V]:
        """The addresses of a tile's rows of the left matrix: their ends where the innermost loop counts up to 0."""
        c = self.c
        if self._ends_at_zero(UNROLL):
            left = c.gep(left, depth, "float")
        seen = [c.intrinsic("smin", c.op("add", first, self.number(r)), self.last) for r in range(height)]
        return [c.gep(left, c.op("mul", row, self.arg("lda")), "float") for row in seen]

    def _accumulate(
        self, lines: list[V], panel: V, depth: V, start: list[V], unroll: int, prefetch: V | None = None
    ) -> list[V]:
        """Sums of a tile's products; with several chains each trip's rows go to them in turn.

        prefetch: the lines to prefetch, `ahead` of them a trip.
        """
        c, n = self.c, self.lanes
        elem = "float" if self.plan.widened else self.elem
        kind = dt.float32 if self.plan.widened else self.plan.weights
        vectors = min(VECTORS, len(start) // len(lines))
        tile = len(lines) * vectors
        chains = len(start) // tile

        step = self.number(64 * self.plan.ahead // unroll)
        if prefetch is not None and self._ends_at_zero(unroll):
            prefetch = c.gep(prefetch, c.op("mul", depth, step), "i8")

        def trip(count: int, i: V, carried: list[V]) -> list[V]:
            at, *out = carried
            if self.elem == "i16" and len(self.plan.heights) == 1:
                for byte in range(0, count * self.width * kind.size, 64):
                    self._prefetch(c.gep(at, AHEAD + byte, "i8"))
            if prefetch is not None and count > 1:
                lines_here = c.gep(prefetch, c.op("mul", i, step), "i8")
                for nth in range(self.plan.ahead):
                    self._prefetch(c.gep(lines_here, 64 * nth, "i8"))
            for u in range(count):
                some = []
                for v in range(vectors):
                    raw = c.load(c.gep(at, v * n, elem), elem, n)
                    some.append(from_memory(c, raw, kind))
                for r, line in enumerate(lines):
                    many = c.splat(c.load(c.gep(c.gep(line, i, "float"), u, "float"), "float", 0), n)
                    for v, x in enumerate(some):
                        slot = (u % chains) * tile + r * vectors + v
                        out[slot] = c.fma(many, x, out[slot])
                at = c.opaque(c.gep(at, self.width, elem))
            return [at, *out]

        carried = [panel, *start]
        if self._ends_at_zero(unroll):
            return c.rise(c.op("sub", self.zero, depth), unroll, lambda i, t: trip(unroll, i, t), carried)[1:]
        at, *ended = c.loop(self.zero, depth, unroll, lambda i, t: trip(unroll, i, t), carried, unroll - 1)
        _, *ended = c.loop(at, depth, 1, lambda i, t: trip(1, i, t), ended)
        return ended[1:]
