"""The code of reduction kernels: passes over rows, or over neighbouring rows in the lanes of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

from .code import BITS, Code, V, constant
from .graph import Node
from .primitive import MEMORY, apply, computed, elem_of, from_memory, to_memory
from .reduce_plan import Plan, moving
from .scope import Scope, loop_width
from .space import items

__all__ = ["write"]


def write(c: Code, plan: Plan, phase: int) -> None:
    """The body of a kernel; phase: 0 whole rows, 1 pieces of rows into the workspace, 2 those joined and finished."""
    _Writer(c, plan, phase).write()


class _Writer:
    def __init__(self, c: Code, plan: Plan, phase: int) -> None:
        self.c = c
        self.phase = phase
        self.plan = plan
        self.moving = moving(plan)
        self.number = {n.ident: i for i, n in enumerate(plan.loads)}
        self.dtypes = [n.dtype for n in plan.loads] + [o.dtype for o in plan.outputs]
        self.elems = [MEMORY[d] for d in self.dtypes]
        self.levels = max((n.level for n in plan.nodes), default=0)
        self.kept_rank = len(plan.kept)

    def varies(self, node: Node) -> bool:
        return node.ident in self.moving

    def write(self) -> None:
        c, plan = self.c, self.plan
        buffers = V("%buffers", "ptr", 0)
        numbers = [n.extra[0] for n in plan.loads] + [plan.inputs + i for i in range(len(plan.outputs))]
        self.bases = [c.load(c.gep(buffers, k, "ptr"), "ptr", 0) for k in numbers]
        self.refs = plan.args.load(c)
        self.extents = [self.refs[a] for a in plan.extents]
        self.count = self.refs[plan.row_count]
        zero, one = V("0", "i64", 0), V("1", "i64", 0)
        self.zero = zero
        kept = self.extents[: self.kept_rank]
        self.width = plan.width if plan.columns else 0
        self.first_axis = (zero, self.extents[self.kept_rank])  # the part of the first reduced axis that an item walks
        pieces: list[V] = []
        if self.phase:
            self.pieces = self.refs[plan.piece + 1]
            self.workspace = c.load(c.gep(buffers, plan.inputs + len(plan.outputs), "ptr"), "ptr", 0)
            pieces = [self.pieces] if self.phase == 1 else []
        if not plan.columns:

            def row(index: list[V], number: V) -> None:
                self._enter(index, number)
                self.item(index[: self.kept_rank], None, None)

            items(c, [*kept, *pieces] or [one], row)
            return
        width = V(str(self.width), "i64", 0)
        inner = kept[-1]
        blocks = c.op("udiv", c.op("add", inner, V(str(self.width - 1), "i64", 0)), width)

        def block(index: list[V], number: V) -> None:
            self._enter(index, number)
            first = c.op("mul", index[self.kept_rank - 1], width)
            mask = c.first(c.op("sub", inner, first), self.width)
            self.item(index[: self.kept_rank - 1], first, mask)

        items(c, [*kept[:-1], blocks, *pieces], block)

    def _enter(self, index: list[V], number: V) -> None:
        """Records the current item, and its piece of a row."""
        c = self.c
        self.item_number = number
        if self.phase == 1:
            step = self.refs[self.plan.piece]
            begin = c.op("mul", index[-1], step)
            end = c.intrinsic("smin", c.op("add", begin, step), self.extents[self.kept_rank])
            self.first_axis = (begin, end)

    def _partial(self, k: int, number: V, of: V) -> V:
        """The address of reduction k's result for one piece; `of`: the number of pieces."""
        c = self.c
        at = c.op("add", c.op("mul", of, V(str(k), "i64", 0)), number)
        return c.gep(self.workspace, c.op("mul", at, V(str(8 * self.plan.width), "i64", 0)), "i8")

    # addresses

    def step(self, k: int, axis: int) -> V | None:
        step = self.plan.axes[axis].steps[k]
        if not step:
            return None
        return V("1", "i64", 0) if step == 1 else self.refs[self.plan.steps[k, axis]]

    def moved(self, k: int, base: V, index: dict[int, V]) -> V:
        c = self.c
        total: V | None = None
        for axis, i in index.items():
            step = self.step(k, axis)
            if step is not None:
                part = i if step.ref == "1" else c.op("mul", i, step)
                total = part if total is None else c.op("add", total, part)
        return base if total is None else c.gep(base, total, self.elems[k])

    def fetch(self, k: int, at: V, axis: int, n: int, mask: V | None) -> V:
        """n lanes of an operand from an address, along an axis."""
        c, elem = self.c, self.elems[k]
        step = self.step(k, axis)
        if step is None or not n:
            return c.splat(from_memory(c, c.load(at, elem, 0), self.dtypes[k]), n)
        if step.ref == "1":
            raw = c.load(at, elem, n, mask)
        else:
            raw = c.gather(at, c.offsets(step, n, self.plan.near), elem, mask)
        return from_memory(c, raw, self.dtypes[k])

    def put(self, k: int, at: V, axis: int, x: V, mask: V | None) -> None:
        c = self.c
        step = self.step(k, axis)
        raw = to_memory(c, x, self.dtypes[k])
        if not x.n or step is None:
            c.store(at, c.splat(raw, 0) if x.n else raw)
        elif step.ref == "1":
            c.store(at, raw, mask)
        else:
            c.scatter(at, c.offsets(step, x.n, self.plan.near), raw, mask)

    # one item: a row, or neighbouring rows in the lanes

    def item(self, index: list[V], first: V | None, mask: V | None) -> None:
        c, plan = self.c, self.plan
        at = dict(enumerate(index))
        if first is not None:
            at[self.kept_rank - 1] = first
        self.bases_here = [self.moved(k, base, at) for k, base in enumerate(self.bases)]
        self.mask = mask
        across = self.kept_rank - 1

        def load_row(node: Node) -> V:
            k = self.number[node.ident]
            return self.fetch(k, self.bases_here[k], across, self.width, mask)

        self.row = Scope(c, self.width, load_row)
        if self.phase == 2:
            self._join()
        for level in range(0 if self.phase == 2 else self.levels):
            here = [n for n in plan.nodes if n.kind == "reduce" and n.level == level + 1]
            self._pass(level, here, [], [])
        if self.phase == 1:
            return
        fulls = [i for i, f in enumerate(plan.full) if f]
        rest = [i for i, f in enumerate(plan.full) if not f]
        values = [self.row.value(plan.results[i]) for i in rest]  # all before a result takes an operand's place
        for i, value in zip(rest, values, strict=True):
            k = len(plan.loads) + i
            self.put(k, self.bases_here[k], across, value, mask)
        if fulls:
            self._pass(self.levels, [], fulls, [plan.results[i] for i in fulls])

    def _needed(self, level: int, roots: Sequence[Node]) -> list[Node]:
        """Nodes that a pass computes itself: not kept ones, nor those reduced already."""
        ready = {n.ident for n in self.plan.store if n.level < level}
        seen: set[int] = set()
        out: list[Node] = []

        def visit(node: Node) -> None:
            if node.ident in seen:
                return
            seen.add(node.ident)
            if node.kind != "reduce" and node.ident not in ready:
                for a in node.args:
                    visit(a)
            out.append(node)

        for root in roots:
            visit(root)
        return out

    def _pass(self, level: int, reduces: list[Node], outputs: list[int], results: list[Node]) -> None:
        """One walk over the row: accumulates reductions, or writes outputs."""
        c, plan = self.c, self.plan
        ready = {n.ident: i for i, n in enumerate(plan.store) if n.level < level}
        roots = [r.args[0] for r in reduces] + results
        needed = self._needed(level, roots)
        self.row.prepare([n for n in needed if n.ident not in ready], self.varies)
        for root in roots:
            if not self.varies(root) and root.kind != "const":
                self.row.value(root)
        keep = [(i, n) for i, n in enumerate(plan.store) if n.level == level and n in needed]
        cost = sum(n.cost for n in needed if self.varies(n) and n.ident not in ready)

        def visit(index: list[V], line: V, n: int, mask: V | None, carried: list[V]) -> list[V]:
            """Work on one vector; index: along the reduced axes; line: number in the row, for scratch."""
            position = {self.kept_rank + a: i for a, i in enumerate(index)}
            inner = self.kept_rank - 1 if plan.columns else self.kept_rank + len(plan.reduced) - 1

            def load(node: Node) -> V:
                slot = ready.get(node.ident)
                if slot is not None:
                    return c.load(self._slot(slot, node, line), elem_of(node.dtype), n)
                k = self.number[node.ident]
                return self.fetch(k, self.moved(k, self.bases_here[k], position), inner, n, mask)

            scope = _Kept(c, n, load, self.row, ready)
            values = [scope.value(r.args[0]) for r in reduces]
            written = [scope.value(r) for r in results]
            for slot, node in keep:
                c.store(self._slot(slot, node, line), scope.value(node))
            for o, value in zip(outputs, written, strict=True):
                k = len(plan.loads) + o
                self.put(k, self.moved(k, self.bases_here[k], position), inner, value, mask)
            out = []
            for r, value, acc in zip(reduces, values, carried, strict=True):
                value = _taken(c, r, value)
                if mask is not None and not plan.columns:
                    value = c.select(mask, value, _identity(r, value.n))
                out.append(_combine(c, r, acc, value))
            return out

        if plan.columns:
            totals = self._walk_columns(visit, [_identity(r, self.width) for r in reduces])
        else:
            totals = self._walk_row(visit, reduces, cost)
        if self.phase == 1:
            all_items = c.op("mul", self.pieces, self._rows())
            for k, total in enumerate(totals):
                c.store(self._partial(k, self.item_number, all_items), total)
            return
        for r, total in zip(reduces, totals, strict=True):
            self.row.set(r, self._finished(r, total))

    def _rows(self) -> V:
        """Returns the number of items when rows are not cut."""
        c = self.c
        total = V("1", "i64", 0)
        for i, extent in enumerate(self.extents[: self.kept_rank]):
            if self.plan.columns and i == self.kept_rank - 1:
                width = V(str(self.width), "i64", 0)
                extent = c.op("udiv", c.op("add", extent, V(str(self.width - 1), "i64", 0)), width)
            total = c.op("mul", total, extent)
        return total

    def _join(self) -> None:
        """Combine the pieces of this row, in order."""
        c, plan = self.c, self.plan
        all_items = c.op("mul", self.pieces, self._rows())
        first = c.op("mul", self.item_number, self.pieces)
        reduces = [n for n in plan.nodes if n.kind == "reduce"]

        def step(i: V, totals: list[V]) -> list[V]:
            at = c.op("add", first, i)
            out = []
            for k, (r, total) in enumerate(zip(reduces, totals, strict=True)):
                part = c.load(self._partial(k, at, all_items), total.elem, total.n)
                out.append(_combine(c, r, total, part))
            return out

        totals = c.loop(self.zero, self.pieces, 1, step, [_identity(r, self.width) for r in reduces])[1:]
        for r, total in zip(reduces, totals, strict=True):
            self.row.set(r, self._finished(r, total))

    def _slot(self, slot: int, node: Node, line: V) -> V:
        """The address in scratch of a kept value."""
        c = self.c
        base = V("%scratch", "ptr", 0)
        start = c.op("mul", self.refs[self.plan.stride], V(str(slot), "i64", 0))
        wide = max(BITS[elem_of(n.dtype)] for n in self.plan.store)
        base = c.gep(base, start, f"i{wide}")
        return c.gep(base, line, elem_of(node.dtype))

    def _walk_columns(self, visit: Callable[..., list[V]], start: list[V]) -> list[V]:
        """Over every index of the reduced axes, lanes across rows."""
        c = self.c
        extents = self.extents[self.kept_rank :]
        width = V(str(self.width), "i64", 0)

        def nest(axis: int, index: list[V], line: V, carried: list[V]) -> list[V]:
            def step(i: V, inside: list[V]) -> list[V]:
                number = c.op("add", c.op("mul", line, extents[axis]), i)
                if axis + 1 < len(extents):
                    return nest(axis + 1, [*index, i], number, inside)
                return visit([*index, i], c.op("mul", number, width), self.width, self.mask, inside)

            begin, end = self.first_axis if axis == 0 else (self.zero, extents[axis])
            return c.loop(begin, end, 1, step, carried)[1:]

        return nest(0, [], self.zero, start)

    def _walk_row(self, visit: Callable[..., list[V]], reduces: list[Node], cost: int) -> list[V]:
        """Along the row in vectors, several at once where the work is light; lanes are combined at the end."""
        c = self.c
        extents = self.extents[self.kept_rank :]
        n = c.lanes
        times = loop_width(cost)
        whole_lanes = self.plan.mode % n == 0
        both = times > 1 or (not whole_lanes and (self.plan.mode < 0 or not c.wide))
        rest = not (both and self.plan.mode % (n * times) == 0)  # else nothing is left for single vectors
        inner = extents[-1]

        def along(index: list[V], line: V, wide: list[V], narrow: list[V]) -> tuple[list[V], list[V]]:
            start = c.op("mul", line, inner) if index else None

            def at(i: V) -> V:
                return i if start is None else c.op("add", start, i)

            begin, end = (self.zero, inner) if index else self.first_axis
            if both:

                def whole(i: V, carried: list[V]) -> list[V]:
                    return visit([*index, i], at(i), n * times, None, carried)

                done = c.loop(begin, end, n * times, whole, wide, ahead=n * times - 1)
                begin, wide = done[0], done[1:]

            def masked(i: V, carried: list[V]) -> list[V]:
                mask = None if whole_lanes else c.first(c.op("sub", end, i), n)
                return visit([*index, i], at(i), n, mask, carried)

            if rest:
                narrow = c.loop(begin, end, n, masked, narrow)[1:]
            return wide, narrow

        def nest(axis: int, index: list[V], line: V, wide: list[V], narrow: list[V]) -> tuple[list[V], list[V]]:
            if axis + 1 == len(extents):
                return along(index, line, wide, narrow)
            split = len(wide)

            def step(i: V, carried: list[V]) -> list[V]:
                number = c.op("add", c.op("mul", line, extents[axis]), i)
                a, b = nest(axis + 1, [*index, i], number, carried[:split], carried[split:])
                return [*a, *b]

            begin, end = self.first_axis if axis == 0 else (self.zero, extents[axis])
            done = c.loop(begin, end, 1, step, [*wide, *narrow])[1:]
            return done[:split], done[split:]

        wide = [_identity(r, n * times) for r in reduces] if both else []
        narrow = [_identity(r, n) for r in reduces] if rest else []
        wide, narrow = nest(0, [], self.zero, wide, narrow)
        out = []
        for i, r in enumerate(reduces):
            total = narrow[i] if rest else None
            if both:
                parts = [
                    c.shuffle(wide[i], wide[i], range(at, at + n)) if times > 1 else wide[i]
                    for at in range(0, n * times, n)
                ]
                while len(parts) > 1:
                    parts = [_combine(c, r, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
                total = parts[0] if total is None else _combine(c, r, total, parts[0])
            assert total is not None
            out.append(_across(c, r, total))
        return out

    def _finished(self, r: Node, total: V) -> V:
        c = self.c
        if r.extra == "mean":
            count = self.count
            number = c.cast("sitofp", count, total.elem)
            total = c.op("fdiv", total, c.splat(number, total.n) if total.n else number)
        if r.dtype is dt.bool_:
            total = c.compare("ne", total, c.const(0, total))
        return total


class _Kept(Scope):
    """A scope where some nodes come from scratch."""

    def __init__(self, c: Code, n: int, load: Callable[[Node], V], outer: Scope, ready: dict[int, int]) -> None:
        super().__init__(c, n, load, outer)
        self.ready = ready

    def _make(self, node: Node) -> V:
        return self.load(node) if node.ident in self.ready else super()._make(node)


def _taken(c: Code, r: Node, value: V) -> V:
    """An operand as it is accumulated: bool as bytes."""
    return c.cast("zext", value, "i8") if value.elem == "i1" else value


def _identity(r: Node, n: int) -> V:
    elem = "i8" if r.dtype is dt.bool_ else elem_of(r.dtype)
    dtype: DType = r.dtype
    match r.extra:
        case "sum" | "total" | "mean":
            return constant(0, elem, n)
        case "prod":
            return constant(1, elem, n)
        case "max" | "top":
            return constant(-math.inf if dtype.is_float else dtype.lowest, elem, n)
    return constant(math.inf if dtype.is_float else dtype.highest, elem, n)


def _combine(c: Code, r: Node, a: V, b: V) -> V:
    dtype = dt.uint8 if r.dtype is dt.bool_ else computed(r.dtype)
    if r.extra == "top":
        return c.select(c.compare("ogt", a, b), a, b)
    name = {"sum": "add", "total": "add", "mean": "add", "prod": "mul"}.get(r.extra, r.extra)
    return apply(c, name, dtype, [a, b])


def _across(c: Code, r: Node, total: V) -> V:
    """All lanes combined into a scalar."""
    n = total.n
    while n > 1:
        half = n // 2
        low = c.shuffle(total, total, range(half))
        high = c.shuffle(total, total, range(half, n))
        total = _combine(c, r, low, high)
        n = half
    return c.make(f"extractelement {total.type} {total.ref}, i32 0", total.elem, 0)
