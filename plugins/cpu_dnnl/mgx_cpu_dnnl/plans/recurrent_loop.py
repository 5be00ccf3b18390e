"""Recurrent layers of few sequences: one product of all inputs, then each sequence and direction on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.targets.epilogue import Link
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Buffer, Value
from mgx_core.types.argument import Array

from ..emitter import CpuEmitter
from ..native_library import native
from ..packing import Derived, aligned, forget_pages
from .epilogues import Epilogue
from .products import product

__all__ = ["FEW", "emit_gru_loop", "emit_lstm_loop", "emit_rnn_loop"]

FEW: Final = 4  # sequences up to which a product of vectors a step is as fast as one of matrices
ACTIVATIONS: Final = ("tanh", "relu", "sigmoid")  # of simple layers, by the number that the loop knows


def _panels(w: Array, r: Array, bias: Array | None, gates: int, apart: bool, wide: int) -> Derived:
    """The constants of a layer as the loops read them.

    Weights of the inputs, of the states, the sums of both biases; `apart`: the last gate's bias of the state is not in
    the sum but a fourth array.
    """
    ways, _, inside = w.shape
    hidden = r.shape[2]
    padded = -(-hidden // wide) * wide

    def by_block(a: Array, count: int) -> Array:
        """[ways, count hidden, ..] as [ways, blocks, count, wide, ..], padded with zeros."""
        parts = a.reshape(ways, count, hidden, -1)
        if padded != hidden:
            parts = np.pad(parts, ((0, 0), (0, 0), (0, padded - hidden), (0, 0)))
        return parts.reshape(ways, count, padded // wide, wide, -1).swapaxes(1, 2)

    layer = np.ascontiguousarray(np.moveaxis(by_block(w, gates), -1, 0)).reshape(inside, -1)
    forget_pages(w)
    recurrent = aligned(np.moveaxis(by_block(r, gates), -1, 2)).reshape(ways, padded // wide, hidden, gates * wide)
    forget_pages(r)
    own, other = np.zeros((2, ways, gates * hidden), np.float32) if bias is None else np.split(bias, 2, axis=1)
    late = other[:, -hidden:].copy() if apart else np.zeros((ways, hidden), np.float32)
    summed = own + other
    if apart:
        summed[:, -hidden:] = own[:, -hidden:]
    biases = [np.ascontiguousarray(by_block(summed, gates).reshape(1, -1)), np.ascontiguousarray(by_block(late, 1))]
    return Derived([w, r, bias], layer, recurrent, *biases)


class _Layer:
    """A layer that is being emitted: the product of its inputs, and then the loop over its states."""

    def __init__(
        self, e: CpuEmitter, op: Any, x: Value, weights: tuple[Array, Array, Array | None], apart: bool = False
    ) -> None:
        """x [t, b, i] row-major; w [d, g h, i], r [d, g h, h], bias [d, 2 g h]."""
        self.e, self.op = e, op
        self.steps, self.batch, inside = x.lens
        self.ways, self.hidden = weights[0].shape[0], op.hidden_size
        wide = native().recurrent_loop(op.name)[1]
        key = ("recurrent panels", op.gates, apart, wide)
        self.panels = e.shared.weights.derived(list(weights), key, lambda: _panels(*weights, op.gates, apart, wide))
        self.padded = -(-self.hidden // wide) * wide
        layer, self.recurrent, biases, self.late = self.panels.arrays
        rows = self.steps * self.batch
        bias = e.literal(biases, owner=self.panels)
        given = Epilogue(dt.float32, [rows, biases.shape[1]], [(Link("binary", "add"), bias)])
        seen = x.seen_as(0, Shape(dt.float32, [rows, inside]))
        self.gates = product(e, seen, self.constant(layer), given)

    def constant(self, array: Array) -> Value:
        return self.e.literal(array, owner=self.panels)

    def states(self, first: Value | None) -> Value:
        """First states [d, b, h]: those given, or zeros."""
        return first or self.e.literal(np.zeros((self.ways, self.batch, self.hidden), np.float32))

    def emit(self, read: list[Value], more: list[int], rows: int, last: Value | None = None) -> Value:
        """The loop over gates, weights and what else it reads -> states [t, d, b, h].

        more: arguments behind those of every layer; rows: of states in scratch memory.
        """
        name = f"{self.op.name}-loop"
        address, _ = native().recurrent_loop(self.op.name)
        out = self.e.allocate(dt.float32, [self.steps, self.batch, self.ways, self.hidden])
        read = [self.gates, self.constant(self.recurrent), *read]
        written = [out] if last is None else [out, last]
        args = [self.steps, self.batch, self.ways, self.hidden, int(self.op.direction == "reverse"), *more]

        def install(program: Any, ident: Callable[[Buffer], int]) -> None:
            where = [(ident(v.buffer), v.byte_offset) for v in [*read, *written]]
            program.add_loop(name, address, None, where, args, self.ways * self.batch, 1, rows * 4 * self.padded)

        flops = 2 * self.op.gates * self.steps * self.batch * self.ways * self.hidden**2
        self.e.step(name, [v.buffer for v in read], [v.buffer for v in written], install, flops)
        width = self.ways * self.hidden
        strides = [self.batch * width, self.hidden, width, 1]
        return out.seen_as(0, Shape(dt.float32, [self.steps, self.ways, self.batch, self.hidden], strides))


def emit_lstm_loop(
    e: CpuEmitter, op: Lstm, x: Value, w: Array, r: Array, bias: Array | None, first: Value | None, cell: Value | None
) -> Results:
    """Operands of `_Layer` and first states and cells [d, b, h] -> states [t, d, b, h], last cells [d, b, h]."""
    layer = _Layer(e, op, x, (w, r, bias))
    last = e.allocate(dt.float32, [layer.ways, layer.batch, layer.hidden])
    return layer.emit([layer.states(first), layer.states(cell)], [], 3, last), last


def emit_gru_loop(
    e: CpuEmitter, op: Gru, x: Value, w: Array, r: Array, bias: Array | None, first: Value | None
) -> Results:
    """Operands of `_Layer` and first states [d, b, h] -> states [t, d, b, h]."""
    layer = _Layer(e, op, x, (w, r, bias), apart=op.linear_before_reset)
    return layer.emit([layer.constant(layer.late), layer.states(first)], [int(op.linear_before_reset)], 4)


def emit_rnn_loop(
    e: CpuEmitter, op: Rnn, x: Value, w: Array, r: Array, bias: Array | None, first: Value | None
) -> Results:
    """Operands of `_Layer` and first states [d, b, h] -> states [t, d, b, h]."""
    layer = _Layer(e, op, x, (w, r, bias))
    return layer.emit([layer.states(first)], [ACTIVATIONS.index((op.actv_func or op.functions)[0])], 2)
