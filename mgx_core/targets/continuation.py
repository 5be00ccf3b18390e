"""Continuations: what follows a border, lowered once the few numbers that are read there are known.

A kernel whose result has an extent that depends on data (`Kernel.open_axis`) writes its largest result and the number that
counts.  That number is read, and what follows runs as a program of its own for these extents, on the values where they lie.
Operands that say which extents a result has (computed ones of a Reshape or a Slice) are read in the same way.  Where no row looks
at another, one program computes all rows that there is memory for, of which the first are the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from ..cache import Recent
from ..errors import MgxError
from ..ir.instruction import Instruction, infer_shape
from ..ir.module import Module, nested
from ..ir.ordering import reads
from ..ir.symbols import learn_symbols, needed_for_extents
from ..ops.movement import Transpose
from ..passes.fold_constants import FoldConstants
from ..passes.inline_branches import InlineBranches
from ..passes.rewrite import Rewrite
from ..passes.settle_extents import SettleExtents
from ..rules.shapes import SHAPES
from ..types.argument import Array
from ..types.dim import Dim, Sym, symbol
from ..types.memory_limit import static_bytes
from ..types.shape import AnyShape, Shape, TupleShape
from .cut import Border, can_be_static
from .kernel import Launch, op_of
from .row_independence import independent
from .runner import Runner
from .static_part import given

__all__ = ["Continuation"]

ROOM: Final = 1 << 26  # bytes of all that is computed for rows that may not be there
KEPT: Final = 16  # runners, by what was read

R = TypeVar("R", bound=Runner)


class Continuation(Generic[R]):
    """Module of everything behind a border, whose parameters are values from before it.

    lower: puts kernels into a module; instance_shape: `Target.instance_shape`.

    sources: for each parameter the instruction before the border that it is; counted: those that count their rows, with the axis
    of the rows, the most rows that there is memory for (`most`), and their symbol; read: names of the parameters whose values are
    read; outputs: the instructions whose values it gives.
    rows: if it may run on all rows that there is memory for, since none looks at another: for each output the axis of the rows
    and their symbol; None if it may not.
    """

    def __init__(
        self,
        module: Module,
        static: Mapping[Instruction, Any],
        border: Border,
        lower: Callable[[Module], object],
        instance_shape: Callable[[AnyShape, AnyShape], AnyShape],
    ) -> None:
        self._lower = lower
        self._instance_shape = instance_shape
        there = {*static, *border.counted}
        self.outputs = [o for o in module.outputs if o not in there and not (o.is_param or o.is_literal or o.is_absent)]
        self.counted = list(border.counted)
        self.axes = [axis for axis, _ in border.counted.values()]
        self.most = [most for _, most in border.counted.values()]
        self.symbols = [_number(i, axis) for i, axis in zip(self.counted, self.axes, strict=True)]
        self.module, copies, sources = self._after(module, there, border)
        self.sources = [sources[name] for name in self.module.parameters]
        self.read = [name for name, ins in sources.items() if ins in border.read]
        self._origin = {copy: ins for ins, copy in copies.items()}
        self.rows = None if self.read else independent(self.module, set(self.symbols))
        self._own = _static_extents(self.module)
        self._runners: Recent[R] = Recent(KEPT)
        self._whole: R | None = None

    def _after(
        self, module: Module, there: set[Instruction], border: Border
    ) -> tuple[Module, dict[Instruction, Instruction], dict[str, Instruction]]:
        """The part behind the border as a module of ops; the copies in it by instruction, and the source of each parameter."""
        copy = module.clone(name=f"{module.name}_rest")
        copies = dict(zip(module, copy, strict=True))
        for inner in nested(copy):
            for ins in inner:
                if isinstance(ins.op, Launch):
                    inner.replace_op(ins, ins.op.of, ins.result)
        copy.replace_return([copies[o] for o in self.outputs])
        needed = {r for i in module if i not in there and not i.is_return for r in reads(i)} | set(self.outputs)
        needed |= {i for i in self.counted if needed_for_extents(i)}
        sources: dict[str, Instruction] = dict(module.parameters)
        for n, ins in enumerate(i for i in module if i in there and i in needed):
            name = f"{module.name}_{n}"
            sources[name] = ins
            copy.replace(copies[ins], _parameter(copy, name, ins, border, copies[ins]))
        copy.sweep()
        for name, p in list(copy.parameters.items()):
            if not p.users and p not in copy.outputs and not needed_for_extents(p):
                copy.remove(p)
                del sources[name]
        return copy, copies, sources

    def source(self, name: str) -> Instruction:
        """Returns the instruction before the border that a parameter stands for."""
        return self.sources[list(self.module.parameters).index(name)]

    def lowered(self, counts: Sequence[int], values: Sequence[Array]) -> Module:
        """Returns the module for these numbers of rows and these values of what was read, lowered."""
        number = dict(zip(self.counted, counts, strict=True))
        shapes = {}
        for (name, p), source in zip(self.module.parameters.items(), self.sources, strict=True):
            if source in number:
                dims = (number[source], *p.shape.dims[1:])
                shapes[name] = self._instance_shape(p.shape, Shape.of(p.shape.dtype, dims))
        module = self.module.clone(parameters=shapes)
        for name, value in zip(self.read, values, strict=True):
            module.replace(module.parameters[name], module.add_literal(value))
        SettleExtents().apply(module)
        module.sweep()
        module = _settled(module)
        self._mark_extents(module, dict(zip(counts, self.symbols, strict=True)))
        self._lower(module)
        module.sweep()
        return module

    def _mark_extents(self, module: Module, symbols: dict[int, str]) -> None:
        """Gives extents that the program does not say symbols, as an instance's own parameters have: kernels' texts hold no
        numbers that only these counts and values lead to.

        symbols: by number, those that are counted.  Equal numbers share one: a symbol's value is an argument of the launch.
        """

        def marked(shape: AnyShape) -> AnyShape:
            if isinstance(shape, TupleShape):
                return TupleShape(marked(item) for item in shape.items)
            if not isinstance(shape, Shape) or shape.dynamic():
                return shape
            dims = [
                # no int of a target's own, which knows where it is from
                symbol(symbols.setdefault(n, f"{self.module.name}_extent{len(symbols)}"))
                if type(n) is int and n not in self._own
                else n
                for n in shape.dims
            ]
            return self._instance_shape(Shape.of(shape.dtype, dims), shape)

        for inner in nested(module):
            for ins in inner:
                if not (ins.is_literal or ins.is_return):
                    ins.result = marked(ins.result)

    def largest(self) -> Module | None:
        """Returns the module for the largest extents, if only numbers of rows are open."""
        if self.read:
            return None
        try:
            return self.lowered(self.most, ())
        except MgxError:
            return None  # as when a tensor would be larger than any may be

    def runner(self, counts: Sequence[int], values: Sequence[Array], make: Callable[[Module], R]) -> R:
        """Returns the runner for what was read; the last ones are kept."""
        key = (*counts, *(v.tobytes() for v in values))
        return self._runners.get(key) or self._runners.put(key, make(self.lowered(counts, values)))

    def whole(self, make: Callable[[Module], R | None]) -> R | None:
        """Returns one runner for all numbers of rows: it computes as many as there is memory for.

        make: gives None for a module that cannot be run without waiting for the numbers.
        None if rows look at each other, or if too much would be computed in vain.
        """
        if self._whole is None and self.rows is not None:
            module = self.largest()
            self._whole = None if module is None or _bytes(module) > ROOM else make(module)
            if self._whole is None:
                self.rows = None
        return self._whole

    def runners(self) -> list[R]:
        """Returns all that were made and are kept."""
        return [*self._runners.values(), *([] if self._whole is None else [self._whole])]

    def dynamic(self) -> set[Instruction]:
        """Instructions that stay dynamic even after their operands are read: no rule makes the op static, or another of its
        operands is still unknown."""
        read = {self.module.parameters[name] for name in self.read}
        return {
            self._origin[i]
            for i in self.module
            if read & set(i.inputs) and i.result.dynamic() and not can_be_static(i, read.__contains__)
        }


def _number(counted: Instruction, axis: int) -> str:
    """Returns the symbol that stands for the number of rows of a counted value, or the expression that a file gives for it."""
    rows = counted.shape.dims[axis]
    assert isinstance(rows, Sym), counted  # what counts a number that is known is in the static part
    return rows.name


def _parameter(copy: Module, name: str, ins: Instruction, border: Border, before: Instruction) -> Instruction:
    """Returns the parameter that stands for a value from before the border; rows that are counted lie outermost in it."""
    if ins not in border.counted:
        return copy.add_parameter(name, ins.result)
    axis, _ = border.counted[ins]
    order = [axis, *(a for a in range(ins.shape.rank) if a != axis)]
    given = copy.add_parameter(name, Shape.of(ins.shape.dtype, [ins.shape.dims[a] for a in order]))
    if order == sorted(order):
        return given
    return copy.add(Transpose(permutation=tuple(order.index(a) for a in range(len(order)))), given, before=before)


def _settled(module: Module) -> Module:
    """Returns a module with the extents, constants and branches that follow from those that are known now."""
    symbols: dict[str, int] = {}
    while True:
        Rewrite(SHAPES).apply(module)
        FoldConstants().apply(module)
        inlined = InlineBranches().apply(module)
        more = _learnt(module)
        if not inlined and not more.keys() - symbols.keys():
            return module
        symbols |= more
        module = module.clone(symbols)


def _learnt(module: Module) -> dict[str, int]:
    """Returns symbols that have got a value because operands did, but still stand in shapes behind these."""
    symbols: dict[str, int] = {}
    for ins in module:
        pairs: list[tuple[AnyShape, AnyShape]] = []
        if given(ins):
            continue
        if not ins.modules:
            pairs = [(ins.result, infer_shape(ins.op, ins.inputs))] if ins.result.dynamic() else []
        elif op_of(ins).fused:
            inside = ins.modules[0].parameters.values()
            pairs = [(p.result, i.result) for p, i in zip(inside, ins.inputs, strict=True)]
        for old, new in pairs:
            found: dict[str, Dim] = {}
            learn_symbols(old, new, found)
            symbols |= {name: int(n) for name, n in found.items() if isinstance(n, int)}
    return symbols


def _static_extents(module: Module) -> set[int]:
    """Returns the extents that a module has whatever is counted and read."""
    shapes = [i.result for inner in nested(module) for i in inner if isinstance(i.result, Shape)]
    return {0, 1} | {n for shape in shapes if shape.ranked for n in shape.dims if type(n) is int}


def _bytes(module: Module) -> int:
    """Of all values that a module computes."""
    return sum(static_bytes(i.result) or 0 for i in module if not (i.is_param or i.is_literal or i.is_return))
