"""Encodes loops as bytecode for the native interpreter, so that a process can run them before LLVM has compiled them.

The interpreter computes results that are bit-identical to the compiled loop's, so that the executor can replace one by the other
between runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mgx_core import dtype as dt

from .bytecode_writer import Assembler, NotExpressible, Pass
from .element import computed
from .graph import Node
from .kernel import Interpreted
from .opcodes import BLOCK
from .pointwise_plan import BLOCK as PART
from .pointwise_plan import Plan as Pointwise
from .reduce_plan import Plan as Reduction
from .reduce_plan import moving
from .space import Axis, loop_width

__all__ = ["encode_pointwise", "encode_reduce"]

MAX_OPERANDS: Final = 24  # as in `interpreter_loop.h`
MAX_AXES: Final = 12
MAX_PASSES: Final = 8
AT_ROW, STREAM, GATHERED, SPREAD = range(4)
KINDS: Final = {"sum": 0, "total": 0, "mean": 0, "prod": 1, "max": 2, "min": 3, "top": 4}
WHOLE_SUM: Final = 5
ACCUMULATORS: Final = 5 * 16 * 4  # bytes: up to four unrolled vectors, and one for the tail


def encode_pointwise(plan: Pointwise) -> Interpreted | None:
    """Returns the bytecode of a pointwise loop without tiles; None if the interpreter does not support it."""
    assert plan.tile is None
    varying = {n.ident for i, n in enumerate(plan.loads) if plan.axes[-1].steps[i]}
    for node in plan.nodes:
        if any(a.ident in varying for a in node.args):
            varying.add(node.ident)
    part = PART if plan.blocks else 0
    rows = plan.axes[-2].extent if plan.pairs else 1
    made = _Writer(plan, plan.axes[:-1], plan.axes[-1:], varying, (False, part, rows), [False])
    try:
        made.last([True] * len(plan.results))
        return made.finished()
    except NotExpressible:
        return None


def encode_reduce(plan: Reduction, lanes: int) -> Interpreted | None:
    """Returns the bytecode of a reduction; None if the interpreter does not support it."""
    if plan.pieces or len(plan.axes) > MAX_AXES:
        return None
    parted = list(plan.parted) if plan.columns else [False] * len(plan.reduced)
    head = plan.columns, plan.width if plan.columns else 0, 1
    made = _Writer(plan, plan.kept, plan.reduced, moving(plan), head, parted)
    try:
        for level in range(max((n.level for n in plan.nodes), default=0)):
            reduces = [n for n in plan.nodes if n.kind == "reduce" and n.level == level + 1]
            made.reduce(level, reduces, plan, lanes)
        made.last(plan.full)
        return made.finished()
    except NotExpressible:
        return None


class _Writer:
    """Encodes the passes of one loop.

    head: True if vectors run across rows; elements of a block of a row, or rows of an item; consecutive rows of an item.
    """

    def __init__(
        self,
        plan: Pointwise | Reduction,
        outer: Sequence[Axis],
        nest: Sequence[Axis],
        varying: set[int],
        head: tuple[bool, int, int],
        parted: Sequence[bool],
    ) -> None:
        self.plan, self.outer, self.nest, self.head, self.parted = plan, outer, nest, head, parted
        self.columns = head[0]
        across = outer[-1] if self.columns else nest[-1]
        self.steps = across.steps
        self.number = {n.ident: i for i, n in enumerate(plan.loads)}
        self.varying = varying
        self.access = [self._access(k) for k in range(len(self.steps))]
        direct = [a in (AT_ROW, STREAM) for a in self.access]
        self.assembler = Assembler(
            self.columns, lambda node: node.ident in varying, lambda node: self.number[node.ident], direct
        )
        self.passes: list[Pass] = []
        self.kept: dict[int, tuple[int, int, int]] = {}

    def _access(self, k: int) -> int:
        if not self.columns and k < len(self.plan.loads) and self.plan.loads[k].ident not in self.varying:
            return AT_ROW
        return {0: SPREAD, 1: STREAM}.get(self.steps[k], GATHERED)

    def reduce(self, level: int, reduces: list[Node], plan: Reduction, lanes: int) -> None:
        """Encodes a pass that computes the reductions of a level."""
        m = self.assembler
        store = [] if self.columns else plan.store
        ready = {n.ident for n in store if n.level < level}
        roots = [r.args[0] for r in reduces]
        needed = self._enter(roots, ready)
        for node in store:
            if node.level == level and node in needed:
                slot = m.slot(0)
                self.kept[node.ident] = slot, m.memory((plan.count + BLOCK) * node.dtype.size), node.dtype.size
                m.targets[node.ident] = slot
                m.now.kept.append(self.kept[node.ident])
        cost = sum(n.cost for n in needed if n.ident in self.varying and n.ident not in ready)
        m.now.walks, m.now.times = True, loop_width(cost)
        whole = plan.mode % lanes == 0
        m.now.both = m.now.times > 1 or (not whole and (plan.mode < 0 or lanes < 16))
        totals = [self._reduced(r) for r in reduces]
        m.targets.clear()
        self._leave()
        for r, total in zip(reduces, totals, strict=True):
            m.set_row(r, m.mean(total, plan.count) if r.word == "mean" else total)

    def _reduced(self, r: Node) -> int:
        m = self.assembler
        (x,) = r.args
        kind = KINDS.get(r.word) if r.dtype is computed(x.dtype) is dt.float32 else None
        if r.dtype is x.dtype is dt.int64 and r.word == "sum":
            kind = WHOLE_SUM
        if kind is None:
            raise NotExpressible
        depth = 1 + sum(self.parted)
        sums = m.memory(8 * BLOCK * depth if self.columns else ACCUMULATORS)
        total = m.slot(8 * BLOCK if self.columns else 8)
        m.now.reduces.append((kind, m.inner(x), total, sums))
        return total

    def last(self, full: Sequence[bool]) -> None:
        """Encodes the pass that stores results; full: by output, True if it has all elements of the rows."""
        m, plan = self.assembler, self.plan
        outputs = [(o, len(plan.loads) + i) for i, o in enumerate(plan.outputs)]
        for (o, k), node, whole in zip(outputs, plan.results, full, strict=True):
            if not whole:
                m.now.row_stores.append((m.stored(node, m.row(node), o.dtype, True), k))
        fulls = [(o, k, node) for (o, k), node, whole in zip(outputs, plan.results, full, strict=True) if whole]
        if fulls:
            m.now.walks = True
            self._enter([node for *_, node in fulls], set(self.kept))
            if len(fulls) == 1:
                self._aim(*fulls[0][1:])
            for o, k, node in fulls:
                slot = m.stored(node, m.inner(node), o.dtype, False)
                if node.ident not in m.targets:
                    m.now.inner_stores.append((slot, k))
        self._leave()

    def _aim(self, k: int, node: Node) -> None:
        """Computes the only result directly in its output if that is contiguous, without a copy from a register."""
        m, dtype = self.assembler, self.plan.outputs[k - len(self.plan.loads)].dtype
        made = node.kind in ("prim", "convert") and node.ident in self.varying and node.ident not in self.kept
        if made and self.access[k] == STREAM and node.dtype is dtype:
            m.targets[node.ident] = m.of_operand(k, dtype.size)
            m.now.inner_operands.append(k)

    def _enter(self, roots: list[Node], ready: set[int]) -> list[Node]:
        """Starts a pass: computes row-invariant nodes; returns all nodes that the pass reads."""
        m = self.assembler
        needed = list(_needed(roots, ready))
        m.prepare([n for n in needed if n.ident not in ready])
        for root in roots:
            if root.ident not in self.varying and root.kind != "const":
                m.row(root)
        readers = [
            a for n in needed if n.kind != "reduce" and n.ident not in ready and n.ident in self.varying for a in n.args
        ]
        m.begin([*readers, *roots, *(n for n in needed if n.ident in self.kept)])
        for ident in ready:
            slot = self.kept[ident]
            m.set_inner(ident, slot[0])
            m.now.kept.append(slot)
        return needed

    def _leave(self) -> None:
        self.passes.append(self.assembler.now)
        self.assembler.now = Pass()

    def finished(self) -> Interpreted:
        m, plan = self.assembler, self.plan
        count = len(self.steps)
        if count > MAX_OPERANDS or len(self.passes) > MAX_PASSES or len(self.outer) > MAX_AXES:
            raise NotExpressible
        buffers = [n.parameter for n in plan.loads] + [plan.inputs + i for i in range(len(plan.outputs))]
        sizes = [n.dtype.size for n in plan.loads] + [o.dtype.size for o in plan.outputs]
        operands = [
            n
            for k in range(count)
            for n in (buffers[k], sizes[k], m.operand_slots.get(k, -1), self.access[k], self.steps[k])
        ]
        steps = [s for axis in (*self.outer, *self.nest) for s in axis.steps]
        found = [int(self.columns), *self.head[1:]]
        extents = [[a.extent for a in axes] for axes in (self.outer, self.nest)]
        for numbers, each in (
            *((e, 1) for e in extents), ([int(p) for p in self.parted], 1), (operands, 5), (steps, 1), (m.offsets, 1),
            ([n for c in m.constants for n in c], 4),
        ):  # fmt: skip
            found += [len(numbers) // each, *numbers]
        found.append(len(self.passes))
        for one in self.passes:
            found += one.numbers()
        return Interpreted(found, m.size)


def _needed(roots: Sequence[Node], ready: set[int]) -> Iterator[Node]:
    """Yields the nodes that a pass computes, and the kept values and finished reductions that it reads."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node.ident in seen:
            return
        seen.add(node.ident)
        if node.kind != "reduce" and node.ident not in ready:
            for a in node.args:
                yield from visit(a)
        yield node

    for root in roots:
        yield from visit(root)
