"""Continuations: the code after a border, lowered once the few values read there are known.

A kernel with a data-dependent result extent (`Kernel.open_axis`) writes a result of maximum size and the actual count.  The count
is read, and the code after it runs as a program specialized for it, on the values in place.  Computed operands that determine
extents (of a Reshape or Slice) are read in the same way.  If rows are independent, one program computes the maximum number of
rows, and the result is cropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from ..errors import MgxError
from ..ir.instruction import Instruction
from ..ir.module import Module, nested, within
from ..ir.ordering import reads
from ..ir.symbols import needed_for_extents
from ..types.argument import Array
from ..types.dim import Sym
from ..types.memory_limit import static_bytes
from ..types.shape import AnyShape, Shape
from .cut import Border, can_be_static
from .kernel import Launch
from .marking import static_extents
from .parts import Part, Parts, PermutedValue, cut_in_parts, in_order
from .row_independence import independent
from .runner import Runner

__all__ = ["Continuation"]

ROOM: Final = 1 << 26  # maximum bytes computed for rows that may not exist

R = TypeVar("R", bound=Runner)


class Continuation(Generic[R]):
    """The module after a border, whose parameters are values from before it.

    lower: lowers a module; instance_shape: `Target.instance_shape`.

    sources: for each parameter, the instruction before the border; counted: instructions with a count, with the axis, the maximum
    (`most`) and the symbol of the count; read: names of parameters whose values are read; outputs: the instructions that it
    computes.
    rows: if rows are independent, so that it may run on the maximum number of rows: axis and symbol for each output; else None.
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
        own = static_extents(list(self.module))
        self._all: Part[R] = Part(self.module, [], self.read, own, lower, instance_shape)
        self._whole: R | None = None

    def _after(
        self, module: Module, there: set[Instruction], border: Border
    ) -> tuple[Module, dict[Instruction, Instruction], dict[str, Instruction]]:
        """Returns the part after the border as a module, the copies by instruction, and the source of each parameter."""
        copy = module.clone(name=f"{module.name}_rest")
        copies = dict(zip(module, copy, strict=True))
        self._counting = {i for i in copy if any(_counts(inner) for inner in (i, *within(i)))}
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
        """Returns the instruction before the border of a parameter."""
        return self.sources[list(self.module.parameters).index(name)]

    def lowered(self, counts: Sequence[int], values: Sequence[Array]) -> Module:
        """Returns the lowered module for these row counts and values."""
        return self._all.lowered(self._dims(counts), dict(zip(self.read, values, strict=True)))

    def _dims(self, counts: Sequence[int]) -> dict[str, list[int]]:
        """Returns the extents of open parameters for these row counts."""
        number = dict(zip(self.counted, counts, strict=True))
        return {
            name: [number[source], *map(int, p.shape.dims[1:])]
            for (name, p), source in zip(self.module.parameters.items(), self.sources, strict=True)
            if source in number
        }

    def largest(self) -> Module | None:
        """Returns the lowered module for maximum extents, if only row counts are open."""
        if self.read:
            return None
        try:
            return self.lowered(self.most, ())
        except MgxError:
            return None  # e.g. if a tensor would exceed the size limit

    @cached_property
    def parts(self) -> Parts[R]:
        """The module, cut at further counting ops."""
        return cut_in_parts(self.module, self._counting, self.read, self._lower, self._instance_shape)

    def run(
        self,
        args: Sequence[Any],
        values: Sequence[Array],
        make: Callable[[Module], R],
        layout_of: Callable[[Any], PermutedValue],
    ) -> list[Any]:
        """Runs the parts of the module between counting ops (`Parts.run`); returns `outputs`.

        args: of the parameters; values: values read.
        """
        return self.parts.run(args, dict(zip(self.read, values, strict=True)), make, layout_of) if self.outputs else []

    @property
    def specialized(self) -> int:
        """Returns how many times a part of it was lowered for numbers that a run has found."""
        cut = self.outputs and self._whole is None and self.rows is None
        return max((part.specialized for part in self.parts.parts), default=0) if cut else 0

    def whole(self, make: Callable[[Module], R | None]) -> R | None:
        """Returns one runner for all row counts, which computes the maximum number of rows.

        make: returns None for a module that cannot run without waiting for the counts.
        None if rows depend on each other, or if too much would be computed unnecessarily.
        """
        if self._whole is None and self.rows is not None:
            module = self.largest()
            self._whole = None if module is None or _bytes(module) > ROOM else make(module)
            if self._whole is None:
                self.rows = None
        return self._whole

    def runners(self) -> list[R]:
        """Returns all cached runners."""
        parts = [r for part in self.parts.parts for r in part.runners()]
        return parts if self._whole is None else [*parts, self._whole]

    def dynamic(self) -> set[Instruction]:
        """Returns instructions that stay dynamic even after their operands are read: no rule makes them static, or another
        operand is unknown."""
        read = {self.module.parameters[name] for name in self.read}
        return {
            self._origin[i]
            for i in self.module
            if read & set(i.inputs) and i.result.dynamic() and not can_be_static(i, read.__contains__)
        }


def _counts(ins: Instruction) -> bool:
    return isinstance(ins.op, Launch) and ins.op.kernel.open_axis is not None and ins.result.dynamic()


def _number(counted: Instruction, axis: int) -> str:
    """Returns the symbol of a counted value's row count, or the expression given in a file."""
    rows = counted.shape.dims[axis]
    assert isinstance(rows, Sym), counted  # what counts a number that is known is in the static part
    return rows.name


def _parameter(copy: Module, name: str, ins: Instruction, border: Border, before: Instruction) -> Instruction:
    """Adds the parameter for a value from before the border; its counted axis is outermost in memory."""
    if ins not in border.counted:
        return copy.add_parameter(name, ins.result)
    axis, _ = border.counted[ins]
    order = [axis, *(a for a in range(ins.shape.rank) if a != axis)]
    given = copy.add_parameter(name, Shape.of(ins.shape.dtype, [ins.shape.dims[a] for a in order]))
    if order == sorted(order):
        return given
    return in_order(copy, given, order, before)


def _bytes(module: Module) -> int:
    """Returns the bytes of all values that a module computes."""
    return sum(static_bytes(i.result) or 0 for i in module if not (i.is_param or i.is_literal or i.is_return))
