"""Results whose extent a kernel counts: it writes results of maximum size and the actual extent (`Kernel.open_axis`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ShapeError
from ..ops.operation import Operation
from ..types.argument import Array
from ..types.shape import AnyShape, Shape, TupleShape

__all__ = ["cropped", "items_of", "open_axes"]


def items_of(result: AnyShape) -> Sequence[AnyShape]:
    """Returns the items of a tuple, or the only result."""
    return result.items if isinstance(result, TupleShape) else (result,)


def open_axes(result: AnyShape, axis: int) -> list[int | None]:
    """Returns for each result the axis with a data-dependent extent, None without one; axis: its number in all results."""
    return [axis % max(s.rank, 1) if isinstance(s, Shape) and s.dynamic() else None for s in items_of(result)]


def cropped(op: Operation, axes: Sequence[int | None], results: Sequence[Array]) -> list[Array]:
    """Crops an op's results, which their count follows, along those of their axes that have data-dependent extents.

    Errors: ShapeError if the count exceeds the extent, which is possible for counts given by an operand.
    """
    n, found = int(results[-1].item()), []
    for whole, axis in zip(results, axes, strict=False):
        if axis is None:
            found.append(whole)
            continue
        if not 0 <= n <= whole.shape[axis]:
            raise ShapeError(
                f"{op.name} can return 0 to {whole.shape[axis]} elements along axis {axis}, got a count of {n}"
            )
        part = whole[:n] if axis == 0 else whole[:, :n] if axis == 1 else whole[(*[slice(None)] * axis, slice(n))]
        found.append(part if part.flags.c_contiguous else np.ascontiguousarray(part))
    return found
