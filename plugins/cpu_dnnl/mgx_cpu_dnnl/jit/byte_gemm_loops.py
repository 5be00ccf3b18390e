"""Code generator for GEMM of bytes with AMX tiles or dot products of four, and of bfloat16 with AMX tiles.

An item is a block of rows times a group of panels.  A function of the native module computes the sums of 32 rows and one panel
in scratch memory; the epilogue is compiled.  Small weights stay in the L2 cache and the loop over panels is the inner one;
of large weights, a panel is read once for all rows of the block while the next panel is prefetched.  Depths are in bytes.
"""

from __future__ import annotations

from typing import Final

from mgx_core.records import dataclass

from .code import Code, V, i64
from .gemm_epilogue import ProductPlan
from .product_writer import ProductWriter
from .space import items

__all__ = ["COLUMNS", "FOUR", "ROWS", "TILE", "BytePlan", "ByteTiles"]

ROWS: Final = 32  # rows of a tile of sums
COLUMNS: Final = 64  # columns of a panel
TILE: Final = 64  # depth of one AMX multiplication, in bytes
FOUR: Final = 4  # depth of one dot product
PREFIX = "mgx_byte"  # of the native module's functions; tests emulate them


@dataclass
class BytePlan(ProductPlan):
    """Plan; tiles: uses AMX, else dot products; loose: the last step of the depth is partial; near: the weights are small;
    last: tiles of the last panel if that is partial, else 0; ragged: its last tile is partial; bfloat16: the elements are
    bfloat16, not bytes, and the sums float32."""

    kind = "bytes"
    tiles: bool
    signed: bool
    loose: bool
    near: bool
    last: int
    ragged: bool
    bfloat16: bool = False

    @property
    def copied(self) -> bool:
        """Returns True if all rows are copied and padded with zeros.

        The last step of a row reads the next one, too, which zeros in the weights cancel only if it is finite.
        """
        return self.bfloat16 and self.loose

    @property
    def step(self) -> int:
        """Returns the depth of one multiplication."""
        return TILE if self.tiles else FOUR


class ByteTiles(ProductWriter):
    """Generates the kernel of a plan."""

    def __init__(self, c: Code, plan: BytePlan) -> None:
        super().__init__(c, plan.epilogue, plan.args, 3)
        self.plan = plan
        self.left, self.weights, self.start = self.given

    def write(self) -> None:
        c = self.c
        self.copies = c.gep(self.sums, ROWS * COLUMNS, "i32")
        self.pitch = c.op("mul", self.arg("steps"), i64(self.plan.step))  # bytes between copied rows
        self.size = c.op("mul", self.pitch, i64(COLUMNS))  # bytes of a panel
        if self.plan.tiles:
            c.run(f"{PREFIX}_tiles_1_begin")
        items(c, [self.arg("groups"), self.arg("blocks")], self.item)
        if self.plan.tiles:
            c.run(f"{PREFIX}_tiles_1_end")

    def item(self, index: list[V], _: V) -> None:
        c, plan = self.c, self.plan
        group, block = index
        self.row0 = c.op("mul", block, self.arg("rows"))
        self.rows = c.intrinsic("smin", self.arg("rows"), c.op("sub", self.arg("m"), self.row0))
        self.panel0 = c.op("mul", group, self.arg("group"))
        panels = c.intrinsic("smin", self.arg("group"), c.op("sub", self.arg("panels"), self.panel0))
        if plan.copied and not plan.near:
            self._copy_rows(self.zero, self.rows)
        elif not plan.near:
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
        """Returns the height of the tile that starts at a row of the block."""
        return self.c.intrinsic("smin", i64(ROWS), self.c.op("sub", self.rows, row))

    def _at(self, row: V) -> V:
        """Returns the address of a row of the block."""
        c = self.c
        return c.gep(self.left, c.op("mul", c.op("add", self.row0, row), self.arg("left")), "i8")

    def _is_copied(self, row: V) -> V:
        """Returns True if the tile that starts at a row cannot be read in place.

        Each row is read in whole steps and, with AMX, in whole tiles.
        """
        c = self.c
        if self.plan.copied:
            return c.compare("eq", self.zero, self.zero)
        end = c.op("add", row, i64(ROWS))
        short = c.compare("sgt", end, self.rows)
        if not self.plan.tiles:
            end = c.intrinsic("smin", end, self.rows)
        if self.plan.loose:  # a row's last step reads into the following rows
            last = c.compare("sgt", c.op("add", self.row0, end), self.arg("readable"))
            return c.op("or", last, short) if self.plan.tiles else last
        return short if self.plan.tiles else c.compare("ne", self.zero, self.zero)

    def _copy(self, row: V) -> None:
        """Copies the tile that starts at a row if it cannot be read in place; unless all are, at most the last one of a block."""
        self.c.when(self._is_copied(row), lambda: self._copy_rows(row, self._count(row)))

    def _copy_rows(self, row: V, count: V) -> None:
        given = self._at(row), self.arg("left"), count, self.arg("depth"), self.copies, self.pitch
        self.c.run(f"{PREFIX}_rows_1", *given)

    def _source(self, row: V) -> tuple[V, V]:
        """Returns the address of a tile's first row and the row stride in bytes."""
        c = self.c
        if self.plan.copied and not self.plan.near:
            return c.gep(self.copies, c.op("mul", row, self.pitch), "i8"), self.pitch
        copied = self._is_copied(row)
        return c.select(copied, self.copies, self._at(row)), c.select(copied, self.pitch, self.arg("left"))

    # sums

    def _tile(self, row: V, panel: V, source: tuple[V, V]) -> None:
        """Computes the sums of a tile of rows and a panel, and runs the epilogue."""
        c, plan = self.c, self.plan
        count = self._count(row)
        at = c.gep(self.weights, c.op("mul", panel, self.size), "i8")
        column0 = c.op("mul", panel, i64(COLUMNS))
        full = i64(COLUMNS // 16)
        last = c.compare("eq", panel, c.op("sub", self.arg("panels"), self.one)) if plan.last else None
        tiles = full if last is None else c.select(last, i64(plan.last), full)
        start = c.gep(self.start, column0, "i32")
        kind = "bfloat16" if plan.bfloat16 else "signed" if plan.signed else "unsigned"
        name = f"{PREFIX}_{'tile' if plan.tiles else 'dots'}_1_{kind}"
        prefetch, ahead = self._next_lines(row, at), self.arg("ahead")
        if plan.bfloat16 and plan.near:  # the first rows prefetch for all
            ahead = c.select(c.compare("eq", row, self.zero), ahead, self.zero)
        self.c.run(name, *source, at, self.arg("steps"), self.sums, count, tiles, start, prefetch, ahead)
        line = c.op("add", self.row0, row)

        def finish(columns: int, ragged: bool) -> None:
            self.results.rows(self.sums, i64(COLUMNS), line, count, column0, columns, ragged)

        c.either(last, lambda: finish(16 * plan.last, plan.ragged), lambda: finish(COLUMNS, False))

    def _next_lines(self, row: V, panel: V) -> V:
        """Returns what a tile prefetches: its share of the next panel; after the last share, the current panel."""
        c = self.c
        lines = c.op("mul", self.arg("ahead"), i64(2 * 64 // ROWS))  # bytes per row and step
        done = c.op("mul", row, c.op("mul", self.arg("steps"), lines))
        following = c.gep(panel, self.size, "i8")
        return c.select(c.compare("ult", done, self.size), c.gep(following, done, "i8"), panel)
