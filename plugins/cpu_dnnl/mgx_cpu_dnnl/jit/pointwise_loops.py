"""Code generator for pointwise kernels: vectorized rows, and square tiles for transposed operands."""

from __future__ import annotations

from collections.abc import Callable

from .code import Code, V, i64
from .element import from_memory
from .graph import Node
from .operands import Operands
from .parameters import parameter_value
from .pointwise_plan import BLOCK, Plan
from .scope import Scope
from .space import items, loop_width
from .tile import transposed

__all__ = ["write"]


def write(c: Code, plan: Plan) -> None:
    """Generates the kernel of a plan."""
    if plan.tile is not None:
        _Tiled(c, plan).write()
    else:
        _Rows(c, plan).write()


class _Operands(Operands):
    """Operand addresses at an outer index, and access along the inner axis."""

    def __init__(self, c: Code, plan: Plan) -> None:
        super().__init__(c, plan.loads, plan.outputs, plan.args.load(c), plan.near)
        self.plan, self.inner = plan, len(plan.axes) - 1
        self.bases = c.buffers([n.parameter for n in plan.loads] + [plan.inputs + i for i in range(len(plan.outputs))])
        self.given = [
            (n, parameter_value(c, n, self.refs[plan.args.places[f"number{i}"]])) for i, n in enumerate(plan.given)
        ]

    def scope(self, load: Callable[[Node], V]) -> Scope:
        """Returns the scope of values that are invariant along the inner axis."""
        made = Scope(self.c, 0, load)
        for node, value in self.given:
            made.set(node, value)
        return made

    def step(self, k: int, axis: int) -> V | None:
        at = self.plan.step_args.get((k, axis))
        if at is not None:
            return self.refs[at]
        return i64(1) if self.plan.axes[axis].steps[k] == 1 else None

    def read(self, k: int, base: V, i: V, n: int, mask: V | None) -> V:
        """Loads an operand's elements from inner index i on."""
        return self.load(k, self.moved(k, base, {self.inner: i}), self.inner, n, mask)

    def write(self, k: int, base: V, i: V, x: V, mask: V | None) -> None:
        self.store(k, self.moved(k, base, {self.inner: i}), self.inner, x, mask)


class _Rows:
    """Loop nest in which every operand is read directly along the inner axis."""

    def __init__(self, c: Code, plan: Plan) -> None:
        self.c = c
        self.plan = plan
        self.number = {n.ident: i for i, n in enumerate(plan.loads)}
        inner = len(plan.axes) - 1
        moving = {n.ident for i, n in enumerate(plan.loads) if plan.axes[inner].steps[i]}
        for node in plan.nodes:
            if any(a.ident in moving for a in node.args):
                moving.add(node.ident)
        self.moving = moving

    def varies(self, node: Node) -> bool:
        return node.ident in self.moving

    def write(self) -> None:
        c, plan = self.c, self.plan
        self.ops = _Operands(c, plan)
        extents = [self.ops.refs[a] for a in plan.extent_args]
        inner = len(extents) - 1
        block = i64(BLOCK)
        if plan.blocks:
            count = self.ops.refs[plan.extent_args[-1] + 1]
            if inner == 0:  # one long axis: adjacent blocks are one loop
                begin = c.op("mul", V("%begin", "i64", 0), block)
                end = c.intrinsic("smin", c.op("mul", V("%end", "i64", 0), block), extents[-1])
                self.row([], begin, end)
                return

            def item(index: list[V], _: V) -> None:
                begin = c.op("mul", index[-1], block)
                end = c.intrinsic("smin", c.op("add", begin, block), extents[-1])
                self.row(index[:-1], begin, end)

            items(c, [*extents[:-1], count], item)
        elif plan.pairs:

            def lines(index: list[V], _: V) -> None:
                def line(i: V, _: list[V]) -> list[V]:
                    self.row([*index, i], i64(0), extents[-1])
                    return []

                c.loop(i64(0), extents[-2], 1, line)

            items(c, extents[:-2], lines)
        elif inner == 0:
            items(c, [i64(1)], lambda *_: self.row([], i64(0), extents[-1]))
        else:
            items(c, extents[:-1], lambda index, _: self.row(index, i64(0), extents[-1]))

    def row(self, index: list[V], begin: V, end: V) -> None:
        """Emits the loop over the inner axis."""
        c, plan = self.c, self.plan
        at = dict(enumerate(index))
        bases = [self.ops.moved(o, base, at) for o, base in enumerate(self.ops.bases)]
        fixed = self._fixed(bases)

        def step(i: V, n: int, mask: V | None) -> None:
            def load(node: Node) -> V:
                k = self.number[node.ident]
                return self.ops.read(k, bases[k], i, n, mask)

            self._write_results(Scope(c, n, load, fixed), bases, i, mask)

        spread(c, begin, end, self.cost(), step, plan.mode)

    def _fixed(self, bases: list[V]) -> Scope:
        """Returns the scope of values that are invariant along the inner axis, for these operand addresses."""

        def load(node: Node) -> V:
            k = self.number[node.ident]
            return self.ops.read(k, bases[k], i64(0), 0, None)

        fixed = self.ops.scope(load)
        if any(not self.varies(n) and n.kind != "const" for n in self.plan.nodes):
            fixed.prepare(self.plan.nodes, self.varies)
        return fixed

    def _write_results(self, scope: Scope, bases: list[V], at: V, mask: V | None) -> None:
        plan = self.plan
        values = [scope.value(r) for r in plan.results]
        for k, value in enumerate(values, len(plan.loads)):
            self.ops.write(k, bases[k], at, value, mask)

    def cost(self) -> int:
        return sum(n.cost for n in self.plan.nodes if self.varies(n))


def spread(c: Code, begin: V, end: V, cost: int, step: Callable[[V, int, V | None], None], mode: int) -> None:
    """Emits a vector loop over [begin, end), unrolled if the body is cheap, with a masked tail if needed."""
    wide = loop_width(cost)
    n = c.lanes
    masks = mode % n != 0

    def single(i: V, _: list[V]) -> list[V]:
        step(i, n, c.first(c.op("sub", end, i), n) if masks else None)
        return []

    def several(i: V, _: list[V]) -> list[V]:
        step(i, n * wide, None)
        return []

    at = begin
    if wide > 1 or (masks and (mode < 0 or not c.wide)):
        at = c.loop(begin, end, n * wide, several, ahead=n * wide - 1)[0]
        if mode % (n * wide) == 0:
            return
    c.loop(at, end, n, single)


class _Tiled(_Rows):
    """Loop nest with operands that are contiguous along another axis, which are transposed tile by tile."""

    def write(self) -> None:
        c, plan = self.c, self.plan
        assert plan.tile is not None
        n = c.lanes
        self.ops = _Operands(c, plan)
        extents = [self.ops.refs[a] for a in plan.extent_args]
        inner = len(extents) - 1
        turned = [k for k in range(len(plan.loads)) if plan.kind(k) == "t"]
        pure = bool(turned) and plan.nodes == plan.results == plan.loads[:1] and len(plan.outputs) == 1
        pure = pure and self.ops.dtypes[0] is self.ops.dtypes[1]  # narrow floats are widened to float32 without a node
        tiles = {} if pure else {k: c.stack(self.ops.elems[k], n * n) for k in turned}  # plain copies stay in registers
        outer = [i for i in range(inner) if i != plan.tile]
        across = extents[plan.tile]
        count = c.op("udiv", c.op("add", across, i64(n - 1)), i64(n))
        zero = i64(0)

        def item(index: list[V], _: V) -> None:
            at = dict(zip(outer, index[:-1], strict=True))
            bases = [self.ops.moved(o, base, at) for o, base in enumerate(self.ops.bases)]
            row = c.op("mul", index[-1], i64(n))
            rows = c.intrinsic("smin", c.op("sub", across, row), i64(n))
            row_mask = c.first(rows, n)

            def column(j: V, _: list[V]) -> list[V]:
                left = c.op("sub", extents[inner], j)
                mask = c.first(left, n)
                for k, tile in tiles.items():
                    self._turn(k, bases[k], row, row_mask, j, left, tile)

                def line(t: V, _: list[V]) -> list[V]:
                    self._line(bases, c.op("add", row, t), t, j, mask, tiles)
                    return []

                c.loop(zero, rows, 1, line)
                return []

            begin = zero
            if pure:
                whole = c.compare("eq", rows, i64(n))
                begin = c.choose(whole, lambda: self._copy_whole(bases, row, extents[inner]), zero)
            c.loop(begin, extents[inner], n, column)

        items(c, [*(extents[i] for i in outer), count], item)

    def _copy_whole(self, bases: list[V], row: V, end: V) -> V:
        """Emits the full tiles of a plain copy, stored from registers; returns the first remaining column."""
        c, plan, n = self.c, self.plan, self.c.lanes
        assert plan.tile is not None
        elem = self.ops.elems[0]
        step = self.ops.step(0, len(plan.axes) - 1)
        out_step = self.ops.step(1, plan.tile)
        assert step is not None and out_step is not None
        source = c.gep(bases[0], row, elem)
        target = self.ops.moved(1, bases[1], {plan.tile: row})

        def tile(j: V, _: list[V]) -> list[V]:
            at = c.gep(source, c.op("mul", j, step), elem)
            lines = [c.load(c.gep(at, c.op("mul", step, i64(r)), elem), elem, n) for r in range(n)]
            to = c.gep(target, j, elem)
            for r, line in enumerate(transposed(c, lines)):
                c.store(to if not r else c.gep(to, c.op("mul", out_step, i64(r)), elem), line)
            return []

        return c.loop(i64(0), end, n, tile, ahead=n - 1)[0]

    def _turn(self, k: int, base: V, row: V, row_mask: V, j: V, left: V, tile: V) -> None:
        """Transposes n x n elements of an operand into its tile, so that the inner axis is contiguous."""
        c, n = self.c, self.c.lanes
        elem = self.ops.elems[k]
        step = self.ops.step(k, len(self.plan.axes) - 1)
        assert step is not None
        base = c.gep(base, row, elem)
        last = c.op("sub", left, i64(1))
        lines = []
        for r in range(n):
            ahead = c.intrinsic("smin", i64(r), last) if r else i64(0)
            at = c.gep(base, c.op("mul", c.op("add", j, ahead), step), elem)
            lines.append(c.load(at, elem, n, row_mask))
        for r, line in enumerate(transposed(c, lines)):
            c.store(c.gep(tile, r * n, elem), line)

    def _line(self, bases: list[V], i: V, t: V, j: V, mask: V, tiles: dict[int, V]) -> None:
        c, plan, n = self.c, self.plan, self.c.lanes
        assert plan.tile is not None
        tile_axis = plan.tile
        starts = [base if o in tiles else self.ops.moved(o, base, {tile_axis: i}) for o, base in enumerate(bases)]

        def load(node: Node) -> V:
            k = self.number[node.ident]
            if k in tiles:
                elem = self.ops.elems[k]
                raw = c.load(c.gep(tiles[k], c.op("mul", t, i64(n)), elem), elem, n)
                return from_memory(c, raw, self.ops.dtypes[k])
            return self.ops.read(k, starts[k], j, n, mask)

        self._write_results(Scope(c, n, load, self._fixed(starts)), starts, j, mask)
