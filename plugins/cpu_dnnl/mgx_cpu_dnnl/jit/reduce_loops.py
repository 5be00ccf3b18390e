"""Code generator for reduction kernels: passes over rows, or over adjacent rows in the lanes of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgx_core import dtype as dt

from .accumulators import combine, identity, to_accumulator
from .code import BITS, Code, V, i64
from .element import elem_of
from .graph import Node
from .operands import Operands
from .parameters import parameter_value
from .reduce_plan import Plan, moving
from .reduce_walks import walk_columns, walk_row
from .scope import Scope
from .space import items

__all__ = ["write"]


def write(c: Code, plan: Plan, phase: int) -> None:
    """Generates a kernel; phase: 0 whole rows, 1 partial reductions into the workspace, 2 combines those and finishes."""
    _Writer(c, plan, phase).write()


class _Operands(Operands):
    def __init__(self, c: Code, plan: Plan, refs: list[V]) -> None:
        super().__init__(c, plan.loads, plan.outputs, refs, plan.near)
        self.plan = plan

    def step(self, k: int, axis: int) -> V | None:
        step = self.plan.axes[axis].steps[k]
        if not step:
            return None
        return i64(1) if step == 1 else self.refs[self.plan.steps[k, axis]]


class _Writer:
    def __init__(self, c: Code, plan: Plan, phase: int) -> None:
        self.c = c
        self.phase = phase
        self.plan = plan
        self.moving = moving(plan)
        self.number = {n.ident: i for i, n in enumerate(plan.loads)}
        self.levels = max((n.level for n in plan.nodes), default=0)
        self.kept_rank = len(plan.kept)

    def varies(self, node: Node) -> bool:
        return node.ident in self.moving

    def write(self) -> None:
        c, plan = self.c, self.plan
        numbers = [n.parameter for n in plan.loads] + [plan.inputs + i for i in range(len(plan.outputs))]
        self.bases = c.buffers(numbers)
        self.refs = plan.args.load(c)
        self.operands = _Operands(c, plan, self.refs)
        self.extents = [self.refs[a] for a in plan.extents]
        self.count = self.refs[plan.row_count]
        zero, one = i64(0), i64(1)
        self.zero = zero
        kept = self.extents[: self.kept_rank]
        self.width = plan.width if plan.columns else 0
        self.first_axis = (zero, self.extents[self.kept_rank])  # the item's range of the first reduced axis
        pieces: list[V] = []
        if self.phase:
            self.pieces = self.refs[plan.piece + 1]
            (self.workspace,) = c.buffers([plan.inputs + len(plan.outputs)])
            pieces = [self.pieces] if self.phase == 1 else []
        if not plan.columns:

            def row(index: list[V], number: V) -> None:
                self._enter(index, number)
                self.item(index[: self.kept_rank], None, None)

            items(c, [*kept, *pieces] or [one], row)
            return
        width = i64(self.width)
        inner = kept[-1]
        blocks = c.op("udiv", c.op("add", inner, i64(self.width - 1)), width)

        together = plan.stored_at_once and self.phase == 1  # a piece of all rows, then the next piece

        def block(index: list[V], number: V) -> None:
            if together:
                *outer, piece, at = index
                index = [*outer, at, piece]
                before = c.op("sub", number, c.op("add", c.op("mul", piece, blocks), at))
                number = c.op("add", before, c.op("add", c.op("mul", at, self.pieces), piece))
            self._enter(index, number)
            first = c.op("mul", index[self.kept_rank - 1], width)
            mask = None if plan.unmasked else c.first(c.op("sub", inner, first), self.width)
            self.item(index[: self.kept_rank - 1], first, mask)

        items(c, [*kept[:-1], *([*pieces, blocks] if together else [blocks, *pieces])], block)

    def _enter(self, index: list[V], number: V) -> None:
        """Sets the current item and its piece of a row."""
        c = self.c
        self.item_number = number
        if self.phase == 1:
            step = self.refs[self.plan.piece]
            begin = c.op("mul", index[-1], step)
            end = c.intrinsic("smin", c.op("add", begin, step), self.extents[self.kept_rank])
            self.first_axis = (begin, end)

    def _partial(self, k: int, number: V, of: V) -> V:
        """Returns the address of reduction k's partial result of a piece; `of`: the number of pieces."""
        c = self.c
        at = c.op("add", c.op("mul", of, i64(k)), number)
        return c.gep(self.workspace, c.op("mul", at, i64(8 * self.plan.width)), "i8")

    # one item: a row, or adjacent rows in the lanes

    def item(self, index: list[V], first: V | None, mask: V | None) -> None:
        c, plan = self.c, self.plan
        at = dict(enumerate(index))
        if first is not None:
            at[self.kept_rank - 1] = first
        self.bases_here = [self.operands.moved(k, base, at) for k, base in enumerate(self.bases)]
        self.mask = mask
        across = self.kept_rank - 1

        def load_row(node: Node) -> V:
            k = self.number[node.ident]
            return self.operands.load(k, self.bases_here[k], across, self.width, mask)

        self.row = Scope(c, self.width, load_row)
        for i, node in enumerate(plan.given):
            self.row.set(node, parameter_value(c, node, self.refs[plan.args.places[f"number{i}"]]))
        if self.phase == 2:
            self._join()
        fulls = [i for i, f in enumerate(plan.full) if f]
        early = fulls if plan.stored_at_once else []
        for level in range(0 if self.phase == 2 else self.levels):
            here = [n for n in plan.nodes if n.kind == "reduce" and n.level == level + 1]
            self._pass(level, here, early, [plan.results[i] for i in early])
        if self.phase == 1:
            return
        rest = [i for i, f in enumerate(plan.full) if not f]
        # all before any store, since results may alias operands
        values = [self.row.value(plan.results[i]) for i in rest]
        for i, value in zip(rest, values, strict=True):
            k = len(plan.loads) + i
            self.operands.store(k, self.bases_here[k], across, value, mask)
        if fulls and not early:
            self._pass(self.levels, [], fulls, [plan.results[i] for i in fulls])

    def _needed(self, level: int, roots: Sequence[Node]) -> list[Node]:
        """Returns the nodes that a pass computes, without kept values and finished reductions."""
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
        """Emits a pass over the row: accumulates reductions, or stores outputs."""
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
            """Emits the work on one vector; index: along the reduced axes; line: index in the row, for scratch memory."""
            position = {self.kept_rank + a: i for a, i in enumerate(index)}
            inner = self.kept_rank - 1 if plan.columns else self.kept_rank + len(plan.reduced) - 1

            def load(node: Node) -> V:
                slot = ready.get(node.ident)
                if slot is not None:
                    return c.load(self._slot(slot, node, line), elem_of(node.dtype), n)
                k = self.number[node.ident]
                return self.operands.load(k, self.operands.moved(k, self.bases_here[k], position), inner, n, mask)

            scope = _Kept(c, n, load, self.row, ready)
            values = [scope.value(r.args[0]) for r in reduces]
            written = [scope.value(r) for r in results]
            for slot, node in keep:
                c.store(self._slot(slot, node, line), scope.value(node))
            for o, value in zip(outputs, written, strict=True):
                k = len(plan.loads) + o
                self.operands.store(k, self.operands.moved(k, self.bases_here[k], position), inner, value, mask)
            out = []
            for r, value, acc in zip(reduces, values, carried, strict=True):
                value = to_accumulator(c, value)
                if mask is not None and not plan.columns:
                    value = c.select(mask, value, identity(r, value.n))
                out.append(combine(c, r, acc, value))
            return out

        reduced = self.extents[self.kept_rank :]
        if plan.columns:
            totals = walk_columns(c, reduced, self.first_axis, self.width, self.mask, visit, reduces, plan.parted)
        else:
            totals = walk_row(c, reduced, self.first_axis, plan.mode, visit, reduces, cost)
        if self.phase == 1:
            all_items = c.op("mul", self.pieces, self._rows())
            for k, total in enumerate(totals):
                c.store(self._partial(k, self.item_number, all_items), total)
            return
        for r, total in zip(reduces, totals, strict=True):
            self.row.set(r, self._finished(r, total))

    def _rows(self) -> V:
        """Returns the number of items if rows are not split."""
        c = self.c
        total = i64(1)
        for i, extent in enumerate(self.extents[: self.kept_rank]):
            if self.plan.columns and i == self.kept_rank - 1:
                width = i64(self.width)
                extent = c.op("udiv", c.op("add", extent, i64(self.width - 1)), width)
            total = c.op("mul", total, extent)
        return total

    def _join(self) -> None:
        """Combines the partial results of the row, in order."""
        c, plan = self.c, self.plan
        all_items = c.op("mul", self.pieces, self._rows())
        first = c.op("mul", self.item_number, self.pieces)
        reduces = [n for n in plan.nodes if n.kind == "reduce"]

        def step(i: V, totals: list[V]) -> list[V]:
            at = c.op("add", first, i)
            out = []
            for k, (r, total) in enumerate(zip(reduces, totals, strict=True)):
                part = c.load(self._partial(k, at, all_items), total.elem, total.n)
                out.append(combine(c, r, total, part))
            return out

        totals = c.loop(self.zero, self.pieces, 1, step, [identity(r, self.width) for r in reduces])[1:]
        for r, total in zip(reduces, totals, strict=True):
            self.row.set(r, self._finished(r, total))

    def _slot(self, slot: int, node: Node, line: V) -> V:
        """Returns the scratch address of a kept value."""
        c = self.c
        base = V("%scratch", "ptr", 0)
        start = c.op("mul", self.refs[self.plan.stride], i64(slot))
        wide = max(BITS[elem_of(n.dtype)] for n in self.plan.store)
        base = c.gep(base, start, f"i{wide}")
        return c.gep(base, line, elem_of(node.dtype))

    def _finished(self, r: Node, total: V) -> V:
        c = self.c
        if r.word == "mean":
            count = self.count
            number = c.cast("sitofp", count, total.elem)
            total = c.op("fdiv", total, c.splat(number, total.n) if total.n else number)
        if r.dtype is dt.bool_:
            total = c.compare("ne", total, c.const(0, total))
        return total


class _Kept(Scope):
    """A scope that loads some nodes from scratch memory."""

    def __init__(self, c: Code, n: int, load: Callable[[Node], V], outer: Scope, ready: dict[int, int]) -> None:
        super().__init__(c, n, load, outer)
        self.ready = ready

    def _make(self, node: Node) -> V:
        return self.load(node) if node.ident in self.ready else super()._make(node)
