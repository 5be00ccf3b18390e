"""Loops for reductions with the pointwise work before and after them: one row at a time, or many rows side by side.

Rows: the reduced axes hold the contiguous one; an item is a row, vectors run along it and lanes are combined at its end.
Columns: the contiguous axis is kept; an item is a vector of neighbouring rows, which need no combining.
Reductions that need one another run in passes over the row; dear values are kept in scratch memory between passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mgx_core import dtype as dt
from mgx_core.dtype import DType
from mgx_core.ir.module import Module
from mgx_core.kernel import No
from mgx_core.shape import Shape

from .code import BITS, Code, V, constant
from .engine import Engine
from .graph import Graph, Node, Refused, read, walk
from .kernel import JitKernel
from .primitive import MEMORY, apply, computed, elem_of, from_memory, supported, to_memory
from .scope import Scope, loop_mode, loop_width
from .simplify import simplify
from .space import Args, Axis, axes_of, items, merged

__all__ = ["compile_reduce"]

GRAIN = 24576
DEAR = 10  # vector instructions from which a value is kept for the next pass
MOST_KEPT = 1 << 18  # bytes of scratch a row may take; longer rows compute again


@dataclass
class Plan:
    """How one group is looped; `key` holds everything that the code depends on."""

    loads: list[Node]
    nodes: list[Node]
    results: list[Node]
    outputs: Sequence[Shape]
    inputs: int
    kept: list[Axis]
    reduced: list[Axis]
    columns: bool
    full: list[bool]  # by output: has it the dims of the space (else those of the reductions)
    count: int  # elements of a row
    args: Args = field(default_factory=Args)
    steps: dict[tuple[int, int], int] = field(default_factory=dict)
    extents: list[int] = field(default_factory=list)
    row_count: int = 0  # the arg that holds `count`
    store: list[Node] = field(default_factory=list)  # values kept between passes, as scratch rows in this order
    near: bool = True  # steps along the axis that vectors run along are small
    mode: int = 0  # what is known of the extent that vectors run along, see `loop_mode`
    width: int = 1  # rows in the lanes of an item
    stride: int = 0  # the arg that holds the scratch elements of one row
    key: str = ""

    @property
    def axes(self) -> list[Axis]:
        return [*self.kept, *self.reduced]


def compile_reduce(
    body: Module,
    axes: Sequence[int],
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    engine: Engine,
    name: str = "reduce",
) -> JitKernel | No:
    """A kernel for a body of reductions over `axes` and pointwise ops; shapes with the strides that the memory has."""
    if any(not supported(o.dtype) for o in outputs):
        return No(f"outputs of types without loops: {', '.join(map(str, outputs))}")
    dims = _space(body, inputs, outputs)
    if dims is None:
        return No("a group without reductions")
    axes = tuple(a % len(dims) for a in axes) or tuple(range(len(dims)))
    try:
        graph = read(body, inputs, dims, axes)
    except Refused as error:
        return No(str(error))
    simplify(graph)
    return build(graph, inputs, outputs, engine, name)


def _space(body: Module, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> list[int] | None:
    """The dims that the reductions read."""
    clone = body.clone(
        parameters={p.op.label: x.as_standard() for p, x in zip(body.parameters.values(), inputs, strict=True)}  # type: ignore[attr-defined]
    )
    for ins in clone:
        if ins.op.name.startswith("reduce_"):
            return ins.inputs[0].shape.lens()
    return None


def build(graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine, name: str) -> JitKernel | No:
    plan = make_plan(graph, inputs, outputs, engine)
    if isinstance(plan, No):
        return plan
    rows = math.prod(a.extent for a in plan.kept)
    cost = max(1, sum(n.cost + 1 for n in plan.nodes))
    lanes = plan.width
    if plan.columns:
        inner = plan.kept[-1].extent
        work = rows // inner * -(-inner // lanes) if rows else 0
    else:
        work = rows
    row = plan.count * lanes
    code = engine.function(plan.key, lambda c: _Writer(c, plan).write())
    moved = sum(i.element_space() * i.dtype.size for i in inputs) + sum(o.elements() * o.dtype.size for o in outputs)
    wide = max((BITS[elem_of(n.dtype)] for n in plan.store), default=0) // 8
    return JitKernel(
        name=name,
        code=code,
        work=work,
        grain=max(1, GRAIN // max(1, row * (1 + cost // 4))),
        args=tuple(plan.args.values),
        scratch_bytes=_padded(row) * max(wide, 1) * len(plan.store) + 256,
        inputs=len(inputs),
        outputs=len(outputs),
        flops=rows * plan.count * cost,
        bytes=moved,
        inplace=True,
    )


def _padded(n: int) -> int:
    return -(-n // 64) * 64


def make_plan(graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine) -> Plan | No:
    nodes = list(walk(graph.outputs))
    loads = [n for n in nodes if n.kind == "load"]
    full = []
    for o, node in zip(outputs, graph.outputs, strict=True):
        dims = tuple(o.lens())
        small = tuple(1 if i in graph.reduced else n for i, n in enumerate(graph.dims))
        if dims not in (graph.dims, small):
            return No(f"an output {o} in a group over {list(graph.dims)}")
        full.append(dims == graph.dims and (dims != small or not node.axes <= _kept_axes(graph)))
    steps = [list(n.extra[1]) for n in loads]
    for o, whole in zip(outputs, full, strict=True):
        steps.append([0 if not whole and i in graph.reduced else s for i, s in enumerate(o.strides())])
    axes = axes_of(graph.dims, steps, graph.reduced)
    main = [k for k in range(len(steps)) if _spans(k, loads, full, graph)]

    def weight(axis: Axis) -> list[int]:
        return sorted((axis.steps[k] for k in main), reverse=True)

    reduced = merged(sorted((a for a in axes if a.reduced), key=weight, reverse=True))
    kept = merged(sorted((a for a in axes if not a.reduced), key=weight, reverse=True))
    columns = bool(kept) and _columns(kept, reduced, main, engine.lanes)
    plan = Plan(loads, nodes, graph.outputs, outputs, len(inputs), kept, reduced, columns, full, 1)
    plan.count = math.prod(a.extent for a in reduced)
    if not plan.reduced:
        plan.reduced = [Axis(1, (0,) * len(steps), True)]
    plan.extents = [plan.args.add(a.extent) for a in plan.axes]
    plan.row_count = plan.args.add(plan.count)
    for i, axis in enumerate(plan.axes):
        for k, step in enumerate(axis.steps):
            if step:
                plan.steps[k, i] = plan.args.add(step)
    plan.width = _width(plan, engine.lanes) if columns else 1
    _choose_kept(plan, plan.width)
    plan.near = max(map(abs, (kept if columns else plan.reduced)[-1].steps), default=0) < 1 << 24
    if not columns:
        plan.mode = loop_mode(plan.reduced[-1].extent, engine.lanes)
    plan.stride = plan.args.add(_padded(plan.count * plan.width))
    plan.key = _key(plan)
    return plan


def _kept_axes(graph: Graph) -> frozenset[int]:
    return frozenset(range(len(graph.dims))) - graph.reduced


def _spans(k: int, loads: Sequence[Node], full: Sequence[bool], graph: Graph) -> bool:
    """Whether an operand has elements along the reduced axes."""
    return bool(loads[k].axes & graph.reduced) if k < len(loads) else full[k - len(loads)]


def _columns(kept: Sequence[Axis], reduced: Sequence[Axis], main: Sequence[int], lanes: int) -> bool:
    """Whether vectors run across rows rather than along them."""
    if not reduced:
        return True
    along = sum(reduced[-1].steps[k] == 1 for k in main)
    across = sum(kept[-1].steps[k] == 1 for k in main)
    if across > along and kept[-1].extent >= 4:
        return True
    length = reduced[-1].extent
    return length * 4 <= lanes and kept[-1].extent >= 4 * lanes


def _width(plan: Plan, lanes: int) -> int:
    """Lanes of an item of columns: several vectors where the work is light."""
    cost = sum(n.cost for n in plan.nodes)
    inner = plan.kept[-1]
    cheap = cost <= 12 and all(inner.steps[k] in (0, 1) for k in range(len(inner.steps)))
    return lanes * 4 if cheap and inner.extent >= 4 * lanes else lanes


def _choose_kept(plan: Plan, lanes: int) -> None:
    """Values that one pass makes at some cost and a later one reads again."""
    moving = _moving(plan)
    last = max((n.level for n in plan.nodes), default=0)
    used: dict[int, int] = {}
    for node in plan.nodes:
        at = last if node in plan.results else 0
        if node.kind == "reduce":
            at = node.level - 1
        elif node.ident in moving:
            at = node.level
        for a in node.args:
            used[a.ident] = max(used.get(a.ident, 0), at, used.get(node.ident, 0) if node.kind != "reduce" else 0)
    for node in reversed(plan.nodes):  # later passes that a value is computed in reach its operands
        if node.kind != "reduce":
            for a in node.args:
                used[a.ident] = max(used.get(a.ident, 0), used.get(node.ident, 0), last if node in plan.results else 0)
    price: dict[int, int] = {}
    for node in plan.nodes:
        if node.ident not in moving or node.kind == "reduce":
            continue
        price[node.ident] = node.cost + sum(price.get(a.ident, 0) for a in node.args)
        later = used.get(node.ident, 0) > node.level or (node in plan.results and last > node.level)
        if node.kind in ("prim", "convert") and later and price[node.ident] >= DEAR and _made_before(plan, node):
            bits = BITS[elem_of(node.dtype)]
            if plan.count * lanes * bits // 8 * (len(plan.store) + 1) <= MOST_KEPT and bits > 1:
                plan.store.append(node)
                price[node.ident] = 1


def _made_before(plan: Plan, node: Node) -> bool:
    """Whether a reduction of the pass that the node belongs to computes it anyway."""
    return any(r.kind == "reduce" and r.level - 1 == node.level and node in set(walk(r.args)) for r in plan.nodes)


def _moving(plan: Plan) -> set[int]:
    """Nodes that vary along the reduced axes."""
    moving: set[int] = set()
    offset = len(plan.kept)
    for k, node in enumerate(plan.loads):
        if any(plan.axes[offset + i].steps[k] for i in range(len(plan.reduced))):
            moving.add(node.ident)
    for node in plan.nodes:
        if node.kind != "reduce" and any(a.ident in moving for a in node.args):
            moving.add(node.ident)
    return moving


def _key(plan: Plan) -> str:
    number = {n.ident: i for i, n in enumerate(plan.nodes)}
    words = [f"reduce columns={plan.columns} kept={len(plan.kept)} reduced={len(plan.reduced)} buffers={plan.inputs}"]
    for i, n in enumerate(plan.nodes):
        extra = n.extra[0] if n.kind == "load" else n.extra
        words.append(f"{i} {n.kind} {n.dtype} {extra} {[number[a.ident] for a in n.args]}")
    words.append(str([number[r.ident] for r in plan.results]))
    words.append(str([(o.dtype.name, f) for o, f in zip(plan.outputs, plan.full, strict=True)]))
    words += ["".join("0" if not s else "1" if s == 1 else "s" for s in axis.steps) for axis in plan.axes]
    words.append(str([number[n.ident] for n in plan.store]))
    words.append(f"{plan.width} {plan.mode} {plan.near}")
    return "\n".join(words)


# code ------------------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, c: Code, plan: Plan) -> None:
        self.c = c
        self.plan = plan
        self.moving = _moving(plan)
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
        if not plan.columns:
            items(c, kept or [one], lambda index: self.item(index if kept else [], None, None))
            return
        width = V(str(self.width), "i64", 0)
        inner = kept[-1]
        blocks = c.op("udiv", c.op("add", inner, V(str(self.width - 1), "i64", 0)), width)

        def block(index: list[V]) -> None:
            first = c.op("mul", index[-1], width)
            self.item(index[:-1], first, c.first(c.op("sub", inner, first), self.width))

        items(c, [*kept[:-1], blocks], block)

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
        for level in range(self.levels):
            here = [n for n in plan.nodes if n.kind == "reduce" and n.level == level + 1]
            self._pass(level, here, [], [])
        fulls = [i for i, f in enumerate(plan.full) if f]
        rest = [i for i, f in enumerate(plan.full) if not f]
        for i in rest:
            k = len(plan.loads) + i
            self.put(k, self.bases_here[k], across, self.row.value(plan.results[i]), mask)
        if fulls:
            self._pass(self.levels, [], fulls, [plan.results[i] for i in fulls])

    def _needed(self, level: int, roots: Sequence[Node]) -> list[Node]:
        """Nodes that a pass computes itself: not what is kept, or reduced already."""
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

            return c.loop(self.zero, extents[axis], 1, step, carried)[1:]

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

            begin: V = self.zero
            if both:

                def whole(i: V, carried: list[V]) -> list[V]:
                    return visit([*index, i], at(i), n * times, None, carried)

                done = c.loop(self.zero, inner, n * times, whole, wide, ahead=n * times - 1)
                begin, wide = done[0], done[1:]

            def masked(i: V, carried: list[V]) -> list[V]:
                mask = None if whole_lanes else c.first(c.op("sub", inner, i), n)
                return visit([*index, i], at(i), n, mask, carried)

            if rest:
                narrow = c.loop(begin, inner, n, masked, narrow)[1:]
            return wide, narrow

        def nest(axis: int, index: list[V], line: V, wide: list[V], narrow: list[V]) -> tuple[list[V], list[V]]:
            if axis + 1 == len(extents):
                return along(index, line, wide, narrow)
            split = len(wide)

            def step(i: V, carried: list[V]) -> list[V]:
                number = c.op("add", c.op("mul", line, extents[axis]), i)
                a, b = nest(axis + 1, [*index, i], number, carried[:split], carried[split:])
                return [*a, *b]

            done = c.loop(self.zero, extents[axis], 1, step, [*wide, *narrow])[1:]
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
