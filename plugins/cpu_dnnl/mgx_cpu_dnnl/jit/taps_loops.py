"""Code generator for loops over taps: table-driven copies and weighted sums."""

from __future__ import annotations

from mgx_core import dtype as dt

from .code import Code, V, constant, i64
from .element import MEMORY, computed, elem_of, from_memory, to_memory
from .space import items
from .taps_plan import Plan

__all__ = ["write"]


def write(c: Code, plan: Plan) -> None:
    """Generates the kernel of a plan."""
    _Writer(c, plan).write()


class _Writer:
    def __init__(self, c: Code, plan: Plan) -> None:
        self.c = c
        self.plan = plan
        self.x_elem, self.out_elem = MEMORY[plan.x.dtype], MEMORY[plan.out.dtype]
        self.kind = computed(plan.x.dtype)
        self.zero = i64(0)

    def write(self) -> None:
        c, plan = self.c, self.plan
        self.x, self.out = c.buffers(range(2))
        args = V("%args", "ptr", 0)

        def fetch(i: int) -> V:
            return c.load(c.gep(args, i, "i64"), "i64", 0)

        self.extents = [fetch(i) for i in plan.extents]
        self.out_steps = [fetch(i) for i in plan.out_steps]
        self.x_steps = [fetch(i) for i in plan.x_steps]
        self.tables = [c.gep(args, fetch(i), "i64") for i in plan.tables]
        self.most = [fetch(i) for i in plan.most]
        filler = fetch(plan.filler_at)
        if plan.how == "copy":
            self.filler = filler if self.out_elem == "i64" else c.cast("trunc", filler, self.out_elem)
        outer = self.extents[:-1]
        items(c, outer or [i64(1)], lambda index, _: self.row(index if outer else []))

    def row(self, index: list[V]) -> None:
        c, plan = self.c, self.plan
        out, x = self.out, self.x
        tapped: list[tuple[int, V]] = []
        for a, i in enumerate(index):
            out = c.gep(out, c.op("mul", i, self.out_steps[a]), self.out_elem)
            if plan.axes[a].table < 0:
                x = c.gep(x, c.op("mul", i, self.x_steps[a]), self.x_elem)
            else:
                tapped.append((a, i))
        inner = plan.axes[-1]
        n = c.lanes
        valid: V | None = None
        if plan.how == "copy":
            for a, i in tapped:
                some = c.compare("ne", self._count(a, i), self.zero)
                valid = some if valid is None else c.op("and", valid, some)
                x = c.gep(x, self._offset(a, i, self.zero), self.x_elem)
        direct = inner.table < 0 and inner.x_step == 1
        wide = n * 4 if direct else n

        def vector(i: V, lanes: int, mask: V | None) -> None:
            if plan.how == "copy":
                value = self._moved(x, i, lanes, mask, valid)
            else:
                value = self._gathered(x, tapped, i, lanes, mask)
            if inner.out_step == 1:
                c.store(c.gep(out, i, self.out_elem), value, mask)
            else:
                at = c.gep(out, c.op("mul", i, self.out_steps[-1]), self.out_elem)
                steps = c.op("mul", c.iota("i64", lanes), c.splat(self.out_steps[-1], lanes))
                c.scatter(at, steps, value, mask)

        def whole(i: V, _: list[V]) -> list[V]:
            vector(i, wide, None)
            return []

        def masked(i: V, _: list[V]) -> list[V]:
            vector(i, n, c.first(c.op("sub", self.extents[-1], i), n))
            return []

        begin = self.zero
        if wide > n or not c.wide:
            begin = c.loop(begin, self.extents[-1], wide, whole, ahead=wide - 1)[0]
        c.loop(begin, self.extents[-1], n, masked)

    # tables

    def _count(self, axis: int, i: V) -> V:
        return self.c.load(self.c.gep(self.tables[axis], i, "i64"), "i64", 0)

    def _entry(self, axis: int, t: V, part: int) -> V:
        """Returns the address of tap t's table entries; part: 0 offsets, 1 weights."""
        c, extent = self.c, self.extents[axis]
        at = c.op("mul", c.op("add", t, i64(1)), extent)
        if part:
            most = c.op("mul", self.most[axis], extent)
            at = c.op("add", at, most)
        return c.gep(self.tables[axis], at, "i64")

    def _offset(self, axis: int, i: V, t: V) -> V:
        return self.c.load(self.c.gep(self._entry(axis, t, 0), i, "i64"), "i64", 0)

    def _weight(self, axis: int, i: V, t: V, n: int, mask: V | None = None) -> V:
        c = self.c
        raw = c.load(c.gep(self._entry(axis, t, 1), i, "i64"), "i64", n, mask)
        value = c.cast("bitcast", raw, "double")
        return value if self.kind is dt.float64 else c.cast("fptrunc", value, "float")

    # values

    def _moved(self, x: V, i: V, n: int, mask: V | None, valid: V | None) -> V:
        """Emits the copy loop with one tap per axis."""
        c, inner = self.c, self.plan.axes[-1]
        on = mask
        if valid is not None:
            spread = c.splat(valid, n)
            on = spread if on is None else c.op("and", on, spread)
        if inner.table >= 0:
            axis = len(self.plan.axes) - 1
            counts = c.load(c.gep(self.tables[axis], i, "i64"), "i64", n, mask)
            some = c.compare("ne", counts, c.const(0, counts))
            on = some if on is None else c.op("and", on, some)
            offsets = c.load(c.gep(self._entry(axis, self.zero, 0), i, "i64"), "i64", n, mask)
            value = c.gather(x, offsets, self.x_elem, on)
        elif inner.x_step == 1:
            value = c.load(c.gep(x, i, self.x_elem), self.x_elem, n, on)
        else:
            at = c.gep(x, c.op("mul", i, self.x_steps[-1]), self.x_elem)
            steps = c.op("mul", c.iota("i64", n), c.splat(self.x_steps[-1], n))
            value = c.gather(at, steps, self.x_elem, on)
        if on is None or (valid is None and inner.table < 0):
            return value
        return c.select(on, value, c.splat(self.filler, n))

    def _gathered(self, x: V, tapped: list[tuple[int, V]], i: V, n: int, mask: V | None) -> V:
        """Returns the weighted sum over the taps of all axes."""
        c, plan = self.c, self.plan
        elem = elem_of(self.kind)
        start = constant(0, elem, n)
        inner = plan.axes[-1]
        last = len(plan.axes) - 1

        def read(base: V, weight: V | None, total: V) -> V:
            if inner.table < 0:
                if inner.x_step == 1:
                    raw = c.load(c.gep(base, i, self.x_elem), self.x_elem, n, mask)
                else:
                    at = c.gep(base, c.op("mul", i, self.x_steps[-1]), self.x_elem)
                    steps = c.op("mul", c.iota("i64", n), c.splat(self.x_steps[-1], n))
                    raw = c.gather(at, steps, self.x_elem, mask)
                return combine(from_memory(c, raw, plan.x.dtype), weight, None, total)

            counts = c.load(c.gep(self.tables[last], i, "i64"), "i64", n, mask)

            def tap(t: V, carried: list[V]) -> list[V]:
                on = c.compare("slt", c.splat(t, n), counts)
                offsets = c.load(c.gep(self._entry(last, t, 0), i, "i64"), "i64", n, mask)
                raw = c.gather(base, offsets, self.x_elem, on)
                share = self._weight(last, i, t, n, mask) if inner.weighted else None
                if share is not None and weight is not None:
                    share = c.op("fmul", share, c.splat(weight, n))
                elif share is None and weight is not None:
                    share = c.splat(weight, n)
                return [combine(from_memory(c, raw, plan.x.dtype), share, on, carried[0])]

            return c.loop(self.zero, self.most[last], 1, tap, [total])[1]

        def combine(value: V, weight: V | None, on: V | None, total: V) -> V:
            value = c.op("fadd", total, value) if weight is None else c.fma(value, c.splat(weight, n), total)
            return value if on is None else c.select(on, value, total)

        def nest(k: int, base: V, weight: V | None, total: V) -> V:
            if k == len(tapped):
                return read(base, weight, total)
            axis, at = tapped[k]

            def tap(t: V, carried: list[V]) -> list[V]:
                here = c.gep(base, self._offset(axis, at, t), self.x_elem)
                share = weight
                if plan.axes[axis].weighted:
                    own = self._weight(axis, at, t, 0)
                    share = own if share is None else c.op("fmul", share, own)
                return [nest(k + 1, here, share, carried[0])]

            return c.loop(self.zero, self._count(axis, at), 1, tap, [total])[1]

        return to_memory(c, nest(0, x, None, start), plan.out.dtype)
