"""Recurrent layers with small batches: one product of the inputs of all time steps, then a native loop over the steps."""

from __future__ import annotations

from math import inf, prod
from typing import Any, Final

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.ops.concat import Concat
from mgx_core.ops.pointwise import Add
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.targets.epilogue import Link
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.mapped import forget_pages
from mgx_core.types.traced_int import TracedInt, usual

from ..emitter import CpuEmitter
from ..jit.native_loop import bits_of
from ..native_library import native
from ..recipes import aligned
from .epilogues import Epilogue
from .native_loops import allocate_zeros, emit_op, native_loop
from .packed_products import packed_product
from .products import product
from .recurrent_operands import Operands

__all__ = ["as_integers", "emit_gru_loop", "emit_lstm_loop", "emit_rnn_loop", "most_sequences"]

MAX_BATCH: Final = 4  # maximum batch for which a matrix-vector product per step is as fast as a matrix product
MAX_BATCH_CACHED: Final = 16  # the same if rereading the weights for every few sequences is free
REREAD_BYTES: Final = 96 * 1024  # maximum bytes of weights for which it is free, with AVX-512
CACHED_BYTES: Final = 1 << 19  # bytes of weights that fit in one processor's cache beside other data
READ_BOUND_BYTES: Final = 48 * 1024  # bytes of weights per direction above which a step is bound by reading them
MIN_PART_BYTES: Final = 96 * 1024  # minimum bytes of weights per thread that shares a step
MAX_PARTS: Final = 8  # maximum threads that share a work item
CANDIDATES: Final = 16  # candidate scales per column
SAMPLE: Final = 4  # columns checked before all others
FUNCTIONS: Final = (  # activation functions, in the native loops' numbering
    "tanh", "relu", "sigmoid", "affine", "leaky_relu", "thresholded_relu", "scaled_tanh", "hard_sigmoid", "elu", "softsign",
    "softplus",
)  # fmt: skip


def _pack(w: Array, r: Array, bias: Array | None, gates: int, separate_bias: bool, wide: int) -> list[Array]:
    """Packs the constants of a layer for the loops.

    Returns the input weights, the recurrent weights in blocks, the summed biases, and the recurrent bias of the last gate in
    blocks: zeros unless `separate_bias`, which excludes it from the sum.
    """
    directions, _, inside = w.shape
    hidden = r.shape[2]
    padded = -(-hidden // wide) * wide

    def by_block(a: Array, count: int) -> Array:
        """Returns [directions, count * hidden, ..] as [directions, blocks, count, wide, ..], zero-padded."""
        parts = a.reshape(directions, count, hidden, -1)
        if padded != hidden:
            parts = np.pad(parts, ((0, 0), (0, 0), (0, padded - hidden), (0, 0)))
        return parts.reshape(directions, count, padded // wide, wide, -1).swapaxes(1, 2)

    layer = np.ascontiguousarray(w.reshape(-1, inside).T)
    forget_pages(w)
    recurrent = aligned(np.moveaxis(by_block(r, gates), -1, 2)).reshape(
        directions, padded // wide, hidden, gates * wide
    )
    forget_pages(r)
    if recurrent.nbytes > directions * READ_BOUND_BYTES and (codes := as_integers(recurrent)) is not None:
        recurrent = codes
    own, other = np.zeros((2, directions, gates * hidden), np.float32) if bias is None else np.split(bias, 2, axis=1)
    late = other[:, -hidden:].copy() if separate_bias else np.zeros((directions, hidden), np.float32)
    summed = own + other
    if separate_bias:
        summed[:, -hidden:] = own[:, -hidden:]
    return [layer, recurrent, summed.reshape(1, -1), np.ascontiguousarray(by_block(late, 1))]


def as_integers(w: Array) -> Array | None:
    """Returns weights [directions, blocks, hidden, columns] as integers stored in bfloat16 and a scale per column.

    None unless every weight equals integer times scale up to float32 rounding, as for weights that were quantized to 8 bits.
    """
    if _scales(w[:1, :1, :, :SAMPLE]) is None or (factors := _scales(w)) is None:
        return None
    numbers = np.rint(w / factors).astype(np.float32)
    words = (numbers.view(np.uint32) >> 16).astype(np.uint16).reshape(*w.shape[:2], -1)
    parts = [words.view(np.uint8), np.ascontiguousarray(factors.reshape(*w.shape[:2], -1)).view(np.uint8)]
    made: Array = aligned(np.concatenate(parts, -1))
    return made


def _scales(w: Array) -> Array | None:
    """Returns, per column, a scale such that all weights are integer multiples up to 256 of it; None if a column has none."""
    sizes = np.abs(w)
    least = np.min(np.where(sizes > 0, sizes, np.inf), 2, keepdims=True)
    least[~np.isfinite(least)] = 1
    found = np.zeros_like(least)
    for share in range(1, CANDIDATES + 1):  # the smallest weight of a column is `share` times its scale
        factor = least / np.float32(share)
        numbers = np.rint(w / factor)
        good = (np.abs(numbers) <= 256) & (np.abs(numbers * factor - w) <= 2.0**-22 * sizes)
        found = np.where((found == 0) & good.all(2, keepdims=True), factor, found)
        if found.all():
            break
    complete: Array | None = found if found.all() else None
    return complete


class _Layer:
    """Emits a layer: the constructor emits the product over all inputs, `emit` the loop over the steps.

    separate_bias: the recurrent bias of the last gate is kept separate (`_pack`).
    """

    def __init__(self, e: CpuEmitter, op: Any, given: Operands, separate_bias: bool = False) -> None:
        self.e, self.op, self.given, x = e, op, given, given.x
        self.steps, self.batch, inside = x.lens
        self.directions, self.hidden = given.directions, op.hidden_size
        self.address, self.wide = native().recurrent_loop(op.name)
        self.padded = -(-self.hidden // self.wide) * self.wide
        w, r = e.constant(given.w), e.constant(given.r)
        b = None if given.bias is None else e.constant(given.bias)
        bias: Value | None
        if w is not None and r is not None and (given.bias is None or b is not None):
            key = ("recurrent panels", op.gates, separate_bias, self.wide)
            panels = e.derived_literals([w, r, b], key, lambda: _pack(w, r, b, op.gates, separate_bias, self.wide))
            layer, self.recurrent, bias, self.late = panels
        else:
            columns = self.directions * op.gates * self.hidden
            layer = e.row_major(given.w).view_at(0, Shape(dt.float32, [inside, columns], [1, inside]))
            self.recurrent = self._blocks(e.row_major(given.r), op.gates)
            bias, self.late = self._biases(separate_bias)
        rows = self.steps * self.batch
        lens = [rows, layer.lens[1]]
        seen = x.view_at(0, Shape(dt.float32, [rows, inside]))
        room = e.allocate(dt.float32, [prod(lens) + self.wide])  # the loop reads whole vectors beyond the end
        out = room.view_at(0, Shape(dt.float32, lens))
        if type(rows) is TracedInt and e.is_constant(layer):  # oneDNN multiplies a fixed number of rows
            [sums] = packed_product(e, seen, layer)
            shape = Shape(dt.float32, lens, [0, 1])
            e.copy_into(sums if bias is None else emit_op(e, Add(), sums, bias.view_at(0, shape)), out)
            self.gates = out
            return
        epilogue = None if bias is None else Epilogue(dt.float32, lens, [(Link("binary", "add"), bias)])
        self.gates = product(e, seen, layer, epilogue, out)

    def _blocks(self, value: Value, count: int) -> Value:
        """Emits a copy of [d, count h, n] as [d, blocks, n, count, wide], without values for units beyond the last."""
        e, wide, h, n = self.e, self.wide, self.hidden, prod(value.lens) // (self.directions * count * self.hidden)
        out = e.allocate(dt.float32, [self.directions, self.padded // wide, n, count, wide])
        block = n * count * wide
        strides = self.padded // wide * block, block, count * wide, 1, wide
        for first, units, blocks in ((0, wide, h // wide), (h // wide, h % wide, 1)):
            if not units or not blocks:
                continue
            lens = [self.directions, blocks, n, units, count]
            source = [count * h * n, wide * n, 1, n, h * n]
            e.copy_into(
                value.view_at(first * wide * n, Shape(dt.float32, lens, source)),
                out.view_at(first * block, Shape(dt.float32, lens, strides)),
            )
        return out

    def _biases(self, separate: bool) -> tuple[Value | None, Value]:
        """Emits the summed biases [1, d g h], None if there are none, and the separate bias of the last gate in blocks."""
        e, d, all_units = self.e, self.directions, self.op.gates * self.hidden
        late = e.literal(np.zeros((d, self.padded), np.float32))
        if self.given.bias is None:
            return None, late
        bias = e.row_major(self.given.bias)

        def part(begin: int, end: int) -> Value:
            return bias.view_at(begin, Shape(dt.float32, [d, end - begin], [2 * all_units, 1]))

        early = all_units - self.hidden if separate else all_units
        summed = emit_op(e, Add(), part(0, early), part(all_units, all_units + early))
        if separate:
            summed = emit_op(e, Concat(axis=1), summed, part(early, all_units))
            late = self._blocks(e.row_major(part(all_units + early, 2 * all_units)), 1)
        row = e.row_major(summed).view_at(0, Shape(dt.float32, [1, d * all_units]))
        return row, late

    def states(self, first: Value | None) -> Value:
        """Returns initial states [d, b, h]; zeros by default."""
        if first is not None:
            return first
        lens = [self.directions, self.batch, self.hidden]
        if type(self.batch) is TracedInt:
            return allocate_zeros(self.e, dt.float32, lens)
        return self.e.literal(np.zeros(lens, np.float32))

    def emit(self, read: list[Value], own: int, fields: int, last: Value | None = None) -> Value:
        """Emits the loop over the steps; returns states [t, d, b, h].

        read: other operands; own: argument specific to the kind of layer; fields: floats stored per unit between steps or phases;
        last: memory for the last cells.
        """
        out = self.e.allocate(dt.float32, [self.steps, self.batch, self.directions, self.hidden])
        written = [out] if last is None else [out, last]
        operands = [self.gates, self.recurrent, *read, *written]
        lengths, peepholes = self.given.lengths, self.given.peepholes
        numbers = [0, 0]  # of the buffers of optional operands
        for n, value in enumerate((lengths, peepholes)):
            if value is not None:
                numbers[n] = len(operands)
                operands.append(value)
        weights = self.op.gates * self.padded * self.hidden * 4
        rows, parts = partition(self.e.threads or native().thread_count(), self.directions, self.batch, weights)
        items = self.directions * -(-self.batch // rows)
        functions = [f for d in range(self.directions) for f in self.op.functions_of(d)]
        usual = [n for n, *_ in functions] == [*self.op.functions] * self.directions and peepholes is None
        usual = usual and not self.op.clip and not (isinstance(self.op, Lstm) and self.op.input_forget)
        args = [
            self.steps,
            self.batch,
            self.directions,
            self.hidden,
            int(self.op.direction == "reverse"),
            rows,
            parts,
            own,
            int(self.recurrent.dtype is not dt.float32),
            int(usual),
            bits_of(self.op.clip or inf),
            numbers[0],
            int(lengths is not None and lengths.dtype is dt.int64),
            numbers[1],
            *(n for name, alpha, beta in functions for n in (FUNCTIONS.index(name), bits_of(alpha), bits_of(beta))),
        ]
        scratch = (parts + 1) * fields * rows * 4 * self.padded
        work = items
        if parts > 1:  # the loop itself calls the threads
            work, scratch = 1, items * scratch
        flops = 2 * self.op.gates * self.steps * self.batch * self.directions * self.hidden**2
        native_loop(
            self.e, f"{self.op.name}-loop", self.address, operands, written, args, work, 1, scratch, flops=flops
        )
        width = self.directions * self.hidden
        strides = [self.batch * width, self.hidden, width, 1]
        return out.view_at(0, Shape(dt.float32, [self.steps, self.directions, self.batch, self.hidden], strides))


def most_sequences(op: Any) -> int:
    """Returns the sequences up to which the loop is faster than oneDNN's products of matrices, as measured."""
    _, wide = native().recurrent_loop(op.name)
    # up to three gates keep the sums of four sequences in registers at once
    near = REREAD_BYTES if op.gates > 3 else 2 * REREAD_BYTES
    return MAX_BATCH_CACHED if wide == 32 and 4 * op.gates * op.hidden_size**2 <= near else MAX_BATCH


def partition(threads: int, directions: int, batch: int, weights: int) -> tuple[int, int]:
    """Returns the sequences per work item and the number of threads that share an item.

    Threads divide the sequences if the weights fit in each one's cache, else the units.
    weights: bytes per direction.
    """
    wanted = -(-threads // directions)
    if weights <= CACHED_BYTES:
        rows = -(-batch // wanted)
    else:
        rows = batch
    items = directions * -(-batch // rows)
    return rows, max(1, min(threads // usual(items), weights // MIN_PART_BYTES, MAX_PARTS))


def emit_lstm_loop(e: CpuEmitter, op: Lstm, given: Operands) -> Results:
    """Returns states [t, d, b, h] and last cells [d, b, h]."""
    layer = _Layer(e, op, given)
    last = e.allocate(dt.float32, [layer.directions, layer.batch, layer.hidden])
    return layer.emit([layer.states(given.state), layer.states(given.cell)], int(op.input_forget), 2, last), last


def emit_gru_loop(e: CpuEmitter, op: Gru, given: Operands) -> Results:
    """Returns states [t, d, b, h]."""
    late = op.linear_before_reset
    layer = _Layer(e, op, given, separate_bias=late)
    return layer.emit([layer.late, layer.states(given.state)], int(late), 1 if late else 3)


def emit_rnn_loop(e: CpuEmitter, op: Rnn, given: Operands) -> Results:
    """Returns states [t, d, b, h]."""
    layer = _Layer(e, op, given)
    return layer.emit([layer.states(given.state)], 0, 1)
