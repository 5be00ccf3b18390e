"""Finds functions of products whose inputs or results should be quantized.

Targets evaluate expensive functions of 8-bit values by table lookup, and store 8-bit results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ..ir.instruction import Instruction
from ..ir.ordering import near
from ..named_tuples import NamedTuple
from ..ops.convolution import Convolution
from ..ops.elementwise import Pointwise
from ..ops.linear import Dot
from ..ops.pointwise import Add
from ..ops.scalar import EXACT, primitives
from ..rules.outline import through_views
from ..types.argument import Array
from ..types.dtype import DType
from .scales import scale_of

__all__ = ["Function", "functions"]

CHEAP: Final = EXACT | {"add", "sub", "mul", "div"}
POINTS: Final = 1025  # sample points of a function
FINEST: Final = 2.0**-12  # smallest fraction of a range that is searched; leaves room next to a jump
NEAR: Final = 64  # maximum instructions after a product
SMALL: Final = 1e-6  # smallest relevant difference


class Function(NamedTuple):
    """A function of one tensor: input, instructions, whether a table lookup is faster, and its channel axis."""

    read: Instruction
    made: Instruction
    costly: bool
    axis: int

    def values(self, points: Array) -> Array:
        """Evaluates the function by the reference implementations."""
        compute = self.made.op.compute
        assert compute is not None
        return np.asarray(compute(points.astype(np.float32)))

    def range(self, low: float, high: float, results: tuple[float, float], to: DType) -> tuple[float, float]:
        """Returns the part of a range outside of which the quantized result is constant."""
        near = scale_of(*results, to)[0] / 4
        below, above = self.values(np.asarray([low, high])).astype(np.float64)
        while high - low > FINEST * max(-low, high, SMALL):
            points = np.linspace(low, high, POINTS)
            values = self.values(points).astype(np.float64)
            flat = np.abs(values - below) <= near, np.abs(values[::-1] - above) <= near
            first, last = (POINTS if f.all() else int(np.argmin(f)) for f in flat)  # the first point that differs
            kept = points[max(first - 1, 0) : POINTS - max(last - 1, 0)]
            if kept.size in (0, POINTS):
                break
            low, high = float(kept[0]), float(kept[-1])
        return min(low, 0.0), max(high, 0.0)


def functions(products: Iterable[Instruction], tensors: Iterable[Instruction], tables: bool = True) -> list[Function]:
    """Returns functions of these products that are expensive or have several readers, and that lead to some tensors.

    Their input may be a sum with other tensors, as at the end of a residual block.  tables: expensive ones are looked up; if
    not, only those with several readers are returned.
    """
    ends = set(tensors)
    found: dict[Instruction, Function] = {}
    for product in (p for p in products if isinstance(p.op, (Convolution, Dot))):
        at = product
        while len(at.users) == 1 and at.users[0].parent is product.parent:
            reader, op = at.users[0], at.users[0].op
            if not isinstance(op, Pointwise) or not reader.shape.dtype.is_float:
                break
            sums = isinstance(op, Add)
            image = isinstance(product.op, Convolution)  # no mask is added to one
            if not all(i is at or _finite(i) or (sums and (image or _computed(i))) for i in reader.inputs):
                break
            alone = len(reader.inputs) == 1 and not op.random
            costly = tables and alone and not primitives(type(op).scalar) <= CHEAP
            if (costly or (alone and len(reader.users) > 1)) and _reaches(reader, ends):
                axis = 1 if isinstance(product.op, Convolution) else at.shape.rank - 1
                found[reader] = Function(at, reader, costly, axis)
                break
            at = reader
    return list(found.values())


def _finite(ins: Instruction) -> bool:
    """Returns True for a finite constant; masks may contain infinities, whose sums have no range."""
    literal = through_views(ins).literal
    return literal is not None and bool(np.isfinite(literal.to_numpy().astype(np.float32)).all())


def _computed(ins: Instruction) -> bool:
    """Returns True if a value depends on a product (like the other branch of a residual block) and is not a mask."""
    return any(at.op.product for at in near(ins, NEAR))


def _reaches(ins: Instruction, ends: set[Instruction]) -> bool:
    """Returns True if an instruction, or a value computed from it before the next product, is in `ends`."""
    pending: list[Instruction] = [ins]
    seen = set(pending)
    while pending:
        at = pending.pop()
        if at in ends:
            return True
        for user in at.users:
            if user not in seen and not user.op.product and not user.is_return:
                seen.add(user)
                pending.append(user)
    return False
