"""Recurrent layers: simple RNN, GRU and LSTM over whole sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dtype import of
from ..types.shape import Shape, TupleShape
from .builder import Builder, Operand
from .declaration import op
from .recurrent_layer import Recurrent
from .recurrent_parts import gru_parts, rnn_parts
from .scalar import convert, widen

__all__ = ["Gru", "Lstm", "Rnn"]


def alive(sequence_lens: Array | None, steps: int) -> Array | None:
    """Returns mask [s, b, 1] that is true where a sequence reaches a time step; None if all do.

    Errors: ShapeError for lengths outside 0..s.
    """
    if sequence_lens is None:
        return None
    if sequence_lens.size and (sequence_lens.min() < 0 or sequence_lens.max() > steps):
        raise ShapeError(f"sequence_lens must lie in 0..{steps}, got {sequence_lens.tolist()}")
    mask: Array = np.arange(steps)[:, None, None] < sequence_lens[None, :, None]
    return None if mask.all() else mask


def _prepared(layer: Recurrent, x: Array, w: Array, bias: Array | None, d: int) -> tuple[Array, Array | None]:
    """Returns products of all steps with w plus its bias [s, b, gates h], and the bias of r."""
    wide = widen(x)
    gates = np.matmul(wide, widen(w)[d].T)
    if bias is None:
        return gates, None
    own, recurrent = np.split(widen(bias)[d], 2)
    return gates + own, recurrent


def _initial(state: Array | None, x: Array, d: int, h: int) -> Array:
    wide = widen(x).dtype
    return np.zeros((x.shape[1], h), wide) if state is None else widen(state)[d].astype(wide)


@op("rnn")
class Rnn(Recurrent):
    """Simple recurrent layer: h_t = f(x_t w^T + h_(t-1) r^T + bias).

    Operands and result as of `Recurrent`, one gate.
    Errors: ShapeError for operands that do not fit.  Source: ONNX RNN-22.
    """

    gates = 1
    functions = ("tanh",)

    def compute(
        self,
        x: Array,
        w: Array,
        r: Array,
        bias: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
    ) -> Array:
        h = self.hidden_size
        live = alive(sequence_lens, x.shape[0])
        out = np.zeros((x.shape[0], self.directions, x.shape[1], h), widen(x).dtype)
        for d in range(self.directions):
            (f,) = self.activations(d)
            gates, more = _prepared(self, x, w, bias, d)
            if more is not None:
                gates = gates + more
            weights, state = widen(r)[d].T, _initial(initial_h, x, d, h)
            for t in self.steps(d, x.shape[0]):
                new = f(self.clipped(gates[t] + state @ weights))
                state = new if live is None else np.where(live[t], new, state)
                out[t, d] = state if live is None else np.where(live[t], state, 0)
        return convert(out, of(x.dtype))

    def decompose(self, b: Builder, *operands: Any) -> Operand | None:
        return rnn_parts(self, b, *operands)


@op("gru")
class Gru(Recurrent):
    """Gated recurrent unit: gates update, reset, hidden (z, r, h).

    z = f(x w_z^T + h r_z^T + bias), r = f(...), n = g(x w_h^T + (r h) r_h^T + bias), h' = (1 - z) n + z h; with
    linear_before_reset the reset multiplies (h r_h^T + bias of r) instead.  Operands and result as of `Recurrent`,
    three gates.
    Errors: ShapeError for operands that do not fit.  Source: ONNX GRU-22.
    """

    gates = 3
    functions = ("sigmoid", "tanh")

    linear_before_reset: bool = False

    def compute(
        self,
        x: Array,
        w: Array,
        r: Array,
        bias: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
    ) -> Array:
        h = self.hidden_size
        live = alive(sequence_lens, x.shape[0])
        out = np.zeros((x.shape[0], self.directions, x.shape[1], h), widen(x).dtype)
        for d in range(self.directions):
            f, g = self.activations(d)
            gates, more = _prepared(self, x, w, bias, d)
            late = np.zeros(3 * h, gates.dtype) if more is None else more
            weights, state = widen(r)[d].T, _initial(initial_h, x, d, h)
            for t in self.steps(d, x.shape[0]):
                both = f(self.clipped(gates[t, :, : 2 * h] + state @ weights[:, : 2 * h] + late[: 2 * h]))
                update, reset = both[:, :h], both[:, h:]
                if self.linear_before_reset:
                    inner = reset * (state @ weights[:, 2 * h :] + late[2 * h :])
                else:
                    inner = (reset * state) @ weights[:, 2 * h :] + late[2 * h :]
                new = (1 - update) * g(self.clipped(gates[t, :, 2 * h :] + inner)) + update * state
                state = new if live is None else np.where(live[t], new, state)
                out[t, d] = state if live is None else np.where(live[t], state, 0)
        return convert(out, of(x.dtype))

    def decompose(self, b: Builder, *operands: Any) -> Operand | None:
        return gru_parts(self, self.linear_before_reset, b, *operands)


@op("lstm")
class Lstm(Recurrent):
    """Long short-term memory: gates input, output, forget, cell (i, o, f, c).

    i = f(.. + p_i c), f = f(.. + p_f c), c' = f c + i g(..), o = f(.. + p_o c'), h' = o h(c'), .. being x w^T + h r^T +
    bias.
    Operands as of `Recurrent`, four gates; initial_c [d, b, h]; peephole [d, 3 h] (i, o, f).
    -> (hidden states [s, d, b, h], last cell states [d, b, h]; zero for a sequence without steps).  input_forget: f = 1 - i.
    Errors: ShapeError for operands that do not fit.  Source: ONNX LSTM-22.
    """

    gates = 4
    functions = ("sigmoid", "tanh", "tanh")

    input_forget: bool = False

    def infer(
        self,
        x: Shape,
        w: Shape,
        r: Shape,
        bias: Shape | None = None,
        sequence_lens: Shape | None = None,
        initial_h: Shape | None = None,
        initial_c: Shape | None = None,
        peephole: Shape | None = None,
    ) -> TupleShape:
        states = {"initial_h": initial_h, "initial_c": initial_c}
        hidden = self.layer(x, w, r, bias, sequence_lens, states, peephole)
        return TupleShape([hidden, hidden.with_dims(hidden.dims[1:])])

    def compute(
        self,
        x: Array,
        w: Array,
        r: Array,
        bias: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
        initial_c: Array | None = None,
        peephole: Array | None = None,
    ) -> tuple[Array, Array]:
        h = self.hidden_size
        live = alive(sequence_lens, x.shape[0])
        out = np.zeros((x.shape[0], self.directions, x.shape[1], h), widen(x).dtype)
        cells = np.zeros((self.directions, x.shape[1], h), out.dtype)
        for d in range(self.directions):
            f, g, last = self.activations(d)
            gates, more = _prepared(self, x, w, bias, d)
            if more is not None:
                gates = gates + more
            p = np.zeros(3 * h, gates.dtype) if peephole is None else widen(peephole)[d]
            weights, state, cell = widen(r)[d].T, _initial(initial_h, x, d, h), _initial(initial_c, x, d, h)
            for t in self.steps(d, x.shape[0]):
                now = gates[t] + state @ weights
                i = f(self.clipped(now[:, :h] + p[:h] * cell))
                keep = 1 - i if self.input_forget else f(self.clipped(now[:, 2 * h : 3 * h] + p[2 * h :] * cell))
                new_cell = keep * cell + i * g(self.clipped(now[:, 3 * h :]))
                o = f(self.clipped(now[:, h : 2 * h] + p[h : 2 * h] * new_cell))
                new = o * last(new_cell)
                if live is not None:
                    new, new_cell = np.where(live[t], new, state), np.where(live[t], new_cell, cell)
                state, cell = new, new_cell
                out[t, d] = state if live is None else np.where(live[t], state, 0)
            cells[d] = cell if live is None else np.where(live.any(0), cell, 0)  # as the last hidden state, zero
        return convert(out, of(x.dtype)), convert(cells, of(x.dtype))
