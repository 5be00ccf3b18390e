"""Marks extents that are known only at run time, so that kernel source does not contain them as constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..ir.instruction import Instruction
from ..ir.module import Module, nested, within
from ..types.dim import symbol
from ..types.shape import AnyShape, Shape, TupleShape

__all__ = ["mark_extents", "static_extents"]


def static_extents(instructions: Iterable[Instruction]) -> set[int]:
    """Returns the extents that instructions, and the modules that they run, have whatever is counted and read."""
    found = list(instructions)
    found += [i for ins in list(found) for i in within(ins)]
    shapes = [i.result for i in found if isinstance(i.result, Shape)]
    return {0, 1} | {n for shape in shapes if shape.ranked for n in shape.dims if type(n) is int}


def mark_extents(
    module: Module,
    own: set[int],
    instance_shape: Callable[[AnyShape, AnyShape], AnyShape],
    symbols: dict[int, str] | None = None,
) -> None:
    """Gives extents that the program does not say symbols, as an instance's own parameters have: kernels' texts hold no numbers
    that only these counts and values lead to.

    own: extents that the program says; symbols: by number, those that are known.  Equal numbers share one: a symbol's value is
    an argument of the launch.
    """
    named = {} if symbols is None else symbols

    def marked(shape: AnyShape) -> AnyShape:
        if isinstance(shape, TupleShape):
            return TupleShape(marked(item) for item in shape.items)
        if not isinstance(shape, Shape) or shape.dynamic():
            return shape
        dims = [
            # no int of a target's own, which knows where it is from
            symbol(named.setdefault(n, f"{module.name}_extent{len(named)}")) if type(n) is int and n not in own else n
            for n in shape.dims
        ]
        return instance_shape(Shape.of(shape.dtype, dims), shape)

    for inner in nested(module):
        for ins in inner:
            if not (ins.is_literal or ins.is_return):
                ins.result = marked(ins.result)
