"""Prefix scans along an axis that is known only at run time, as branches with one scan each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.compare import Equal
from ..ops.control import GetTupleElem, If
from ..ops.index import Gather
from .constants import aligned
from .engine import Builder, Rules

__all__ = ["SCAN_AXES"]

SCAN_AXES: Final = Rules("simplify-scan-axes")


@SCAN_AXES.on("mgx_core.ops.scan:PrefixScan")
def branch_on_scanned_axis(i: Instruction, b: Builder) -> Instruction | None:
    """prefix_scan(x, axis) -> if(axis == 0){prefix_scan[axis=0](x)}{if(axis == 1){..}} for an axis computed at run time.

    Each scan then has a kernel, and the extents of x may change.
    """
    if len(i.inputs) != 2 or not i.shape.ranked or i.inputs[1].shape.dynamic():
        return None
    x, along = i.inputs
    rank = i.shape.rank
    known = aligned(along)
    if known is not None:
        axis = int(known.reshape(-1)[0])
        return b.add(i.op.replace(axis=axis), x) if -rank <= axis < rank else None
    if rank < 2:
        return None
    # counts negative axes from the end, and raises an error for those outside the rank
    along = b.add(Gather(axis=0), b.literal(np.arange(rank)), along)
    number = along.shape.lens()
    conditions = [b.add(Equal(), along, b.literal(np.full(number, axis))) for axis in range(rank - 1)]

    def scan(axis: int, add: Callable[..., Instruction]) -> Instruction:
        """Adds the scan along the given axis or a later one."""
        if axis == rank - 1:
            return add(i.op.replace(axis=axis), x)
        this, later = Module(f"{i.op.name}:{axis}"), Module(f"{i.op.name}:after_{axis}")
        this.add_return([this.add(i.op.replace(axis=axis), x, sources=i.sources)])
        later.add_return([scan(axis + 1, partial(later.add, sources=i.sources))])
        return add(GetTupleElem(index=0), add(If(), conditions[axis], modules=[this, later]))

    return scan(0, b.add)
