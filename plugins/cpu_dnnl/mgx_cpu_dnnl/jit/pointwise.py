"""Loops for groups of pointwise ops: any broadcast and stride, vectors along the axis that the outputs are contiguous in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mgx_core.ir.module import Module
from mgx_core.kernel import No
from mgx_core.shape import Shape

from .code import Code, V
from .engine import Engine
from .graph import Graph, Node, Refused, read, walk
from .kernel import JitKernel
from .primitive import MEMORY, from_memory, raw_type, supported, to_memory
from .scope import Scope, loop_mode, loop_width
from .space import Args, Axis, axes_of, items, merged
from .tile import transposed

__all__ = ["compile_copy", "compile_pointwise"]

BLOCK = 4096  # elements of a long inner axis that make one item
GRAIN = 24576  # vector-lane operations worth a share of their own


@dataclass
class Plan:
    """How one group is looped; everything that the code depends on is in `key`."""

    loads: list[Node]
    results: list[Node]
    outputs: Sequence[Shape]
    inputs: int
    axes: list[Axis]
    args: Args
    nodes: list[Node]
    tile: int | None = None  # the axis along which transposed operands are contiguous
    blocks: bool = False
    near: bool = True  # steps along the inner axis are small
    step_args: dict[tuple[int, int], int] = field(default_factory=dict)
    extent_args: list[int] = field(default_factory=list)
    mode: int = 1  # what is known of the inner extent, see `loop_mode`
    key: str = ""

    def kind(self, operand: int) -> str:
        """How an operand is walked along the inner axis: 0 not at all, 1 contiguous, s in steps, t through a tile."""
        step = self.axes[-1].steps[operand]
        if step in (0, 1):
            return str(step)
        if self.tile is not None and operand < len(self.loads) and self.axes[self.tile].steps[operand] == 1:
            return "t"
        return "s"


def compile_pointwise(
    body: Module, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine, name: str = "pointwise"
) -> JitKernel | No:
    """A kernel for a body of pointwise ops and views; shapes with the strides that the memory has."""
    dims = outputs[0].lens()
    if any(o.lens() != dims for o in outputs) or any(not supported(o.dtype) for o in outputs):
        return No(f"outputs of different dims or types without loops: {', '.join(map(str, outputs))}")
    try:
        graph = read(body, inputs, dims)
    except Refused as error:
        return No(str(error))
    return build(graph, inputs, outputs, engine, name)


def build(graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine, name: str) -> JitKernel:
    plan = make_plan(graph, inputs, outputs, engine.lanes)
    dims = outputs[0].lens()
    elements = outputs[0].elements()
    cost = max(1, sum(n.cost for n in plan.nodes))
    code = engine.function(plan.key, lambda c: _write(c, plan))
    if elements == 0:
        work = row = 0
    elif plan.tile is not None:
        outer = [a.extent for i, a in enumerate(plan.axes[:-1]) if i != plan.tile]
        work = -(-plan.axes[plan.tile].extent // engine.lanes)
        for n in outer:
            work *= n
        row = elements // work
    else:
        inner = plan.axes[-1].extent
        blocks = -(-inner // BLOCK) if plan.blocks else 1
        work = elements // inner * blocks
        row = min(inner, BLOCK) if plan.blocks else inner
    moved = sum(i.element_space() * i.dtype.size for i in inputs) + sum(o.elements() * o.dtype.size for o in outputs)
    same = plan.tile is None
    return JitKernel(
        name=name,
        code=code,
        work=work,
        grain=max(1, GRAIN // max(1, row * (1 + cost // 4))),
        args=tuple(plan.args.values),
        scratch_bytes=0,
        inputs=len(inputs),
        outputs=len(outputs),
        flops=elements * cost if dims or elements else 0,
        bytes=moved,
        inplace=same,
    )


def make_plan(graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], lanes: int) -> Plan:
    nodes = list(walk(graph.outputs))
    loads = [n for n in nodes if n.kind == "load"]
    steps = [n.extra[1] for n in loads] + [o.strides() for o in outputs]
    axes = axes_of(graph.dims, steps)
    main = len(loads)
    axes.sort(key=lambda a: (-a.steps[main], -max(a.steps, default=0)))
    axes = merged(axes) or [Axis(1, (1,) * len(steps))]
    if len(axes) > 1 and axes[-1].extent < 8:  # too short for vectors: rather stride along a longer axis
        longest = max(range(len(axes) - 1), key=lambda i: (min(axes[i].extent, 64), 1 in axes[i].steps, i))
        if axes[longest].extent >= 16:
            axes.append(axes.pop(longest))
            axes = merged(axes)
    plan = Plan(loads, graph.outputs, outputs, len(inputs), axes, Args(), nodes)
    plan.near = max(map(abs, axes[-1].steps)) < 1 << 24
    plan.tile = _tile_axis(plan)
    plan.blocks = plan.tile is None and axes[-1].extent >= 2 * BLOCK
    plan.extent_args = [plan.args.add(a.extent) for a in axes]
    if plan.blocks:
        plan.args.add(-(-axes[-1].extent // BLOCK))
    for i, axis in enumerate(axes):
        for operand, step in enumerate(axis.steps):
            if step not in (0, 1) or (step == 1 and i != len(axes) - 1 and i != plan.tile):
                plan.step_args[operand, i] = plan.args.add(step)
    plan.mode = loop_mode(axes[-1].extent, lanes) if plan.tile is None else 1
    if plan.mode < 0 and loop_width(sum(n.cost for n in nodes)) > 1:
        plan.mode = 1
    plan.key = _key(plan)
    return plan


def _tile_axis(plan: Plan) -> int | None:
    """The axis along which operands that the inner axis strides over are contiguous."""
    axes = plan.axes
    inner = axes[-1]
    if len(axes) < 2 or inner.extent < 4 or inner.steps[len(plan.loads)] != 1:
        return None
    votes: dict[int, int] = {}
    for operand in range(len(plan.loads)):
        if inner.steps[operand] not in (0, 1):
            for i, axis in enumerate(axes[:-1]):
                if axis.steps[operand] == 1 and axis.extent >= 4:
                    votes[i] = votes.get(i, 0) + 1
    return max(votes, key=lambda i: votes[i]) if votes else None


def _key(plan: Plan) -> str:
    """The group's structure as text: equal texts mean equal code."""
    number = {n.ident: i for i, n in enumerate(plan.nodes)}
    words = [f"pointwise {len(plan.axes)} {plan.tile} {plan.blocks} {plan.near} {plan.mode} {plan.inputs}"]
    for i, n in enumerate(plan.nodes):
        extra = n.extra[0] if n.kind == "load" else n.extra
        words.append(f"{i} {n.kind} {n.dtype} {extra} {[number[a.ident] for a in n.args]}")
    words.append(str([number[r.ident] for r in plan.results]))
    words.append(str([o.dtype.name for o in plan.outputs]))
    count = len(plan.loads) + len(plan.outputs)
    words += ["".join("0" if not s else "1" if s == 1 else "s" for s in axis.steps) for axis in plan.axes]
    words.append("".join(plan.kind(o) for o in range(count)))
    words.append(str(sorted(plan.step_args)))
    return "\n".join(words)


# code ------------------------------------------------------------------------------------------------------------------


class _Operands:
    """Base addresses of the operands at an outer index, and access along the inner axis."""

    def __init__(self, c: Code, plan: Plan) -> None:
        self.c = c
        self.plan = plan
        buffers = V("%buffers", "ptr", 0)
        numbers = [n.extra[0] for n in plan.loads] + [plan.inputs + i for i in range(len(plan.outputs))]
        self.bases = [c.load(c.gep(buffers, k, "ptr"), "ptr", 0) for k in numbers]
        dtypes = [n.dtype for n in plan.loads] + [o.dtype for o in plan.outputs]
        self.dtypes = dtypes
        self.elems = [MEMORY[d] for d in dtypes]
        self.refs = plan.args.load(c)

    def step(self, operand: int, axis: int) -> V | None:
        """The step in elements; None where the operand does not move."""
        at = self.plan.step_args.get((operand, axis))
        if at is not None:
            return self.refs[at]
        return V("1", "i64", 0) if self.plan.axes[axis].steps[operand] == 1 else None

    def moved(self, operand: int, base: V, index: dict[int, V]) -> V:
        """The address at some indices by axis."""
        c = self.c
        total: V | None = None
        for axis, i in index.items():
            step = self.step(operand, axis)
            if step is None:
                continue
            part = i if step.ref == "1" else c.op("mul", i, step)
            total = part if total is None else c.op("add", total, part)
        return base if total is None else c.gep(base, total, self.elems[operand])

    def read(self, operand: int, base: V, i: V, n: int, mask: V | None) -> V:
        """The operand's elements from inner index i on."""
        c = self.c
        elem = self.elems[operand]
        inner = len(self.plan.axes) - 1
        step = self.step(operand, inner)
        if step is None or not n:
            raw = c.load(base if step is None else self.moved(operand, base, {inner: i}), elem, 0)
            return from_memory(c, raw, self.dtypes[operand])
        if step.ref == "1":
            raw = c.load(c.gep(base, i, elem), elem, n, mask)
        else:
            at = c.gep(base, c.op("mul", i, step), elem)
            raw = c.gather(at, c.offsets(step, n, self.plan.near), elem, mask)
        return from_memory(c, raw, self.dtypes[operand])

    def write(self, operand: int, base: V, i: V, x: V, mask: V | None) -> None:
        c = self.c
        inner = len(self.plan.axes) - 1
        step = self.step(operand, inner)
        raw = to_memory(c, x, self.dtypes[operand])
        elem = self.elems[operand]
        if step is None or step.ref == "1":
            c.store(c.gep(base, i, elem), raw, mask)
        else:
            at = c.gep(base, c.op("mul", i, step), elem)
            c.scatter(at, c.offsets(step, x.n, self.plan.near), raw, mask)


def _write(c: Code, plan: Plan) -> None:
    if plan.tile is not None:
        _Tiled(c, plan).write()
    else:
        _Rows(c, plan).write()


class _Rows:
    """The loop nest where every operand is read along the inner axis directly."""

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
        block = V(str(BLOCK), "i64", 0)
        if plan.blocks:
            count = self.ops.refs[plan.extent_args[-1] + 1]
            if inner == 0:  # one long axis: neighbouring blocks are one loop
                begin = c.op("mul", V("%begin", "i64", 0), block)
                end = c.intrinsic("smin", c.op("mul", V("%end", "i64", 0), block), extents[-1])
                self.row([], begin, end)
                return

            def item(index: list[V], _: V) -> None:
                begin = c.op("mul", index[-1], block)
                end = c.intrinsic("smin", c.op("add", begin, block), extents[-1])
                self.row(index[:-1], begin, end)

            items(c, [*extents[:-1], count], item)
        elif inner == 0:
            items(c, [V("1", "i64", 0)], lambda *_: self.row([], V("0", "i64", 0), extents[-1]))
        else:
            items(c, extents[:-1], lambda index, _: self.row(index, V("0", "i64", 0), extents[-1]))

    def row(self, index: list[V], begin: V, end: V) -> None:
        """All of one inner axis."""
        c, plan = self.c, self.plan
        at = dict(enumerate(index))
        bases = [self.ops.moved(o, base, at) for o, base in enumerate(self.ops.bases)]
        zero = V("0", "i64", 0)

        def load_fixed(node: Node) -> V:
            k = self.number[node.ident]
            return self.ops.read(k, bases[k], zero, 0, None)

        fixed = Scope(c, 0, load_fixed)
        fixed.prepare([*plan.nodes], self.varies) if self._uniform() else None

        def step(i: V, n: int, mask: V | None) -> None:
            def load(node: Node) -> V:
                k = self.number[node.ident]
                return self.ops.read(k, bases[k], i, n, mask)

            scope = Scope(c, n, load, fixed)
            values = [scope.value(r) for r in plan.results]
            for o, value in enumerate(values):
                k = len(plan.loads) + o
                self.ops.write(k, bases[k], i, value, mask)

        spread(c, begin, end, self.cost(), step, plan.mode)

    def _uniform(self) -> bool:
        return any(not self.varies(n) and n.kind != "const" for n in self.plan.nodes)

    def cost(self) -> int:
        return sum(n.cost for n in self.plan.nodes if self.varies(n))


def spread(c: Code, begin: V, end: V, cost: int, step: Callable[[V, int, V | None], None], mode: int) -> None:
    """A loop over [begin, end) in vectors: several at once where the work is light, the rest under a mask if there is one."""
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
    """The loop nest where some operands are contiguous along another axis: they are turned a tile at a time."""

    def write(self) -> None:
        c, plan = self.c, self.plan
        assert plan.tile is not None
        n = c.lanes
        self.ops = _Operands(c, plan)
        extents = [self.ops.refs[a] for a in plan.extent_args]
        inner = len(extents) - 1
        turned = [k for k in range(len(plan.loads)) if plan.kind(k) == "t"]
        pure = bool(turned) and plan.nodes == plan.results == plan.loads[:1] and len(plan.outputs) == 1
        tiles = {} if pure else {k: c.stack(self.ops.elems[k], n * n) for k in turned}  # plain copies need no memory
        outer = [i for i in range(inner) if i != plan.tile]
        across = extents[plan.tile]
        count = c.op("udiv", c.op("add", across, V(str(n - 1), "i64", 0)), V(str(n), "i64", 0))
        zero = V("0", "i64", 0)

        def item(index: list[V], _: V) -> None:
            at = dict(zip(outer, index[:-1], strict=True))
            bases = [self.ops.moved(o, base, at) for o, base in enumerate(self.ops.bases)]
            row = c.op("mul", index[-1], V(str(n), "i64", 0))
            rows = c.intrinsic("smin", c.op("sub", across, row), V(str(n), "i64", 0))
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
                whole = c.compare("eq", rows, V(str(n), "i64", 0))
                begin = c.choose(whole, lambda: self._copy_whole(bases, row, extents[inner]), zero)
            c.loop(begin, extents[inner], n, column)

        items(c, [*(extents[i] for i in outer), count], item)

    def _copy_whole(self, bases: list[V], row: V, end: V) -> V:
        """Whole tiles of a plain copy, from registers to where they belong; returns the first column left over."""
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
            lines = [c.load(c.gep(at, c.op("mul", step, V(str(r), "i64", 0)), elem), elem, n) for r in range(n)]
            to = c.gep(target, j, elem)
            for r, line in enumerate(transposed(c, lines)):
                c.store(to if not r else c.gep(to, c.op("mul", out_step, V(str(r), "i64", 0)), elem), line)
            return []

        return c.loop(V("0", "i64", 0), end, n, tile, ahead=n - 1)[0]

    def _turn(self, k: int, base: V, row: V, row_mask: V, j: V, left: V, tile: V) -> None:
        """Write n x n elements of an operand to its tile, so that the inner axis is contiguous."""
        c, n = self.c, self.c.lanes
        elem = self.ops.elems[k]
        step = self.ops.step(k, len(self.plan.axes) - 1)
        assert step is not None
        base = c.gep(base, row, elem)
        last = c.op("sub", left, V("1", "i64", 0))
        lines = []
        for r in range(n):
            ahead = c.intrinsic("smin", V(str(r), "i64", 0), last) if r else V("0", "i64", 0)
            at = c.gep(base, c.op("mul", c.op("add", j, ahead), step), elem)
            lines.append(c.load(at, elem, n, row_mask))
        for r, line in enumerate(transposed(c, lines)):
            c.store(c.gep(tile, r * n, elem), line)

    def _line(self, bases: list[V], i: V, t: V, j: V, mask: V, tiles: dict[int, V]) -> None:
        c, plan, n = self.c, self.plan, self.c.lanes
        assert plan.tile is not None
        tile_axis = plan.tile
        starts = [base if o in tiles else self.ops.moved(o, base, {tile_axis: i}) for o, base in enumerate(bases)]

        def load_fixed(node: Node) -> V:
            k = self.number[node.ident]
            return self.ops.read(k, starts[k], V("0", "i64", 0), 0, None)

        def load(node: Node) -> V:
            k = self.number[node.ident]
            if k in tiles:
                elem = self.ops.elems[k]
                raw = c.load(c.gep(tiles[k], c.op("mul", t, V(str(n), "i64", 0)), elem), elem, n)
                return from_memory(c, raw, self.ops.dtypes[k])
            return self.ops.read(k, starts[k], j, n, mask)

        fixed = Scope(c, 0, load_fixed)
        if self._uniform():
            fixed.prepare(plan.nodes, self.varies)
        scope = Scope(c, n, load, fixed)
        values = [scope.value(r) for r in plan.results]
        for o, value in enumerate(values):
            k = len(plan.loads) + o
            self.ops.write(k, starts[k], j, value, mask)


def compile_copy(source: Shape, target: Shape, engine: Engine, name: str = "copy") -> JitKernel | No:
    """A kernel that copies between two layouts of the same dims, converting where the element types differ."""
    if source.lens() != target.lens():
        return No(f"copies need equal dims, got {source} and {target}")
    graph = Graph(target.lens(), frozenset())
    if source.dtype is target.dtype:  # bits move as they are
        same = raw_type(source.dtype)
        if same is None:
            return No(f"no loop moves {source.dtype}")
        source = Shape(same, source.lens(), source.strides())
        target = Shape(same, target.lens(), target.strides())
    elif not supported(source.dtype) or not supported(target.dtype):
        return No(f"no copy from {source.dtype} to {target.dtype}")
    node = graph.load(0, source.dtype, source.strides())
    graph.outputs = [graph.convert(node, target.dtype)]
    return build(graph, [source], [target], engine, name)
