"""Programs cut where extents depend on data: what follows is put together once the extents are there.

An op such as NonMaxSuppression runs on the device into memory for its largest result and writes how many rows there are.  That
number is read back, one small copy, and what follows runs as a program of its own for these extents, on the values where they
lie.  Operands that say which extents a result has (computed ones of a Reshape or a Slice) are read back in the same way.
Kernels take these extents as arguments, so that another number of rows compiles nothing; and where no row looks at another, one
program computes all rows that there is memory for, of which the first are the result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgx_core import Instruction, Kernels, Launch, MgxError, Module, Shape
from mgx_core.compile.lower import Lower
from mgx_core.ir.instruction import infer_shape
from mgx_core.ir.interpreter import reads
from mgx_core.ir.module import nested
from mgx_core.ir.symbols import needed_for_extents
from mgx_core.ops.movement import Transpose
from mgx_core.ops.nms import Nonmaxsuppression
from mgx_core.ops.select import Compress, Nonzero
from mgx_core.passes.fold_constants import FoldConstants
from mgx_core.passes.rewrite import Rewrite
from mgx_core.passes.settle_extents import SettleExtents
from mgx_core.rules.constants import scalar_of
from mgx_core.rules.shapes import SHAPES
from mgx_core.targets.kernel import op_of
from mgx_core.types.dim import bounds
from mgx_core.types.memory_limit import static_bytes

from ..codegen.extents import symbolic
from .row_independence import independent

__all__ = ["Cut", "Following", "cut"]

LARGEST = 1 << 32  # bytes of a result at its upper bound
ROOM = 1 << 26  # bytes of all that is computed for rows that may not be there
ASKED = 64  # elements of an operand that is read back
KEPT = 16  # programs for what follows, by extents

OPENING = (Nonzero, Compress, Nonmaxsuppression)  # ops whose kernels count their rows


@dataclass(frozen=True)
class Cut:
    """Instructions at which a program is cut.

    opening: instructions with rows to be counted: the axis of the rows and their largest number; asked: values to be read back.
    """

    opening: dict[Instruction, tuple[int, int]]
    asked: list[Instruction]

    def __bool__(self) -> bool:
        return bool(self.opening or self.asked)


def cut(module: Module, static: set[Instruction]) -> Cut:
    """The instructions behind the static part of a module whose extents its values decide."""

    def there(ins: Instruction) -> bool:
        fixed = isinstance(ins.result, Shape) and not ins.result.dynamic()
        return ins in static or ins.is_absent or ((ins.is_param or ins.is_literal) and fixed)

    found = Cut({}, [])
    for ins in module:
        if ins in static or ins.is_param or ins.is_literal or ins.is_return or ins.is_absent:
            continue
        if ins.op.control or not all(map(there, reads(ins))):
            continue
        rows = _rows(ins)
        if rows is not None:
            found.opening[ins] = rows
        elif ins.result.dynamic() and (_settles(ins, _decides) or all(map(_small, ins.inputs))):
            found.asked.extend(i for i in ins.inputs if i not in found.asked and _decides(i))
    return found


def _rows(ins: Instruction) -> tuple[int, int] | None:
    """The axis that is counted, and its largest extent."""
    op, result = op_of(ins), ins.result
    if (
        not isinstance(op, OPENING)
        or not isinstance(result, Shape)
        or (isinstance(ins.op, Launch) and ins.op.place == "host")
    ):
        return None
    axes = [a for a, d in enumerate(result.dims) if not isinstance(d, int)]
    if len(axes) != 1:
        return None
    most = min(bounds(result.dims[axes[0]])[1], _most(op, ins))
    others = [d for d in result.dims if isinstance(d, int)]
    if most * int(np.prod(others, dtype=np.int64)) * result.dtype.size > LARGEST:
        return None
    return axes[0], most


def _most(op: Any, ins: Instruction) -> int:
    """The most rows that operands of these extents can give (the bound of the symbol may be one for all extents)."""
    first = ins.inputs[0].shape
    if isinstance(op, Nonzero):
        return int(first.elements())
    if isinstance(op, Compress):
        return int(min(first.elements() if op.axis is None else first.lens()[op.axis], ins.inputs[1].shape.elements()))
    batches, classes, boxes = ins.inputs[1].shape.lens()
    limit = ins.inputs[2] if len(ins.inputs) > 2 else None
    if limit is None or limit.is_absent:
        return 0
    each = scalar_of(limit)
    return int(batches * classes * (boxes if each is None else min(boxes, max(int(each), 0))))


def _learnt(module: Module) -> dict[str, int]:
    """Symbols that have got a value because operands did, but still stand in shapes behind these."""
    symbols: dict[str, int] = {}

    def learn(old: Any, new: Any) -> None:
        if isinstance(old, Shape) and isinstance(new, Shape) and old.ranked and new.ranked and old.rank == new.rank:
            for before, after in zip(old.dims, new.dims, strict=True):
                lone = None if isinstance(before, int) else before.symbol
                if lone is not None and isinstance(after, int):
                    symbols[lone.name] = int(after)

    for ins in module:
        if ins.is_param or ins.is_literal or ins.is_return or ins.is_absent:
            continue
        if not ins.modules:
            if ins.result.dynamic():
                learn(ins.result, infer_shape(ins.op, ins.inputs))
        elif op_of(ins).fused:
            for parameter, given in zip(ins.modules[0].parameters.values(), ins.inputs, strict=True):
                learn(parameter.result, given.result)
    return symbols


def _settles(ins: Instruction, known: Callable[[Instruction], bool]) -> bool:
    """True if a rule turns this into an op of static extents once its operands are known, and all can be known."""
    roots = tuple(root for rule in SHAPES.rules for root in rule.roots)
    return isinstance(op_of(ins), roots) and all(i.is_literal or i.is_absent or known(i) for i in ins.inputs[1:])


def _bytes(module: Module) -> int:
    """Of all values that a module computes."""
    return sum(static_bytes(i.result) or 0 for i in module if not (i.is_param or i.is_literal or i.is_return))


def _small(ins: Instruction) -> bool:
    return ins.is_literal or ins.is_absent or _decides(ins)


def _decides(ins: Instruction) -> bool:
    """True if this may be an operand that sets the extents of a result: a few integers computed at run time."""
    shape = ins.result
    if ins.is_literal or ins.is_absent or not isinstance(shape, Shape) or shape.dynamic():
        return False
    return shape.dtype.is_integer and shape.rank <= 1 and shape.elements() <= ASKED


@dataclass
class Following:
    """The continuation after a cut.

    module: its parameters are values from before the cut; sources: for each the instruction there that it is.  opening: what
    counts its rows, with the axis, the most rows that there is memory for, and the symbol; asked: names of the parameters whose
    values are read back; outputs: the instructions whose values it gives.
    origin: the instruction before the cut that an instruction is a copy of; make: a runner for a module with static extents.
    bounded: it may run on all rows that there is memory for, since none looks at another; rows: then, for each output, the axis
    of the rows and their symbol.
    """

    module: Module
    sources: list[Instruction]
    opening: list[Instruction]
    axes: list[int]
    most: list[int]
    symbols: list[str]
    asked: list[str]
    outputs: list[Instruction]
    kernels: Kernels
    context: Any
    origin: dict[Instruction, Instruction]
    make: Callable[[Module], Any] | None = None
    bounded: bool = False
    rows: list[tuple[int, str] | None] = field(default_factory=list)
    _runners: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
    _whole: Any = None

    @classmethod
    def of(cls, module: Module, static: set[Instruction], found: Cut, kernels: Kernels, context: Any) -> Following:
        copy = module.clone(name=f"{module.name}_rest")
        went = dict(zip(module, copy, strict=True))
        for inner in nested(copy):
            for ins in inner:
                if isinstance(ins.op, Launch):
                    inner.replace_op(ins, ins.op.of, ins.result)
        there = {*static, *found.opening}
        outputs = [o for o in module.outputs if o not in there and not (o.is_param or o.is_literal or o.is_absent)]
        copy.replace_return([went[o] for o in outputs])
        needed = {r for i in module if i not in there and not i.is_return for r in reads(i)} | set(outputs)
        needed |= {i for i in found.opening if needed_for_extents(i)}
        sources: dict[str, Instruction] = dict(module.parameters)
        for n, ins in enumerate(i for i in module if i in there and i in needed):
            name = f"{module.name}_{n}"
            sources[name] = ins
            own = went[ins]
            if ins in found.opening:
                axis, _ = found.opening[ins]
                order = [axis, *(a for a in range(ins.shape.rank) if a != axis)]
                given = copy.add_parameter(name, Shape.of(ins.shape.dtype, [ins.shape.dims[a] for a in order]))
                if order != sorted(order):
                    back = tuple(order.index(a) for a in range(len(order)))
                    given = copy.add(Transpose(permutation=back), given, before=own)
            else:
                given = copy.add_parameter(name, ins.result)
            copy.replace(own, given)
        copy.sweep()
        for name, p in list(copy.parameters.items()):
            if not p.users and p not in copy.outputs and not needed_for_extents(p):
                copy.remove(p)
                del sources[name]
        asked = [name for name, ins in sources.items() if ins in found.asked]
        axes, most = [a for a, _ in found.opening.values()], [m for _, m in found.opening.values()]
        symbols = [str(getattr(i.shape.dims[a], "name", "")) for i, a in zip(found.opening, axes, strict=True)]
        made = cls(
            copy,
            [sources[n] for n in copy.parameters],
            list(found.opening),
            axes,
            most,
            symbols,
            asked,
            outputs,
            kernels,
            context,
            {there: here for here, there in went.items()},
        )
        if not asked:
            rows = independent(copy, set(made.symbols))
            if rows is not None:
                made.bounded, made.rows = True, rows
        return made

    def source(self, name: str) -> Instruction:
        """Returns the instruction before the cut that a parameter stands for."""
        return self.sources[list(self.module.parameters).index(name)]

    def settled(self, counts: Sequence[int], values: Sequence[Any]) -> Module:
        """The module for these numbers of rows and these values of what was read back, lowered."""
        number = dict(zip(self.opening, counts, strict=True))
        shapes = {}
        for (name, p), source in zip(self.module.parameters.items(), self.sources, strict=True):
            if source in number:
                dims = (number[source], *p.shape.dims[1:])
                shapes[name] = symbolic(p.shape, Shape.of(p.shape.dtype, dims))
        module = self.module.clone(parameters=shapes)
        for name, value in zip(self.asked, values, strict=True):
            p = module.parameters[name]
            module.replace(p, module.add_literal(value))
        SettleExtents().apply(module)
        module.sweep()
        if self.asked:
            Rewrite(SHAPES).apply(module)
            FoldConstants().apply(module)
            symbols: dict[str, int] = {}
            while (more := _learnt(module)).keys() - symbols.keys():
                symbols |= more
                module = module.clone(symbols)
        Lower(self.kernels, self.context).apply(module)
        module.sweep()
        return module

    def largest(self) -> Module | None:
        """The module for the largest extents, if only numbers of rows are open."""
        if self.asked:
            return None
        try:
            return self.settled(self.most, ())
        except MgxError:
            return None  # as when a tensor would be larger than any may be

    def made(self, module: Module) -> Any:
        """A runner for a module with static extents."""
        assert self.make is not None
        return self.make(module)

    def runner(self, counts: Sequence[int], values: Sequence[Any]) -> Any:
        """Returns the runner of the continuation; the last ones are kept."""
        key = (*counts, *(v.tobytes() for v in values))
        found = self._runners.get(key)
        if found is None:
            found = self._runners[key] = self.made(self.settled(counts, values))
            while len(self._runners) > KEPT:
                self._runners.popitem(last=False)
        else:
            self._runners.move_to_end(key)
        return found

    def unsettled(self) -> set[Instruction]:
        """The instructions that no rule turns into ops of known extents when their operands have been read back: there is none
        for the op, or another of its operands is not known then either."""
        asked = {self.module.parameters[name] for name in self.asked}
        return {
            self.origin[i]
            for i in self.module
            if asked & set(i.inputs) and i.result.dynamic() and not _settles(i, lambda operand: operand in asked)
        }

    def whole(self) -> Any:
        """One runner for all numbers of rows: it computes as many as there is memory for.  None if rows look at each other."""
        if not self.bounded:
            return None
        if self._whole is None:
            module = self.largest()
            if module is None or _bytes(module) > ROOM:
                self.bounded = False
                return None
            made = self.made(module)
            self.bounded = made.whole and not made.hosted
            self._whole = made if self.bounded else None
        return self._whole

    def runners(self) -> Iterable[Any]:
        return [*self._runners.values(), *([self._whole] if self._whole is not None else [])]
