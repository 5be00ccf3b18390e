"""Plans of reductions: vectorization along or across rows, splitting of long rows, values kept between passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from mgx_core.errors import No
from mgx_core.records import dataclass
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import divides, usual

from .code import BITS
from .element import elem_of
from .engine import Engine
from .graph import Graph, Node, text_of, walk
from .parameters import constant_text, enter_parameters, parameter_constants
from .space import Args, Axis, axes_of, loop_mode, merged

__all__ = ["Plan", "items_of", "make_plan", "moving", "padded"]

SUMS = ("sum", "total", "mean")
PIECE_ELEMENTS = 1 << 14  # elements of a piece of a long row
MAX_LANES = 16  # elements of the widest vector stored in scratch memory
GATHER_COST = 30  # cost of a gather, in vector instructions
SUM_BLOCK = 64  # indices of an axis that are summed separately, which reduces the growth of rounding errors (pairwise summation)
HORIZONTAL_COST = 12  # cost of a horizontal sum, in vector instructions
MIN_KEPT_COST = 10  # minimum cost at which a value is kept for the next pass, in vector instructions
UNCACHED_ELEMENTS = 1 << 18  # elements that exceed the near caches
MAX_KEPT_BYTES = 1 << 18  # maximum scratch bytes of a row; longer rows are recomputed


@dataclass
class Plan:
    """The loop nest of one group; `key` determines the code."""

    loads: list[Node]
    nodes: list[Node]
    results: list[Node]
    outputs: Sequence[Shape]
    inputs: int
    kept: list[Axis]
    reduced: list[Axis]
    columns: bool
    full: list[bool]  # by output: True if it has the dims of the space (else those of the reductions)
    count: int  # elements of a row
    args: Args = field(default_factory=Args)
    steps: dict[tuple[int, int], int] = field(default_factory=dict)
    extents: list[int] = field(default_factory=list)
    row_count: int = 0  # the arg that holds `count`
    given: list[Node] = field(default_factory=list)  # constants that are parameters
    store: list[Node] = field(default_factory=list)  # values kept between passes, as scratch rows in this order
    near: bool = True  # strides along the vector axis are small
    mode: int = 0  # properties of the extent that vectors run along, see `loop_mode`
    width: int = 1  # rows in the lanes of an item
    parted: tuple[bool, ...] = ()  # by reduced axis: True if columns are summed along it in blocks
    unmasked: bool = False  # all items are full, so that no masks are needed
    pieces: int = 0  # pieces per row, each an item, if rows are few and long (0: not split)
    # the arg that holds the extent of a piece along the first reduced axis; the number of pieces follows
    piece: int = 0
    stride: int = 0  # the arg that holds the scratch elements of one row
    key: str = ""

    @property
    def axes(self) -> list[Axis]:
        return [*self.kept, *self.reduced]

    @property
    def stored_at_once(self) -> bool:
        """Returns True if the pass that reduces also stores all results with the dims of the space, as none needs a reduction."""
        whole = [node for node, full in zip(self.results, self.full, strict=True) if full]
        return bool(whole) and max(n.level for n in self.nodes) == 1 and all(n.level == 0 for n in whole)


def padded(n: int) -> int:
    """Returns the scratch elements of a row of n elements, padded since kept values are stored as whole vectors."""
    return -(-(n + MAX_LANES) // 64) * 64


def make_plan(graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine) -> Plan | No:
    nodes = graph.nodes
    loads = [n for n in nodes if n.kind == "load"]
    full = []
    for o, node in zip(outputs, graph.outputs, strict=True):
        dims = tuple(o.lens())
        small = tuple(1 if i in graph.reduced else n for i, n in enumerate(graph.dims))
        if dims not in (graph.dims, small):
            return No(f"the output {o} does not fit a group over {list(graph.dims)}")
        full.append(dims == graph.dims and (dims != small or not node.axes.isdisjoint(graph.reduced)))
    steps = [list(graph.steps(n)) for n in loads]
    for o, whole in zip(outputs, full, strict=True):
        steps.append([0 if not whole and i in graph.reduced else s for i, s in enumerate(o.strides())])
    axes = axes_of(graph.dims, steps, graph.reduced)
    main = [k for k in range(len(steps)) if _varies(k, loads, full, graph)]

    def weight(axis: Axis) -> list[int]:
        return sorted((usual(axis.steps[k]) for k in main), reverse=True)

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
    plan.parted = _blocked_axes(plan)
    # with AVX2 only, masked stores are ten times slower than others on some CPUs
    plan.unmasked = columns and not engine.wide and divides(plan.width, kept[-1].extent)
    _choose_kept(plan, plan.width)
    plan.near = max(map(abs, (kept if columns else plan.reduced)[-1].steps), default=0) < 1 << 24
    if not columns:
        plan.mode = loop_mode(plan.reduced[-1].extent, engine.lanes)
    plan.stride = plan.args.add(padded(plan.count * plan.width))
    _split_rows(plan, engine.lanes)
    varying = moving(plan)
    # in the loop of a row they would take registers
    plan.given = parameter_constants(nodes, lambda user: user.ident not in varying)
    enter_parameters(plan.args, plan.given)
    given = tuple([n.ident for n in plan.given])
    plan.key = _key(plan, *graph.once(("text", given), lambda: text_of(nodes, const=constant_text(plan.given))))
    return plan


def _blocked_axes(plan: Plan) -> tuple[bool, ...]:
    """Returns, by reduced axis, True if it is summed in blocks: if the axes within have at least a block of terms."""
    floats = any(n.kind == "reduce" and n.word in SUMS and n.dtype.is_float for n in plan.nodes)
    extents = [usual(a.extent) for a in plan.reduced]
    inside = [math.prod(extents[i:]) for i in range(len(extents))]
    return tuple(plan.columns and floats and inside[0] > SUM_BLOCK and n >= SUM_BLOCK // 2 for n in inside)


def _split_rows(plan: Plan, lanes: int) -> None:
    """Splits few long rows into pieces, by their extents only, so that results do not depend on the number of threads."""
    rows = items_of(plan)
    if plan.stored_at_once:
        _split_columns(plan)
        return
    long = plan.count * plan.width >= 4 * PIECE_ELEMENTS
    simple = not any(plan.full) and all(n.level <= 1 for n in plan.nodes if n.kind == "reduce")
    if not long or not 0 < rows < 4 or not simple or plan.store:
        return
    extent = plan.reduced[0].extent
    step = -(-extent // min(64, plan.count * plan.width // PIECE_ELEMENTS))
    if len(plan.reduced) == 1:
        step = -(-step // (4 * lanes)) * 4 * lanes
    plan.pieces = -(-extent // step)
    if plan.pieces < 2:
        plan.pieces = 0
        return
    plan.piece = plan.args.add(step)
    plan.args.add(plan.pieces)


def _split_columns(plan: Plan) -> None:
    """Splits columns that are stored while they are summed, if they exceed a near cache.

    The items of a piece follow each other: they share cache lines, and a thread reads what it wrote itself in a previous loop.
    """
    if not plan.columns or len(plan.reduced) > 1:
        return
    across, extent = plan.kept[-1].extent, plan.reduced[0].extent
    if usual(2 * across * extent) < UNCACHED_ELEMENTS:
        return
    step = -(-extent // -(-across * extent // (2 * PIECE_ELEMENTS)))
    plan.pieces = -(-extent // step)
    plan.piece = plan.args.add(step)
    plan.args.add(plan.pieces)


def items_of(plan: Plan) -> int:
    """Returns the number of items if rows are not split."""
    rows = math.prod(a.extent for a in plan.kept)
    if not plan.columns or not rows:
        return rows
    inner = plan.kept[-1].extent
    return rows // inner * -(-inner // plan.width)


def _varies(k: int, loads: Sequence[Node], full: Sequence[bool], graph: Graph) -> bool:
    """Returns True if an operand varies along the reduced axes."""
    return bool(loads[k].axes & graph.reduced) if k < len(loads) else full[k - len(loads)]


def _columns(kept: Sequence[Axis], reduced: Sequence[Axis], main: Sequence[int], lanes: int) -> bool:
    """Returns True if vectors run across rows rather than along them."""
    if not reduced:
        return True
    rows, across = reduced[-1], kept[-1]
    long, wide = usual(rows.extent), usual(across.extent)
    preference = sum(across.steps[k] == 1 for k in main) - sum(rows.steps[k] == 1 for k in main)
    if preference > 0 and wide >= 4:
        return True
    if long * 4 <= lanes and wide >= 4 * lanes:
        return True
    if preference < 0 or wide < lanes or not long:
        return False
    # for `lanes` rows: both ways read the same cache lines, and vectors along rows need a horizontal sum each
    vectors = lanes * -(-long // lanes) / long
    return _load_cost(across, main) < vectors * _load_cost(rows, main) + lanes * HORIZONTAL_COST / long


def _load_cost(axis: Axis, main: Sequence[int]) -> int:
    """Returns roughly how many instructions it takes to load a vector of each operand along an axis."""
    return sum(1 if axis.steps[k] in (0, 1) else GATHER_COST for k in main)


def _width(plan: Plan, lanes: int) -> int:
    """Returns the lanes of a column item: several vectors if the work is cheap or rows exceed the caches."""
    cost = sum(n.cost for n in plan.nodes)
    inner = plan.kept[-1]
    if any(step not in (0, 1) for step in inner.steps):
        return lanes
    wide = usual(inner.extent)
    if cost <= 12 and wide >= 4 * lanes:
        return lanes * 4
    whole = (lanes * n for n in (4, 2) if divides(lanes * n, inner.extent) and wide >= 4 * lanes * n)
    return next(whole, lanes) if usual(plan.count) * wide >= UNCACHED_ELEMENTS else lanes


def _choose_kept(plan: Plan, lanes: int) -> None:
    """Chooses the expensive values that one pass computes and a later one reads."""
    if plan.stored_at_once:
        return
    varying = moving(plan)
    last = max((n.level for n in plan.nodes), default=0)
    used: dict[int, int] = {}
    for node in plan.nodes:
        at = last if node in plan.results else 0
        if node.kind == "reduce":
            at = node.level - 1
        elif node.ident in varying:
            at = node.level
        for a in node.args:
            used[a.ident] = max(used.get(a.ident, 0), at, used.get(node.ident, 0) if node.kind != "reduce" else 0)
    for node in reversed(plan.nodes):  # a later pass that recomputes a value also reads its operands
        if node.kind != "reduce":
            for a in node.args:
                used[a.ident] = max(used.get(a.ident, 0), used.get(node.ident, 0), last if node in plan.results else 0)
    price: dict[int, int] = {}
    for node in plan.nodes:
        if node.ident not in varying or node.kind == "reduce":
            continue
        price[node.ident] = node.cost + sum(price.get(a.ident, 0) for a in node.args)
        later = used.get(node.ident, 0) > node.level or (node in plan.results and last > node.level)
        if (
            node.kind in ("prim", "convert")
            and later
            and price[node.ident] >= MIN_KEPT_COST
            and _computed_by_reduction(plan, node)
        ):
            bits = BITS[elem_of(node.dtype)]
            if plan.count * lanes * bits // 8 * (len(plan.store) + 1) <= MAX_KEPT_BYTES and bits > 1:
                plan.store.append(node)
                price[node.ident] = 1


def _computed_by_reduction(plan: Plan, node: Node) -> bool:
    """Returns True if a reduction of the node's level computes it anyway."""
    return any(r.kind == "reduce" and r.level - 1 == node.level and node in set(walk(r.args)) for r in plan.nodes)


def moving(plan: Plan) -> set[int]:
    """Returns the nodes that vary along the reduced axes, by `ident`."""
    found: set[int] = set()
    offset = len(plan.kept)
    for k, node in enumerate(plan.loads):
        if any(plan.axes[offset + i].steps[k] for i in range(len(plan.reduced))):
            found.add(node.ident)
    for node in plan.nodes:
        if node.kind != "reduce" and any(a.ident in found for a in node.args):
            found.add(node.ident)
    return found


def _key(plan: Plan, text: str, number: Mapping[int, int]) -> str:
    key_parts = [
        f"reduce columns={plan.columns} kept={len(plan.kept)} reduced={len(plan.reduced)} buffers={plan.inputs}"
    ]
    key_parts += [text, str([number[r.ident] for r in plan.results])]
    key_parts.append(str([(o.dtype.name, f) for o, f in zip(plan.outputs, plan.full, strict=True)]))
    key_parts += ["".join("0" if not s else "1" if s == 1 else "s" for s in axis.steps) for axis in plan.axes]
    key_parts.append(str([number[n.ident] for n in plan.store]))
    key_parts += [f"parted {plan.parted}"] * any(plan.parted)
    key_parts.append(f"{plan.width} {plan.mode} {plan.near} {plan.pieces > 0}" + " unmasked" * plan.unmasked)
    return "\n".join(key_parts)
