"""Computes the few integers that decide extents in Python, which takes a fraction of numpy's time for single numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.broadcast import BroadcastWithDims, Multibroadcast
from ..ops.control import PointwiseGroup
from ..ops.convert import Convert
from ..ops.fill import DimensionsOf
from ..ops.operation import Operation
from ..ops.pointwise import Add, Max, Min, Mul, Sub
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..types.argument import Value
from ..types.dim import arithmetic
from ..types.dtype import int64
from ..types.shape import Shape

__all__ = ["counting"]

FEW: Final = 8  # most elements of a value
LARGEST: Final = 1 << 31  # of an extent; others are left to the interpreter, which reports errors
OPERATORS: Final[dict[type[Operation], str]] = {
    Add: "({} + {})",
    Sub: "({} - {})",
    Mul: "({} * {})",
    Max: "max({}, {})",
    Min: "min({}, {})",
}

Texts: TypeAlias = "list[str]"  # the elements of a value as expressions of the arguments


def counting(body: Module) -> Callable[[Sequence[Value]], list[Value] | None] | None:
    """Returns a function that computes the only result of a body, one number broadcast to extents; None for other bodies.

    The function returns None for extents that are not in range.
    """
    (*rest, last) = [i for i in body if not i.is_return]
    if list(body.outputs) != [last] or not isinstance(last.op, BroadcastWithDims):
        return None
    of, lens = last.inputs
    number = None if of.literal is None else of.get_literal().to_numpy()
    if number is None or number.size != 1:
        return None
    found: dict[Instruction, Texts] = {}
    numbers = {p: n for n, p in enumerate(body.parameters.values())}
    if (
        not all(_added(ins, found, numbers) for ins in rest if ins is not of)
        or len(found.get(lens, ())) < of.shape.rank
    ):
        return None
    extents = arithmetic("a", f"[{', '.join(found[lens])}]")
    memory, strides = number.tobytes(), (0,) * len(found[lens])

    def count(args: Sequence[Value]) -> list[Value] | None:
        wanted = extents(args)
        if not all(0 <= n < LARGEST for n in wanted):
            return None
        return [np.ndarray(wanted, number.dtype, memory, 0, strides)]

    return count


def _added(ins: Instruction, found: dict[Instruction, Texts], numbers: dict[Instruction, int]) -> bool:
    """Adds the elements of a value as expressions; returns False if they have none."""
    shape = ins.result
    if ins in numbers:
        static = isinstance(shape, Shape) and shape.dtype.is_integer and not shape.dynamic() and shape.elements() <= FEW
        if static:
            found[ins] = [f"a[{numbers[ins]}].item({k})" for k in range(shape.elements())]  # type: ignore[union-attr]
        return True  # of others, only the extents are read
    if ins.is_absent:
        return True
    if isinstance(ins.op, DimensionsOf):
        (x,) = ins.inputs
        if x in numbers and isinstance(x.result, Shape) and x.result.ranked:
            axes = range(x.result.rank)[ins.op.start : ins.op.end]
            found[ins] = [f"a[{numbers[x]}].shape[{axis}]" for axis in axes]
        return ins in found
    if not isinstance(shape, Shape) or shape.dynamic() or not shape.dtype.is_integer or shape.elements() > FEW:
        return False
    if ins.literal is not None:
        found[ins] = [str(n) for n in ins.get_literal().to_numpy().ravel().tolist()]
        return True
    given = [found[i] for i in ins.inputs if i in found]
    if len(given) < len(ins.inputs):
        return False
    if isinstance(ins.op, PointwiseGroup):
        inner = dict(zip(ins.modules[0].parameters.values(), given, strict=True))
        members = [i for i in ins.modules[0] if not (i.is_param or i.is_return)]
        if all(_added(i, inner, {}) for i in members):
            found[ins] = inner[ins.modules[0].outputs[0]]
    elif type(ins.op) in OPERATORS:
        if shape.dtype is int64 and len(given[0]) == len(given[1]):
            found[ins] = [OPERATORS[type(ins.op)].format(*pair) for pair in zip(*given, strict=True)]
    elif isinstance(ins.op, (Reshape, Squeeze, Unsqueeze)) or (isinstance(ins.op, Convert) and shape.dtype is int64):
        found[ins] = given[0]
    elif isinstance(ins.op, Multibroadcast) and len(given[0]) == 1:
        found[ins] = given[0] * shape.elements()
    return ins in found
