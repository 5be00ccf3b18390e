"""Code generator for byte products by sums of int16 pairs.

An item is a block of rows times a group of panels.  The block's rows are widened in scratch memory, then a function of the native
module computes the sums of at most six rows and one panel; the epilogue is compiled.  If the depth is one block, the epilogue of
a tile runs at once; otherwise sums are accumulated in scratch memory over the blocks of the depth.
"""

from __future__ import annotations

from typing import Final

from mgx_core.records import dataclass

from .code import Code, V, i64
from .gemm_epilogue import ProductPlan
from .gemm_tiles import Rows
from .product_writer import ProductWriter
from .space import items

__all__ = ["COLUMNS", "STEP", "ChannelPlan", "Channels", "FilterPlan", "Filters", "PairPlan", "Pairs"]

COLUMNS: Final = 16  # columns of a panel
ROWS: Final = 6  # maximum rows of a tile of sums
STEP: Final = 4  # depth of an iteration


@dataclass
class PairPlan(ProductPlan):
    """Plan; windows: rows are windows of a convolution; whole: the depth is one block; ragged: the last panel is partial;
    narrow: the last panel is at most half full."""

    kind = "pairs"
    windows: bool
    grouped: bool
    whole: bool
    ragged: bool
    narrow: bool
    signed: bool


@dataclass
class ChannelPlan(ProductPlan):
    """Plan; ragged: the channels do not fill pairs of vectors."""

    kind = "pairs of channels"
    ragged: bool


@dataclass
class FilterPlan(ProductPlan):
    """Plan; ragged: the last panel is partial; narrow: it is at most half full."""

    kind = "pairs of filters"
    ragged: bool
    narrow: bool


class Channels(ProductWriter):
    """Code generator for depthwise convolutions: an item is a block of results of a block of channels."""

    def __init__(self, c: Code, plan: ChannelPlan) -> None:
        super().__init__(c, plan.epilogue, plan.args, 4)
        self.plan = plan

    def write(self) -> None:
        c = self.c
        left, weights, totals, zero = self.given
        rows, block = self.arg("rows"), self.arg("block")
        sums = c.gep(self.sums, self.arg("space"), "i16")

        def item(index: list[V], _: V) -> None:
            channel = c.op("mul", index[0], block)
            row0 = c.op("mul", index[1], rows)
            count = c.intrinsic("smin", rows, c.op("sub", self.arg("m"), row0))
            some = c.intrinsic("smin", block, c.op("sub", self.arg("n"), channel))
            where = self.place("windows"), row0, count, some, self.arg("tile")
            what = c.gep(weights, c.op("mul", channel, i64(2)), "i16"), c.gep(totals, channel, "i32")
            c.run("mgx_pair_channels_3", c.gep(left, channel, "i8"), *where, *what, sums, self.sums, zero)
            self.results.rows(sums, some, row0, count, channel, some, self.plan.ragged)

        items(c, [self.arg("blocks"), self.arg("parts")], item)


class Filters(ProductWriter):
    """Code generator for Winograd convolutions.

    An item is a block of tiles times a group of panels: transforms the tiles to scratch memory, then sums panel by panel.
    """

    def __init__(self, c: Code, plan: FilterPlan) -> None:
        super().__init__(c, plan.epilogue, plan.args, 3)
        self.plan = plan

    def write(self) -> None:
        c = self.c
        self.products = c.gep(self.sums, self.arg("sums"), "i32")
        self.points = c.gep(self.products, self.arg("products"), "i32")
        self.filler = c.gep(self.points, self.arg("points"), "i16")
        self.tiles = c.stack("i64", 5)
        self.size = c.op("mul", self.arg("pitch"), i64(16 * COLUMNS))  # elements of a panel's filters
        items(c, [self.arg(x) for x in ("groups", "images", "down", "over")], self.item)

    def item(self, index: list[V], _: V) -> None:
        c = self.c
        group, self.image, down, over = index
        left, filters, zero = self.given
        self.y, self.x = c.op("mul", down, self.arg("lines")), c.op("mul", over, self.arg("across"))
        self.lines = c.intrinsic("smin", self.arg("lines"), c.op("sub", self.arg("tiles_down"), self.y))
        self.across = c.intrinsic("smin", self.arg("across"), c.op("sub", self.arg("tiles_across"), self.x))
        for i, value in enumerate((self.image, self.y, self.x, self.lines, self.across)):
            c.store(c.gep(self.tiles, i, "i64"), value)
        where = self.place("windows"), self.tiles, self.points, self.arg("pitch"), self.filler
        c.run("mgx_pair_points_1", left, *where, zero)
        panel0 = c.op("mul", group, self.arg("group"))
        panels = c.intrinsic("smin", self.arg("group"), c.op("sub", self.arg("panels"), panel0))

        def one(p: V, _: list[V]) -> list[V]:
            number = c.op("add", panel0, p)
            self._panel(number, c.gep(filters, c.op("mul", number, self.size), "i16"))
            return []

        c.loop(self.zero, panels, 1, one)

    def _panel(self, number: V, panel: V) -> None:
        c, plan = self.c, self.plan
        last = None
        if plan.ragged:
            last = c.compare("eq", number, c.op("sub", self.arg("panels"), self.one))
        vectors = i64(2) if last is None or not plan.narrow else c.select(last, self.one, i64(2))
        given = self.points, self.arg("pitch"), panel, self.tiles, self.products, self.sums, vectors
        c.run("mgx_pair_filters_1", *given)
        c.either(last, lambda: self._finish(number, True), lambda: self._finish(number, False))

    def _finish(self, number: V, ragged: bool) -> None:
        """Runs the epilogue on lines of results, two per line of tiles."""
        c, two = self.c, i64(2)
        columns = COLUMNS // 2 if ragged and self.plan.narrow and not c.wide else COLUMNS
        pitch = i64(COLUMNS)
        column = c.op("mul", number, pitch)
        x, y = c.op("mul", self.x, two), c.op("mul", self.y, two)
        wide = c.op("mul", self.across, two)
        count = c.intrinsic("smin", wide, c.op("sub", self.arg("width"), x))
        tall = c.intrinsic("smin", c.op("mul", self.lines, two), c.op("sub", self.arg("height"), y))
        begin = c.op("add", c.op("mul", self.image, self.arg("height")), y)

        def line(r: V, _: list[V]) -> list[V]:
            row = c.op("add", c.op("mul", c.op("add", begin, r), self.arg("width")), x)
            sums = c.gep(self.sums, c.op("mul", c.op("mul", r, wide), pitch), "i32")
            self.results.rows(sums, pitch, row, count, column, columns, ragged)
            return []

        c.loop(self.zero, tall, 1, line)


class Pairs(ProductWriter):
    """Code generator for products, and for convolutions whose windows are the rows of a product."""

    def __init__(self, c: Code, plan: PairPlan) -> None:
        super().__init__(c, plan.epilogue, plan.args, 3)
        self.plan = plan
        self.left, self.weights, self.point = self.given

    def write(self) -> None:
        c = self.c
        self.widened = c.gep(self.sums, self.arg("space"), "i32")
        whole = c.op("mul", c.op("udiv", c.op("add", self.arg("depth"), i64(STEP - 1)), i64(STEP)), i64(STEP))
        self.size = c.op("mul", whole, i64(COLUMNS))  # elements of a panel
        items(c, [self.arg("kinds"), self.arg("groups"), self.arg("blocks")], self.item)

    def item(self, index: list[V], _: V) -> None:
        c, plan = self.c, self.plan
        kind, group, block = index
        self.row0 = c.op("mul", block, self.arg("rows"))
        self.rows = Rows(c, c.intrinsic("smin", self.arg("rows"), c.op("sub", self.arg("m"), self.row0)), ROWS)
        self.panel0 = c.op("mul", group, self.arg("group"))
        self.panels = c.intrinsic("smin", self.arg("group"), c.op("sub", self.arg("panels"), self.panel0))
        self.column0 = c.op("mul", self.panel0, i64(COLUMNS))
        panels, self.source, self.first = self.weights, self.left, self.zero
        if plan.grouped:
            self.first = c.op("mul", kind, self.arg("columns"))
            self.source = c.gep(self.left, c.op("mul", kind, self.arg("channels")), "i8")
            panels = c.gep(panels, c.op("mul", c.op("mul", kind, self.arg("panels")), self.size), "i16")
            self.results.args["n"] = c.op("add", self.first, self.arg("columns"))
        self.panel = c.gep(panels, c.op("mul", self.panel0, self.size), "i16")
        if plan.whole:
            self._widen(self.zero, self.arg("depth"))
            c.loop(self.zero, self.panels, 1, self._whole_panel)
            return
        self.pitch = c.op("mul", self.arg("group"), i64(COLUMNS))
        c.loop(self.zero, self.arg("depth"), self.arg("piece"), lambda k, _: self._piece(k))
        columns = c.op("mul", self.panels, i64(COLUMNS))
        if plan.ragged:
            columns = c.intrinsic("smin", columns, c.op("sub", self.arg("columns"), self.column0))
        at = c.op("add", self.first, self.column0)
        self.results.rows(self.sums, self.pitch, self.row0, self.rows.count, at, columns, plan.ragged or c.wide)

    def _widen(self, k: V, depth: V) -> None:
        """Widens a block of the depth of the rows to int16 in scratch memory."""
        c = self.c
        pitch = self.arg("pitch")
        if self.plan.windows:
            lines = self.arg("lines")
            line = c.op("udiv", k, self.arg("run"))
            if not self.plan.whole:
                lines = c.op("udiv", depth, self.arg("run"))
            where = self.source, self.place("windows"), self.row0, self.rows.count, line, lines
            c.run("mgx_pair_windows_1", *where, self.widened, pitch, self.point)
            return
        at = c.gep(c.gep(self.source, c.op("mul", self.row0, self.arg("left")), "i8"), k, "i8")
        rows = self.widened, pitch, self.point, i64(int(self.plan.signed))
        c.run("mgx_pair_rows_1", at, self.arg("left"), self.rows.count, depth, *rows)

    def _add(self, first: V, count: V, panel: V, depth: V, sums: V, pitch: V, vectors: V, onward: V) -> None:
        c = self.c
        rows = c.gep(self.widened, c.op("mul", first, self.arg("pitch")), "i16")
        c.run("mgx_pair_tile_1", rows, self.arg("pitch"), panel, depth, sums, pitch, count, vectors, onward)

    def _last(self, p: V) -> V | None:
        """Returns the condition that a panel is the partial one."""
        c = self.c
        if not self.plan.ragged:
            return None
        return c.compare("eq", c.op("add", self.panel0, p), c.op("sub", self.arg("panels"), self.one))

    def _vectors(self, last: V | None) -> V:
        full = i64(2)
        return self.c.select(last, self.one, full) if last is not None and self.plan.narrow else full

    def _whole_panel(self, p: V, _: list[V]) -> list[V]:
        """Multiplies all rows of the block by a panel and runs the epilogue on each tile."""
        c, plan = self.c, self.plan
        panel = c.gep(self.panel, c.op("mul", p, self.size), "i16")
        last, pitch = self._last(p), i64(COLUMNS)
        column = c.op("add", self.first, c.op("add", self.column0, c.op("mul", p, pitch)))

        def one(t: V, _: list[V]) -> list[V]:
            first, count = self.rows.tile(t)
            self._add(first, count, panel, self.arg("pitch"), self.sums, pitch, self._vectors(last), self.zero)
            line = c.op("add", self.row0, first)

            def finish(ragged: bool) -> None:
                columns = COLUMNS // 2 if ragged and plan.narrow and not c.wide else COLUMNS
                self.results.rows(self.sums, pitch, line, count, column, columns, ragged)

            c.either(last, lambda: finish(True), lambda: finish(False))
            return []

        c.loop(self.zero, self.rows.tiles, 1, one)
        return []

    def _piece(self, k: V) -> list[V]:
        """Accumulates one block of the depth: all rows of the block times the group's panels."""
        c = self.c
        depth = c.intrinsic("smin", self.arg("piece"), c.op("sub", self.arg("depth"), k))
        self._widen(k, depth)
        onward = c.cast("zext", c.compare("ne", k, self.zero), "i64")
        padded = c.op("mul", c.op("udiv", c.op("add", depth, i64(STEP - 1)), i64(STEP)), i64(STEP))

        def one_panel(p: V, _: list[V]) -> list[V]:
            panel = c.gep(c.gep(self.panel, c.op("mul", p, self.size), "i16"), c.op("mul", k, i64(COLUMNS)), "i16")
            home = c.gep(self.sums, c.op("mul", p, i64(COLUMNS)), "i32")
            vectors = self._vectors(self._last(p))

            def one(t: V, _: list[V]) -> list[V]:
                first, count = self.rows.tile(t)
                sums = c.gep(home, c.op("mul", first, self.pitch), "i32")
                self._add(first, count, panel, padded, sums, self.pitch, vectors, onward)
                return []

            c.loop(self.zero, self.rows.tiles, 1, one)
            return []

        c.loop(self.zero, self.panels, 1, one_panel)
        return []
