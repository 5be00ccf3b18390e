"""LSTM layers of few sequences: one product for all steps' inputs, then each sequence and direction on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.targets.epilogue import Link
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Buffer, Value
from mgx_core.types.argument import Array

from ..emitter import CpuEmitter
from ..native_library import native
from ..packing import aligned, forget_pages
from .epilogues import Epilogue
from .products import product

__all__ = ["FEW", "emit_lstm_loop"]

FEW: Final = 4  # sequences up to which a product of vectors a step is as fast as one of matrices


class Panels:
    """The constants of a layer as the loop reads them; the originals are kept, so that their addresses name them."""

    def __init__(self, w: Array, r: Array, bias: Array | None, wide: int) -> None:
        self.sources = w, r, bias
        ways, _, inside = w.shape
        hidden = r.shape[2]
        padded = -(-hidden // wide) * wide

        def blocked(a: Array) -> Array:
            """[ways, 4 hidden, ..] as [ways, blocks, 4, wide, ..], padded with zeros."""
            gates = a.reshape(ways, 4, hidden, -1)
            if padded != hidden:
                gates = np.pad(gates, ((0, 0), (0, 0), (0, padded - hidden), (0, 0)))
            return gates.reshape(ways, 4, padded // wide, wide, -1).swapaxes(1, 2)

        self.layer = np.ascontiguousarray(np.moveaxis(blocked(w), -1, 0)).reshape(inside, -1)
        forget_pages(w)
        self.recurrent = aligned(np.moveaxis(blocked(r), -1, 2)).reshape(ways, padded // wide, hidden, 4 * wide)
        forget_pages(r)
        summed = np.zeros((ways, 4 * hidden), np.float32)
        if bias is not None:
            summed = bias[:, : 4 * hidden] + bias[:, 4 * hidden :]
        self.bias = np.ascontiguousarray(blocked(summed).reshape(1, -1))


_shared: WeakValueDictionary[Any, Panels] = WeakValueDictionary()


def _panels(w: Array, r: Array, bias: Array | None, wide: int) -> Panels:
    key = tuple(None if a is None else (a.__array_interface__["data"][0], a.shape, a.strides) for a in (w, r, bias))
    found = _shared.get(key)
    if found is None:
        found = _shared[key] = Panels(w, r, bias, wide)
    return found


def emit_lstm_loop(
    e: CpuEmitter, op: Any, x: Value, w: Array, r: Array, bias: Array | None, first: Value | None, cell: Value | None
) -> Results:
    """x [t, b, i] row-major, w [d, 4 h, i], r [d, 4 h, h], bias [d, 8 h] -> states [t, d, b, h], last cell [d, b, h]."""
    address, wide = native().lstm_loop()
    steps, batch, inside = x.lens
    ways, hidden = w.shape[0], op.hidden_size
    panels = _panels(w, r, bias, wide)
    width = panels.bias.shape[1]
    given = Epilogue(
        dt.float32, [steps * batch, width], [(Link("binary", "add"), e.literal(panels.bias, owner=panels))]
    )
    rows = x.seen_as(0, Shape(dt.float32, [steps * batch, inside]))
    gates = product(e, rows, e.literal(panels.layer, owner=panels), given)
    recurrent = e.literal(panels.recurrent, owner=panels)
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
