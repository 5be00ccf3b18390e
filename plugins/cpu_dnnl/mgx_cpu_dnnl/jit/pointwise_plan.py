"""Plans of pointwise kernels: loop order, and the access of operands along the inner axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from mgx_core.records import dataclass
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import divides, usual

from .graph import Graph, Node, text_of
from .parameters import constant_text, enter_parameters, parameter_constants
from .space import Args, Axis, axes_of, loop_mode, loop_width, merged

__all__ = ["BLOCK", "Plan", "make_plan"]

SHORT_ROW = 64  # elements of a row that take less time than its address computation
MANY_ITEMS = 64  # items that keep all threads busy
LINE_ELEMENTS = 16  # elements of 4 bytes in a line of the caches
CACHED_ELEMENTS = 8192  # elements whose cache lines fit into a near cache
CONFLICT_STRIDE = 256  # stride in elements that causes cache-set conflicts in L1, and the penalty for it
CONFLICT_COST = 16
MAX_SPLIT_ROW = 32  # maximum elements of rows that longer ones are split into
MIN_VECTOR_AXIS = 16  # minimum elements of an axis that are vectorized well
BLOCK = 4096  # elements of a long inner axis that make one item
MAX_PARAMETERS = 4  # maximum constants that are parameters: each takes a register in the loop


@dataclass
class Plan:
    """The loop nest of one group; `key` determines the code."""

    loads: list[Node]
    results: list[Node]
    outputs: Sequence[Shape]
    inputs: int
    axes: list[Axis]
    args: Args
    nodes: list[Node]
    lanes: int
    tile: int | None = None  # the axis along which transposed operands are contiguous
    blocks: bool = False
    pairs: bool = False  # the last two axes make one item: rows are short
    near: bool = True  # strides along the inner axis are small
    step_args: dict[tuple[int, int], int] = field(default_factory=dict)
    extent_args: list[int] = field(default_factory=list)
    given: list[Node] = field(default_factory=list)  # constants that are parameters
    mode: int = 1  # properties of the inner extent, see `loop_mode`
    key: str = ""

    def kind(self, operand: int) -> str:
        """Returns an operand's access along the inner axis: 0 invariant, 1 contiguous, s strided, t through a tile."""
        step = self.axes[-1].steps[operand]
        if step in (0, 1):
            return str(step)
        if self.tile is not None and operand < len(self.loads) and self.axes[self.tile].steps[operand] == 1:
            return "t"
        return "s"


def make_plan(graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], lanes: int, tiled: bool = True) -> Plan:
    """Returns the plan of a graph; tiled: operands may be transposed tile by tile."""
    nodes = graph.nodes
    loads = [n for n in nodes if n.kind == "load"]
    steps = [graph.steps(n) for n in loads] + [tuple(o.strides()) for o in outputs]
    axes = axes_of(graph.dims, steps)
    main = len(loads)
    axes.sort(key=lambda a: (-usual(a.steps[main]), -max(map(usual, a.steps), default=0)))
    axes = merged(axes) or [Axis(1, (1,) * len(steps))]
    if len(axes) > 1 and usual(axes[-1].extent) < 8:  # too short for vectors: prefer strided access along a longer axis
        axes = _along_another(axes)
    plan = Plan(loads, graph.outputs, outputs, len(inputs), axes, Args(), nodes, lanes)
    plan.near = max(map(abs, axes[-1].steps)) < 1 << 24
    plan.tile = _tile_axis(plan) if tiled else None
    plan.blocks = plan.tile is None and usual(axes[-1].extent) >= 2 * BLOCK
    plan.pairs = _short_rows(plan)
    plan.extent_args = [plan.args.add(a.extent) for a in axes]
    if plan.blocks:
        plan.args.add(-(-axes[-1].extent // BLOCK))
    for i, axis in enumerate(axes):
        for operand, step in enumerate(axis.steps):
            if step not in (0, 1) or (step == 1 and i != len(axes) - 1 and i != plan.tile):
                plan.step_args[operand, i] = plan.args.add(step)
    given = parameter_constants(nodes)
    plan.given = given if len(given) <= MAX_PARAMETERS else []
    enter_parameters(plan.args, plan.given)
    plan.mode = loop_mode(axes[-1].extent, lanes) if plan.tile is None else 1
    if plan.mode < 0 and loop_width(graph.cost) > 1:
        plan.mode = 1
    text = graph.once("text of given", lambda: text_of(nodes, const=constant_text(plan.given)))
    plan.key = _key(plan, *text)
    return plan


def _along_another(axes: list[Axis]) -> list[Axis]:
    """Returns axes whose innermost is a block of an axis that is long enough for vectors, if there is one.

    The others are ordered by decreasing stride, so that cache lines are fully used before they are evicted.
    """
    filled = [k for k in range(len(axes[0].steps)) if all(a.steps[k] for a in axes)]  # operands without broadcasts
    cut = [a.extent if _lines(a, filled) <= CACHED_ELEMENTS else _part(a.extent) for a in axes]
    parts = [Axis(n, a.steps, a.reduced) for n, a in zip(cut, axes, strict=True)]
    best = max(range(len(axes) - 1), key=lambda i: (min(usual(cut[i]), MIN_VECTOR_AXIS), -_lines(parts[i], filled), i))
    if usual(cut[best]) < MIN_VECTOR_AXIS:
        return axes
    whole, inner = axes[best], parts[best]
    outer = Axis(whole.extent // inner.extent, tuple(inner.extent * s for s in whole.steps), whole.reduced)
    rest = [a for i, a in enumerate([*axes, outer]) if i != best and a.extent > 1]
    rest.sort(key=lambda a: -min((abs(usual(a.steps[k])) for k in filled), default=0))
    return merged([*rest, inner])


def _part(extent: int) -> int:
    """Returns the largest divisor of the extent whose cache lines fit into a near cache; the extent if there is none."""
    return next((n for n in range(MAX_SPLIT_ROW, MIN_VECTOR_AXIS - 1, -1) if divides(n, extent)), extent)


def _lines(axis: Axis, filled: Sequence[int]) -> int:
    """Returns how much of the near cache a row of some operands along an axis takes, in elements.

    Adjacent rows share cache lines; lines that are a multiple of 1 KiB apart evict each other.
    """
    steps = (abs(usual(axis.steps[k])) for k in filled)
    return usual(axis.extent) * sum(
        min(step, LINE_ELEMENTS) * (CONFLICT_COST if step % CONFLICT_STRIDE == 0 else 1) for step in steps
    )


def _short_rows(plan: Plan) -> bool:
    """Returns True if there are many short contiguous rows, which are addressed faster one after the other."""
    inner, outer = plan.axes[-1], plan.axes[:-2]
    contiguous = usual(inner.extent) <= SHORT_ROW and all(step in (0, 1) for step in inner.steps)
    return plan.tile is None and contiguous and math.prod(usual(a.extent) for a in outer) >= MANY_ITEMS


def _tile_axis(plan: Plan) -> int | None:
    """Returns the axis along which operands with strided access to the inner axis are contiguous."""
    axes = plan.axes
    inner = axes[-1]
    if len(axes) < 2 or usual(inner.extent) < 4 or inner.steps[len(plan.loads)] != 1:
        return None
    votes: dict[int, int] = {}
    for operand in range(len(plan.loads)):
        if inner.steps[operand] not in (0, 1):
            for i, axis in enumerate(axes[:-1]):
                if axis.steps[operand] == 1 and usual(axis.extent) >= 4:
                    votes[i] = votes.get(i, 0) + 1
    return max(votes, key=lambda i: votes[i]) if votes else None


def _key(plan: Plan, text: str, number: Mapping[int, int]) -> str:
    """Returns the key: groups with equal keys have equal code."""
    key_parts = [f"pointwise {len(plan.axes)} {plan.tile} {plan.blocks} {plan.near} {plan.mode} {plan.inputs}"]
    key_parts += ["pairs"] * plan.pairs
    key_parts += [text, str([number[r.ident] for r in plan.results])]
    key_parts.append(str([o.dtype.name for o in plan.outputs]))
    count = len(plan.loads) + len(plan.outputs)
    key_parts += ["".join("0" if not s else "1" if s == 1 else "s" for s in axis.steps) for axis in plan.axes]
    key_parts.append("".join(plan.kind(o) for o in range(count)))
    key_parts.append(str(sorted(plan.step_args)))
    return "\n".join(key_parts)
