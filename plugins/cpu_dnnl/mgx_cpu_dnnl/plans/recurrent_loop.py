"""Recurrent layers of few sequences: one product of all inputs, then a loop over the steps."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.targets.epilogue import Link
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.mapped import forget_pages

from ..emitter import CpuEmitter
from ..native_library import native
from ..packing import Derived
from ..remaking import aligned
from .epilogues import Epilogue
from .native_loops import native_loop
from .products import product
from .recurrent_operands import Operands

__all__ = ["as_codes", "emit_gru_loop", "emit_lstm_loop", "emit_rnn_loop", "most_sequences"]

FEW: Final = 4  # sequences up to which a product of vectors a step is as fast as one of matrices
MANY: Final = 16  # the same, where weights are read again for every few sequences at no cost
NEAR: Final = 96 * 1024  # bytes of weights for which that is so, with AVX-512
CACHED: Final = 1 << 19  # bytes of weights that the cache of one processor holds beside all else
CODED: Final = 48 * 1024  # bytes of weights of a direction beyond which it is reading them that takes the time
PART: Final = 96 * 1024  # bytes of weights whose share of a step is worth a thread
MOST_PARTS: Final = 8  # threads for one item
SHARES: Final = 16  # factors that are tried for a column
SAMPLE: Final = 4  # columns that are looked at before all are
ACTIVATIONS: Final = ("tanh", "relu", "sigmoid")  # of simple layers, by the number that the loop knows


def _panels(w: Array, r: Array, bias: Array | None, gates: int, apart: bool, wide: int) -> Derived:
    """Returns the constants of a layer as the loops read them.

    Weights of the inputs, of the states in blocks, the sums of both biases; `apart`: the last gate's bias of the state is
    not in the sum but a fourth array, in blocks.
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

    layer = np.ascontiguousarray(w.reshape(-1, inside).T)
    forget_pages(w)
    recurrent = aligned(np.moveaxis(by_block(r, gates), -1, 2)).reshape(ways, padded // wide, hidden, gates * wide)
    forget_pages(r)
    if recurrent.nbytes > ways * CODED and (codes := as_codes(recurrent)) is not None:
        recurrent = codes
    own, other = np.zeros((2, ways, gates * hidden), np.float32) if bias is None else np.split(bias, 2, axis=1)
    late = other[:, -hidden:].copy() if apart else np.zeros((ways, hidden), np.float32)
    summed = own + other
    if apart:
        summed[:, -hidden:] = own[:, -hidden:]
    return Derived([w, r, bias], layer, recurrent, summed.reshape(1, -1), np.ascontiguousarray(by_block(late, 1)))


def as_codes(w: Array) -> Array | None:
    """Returns weights [ways, blocks, hidden, columns] as whole numbers in bfloat16 and a factor for each column.

    None unless all are such products within a rounding of float32, as weights are that were quantized to 8 bits.
    """
    if _factors(w[:1, :1, :, :SAMPLE]) is None or (factors := _factors(w)) is None:
        return None
    numbers = np.rint(w / factors).astype(np.float32)
    words = (numbers.view(np.uint32) >> 16).astype(np.uint16).reshape(*w.shape[:2], -1)
    parts = [words.view(np.uint8), np.ascontiguousarray(factors.reshape(*w.shape[:2], -1)).view(np.uint8)]
    made: Array = aligned(np.concatenate(parts, -1))
    return made


def _factors(w: Array) -> Array | None:
    """Returns for each column the factor of which all its numbers are multiples by at most 256; None if one has none."""
    sizes = np.abs(w)
    least = np.min(np.where(sizes > 0, sizes, np.inf), 2, keepdims=True)
    least[~np.isfinite(least)] = 1
    found = np.zeros_like(least)
    for share in range(1, SHARES + 1):  # the least number of a column is so many times its factor
        factor = least / np.float32(share)
        numbers = np.rint(w / factor)
        good = (np.abs(numbers) <= 256) & (np.abs(numbers * factor - w) <= 2.0**-22 * sizes)
        found = np.where((found == 0) & good.all(2, keepdims=True), factor, found)
        if found.all():
            break
    complete: Array | None = found if found.all() else None
    return complete


class _Layer:
    """A layer that is being emitted: the product of its inputs, and then the loop over its states."""

    def __init__(self, e: CpuEmitter, op: Any, given: Operands, apart: bool = False) -> None:
        self.e, self.op, x = e, op, given.x
        self.steps, self.batch, inside = x.lens
        self.ways, self.hidden = given.ways, op.hidden_size
        self.address, wide = native().recurrent_loop(op.name)
        key = ("recurrent panels", op.gates, apart, wide)
        arrays = given.w, given.r, given.bias
        self.panels = e.shared.weights.derived(list(arrays), key, lambda: _panels(*arrays, op.gates, apart, wide))
        self.padded = -(-self.hidden // wide) * wide
        layer, self.recurrent, biases, self.late = self.panels.arrays
        rows = self.steps * self.batch
        bias = e.literal(biases, owner=self.panels)
        epilogue = Epilogue(dt.float32, [rows, biases.shape[1]], [(Link("binary", "add"), bias)])
        seen = x.seen_as(0, Shape(dt.float32, [rows, inside]))
        lens = [rows, biases.shape[1]]
        room = e.allocate(dt.float32, [prod(lens) + wide])  # the loop reads whole blocks
        self.gates = product(e, seen, self.constant(layer), epilogue, room.seen_as(0, Shape(dt.float32, lens)))

    def constant(self, array: Array) -> Value:
        return self.e.literal(array, owner=self.panels)

    def states(self, first: Value | None) -> Value:
        """Returns first states [d, b, h]: those given, or zeros."""
        return first or self.e.literal(np.zeros((self.ways, self.batch, self.hidden), np.float32))

    def emit(self, read: list[Value], own: int, fields: int, last: Value | None = None) -> Value:
        """The loop over gates, weights and what else it reads -> states [t, d, b, h].

        own: the number that only this kind of layer has; fields: what it keeps of a unit between steps or phases.
        """
        out = self.e.allocate(dt.float32, [self.steps, self.batch, self.ways, self.hidden])
        read = [self.gates, self.constant(self.recurrent), *read]
        written = [out] if last is None else [out, last]
        weights = self.op.gates * self.padded * self.hidden * 4
        rows, parts = shares(self.e.threads or native().thread_count(), self.ways, self.batch, weights)
        items = self.ways * -(-self.batch // rows)
        coded = int(self.recurrent.dtype != np.float32)
        args = [
            self.steps,
            self.batch,
            self.ways,
            self.hidden,
            int(self.op.direction == "reverse"),
            rows,
            parts,
            own,
            coded,
        ]
        scratch = (parts + 1) * fields * rows * 4 * self.padded
        work = items
        if parts > 1:  # the loop itself calls the threads
            work, scratch = 1, items * scratch
        flops = 2 * self.op.gates * self.steps * self.batch * self.ways * self.hidden**2
        name, operands = f"{self.op.name}-loop", [*read, *written]
        native_loop(self.e, name, self.address, operands, written, args, work, 1, scratch, flops=flops)
        width = self.ways * self.hidden
        strides = [self.batch * width, self.hidden, width, 1]
        return out.seen_as(0, Shape(dt.float32, [self.steps, self.ways, self.batch, self.hidden], strides))


def most_sequences(op: Any) -> int:
    """Returns the sequences up to which the loop is faster than oneDNN's products of matrices, as measured."""
    _, wide = native().recurrent_loop(op.name)
    near = NEAR if op.gates > 3 else 2 * NEAR  # whose sums of four sequences are in registers at once
    return MANY if wide == 32 and 4 * op.gates * op.hidden_size**2 <= near else FEW


def shares(threads: int, ways: int, batch: int, weights: int) -> tuple[int, int]:
    """Returns the sequences of an item and the threads that share it.

    Sequences are divided among threads where the cache of each holds the weights (bytes of one direction), else units are.
    """
    wanted = -(-threads // ways)
    if weights <= CACHED:
        rows = -(-batch // min(batch, wanted))
    else:
        rows = batch
    items = ways * -(-batch // rows)
    return rows, max(1, min(threads // items, weights // PART, MOST_PARTS))


def emit_lstm_loop(e: CpuEmitter, op: Lstm, given: Operands) -> Results:
    """Returns states [t, d, b, h] and last cells [d, b, h]."""
    layer = _Layer(e, op, given)
    last = e.allocate(dt.float32, [layer.ways, layer.batch, layer.hidden])
    return layer.emit([layer.states(given.state), layer.states(given.cell)], 0, 2, last), last


def emit_gru_loop(e: CpuEmitter, op: Gru, given: Operands) -> Results:
    """Returns states [t, d, b, h]."""
    late = op.linear_before_reset
    layer = _Layer(e, op, given, apart=late)
    return layer.emit([layer.constant(layer.late), layer.states(given.state)], int(late), 1 if late else 3)


def emit_rnn_loop(e: CpuEmitter, op: Rnn, given: Operands) -> Results:
    """Returns states [t, d, b, h]."""
    layer = _Layer(e, op, given)
    return layer.emit([layer.states(given.state)], ACTIVATIONS.index((op.actv_func or op.functions)[0]), 1)
