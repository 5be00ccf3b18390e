"""Marks extents that are known only at run time, so that kernel source does not contain them as constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..ir.instruction import Instruction
from ..ir.module import Module, nested, within
from ..types.dim import symbol
from ..types.shape import AnyShape, Shape, TupleShape

__all__ = ["mark_extents", "static_extents"]


def static_extents(instructions: Iterable[Instruction]) -> set[int]:
    """Returns the extents of instructions and their modules that do not depend on counts or values read."""
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
    """Replaces run-time extents by ints that carry a symbol, like those of an instance's parameters, so that kernel source does
    not contain them.

    own: static extents of the program; symbols: known symbols, by value.  Equal extents share a symbol, whose value is an
    argument of the launch.
    """
    named = {} if symbols is None else symbols

    def marked(shape: AnyShape) -> AnyShape:
        if isinstance(shape, TupleShape):
            return TupleShape(marked(item) for item in shape.items)
        if not isinstance(shape, Shape) or shape.dynamic():
            return shape
        dims = [
            # ints of a target's own type already carry a symbol
            symbol(named.setdefault(n, f"{module.name}_extent{len(named)}")) if type(n) is int and n not in own else n
            for n in shape.dims
        ]
        return instance_shape(Shape.of(shape.dtype, dims), shape)

    for inner in nested(module):
        for ins in inner:
            if not (ins.is_literal or ins.is_return):
                ins.result = marked(ins.result)
