"""Code generator for GEMM with packed weights.

An item is a block of rows times a group of panels.  A microkernel of the native module computes a register tile of some rows
times one panel; only the epilogue is compiled.  If the depth is a single block, a tile's epilogue runs at once.  Otherwise sums
are accumulated in scratch memory over the blocks of the depth, and the epilogue runs over them row by row.  Panels and the
block's rows stay in the L2 cache; the next panel is prefetched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .code import Code, V, i64
from .element import MEMORY, from_memory
from .gemm_plan import UNROLL, VECTORS, GemmPlan, max_tile_rows
from .gemm_tiles import Rows, Tile, panel_sums, tile_sums
from .product_writer import ProductWriter
from .space import items

__all__ = ["flushed", "write"]


def write(c: Code, plan: GemmPlan) -> None:
    """Generates the kernel of a plan."""
    flushed(c, lambda: _Writer(c, plan).write())


class _Writer(ProductWriter):
    def __init__(self, c: Code, plan: GemmPlan) -> None:
        super().__init__(c, plan.epilogue, plan.args, 2 + plan.ragged, plan.filled)
        self.plan = plan
        self.lanes = c.lanes
        self.width = VECTORS * c.lanes
        self.elem = MEMORY[plan.weights]
        self.multiplied = "pairs" if plan.paired else self.elem
        self.a, self.weights = self.given[:2]
        self.tail = self.given[-1]  # the last panel, if it is partial

    def write(self) -> None:
        c = self.c
        self.panel = c.gep(self.sums, self.arg("panel"), "float")
        self.size = c.op("mul", self.arg("k"), i64(self.width))  # elements of a panel
        self.rows_first, self.near = (c.compare("ne", self.arg(x), self.zero) for x in ("rows_first", "near"))
        # usually blocks of rows vary fastest, so that each thread reads its own share of the weights
        items(c, list(self._either(self.rows_first, self.arg("blocks"), self.arg("groups"))), self.item)

    def _either(self, turned: V, a: V, b: V) -> tuple[V, V]:
        """Returns a, b if `turned`, else b, a."""
        return self.c.select(turned, a, b), self.c.select(turned, b, a)

    def item(self, index: list[V], _: V) -> None:
        c = self.c
        block, group = self._either(self.rows_first, *index)
        self.row0 = c.op("mul", block, self.arg("rows"))
        rows = c.intrinsic("smin", self.arg("rows"), c.op("sub", self.arg("m"), self.row0))
        self.rows = Rows(c, rows, max_tile_rows(c.wide))
        self.panel0 = c.op("mul", group, self.arg("group"))
        self.panels = c.intrinsic("smin", self.arg("group"), c.op("sub", self.arg("panels"), self.panel0))
        self.left = c.gep(self.a, c.op("mul", self.row0, self.arg("lda")), "float")
        if self.plan.abreast:
            self._panels_abreast()
            return
        if self.plan.whole:
            self._whole_depth()
            return
        self.pitch = c.op("mul", self.arg("group"), i64(self.width))
        c.loop(self.zero, self.arg("k"), self.arg("depth"), lambda k0, _: self._piece(k0))
        column0 = c.op("mul", self.panel0, i64(self.width))
        columns = c.op("mul", self.panels, i64(self.width))
        if self.plan.ragged:
            columns = c.intrinsic("smin", columns, c.op("sub", self.arg("n"), column0))
        self.results.rows(self.sums, self.pitch, self.row0, self.rows.count, column0, columns, self.plan.ragged)

    def _panel(self, p: V) -> tuple[V, V | None]:
        """Returns the address of a panel of the group, and the condition that it is the partial one."""
        c = self.c
        number = c.op("add", self.panel0, p)
        panel = c.gep(self.weights, c.op("mul", number, self.size), self.elem)
        if not self.plan.ragged:
            return panel, None
        last = c.compare("eq", number, c.op("sub", self.arg("panels"), self.one))
        return c.select(last, self.tail, panel), last

    def _panels_abreast(self) -> None:
        """Multiplies few rows by the group's panels, several at a time, then runs the epilogue on all."""
        c, plan, rows = self.c, self.plan, self.rows.count
        pitch = c.op("mul", self.arg("group"), i64(self.width))
        full, columns = self.panels, c.op("mul", self.panels, i64(self.width))
        column0 = c.op("mul", self.panel0, i64(self.width))
        if plan.ragged:
            before = c.op("sub", c.op("sub", self.arg("panels"), self.one), self.panel0)
            full = c.intrinsic("smin", self.panels, before)
            columns = c.intrinsic("smin", columns, c.op("sub", self.arg("n"), column0))
        first = c.gep(self.weights, c.op("mul", self.panel0, self.size), self.elem)
        tile = Tile(self.left, self.arg("lda"), first, self.arg("k"), self.sums, pitch, rows, i64(VECTORS), self.zero)
        panel_sums(c, self.elem, tile, self.size, full)

        def last() -> None:
            home = c.gep(self.sums, c.op("mul", full, i64(self.width)), "float")
            panel_sums(c, self.elem, tile._replace(panel=self.tail, sums=home), self.size, self.one)

        if plan.ragged:
            c.when(c.compare("slt", full, self.panels), last)
        self.results.rows(self.sums, pitch, self.row0, rows, column0, columns, plan.ragged)

    def _whole_depth(self) -> None:
        """Multiplies all rows of the block by the group's panels and runs the epilogue on each tile."""
        c = self.c
        outer, inner = self._either(self.near, self.rows.tiles, self.panels)

        def one(i: V, j: V) -> list[V]:
            t, p = self._either(self.near, i, j)
            self._finished_tile(t, p)
            return []

        def line(i: V, _: list[V]) -> list[V]:
            if not c.wide:
                c.when(c.compare("ne", self.arg("lines"), self.zero), lambda: self._announce(c.op("add", i, self.one)))
            c.loop(self.zero, inner, 1, lambda j, _: one(i, j))
            return []

        c.loop(self.zero, outer, 1, line)

    def _announce(self, t: V) -> None:
        """Prefetches the cache lines of tile t's results, for which stores would wait."""
        c = self.c
        row0 = c.op("add", self.row0, self.rows.tile(t)[0])

        def row(r: V, _: list[V]) -> list[V]:
            for at in self.results.at_row(c.op("add", row0, r)):

                def line(n: V, _: list[V], at: V = at) -> list[V]:
                    return touch(c.gep(at, c.op("mul", n, i64(64)), "i8"))

                c.loop(self.zero, self.arg("lines"), 1, line)
            return []

        def touch(at: V) -> list[V]:
            c.declared["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
            c.emit(f"call void @llvm.prefetch.p0(ptr {at.ref}, i32 1, i32 3, i32 1)")
            return []

        c.loop(self.zero, self.rows.low, 1, row)

    def _finished_tile(self, t: V, p: V) -> None:
        c, plan = self.c, self.plan
        first, count = self.rows.tile(t)
        panel, last = self._panel(p)
        full = i64(VECTORS)
        vectors = c.select(last, self.one, full) if last is not None and plan.narrow else full
        pitch = i64(self.width)
        prefetch = self._next_line(c.gep(panel, self.size, self.elem), panel, self.arg("k"), t)
        left = c.gep(self.left, c.op("mul", first, self.arg("lda")), "float")
        tile = Tile(left, self.arg("lda"), panel, self.arg("k"), self.sums, pitch, count, vectors, self.zero)
        tile_sums(c, self.multiplied, tile, prefetch, self.arg("ahead"))
        row0 = c.op("add", self.row0, first)
        column0 = c.op("mul", c.op("add", self.panel0, p), pitch)

        def finish(ragged: bool) -> None:
            columns = self.lanes if ragged and plan.narrow else self.width
            self.results.rows(self.sums, pitch, row0, count, column0, columns, ragged)

        c.either(last, lambda: finish(True), lambda: finish(False))

    def _piece(self, k0: V) -> list[V]:
        """Accumulates all rows of the block times `depth` rows of the group's panels."""
        c, plan = self.c, self.plan
        depth = c.intrinsic("smin", self.arg("depth"), c.op("sub", self.arg("k"), k0))
        left = c.gep(self.left, k0, "float")
        onward = c.cast("zext", c.compare("ne", k0, self.zero), "i64")

        def one_panel(p: V, _: list[V]) -> list[V]:
            panel = c.gep(self._panel(p)[0], c.op("mul", k0, i64(self.width)), self.elem)
            following = c.gep(panel, self.size, self.elem)
            if plan.widened:
                self._widen(panel, depth)
                panel = self.panel
            home = c.gep(self.sums, c.op("mul", p, i64(self.width)), "float")

            def one(t: V, _: list[V]) -> list[V]:
                first, count = self.rows.tile(t)
                rows = c.gep(left, c.op("mul", first, self.arg("lda")), "float")
                sums = c.gep(home, c.op("mul", first, self.pitch), "float")
                vectors = i64(VECTORS)
                tile = Tile(rows, self.arg("lda"), panel, depth, sums, self.pitch, count, vectors, onward)
                elem = "float" if plan.widened else self.multiplied
                tile_sums(c, elem, tile, self._next_line(following, panel, depth, t), self.arg("ahead"))
                return []

            c.loop(self.zero, self.rows.tiles, 1, one)
            return []

        c.loop(self.zero, self.panels, 1, one_panel)
        return []

    def _widen(self, panel: V, depth: V) -> None:
        """Widens a block of a panel to float32 in scratch memory."""
        c = self.c

        def line(i: V, _: list[V]) -> list[V]:
            raw = c.load(c.gep(panel, i, self.elem), self.elem, self.lanes)
            c.store(c.gep(self.panel, i, "float"), from_memory(c, raw, self.plan.weights))
            return []

        c.loop(self.zero, c.op("mul", depth, i64(self.width)), self.lanes, line)

    def _next_line(self, following: V, panel: V, depth: V, t: V) -> V:
        """Returns the address from which tile t prefetches: in the next panel, or the current one after the last."""
        c = self.c
        bytes_ = c.op("mul", depth, i64(self.width * (2 if self.elem == "i16" else 4)))
        lines = c.op("mul", self.arg("ahead"), i64(64 // UNROLL))
        done = c.op("mul", t, c.op("mul", depth, lines))
        return c.select(c.compare("ult", done, bytes_), c.gep(following, done, "i8"), panel)


FLUSH: Final = 0x8040  # MXCSR bits FTZ and DAZ: subnormal results and operands are treated as 0


def flushed(c: Code, body: Callable[[], None]) -> None:
    """Emits `body` with FTZ and DAZ set, since an operation on a subnormal takes up to 100 times longer."""
    usual = c.stack("i32", 2)
    flushing = c.gep(usual, 1, "i32")
    c.declared["stmxcsr"] = "declare void @llvm.x86.sse.stmxcsr(ptr)"
    c.declared["ldmxcsr"] = "declare void @llvm.x86.sse.ldmxcsr(ptr)"
    c.emit(f"call void @llvm.x86.sse.stmxcsr(ptr {usual.ref})")
    c.store(flushing, c.op("or", c.load(usual, "i32", 0), V(str(FLUSH), "i32", 0)))
    c.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {flushing.ref})")
    body()
    c.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {usual.ref})")
