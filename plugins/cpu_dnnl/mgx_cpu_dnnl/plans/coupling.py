"""Class probabilities from those of pairs of classes, row by row in a native loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core import Kernels, Module
from mgx_core.ops.coupling import PairwiseCoupling, most_sweeps
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from .native_loops import grain_of, native_loop
from .offer import offer

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
SWEEPS: Final = 8  # approximate number of sweeps over the classes per row


@offer(PLANS, PairwiseCoupling, name="native")
def emit_coupling(e: CpuEmitter, op: PairwiseCoupling, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, rows, classes = e.row_major(args[0]), args[0].lens[0], op.classes
    out = e.allocate(x.shape.dtype, [rows, classes])
    if rows:
        grain = max(1, grain_of(rows, [x]) // (SWEEPS * classes))
        numbers, scratch = [classes, most_sweeps(classes)], 8 * classes * (classes + 2)
        native_loop(e, op.name, f"pairwise_coupling_{x.shape.dtype}", [x, out], [out], numbers, rows, grain, scratch)
    return out
