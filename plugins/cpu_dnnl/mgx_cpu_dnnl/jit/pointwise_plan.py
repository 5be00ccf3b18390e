"""Plans of pointwise kernels: the order of axes, and how operands are read along the innermost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from mgx_core.records import dataclass
from mgx_core.types.shape import Shape

from .given import enter_given, given_numbers, text_of_number
from .graph import Graph, Node, text_of
from .space import Args, Axis, axes_of, loop_mode, loop_width, merged

__all__ = ["BLOCK", "Plan", "make_plan"]

SHORT = 64  # elements of a row that take less time than finding where it lies
MANY = 64  # items, of which all threads have enough
LINE = 16  # elements of 4 bytes in a line of the caches
NEAR = 8192  # elements whose lines a near cache holds
CROWDED = 256  # elements between neighbours of which the first cache holds few, and what these count for
CROWD = 16
MOST = 32  # elements of rows cut out of longer ones
LONG = 16  # elements along an axis that are enough for vectors
BLOCK = 4096  # elements of a long inner axis that make one item
GIVEN = 4  # numbers that may be arguments: each takes a register in the loop


@dataclass
class Plan:
    """The loops of one group; `key` holds everything that the code depends on."""

    loads: list[Node]
    results: list[Node]
    outputs: Sequence[Shape]
    inputs: int
    axes: list[Axis]
    args: Args
    nodes: list[Node]
    tile: int | None = None  # the axis along which transposed operands are contiguous
    blocks: bool = False
    pairs: bool = False  # the last two axes make one item: rows are short
    near: bool = True  # steps along the inner axis are small
    step_args: dict[tuple[int, int], int] = field(default_factory=dict)
    extent_args: list[int] = field(default_factory=list)
    given: list[Node] = field(default_factory=list)  # numbers that are arguments
    mode: int = 1  # properties of the inner extent, see `loop_mode`
    key: str = ""

    def kind(self, operand: int) -> str:
        """Returns the access of an operand along the inner axis: 0 none, 1 contiguous, s in steps, t through a tile."""
        step = self.axes[-1].steps[operand]
        if step in (0, 1):
            return str(step)
        if self.tile is not None and operand < len(self.loads) and self.axes[self.tile].steps[operand] == 1:
            return "t"
        return "s"


def make_plan(graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], lanes: int) -> Plan:
    nodes = graph.nodes
    loads = [n for n in nodes if n.kind == "load"]
    steps = [graph.steps(n) for n in loads] + [tuple(o.strides()) for o in outputs]
    axes = axes_of(graph.dims, steps)
    main = len(loads)
    axes.sort(key=lambda a: (-a.steps[main], -max(a.steps, default=0)))
    axes = merged(axes) or [Axis(1, (1,) * len(steps))]
    if len(axes) > 1 and axes[-1].extent < 8:  # too short for vectors: rather stride along a longer axis
        axes = _along_another(axes)
    plan = Plan(loads, graph.outputs, outputs, len(inputs), axes, Args(), nodes)
    plan.near = max(map(abs, axes[-1].steps)) < 1 << 24
    plan.tile = _tile_axis(plan)
    plan.blocks = plan.tile is None and axes[-1].extent >= 2 * BLOCK
    plan.pairs = _short_rows(plan)
    plan.extent_args = [plan.args.add(a.extent) for a in axes]
    if plan.blocks:
        plan.args.add(-(-axes[-1].extent // BLOCK))
    for i, axis in enumerate(axes):
        for operand, step in enumerate(axis.steps):
            if step not in (0, 1) or (step == 1 and i != len(axes) - 1 and i != plan.tile):
                plan.step_args[operand, i] = plan.args.add(step)
    given = given_numbers(nodes)
    plan.given = given if len(given) <= GIVEN else []
    enter_given(plan.args, plan.given)
    plan.mode = loop_mode(axes[-1].extent, lanes) if plan.tile is None else 1
    if plan.mode < 0 and loop_width(graph.cost) > 1:
        plan.mode = 1
    text = graph.once("text of given", lambda: text_of(nodes, const=text_of_number(plan.given)))
    plan.key = _key(plan, *text)
    return plan


def _along_another(axes: list[Axis]) -> list[Axis]:
    """Returns axes of which the innermost is a part of one that is long enough for vectors, if there is one.

    The others follow from long steps to short ones, so that lines are used up while a cache holds them.
    """
    filled = [k for k in range(len(axes[0].steps)) if all(a.steps[k] for a in axes)]  # operands that fill the space
    cut = [a.extent if _lines(a, filled) <= NEAR else _part(a.extent) for a in axes]
    parts = [Axis(n, a.steps, a.reduced) for n, a in zip(cut, axes, strict=True)]
    best = max(range(len(axes) - 1), key=lambda i: (min(cut[i], LONG), -_lines(parts[i], filled), i))
    if cut[best] < LONG:
        return axes
    whole, inner = axes[best], parts[best]
    outer = Axis(whole.extent // inner.extent, tuple(inner.extent * s for s in whole.steps), whole.reduced)
    rest = [a for i, a in enumerate([*axes, outer]) if i != best and a.extent > 1]
    rest.sort(key=lambda a: -min((abs(a.steps[k]) for k in filled), default=0))
    return merged([*rest, inner])


def _part(extent: int) -> int:
    """Returns the largest divisor for rows of some vectors, whose lines a near cache holds; the extent if there is none."""
    return next((n for n in range(MOST, LONG - 1, -1) if extent % n == 0), extent)


def _lines(axis: Axis, filled: Sequence[int]) -> int:
    """Returns how much of the near cache a row along an axis takes, of some operands, in parts of lines.

    The next row uses the same lines where it lies beside this one; those that are a multiple of 1 KiB apart push each other out.
    """
    steps = (abs(axis.steps[k]) for k in filled)
    return axis.extent * sum(min(step, LINE) * (CROWD if step % CROWDED == 0 else 1) for step in steps)


def _short_rows(plan: Plan) -> bool:
    """Returns True where many rows of few neighbouring elements are found faster one after the other."""
    inner, outer = plan.axes[-1], plan.axes[:-2]
    beside = inner.extent <= SHORT and all(step in (0, 1) for step in inner.steps)
    return plan.tile is None and beside and math.prod(a.extent for a in outer) >= MANY


def _tile_axis(plan: Plan) -> int | None:
    """Returns the axis along which operands that the inner axis strides over are contiguous."""
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


def _key(plan: Plan, text: str, number: Mapping[int, int]) -> str:
    """Returns the group's structure as text: equal texts mean equal code."""
    words = [f"pointwise {len(plan.axes)} {plan.tile} {plan.blocks} {plan.near} {plan.mode} {plan.inputs}"]
    words += ["pairs"] * plan.pairs
    words += [text, str([number[r.ident] for r in plan.results])]
    words.append(str([o.dtype.name for o in plan.outputs]))
    count = len(plan.loads) + len(plan.outputs)
    words += ["".join("0" if not s else "1" if s == 1 else "s" for s in axis.steps) for axis in plan.axes]
    words.append("".join(plan.kind(o) for o in range(count)))
    words.append(str(sorted(plan.step_args)))
    return "\n".join(words)
