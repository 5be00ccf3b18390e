"""Packs blocks of keys and values into scratch memory, in the layout of an attention kernel's register tiles.

Elements are float32, or pairs of bfloat16: of neighbors along the head for keys, and of two keys for values.
"""

from __future__ import annotations

from .attention_item import Item
from .code import V, i64
from .element import from_memory
from .tile import transposed

__all__ = ["Blocks"]


class Blocks:
    """Packs one block at a time; `key` returns the address of an element of a packed key."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.c, self.plan, self.lanes, self.tile = item.c, item.plan, item.c.lanes, item.tile

    def _up(self, x: V, k: int) -> V:
        """Rounds x up to a multiple of k."""
        c = self.c
        return c.op("mul", c.op("udiv", c.op("add", x, i64(k - 1)), i64(k)), i64(k))

    def _end(self, here: V) -> V:
        """Returns the number of keys of a block, padded to what register tiles read."""
        c, half = self.c, self.item.half
        within = c.op("and", c.op("sub", here, self.item.one), i64(self.tile - 1))
        return c.select(c.compare("sgt", within, i64(half - 1)), self._up(here, self.tile), self._up(here, self.lanes))

    def copy_keys(self, n0: V, here: V) -> None:
        """Packs the block's keys transposed; lanes past the last key repeat another key."""
        c, plan, n = self.c, self.plan, self.lanes
        key_step, d_step = self.item.arg(f"k{self.item.rank - 2}"), self.item.arg(f"k{self.item.rank - 1}")
        elem = self.item.elem["k"]
        base = c.gep(self.item.here["k"], c.op("mul", n0, key_step), elem)
        end = self._end(here)
        if plan.turned:

            def line(i: V, _: list[V]) -> list[V]:
                first = c.op("shl", i, self.item.one) if plan.paired else i
                source = c.gep(base, c.op("mul", first, d_step), elem)

                def copy(j: V, _: list[V]) -> list[V]:
                    mask = c.first(c.op("sub", here, j), n)
                    at = c.gep(source, j, elem)
                    raw = c.load(at, elem, n, mask)
                    if plan.paired:
                        packed = self._pair(raw, c.load(c.gep(at, d_step, elem), elem, n, mask))
                    else:
                        packed = from_memory(c, raw, plan.k.dtype)
                    c.store(self.key(i, j), packed)
                    return []

                c.loop(self.item.zero, end, n, copy)
                return []

            c.loop(self.item.zero, self.item.depth, 1, line)
            return
        last = c.op("sub", here, self.item.one)
        contiguous = plan.k.strides()[-1] == 1

        def across(j: V, _: list[V]) -> list[V]:
            lines = [
                c.gep(base, c.op("mul", c.intrinsic("smin", c.op("add", j, i64(r)), last), key_step), elem)
                for r in range(n)
            ]

            def along(i: V, _: list[V]) -> list[V]:
                left = c.op("sub", self.item.depth, i)
                mask = c.first(c.op("shl", left, self.item.one), 2 * n) if plan.paired else c.first(left, n)
                rows = []
                for line in lines:
                    if plan.paired:
                        pairs = c.load(c.gep(line, c.op("shl", i, self.item.one), elem), elem, 2 * n, mask)
                        rows.append(c.reinterpret(pairs, "i32", n))
                        continue
                    if contiguous:
                        raw = c.load(c.gep(line, i, elem), elem, n, mask)
                    else:
                        raw = c.gather(c.gep(line, c.op("mul", i, d_step), elem), c.offsets(d_step, n), elem, mask)
                    rows.append(from_memory(c, raw, plan.k.dtype))
                start = self.key(i, j)
                for r, row in enumerate(transposed(c, rows)):
                    c.store(c.gep(start, r * self.tile, "float"), row)
                return []

            c.loop(self.item.zero, self.item.depth, n, along)
            return []

        c.loop(self.item.zero, end, n, across)

    def key(self, i: V, j: V) -> V:
        """Returns the address of element or pair i of key j of the block, packed as [.., depth, tile]."""
        c = self.c
        within = c.op("and", j, i64(self.tile - 1))
        panel = c.op("mul", c.op("sub", j, within), self.item.depth)
        at = c.op("add", panel, c.op("add", c.op("mul", i, i64(self.tile)), within))
        return c.gep(self.item.part["keys"], at, "float")

    def copy_values(self, n0: V, here: V) -> None:
        """Packs the block's values as [KEYS, wide] or pairs [KEYS / 2, wide], padded with zeros past the head and the keys."""
        c, plan, n = self.c, self.plan, self.lanes
        step = self.item.arg(f"v{self.item.rank - 2}")
        elem = self.item.elem["v"]
        base = c.gep(self.item.here["v"], c.op("mul", n0, step), elem)

        def line(i: V, _: list[V]) -> list[V]:
            source = c.gep(base, c.op("mul", i, step), elem)
            row = c.op("lshr", i, self.item.one) if plan.paired else i
            target = c.gep(self.item.part["values"], c.op("mul", row, self.item.wide), "float")
            second = c.compare("slt", c.op("add", i, self.item.one), here)

            def copy(x: V, _: list[V]) -> list[V]:
                left = c.intrinsic("smax", c.op("sub", self.item.e, x), self.item.zero)
                at = c.gep(source, x, elem)
                raw = c.load(at, elem, n, None if plan.even else c.first(left, n))
                if plan.paired:  # an odd last key has a neighbor of zeros
                    mask = c.first(c.select(second, left, self.item.zero), n)
                    packed = self._pair(raw, c.load(c.gep(at, step, elem), elem, n, mask))
                else:
                    packed = from_memory(c, raw, plan.v.dtype)
                c.store(c.gep(target, x, "float"), packed)
                return []

            c.loop(self.item.zero, self.item.wide, n, copy)
            return []

        c.loop(self.item.zero, here, 2 if plan.paired else 1, line)

    def _pair(self, low: V, high: V) -> V:
        """Joins the 16-bit elements of two vectors lane by lane."""
        c = self.c
        wide = c.cast("zext", high, "i32")
        return c.op("or", c.op("shl", wide, c.const(16, wide)), c.cast("zext", low, "i32"))
