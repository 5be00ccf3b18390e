"""Partitions a lowered module with data-dependent extents into segments, interpreted ops and a continuation.

The static part of a lowered module (`static_part`) runs first.  The rest depends on the target's memory.  If the host can access
it, the rest is cut into *segments*, which have a runner for each set of shapes, and single ops between them (`cut`, run by
`SegmentInterpreter`).  Otherwise, the few values that determine extents are read at a *border*, and everything after it is
lowered for them as one module (`border`, `Continuation`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any, Final

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.ordering import reads
from ..ir.symbols import introduced, mentioned
from ..named_tuples import NamedTuple
from ..ops.control import GetTupleElem, If
from ..records import dataclass
from ..rules.shapes import SHAPES
from ..types.dim import bounds
from ..types.shape import Shape, TupleShape, symbols_in
from ..types.traced_int import int_or_traced
from .counted_results import items_of, open_axes
from .kernel import Launch, op_of
from .segment import KEEPING, Keeping, Segment
from .static_part import fixed_tensor, given, given_fixed, numeric, read_whole, views_constant

__all__ = ["Border", "Item", "border", "cut", "deciding", "emitted_at_run_time", "can_be_static"]

LARGEST: Final = 1 << 32  # maximum bytes of a result at its upper bound
READ: Final = 64  # maximum elements of an operand read at a border
_ROOTS: Final = SHAPES.roots  # ops with operands that determine extents


@dataclass
class Item:
    """One item to run after the static part.

    what: a segment, or a run-time decided op; done: values whose last reader it is.
    """

    what: Segment | Instruction
    done: list[Instruction] = field(default_factory=list)

    @property
    def needs(self) -> list[Instruction]:
        return self.what.needs if isinstance(self.what, Segment) else reads(self.what)


def cut(module: Module, static: Mapping[Instruction, Any], keeping: Keeping = KEEPING) -> list[Item]:
    """Cuts the rest of a module into segments and run-time decided ops between them.

    keeping: limits of the segments' runner caches.

    Run-time decided ops are control flow, ops with data-dependent extents, and ops on values other than numeric tensors.
    """
    members, between, views = _stages(module, static)
    inner = {i for group in members.values() for i in group}
    for view in reversed(views):
        if view in module.outputs or not inner.issuperset(view.users):
            members.setdefault(0, []).insert(0, view)
        inner.add(view)
    found: list[Item] = []
    for at in range(max([*members, *between], default=-1) + 1):
        group = members.get(at, [])
        if group:
            inside = set(group)
            results = [i for i in group if i in module.outputs or not inside.issuperset(i.users)]
            found.append(Item(Segment([*_read_by(group, views), *group], results, f"{module.name}:{at}", keeping)))
        found += [Item(ins) for ins in between.get(at, [])]
    last = {need: item for item in found for need in item.needs}
    for need, reader in last.items():
        if need not in module.outputs and need.literal is None:  # segments that run op by op also read literals
            reader.done.append(need)
    for one in found:
        if isinstance(one.what, Instruction) and not one.what.users and one.what not in module.outputs:
            one.done.append(one.what)  # it only defined extents
    return found


class _Stages(NamedTuple):
    """The rest of a module by stage.

    members: of the segment of a stage; between: run-time decided ops after it; views: of literals: each segment that reads one
    has it, so that it is not copied.
    """

    members: dict[int, list[Instruction]]
    between: dict[int, list[Instruction]]
    views: list[Instruction]


def _stages(module: Module, static: Mapping[Instruction, Any]) -> _Stages:
    """Assigns each instruction of the rest to the first stage at which its operands and extents are known."""
    known = symbols_in([p.result for p in module.parameters.values()])
    stage: dict[Instruction, int] = {}
    alone: set[Instruction] = set()  # decided at run time
    born: dict[str, int] = {}  # when a symbol's value is known
    found = _Stages({}, {}, [])
    for ins in module:
        if ins in static or given(ins):
            known |= symbols_in(ins.result)
            continue
        if views_constant(ins) and fixed_tensor(ins):
            found.views.append(ins)
            continue
        needs = reads(ins)
        at = max([*(stage.get(n, 0) for n in needs), *(born.get(s, 0) for s in mentioned([ins]))], default=0)
        if isinstance(op_of(ins), GetTupleElem) and needs[0] in alone:
            at = stage[ins] = stage[needs[0]]  # directly after the op with the tuple
            found.between[at - 1].append(ins)
        elif _in_segment(ins, known):
            stage[ins] = at
            found.members.setdefault(at, []).append(ins)
            continue
        else:
            stage[ins] = at + 1
            alone.add(ins)
            found.between.setdefault(at, []).append(ins)
        fresh = symbols_in(ins.result) - known
        known |= fresh
        born |= dict.fromkeys(fresh, stage[ins])
    return found


def _in_segment(ins: Instruction, known: set[str]) -> bool:
    """Returns True for computation on numeric tensors whose extents follow from known symbols."""
    op = op_of(ins)
    tensors = isinstance(op, GetTupleElem) or all(n.is_absent or numeric(n.result) for n in reads(ins))
    if not tensors or op.control or op.effect:
        return False
    return _static_by(ins, known) and not read_whole(ins) and not _counts(ins)


def _read_by(group: Sequence[Instruction], views: Sequence[Instruction]) -> list[Instruction]:
    """Returns the views of literals that a group reads and does not have, and those that they are views of, in order."""
    inside, needed = set(group), {n for i in group for n in reads(i)}
    for view in reversed(views):
        if view in needed:
            needed.update(view.inputs)
    return [view for view in views if view in needed and view not in inside]


def _static_by(ins: Instruction, known: set[str]) -> bool:
    """Returns True if all results of an instruction are numeric tensors whose extents follow from known symbols."""
    items = ins.result.items if isinstance(ins.result, TupleShape) else (ins.result,)
    return all(numeric(s) and s.ranked for s in items) and symbols_in(ins.result) <= known


def _counts(ins: Instruction) -> bool:
    """Returns True if an op determines extents from its operands' values, even if another op has determined the same ones."""
    if ins.modules:
        return False  # their extents were determined by other ops
    if introduced(ins):
        return True
    op = op_of(ins)
    if not isinstance(op, _ROOTS) or all(i.is_literal or i.is_absent for i in ins.inputs[1:]):
        return False
    found = op.result([None if i.is_absent else i.result for i in ins.inputs], ins.modules)
    return not symbols_in(found) <= symbols_in([i.result for i in ins.inputs if not i.is_absent]) | op.symbols()


def emitted_at_run_time(ins: Instruction) -> bool:
    """Returns True if the kernel of a launch with data-dependent extents can emit it once its operands exist (`OpPrograms`)."""
    if not isinstance(ins.op, Launch) or ins.op.kernel.emit is None:
        return False
    if isinstance(ins.op.of, GetTupleElem):
        return True  # no computation
    if not all(i.is_absent or isinstance(i.result, Shape) for i in ins.inputs):
        return False
    if ins.op.kernel.open_axis is not None:
        return True
    results = ins.result.items if isinstance(ins.result, TupleShape) else (ins.result,)
    if not all(isinstance(r, Shape) for r in results):
        return False
    if any(not i.is_absent and not i.shape.ranked for i in ins.inputs):
        return True
    ranked = all(isinstance(r, Shape) and r.ranked for r in results)
    return ranked and symbols_in(ins.result) <= symbols_in([i.result for i in ins.inputs if not i.is_absent])


@dataclass(frozen=True)
class Border:
    """The instructions at which a module is cut, and the values read there.

    counted: instructions with a data-dependent result extent: axis and maximum; read: small values that determine extents.
    """

    counted: dict[Instruction, tuple[int, int]] = field(default_factory=dict)
    read: list[Instruction] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.counted or self.read)


def border(module: Module, static: Mapping[Instruction, Any]) -> Border:
    """Returns the border after the static part of a module: the values that determine the extents of the rest."""
    found = Border()
    for ins in module:
        if ins in static or given(ins) or ins.op.control:
            continue
        if not all(i in static or given_fixed(i) for i in reads(ins)):
            continue
        rows = _counted(ins)
        if rows is not None:
            found.counted[ins] = rows
        elif ins.result.dynamic() and (
            can_be_static(ins, _read) or all(i.is_literal or i.is_absent or _read(i) for i in ins.inputs)
        ):
            found.read.extend(i for i in ins.inputs if i not in found.read and _read(i))
    return found


def deciding(module: Module, static: Mapping[Instruction, Any]) -> list[Instruction]:
    """Returns the small arguments and static values that determine extents of the rest, or select its branches."""
    found: dict[Instruction, None] = {}
    for ins in module:
        if ins in static or given(ins) or not ins.result.dynamic():
            continue
        if isinstance(ins.op, If):
            operands = [i for i in ins.inputs if _small(i, 1)]
        elif ins.op.control or not (introduced(ins) or (isinstance(ins.result, Shape) and not ins.result.ranked)):
            continue  # its extents follow from those of its operands
        elif isinstance(op_of(ins), _ROOTS):
            operands = [i for i in ins.inputs[1:] if _small(i, READ)]
        else:
            operands = [i for i in ins.inputs if _read(i)]
            if len(operands) < sum(not (i.is_literal or i.is_absent) for i in ins.inputs):
                continue
        found.update(dict.fromkeys(i for i in operands if i in static or i.is_param))
    return list(found)


def _small(ins: Instruction, most: int) -> bool:
    """Returns True for a tensor of numbers with at most `most` elements."""
    return numeric(ins.result) and not ins.result.dynamic() and ins.result.elements() <= most


def _counted(ins: Instruction) -> tuple[int, int] | None:
    """Returns the axis with a data-dependent extent and its maximum; None for other kernels, or if the maximum exceeds memory."""
    if not isinstance(ins.op, Launch) or ins.op.kernel.open_axis is None or read_whole(ins):
        return None
    operands = [None if i.is_absent else i.result for i in ins.inputs]
    values = [None if i.literal is None else i.literal.to_numpy() for i in ins.inputs]
    found = zip(items_of(ins.op.of.bounded(operands, values)), items_of(ins.result), strict=True)
    axes = open_axes(ins.result, ins.op.kernel.open_axis)
    bytes_, counted = 0, None
    for (result, known), axis in zip(found, axes, strict=True):
        assert isinstance(result, Shape) and isinstance(known, Shape)
        lens = [int_or_traced(min(bounds(d)[1], bounds(e)[1])) for d, e in zip(result.dims, known.dims, strict=True)]
        bytes_ += prod(lens) * result.dtype.size
        if axis is not None and counted is None:
            counted = axis, lens[axis]
    return None if bytes_ > LARGEST else counted


def can_be_static(ins: Instruction, known: Callable[[Instruction], bool]) -> bool:
    """Returns True if a rule makes this op static once its operands are known, and all of them can be read."""
    return isinstance(op_of(ins), _ROOTS) and all(i.is_literal or i.is_absent or known(i) for i in ins.inputs[1:])


def _read(ins: Instruction) -> bool:
    """Returns True if this may be an operand that determines extents: a few integers computed at run time."""
    shape = ins.result
    if ins.is_literal or ins.is_absent or not isinstance(shape, Shape) or shape.dynamic():
        return False
    return shape.dtype.is_integer and shape.rank <= 1 and shape.elements() <= READ
