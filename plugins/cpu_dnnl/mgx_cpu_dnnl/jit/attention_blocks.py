"""Packs blocks of keys and values into scratch memory as float32, in the layout of an attention kernel's register tiles."""

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
                source = c.gep(base, c.op("mul", i, d_step), elem)

                def copy(j: V, _: list[V]) -> list[V]:
                    raw = c.load(c.gep(source, j, elem), elem, n, c.first(c.op("sub", here, j), n))
                    c.store(self.key(i, j), from_memory(c, raw, plan.k.dtype))
                    return []

                c.loop(self.item.zero, end, n, copy)
                return []

            c.loop(self.item.zero, self.item.d, 1, line)
            return
        last = c.op("sub", here, self.item.one)
        contiguous = plan.k.strides()[-1] == 1

        def across(j: V, _: list[V]) -> list[V]:
            lines = [
                c.gep(base, c.op("mul", c.intrinsic("smin", c.op("add", j, i64(r)), last), key_step), elem)
                for r in range(n)
            ]

            def along(i: V, _: list[V]) -> list[V]:
                mask = c.first(c.op("sub", self.item.d, i), n)
                rows = []
                for line in lines:
                    if contiguous:
                        raw = c.load(c.gep(line, i, elem), elem, n, mask)
                    else:
                        raw = c.gather(c.gep(line, c.op("mul", i, d_step), elem), c.offsets(d_step, n), elem, mask)
                    rows.append(from_memory(c, raw, plan.k.dtype))
                start = self.key(i, j)
                for r, row in enumerate(transposed(c, rows)):
                    c.store(c.gep(start, r * self.tile, "float"), row)
                return []

            c.loop(self.item.zero, self.item.d, n, along)
            return []

        c.loop(self.item.zero, end, n, across)

    def key(self, i: V, j: V) -> V:
        """Returns the address of element i of key j of the block, packed as [.., d, tile]."""
        c = self.c
        within = c.op("and", j, i64(self.tile - 1))
        panel = c.op("mul", c.op("sub", j, within), self.item.d)
        at = c.op("add", panel, c.op("add", c.op("mul", i, i64(self.tile)), within))
        return c.gep(self.item.part["keys"], at, "float")

    def copy_values(self, n0: V, here: V) -> None:
        """Packs the block's values as float32 [KEYS, wide], padded with zeros past the head's extent."""
        c, plan, n = self.c, self.plan, self.lanes
        step = self.item.arg(f"v{self.item.rank - 2}")
        elem = self.item.elem["v"]
        base = c.gep(self.item.here["v"], c.op("mul", n0, step), elem)

        def line(i: V, _: list[V]) -> list[V]:
            source = c.gep(base, c.op("mul", i, step), elem)
            target = c.gep(self.item.part["values"], c.op("mul", i, self.item.wide), "float")

            def copy(x: V, _: list[V]) -> list[V]:
                left = c.intrinsic("smax", c.op("sub", self.item.e, x), self.item.zero)
                raw = c.load(c.gep(source, x, elem), elem, n, None if plan.even else c.first(left, n))
                c.store(c.gep(target, x, "float"), from_memory(c, raw, plan.v.dtype))
                return []

            c.loop(self.item.zero, self.item.wide, n, copy)
            return []

        c.loop(self.item.zero, here, 1, line)
