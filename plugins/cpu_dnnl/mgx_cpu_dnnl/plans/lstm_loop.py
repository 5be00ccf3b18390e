"""LSTM layers of few sequences: one product for all steps' inputs, then each sequence and direction on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.targets.epilogue import Link
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Buffer, Value
from mgx_core.types.argument import Array

from ..emitter import CpuEmitter
from ..native_library import native
from ..packing import Derived, aligned, forget_pages
from .epilogues import Epilogue
from .products import product

__all__ = ["FEW", "emit_lstm_loop"]

FEW: Final = 4  # sequences up to which a product of vectors a step is as fast as one of matrices


def _panels(w: Array, r: Array, bias: Array | None, wide: int) -> Derived:
    """The constants of a layer as the loop reads them: weights of the inputs, of the states, and sums of the biases."""
    ways, _, inside = w.shape
    hidden = r.shape[2]
    padded = -(-hidden // wide) * wide

    def blocked(a: Array) -> Array:
        """[ways, 4 hidden, ..] as [ways, blocks, 4, wide, ..], padded with zeros."""
        gates = a.reshape(ways, 4, hidden, -1)
        if padded != hidden:
            gates = np.pad(gates, ((0, 0), (0, 0), (0, padded - hidden), (0, 0)))
        return gates.reshape(ways, 4, padded // wide, wide, -1).swapaxes(1, 2)

    layer = np.ascontiguousarray(np.moveaxis(blocked(w), -1, 0)).reshape(inside, -1)
    forget_pages(w)
    recurrent = aligned(np.moveaxis(blocked(r), -1, 2)).reshape(ways, padded // wide, hidden, 4 * wide)
    forget_pages(r)
    summed = np.zeros((ways, 4 * hidden), np.float32)
    if bias is not None:
        summed = bias[:, : 4 * hidden] + bias[:, 4 * hidden :]
    return Derived([w, r, bias], layer, recurrent, np.ascontiguousarray(blocked(summed).reshape(1, -1)))


def emit_lstm_loop(
    e: CpuEmitter, op: Any, x: Value, w: Array, r: Array, bias: Array | None, first: Value | None, cell: Value | None
) -> Results:
    """x [t, b, i] row-major, w [d, 4 h, i], r [d, 4 h, h], bias [d, 8 h] -> states [t, d, b, h], last cell [d, b, h]."""
    address, wide = native().lstm_loop()
    steps, batch, inside = x.lens
    ways, hidden = w.shape[0], op.hidden_size
    panels = e.shared.weights.derived([w, r, bias], ("lstm panels", wide), lambda: _panels(w, r, bias, wide))
    layer, recurring, biases = panels.arrays
    width = biases.shape[1]
    given = Epilogue(dt.float32, [steps * batch, width], [(Link("binary", "add"), e.literal(biases, owner=panels))])
    rows = x.seen_as(0, Shape(dt.float32, [steps * batch, inside]))
    gates = product(e, rows, e.literal(layer, owner=panels), given)
    recurrent = e.literal(recurring, owner=panels)
    zero = e.literal(np.zeros((ways, batch, hidden), np.float32))
    first, cell = first or zero, cell or zero
    out = e.allocate(dt.float32, [steps, batch, ways, hidden])
    last = e.allocate(dt.float32, [ways, batch, hidden])
    operands = [gates, recurrent, first, cell, out, last]
    args = [steps, batch, ways, hidden, int(op.direction == "reverse")]
    scratch = 3 * 4 * -(-hidden // wide) * wide

    def install(program: Any, ident: Callable[[Buffer], int]) -> None:
        where = [(ident(v.buffer), v.byte_offset) for v in operands]
        program.add_loop("lstm-loop", address, None, where, args, ways * batch, 1, scratch)

    flops = 8 * steps * batch * ways * hidden * hidden
    e.step("lstm-loop", [v.buffer for v in operands[:4]], [out.buffer, last.buffer], install, flops)
    seen = Shape(dt.float32, [steps, ways, batch, hidden], [batch * ways * hidden, hidden, ways * hidden, 1])
    return out.seen_as(0, seen), last
