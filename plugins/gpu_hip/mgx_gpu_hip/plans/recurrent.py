"""Recurrent layers: one launch if the recurrent weights fit into registers, otherwise one per time step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.targets.kernel_emission import Results

from ..codegen.generators import Generator, computing
from ..codegen.recurrent import evenly_spaced, recurrent
from ..codegen.recurrent_fma import resident_fma
from ..codegen.recurrent_resident import resident
from ..emitter import GpuEmitter
from .offer import emit_generated, offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


def _time_major(e: GpuEmitter, write: Generator, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits with time steps outermost in memory; batch-major inputs are copied."""
    x, w, r, *rest = args
    if not evenly_spaced(x.lens, x.strides):
        x = e.copy(x)
    return emit_generated(e, write, op, modules, [x, w, e.row_major(r), *rest])


def _plan(name: str, write: Generator) -> None:
    def emit(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        return _time_major(e, write, op, modules, args)

    offer(PLANS, Rnn, Gru, Lstm, name=name, write=write)(emit)


_plan("resident", computing(resident))
_plan("resident without matrix units", computing(resident_fma))
_plan("stepwise", computing(recurrent))
