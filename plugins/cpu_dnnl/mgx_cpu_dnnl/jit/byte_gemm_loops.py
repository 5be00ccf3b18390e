"""The code of products of bytes in tile registers, or by dot products of four bytes.

An item is a block of rows times a group of panels.  A function of the native module makes the sums of 32 rows and one panel in
scratch; what follows on them is compiled.  Few weights stay in the second-level cache, and the rows of a tile are finished from
end to end; of many, a panel is read once for all rows of the block, and the next one fetched meanwhile.
"""

from __future__ import annotations

from typing import Final

from mgx_core.records import dataclass

from .code import Code, V, i64
from .gemm_epilogue import ProductPlan
from .product_writer import ProductWriter
from .space import items

__all__ = ["COLUMNS", "FOUR", "ROWS", "TILE", "BytePlan", "ByteTiles"]

ROWS: Final = 32  # of a tile of sums
COLUMNS: Final = 64  # of a panel
TILE: Final = 64  # numbers of the depth that tile registers multiply at once
FOUR: Final = 4  # and those that dot products do


@dataclass
class BytePlan(ProductPlan):
    """tiles: tile registers multiply, else dot products; loose: the last step of the depth is not full; near: there are few
    weights; last: tiles of the last panel if that is not full, else 0; ragged: its last tile is not full."""

    kind = "bytes"
    tiles: bool
    signed: bool
    loose: bool
    near: bool
    last: int
    ragged: bool

    @property
    def step(self) -> int:
        """Numbers of the depth that are multiplied at once."""
        return TILE if self.tiles else FOUR


class ByteTiles(ProductWriter):
    """Writes the kernel that a plan describes."""

    def __init__(self, c: Code, plan: BytePlan) -> None:
        super().__init__(c, plan.behind, plan.args, 3)
        self.plan = plan
        self.left, self.weights, self.start = self.given

    def write(self) -> None:
        c = self.c
        self.laid = c.gep(self.sums, ROWS * COLUMNS, "i32")
        self.pitch = c.op("mul", self.arg("steps"), i64(self.plan.step))  # of rows that are copied, in bytes
        self.size = c.op("mul", self.pitch, i64(COLUMNS))  # of a panel, in bytes
        if self.plan.tiles:
            c.run("mgx_byte_tiles_1_begin")
        items(c, [self.arg("groups"), self.arg("blocks")], self.item)
        if self.plan.tiles:
            c.run("mgx_byte_tiles_1_end")

    def item(self, index: list[V], _: V) -> None:
        c, plan = self.c, self.plan
        group, block = index
        self.row0 = c.op("mul", block, self.arg("rows"))
        self.rows = c.intrinsic("smin", self.arg("rows"), c.op("sub", self.arg("m"), self.row0))
        self.panel0 = c.op("mul", group, self.arg("group"))
        panels = c.intrinsic("smin", self.arg("group"), c.op("sub", self.arg("panels"), self.panel0))
        if not plan.near:
            before = c.op("sub", self.rows, self.one)
            self._copy(c.op("sub", before, c.op("urem", before, i64(ROWS))))

        def one(row: V, panel: V) -> list[V]:
            self._tile(row, c.op("add", self.panel0, panel), self._source(row))
            return []

        def rows_of(panel: V, _: list[V]) -> list[V]:
            c.loop(self.zero, self.rows, ROWS, lambda row, _: one(row, panel))
            return []

        def panels_of(row: V, _: list[V]) -> list[V]:
            self._copy(row)
            c.loop(self.zero, panels, 1, lambda panel, _: one(row, panel))
            return []

        if plan.near:
            c.loop(self.zero, self.rows, ROWS, panels_of)
        else:
            c.loop(self.zero, panels, 1, rows_of)

    # rows

    def _count(self, row: V) -> V:
        """Returns the number of rows of the tile from a row of the block on."""
        return self.c.intrinsic("smin", i64(ROWS), self.c.op("sub", self.rows, row))

    def _at(self, row: V) -> V:
        """Returns the address of a row of the block."""
        c = self.c
        return c.gep(self.left, c.op("mul", c.op("add", self.row0, row), self.arg("left")), "i8")

    def _is_copied(self, row: V) -> V:
        """Returns True if the tile from a row on cannot be read where it lies.

        Whole steps of each row are read, and, in tile registers, whole tiles.
        """
        c = self.c
        end = c.op("add", row, i64(ROWS))
        short = c.compare("sgt", end, self.rows)
        if not self.plan.tiles:
            end = c.intrinsic("smin", end, self.rows)
        if self.plan.loose:  # a row's last step reaches into the rows behind it
            last = c.compare("sgt", c.op("add", self.row0, end), self.arg("readable"))
            return c.op("or", last, short) if self.plan.tiles else last
        return short if self.plan.tiles else c.compare("ne", self.zero, self.zero)

    def _copy(self, row: V) -> None:
        """Copies the tile from a row on if it must be: at most the last one of a block."""

        def copied() -> None:
            given = self._at(row), self.arg("left"), self._count(row), self.arg("depth"), self.laid, self.pitch
            self.c.run("mgx_byte_rows_1", *given)

        self.c.when(self._is_copied(row), copied)

    def _source(self, row: V) -> tuple[V, V]:
        """Returns the first row of a tile, and the bytes from one to the next."""
        c, copied = self.c, self._is_copied(row)
        return c.select(copied, self.laid, self._at(row)), c.select(copied, self.pitch, self.arg("left"))

    # sums

    def _tile(self, row: V, panel: V, source: tuple[V, V]) -> None:
        """Sums of a tile of rows and a panel, and what follows on them."""
        c, plan = self.c, self.plan
        count = self._count(row)
        at = c.gep(self.weights, c.op("mul", panel, self.size), "i8")
        column0 = c.op("mul", panel, i64(COLUMNS))
        full = i64(COLUMNS // 16)
        last = c.compare("eq", panel, c.op("sub", self.arg("panels"), self.one)) if plan.last else None
        tiles = full if last is None else c.select(last, i64(plan.last), full)
        start = c.gep(self.start, column0, "i32")
        name = f"mgx_byte_{'tile' if plan.tiles else 'dots'}_1_{'signed' if plan.signed else 'unsigned'}"
        prefetch = self._next_lines(row, at)
        self.c.run(name, *source, at, self.arg("steps"), self.sums, count, tiles, start, prefetch, self.arg("ahead"))
        line = c.op("add", self.row0, row)

        def finish(columns: int, ragged: bool) -> None:
            self.results.rows(self.sums, i64(COLUMNS), line, count, column0, columns, ragged)

        c.either(last, lambda: finish(16 * plan.last, plan.ragged), lambda: finish(COLUMNS, False))

    def _next_lines(self, row: V, panel: V) -> V:
        """Returns what a tile fetches ahead: its part of the next panel; after the last part, the panel in use."""
        c = self.c
        lines = c.op("mul", self.arg("ahead"), i64(2 * 64 // ROWS))  # bytes for a row and step
        done = c.op("mul", row, c.op("mul", self.arg("steps"), lines))
        following = c.gep(panel, self.size, "i8")
        return c.select(c.compare("ult", done, self.size), c.gep(following, done, "i8"), panel)
