"""Recurrent layers: simple RNN, GRU and LSTM over whole sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dtype import of
from ..types.shape import Shape, TupleShape
from .builder import Builder, Operand
from .declaration import op
from .recurrent_layer import Recurrent
from .recurrent_parts import gru_parts, lstm_parts, rnn_parts
from .scalar import convert, widen

__all__ = ["Gru", "Lstm", "Rnn"]


def alive(sequence_lens: Array | None, steps: int) -> Array | None:
    """Returns a mask [s, b, 1] that is true for time steps within a sequence; None if all are.

    Errors: ShapeError for lengths outside 0..s.
    """
    if sequence_lens is None:
        return None
    if sequence_lens.size and (sequence_lens.min() < 0 or sequence_lens.max() > steps):
        raise ShapeError(f"sequence_lens must lie in 0..{steps}, got {sequence_lens.tolist()}")
    mask: Array = np.arange(steps)[:, None, None] < sequence_lens[None, :, None]
    return None if mask.all() else mask


def _initial(state: Array | None, x: Array, d: int, h: int) -> Array:
    wide = widen(x).dtype
    return np.zeros((x.shape[1], h), wide) if state is None else widen(state)[d].astype(wide)


Cell = Callable[..., tuple[Array, ...]]  # (input products of a step, states) -> next states


def _over_time(
    layer: Recurrent,
    operands: tuple[Array, Array, Array, Array | None, Array | None],
    states: list[Array | None],
    cell: Callable[[int, Array, Array], Cell],
) -> tuple[Array, Array]:
    """Returns hidden states [s, d, b, h] and each direction's last state of the last kind [d, b, h].

    operands: x, w, r, bias, sequence_lens; cell: returns the step function of a direction from its weights r [h, gates h] and
    their bias.
    """
    x, w, r, bias, sequence_lens = operands
    h, live = layer.hidden_size, alive(sequence_lens, x.shape[0])
    wide = widen(x)
    out = np.zeros((x.shape[0], layer.directions, x.shape[1], h), wide.dtype)
    lasts = np.zeros(out.shape[1:], out.dtype)
    for d in range(layer.directions):
        gates = np.matmul(wide, widen(w)[d].T)
        own, late = np.zeros((2, w.shape[1]), gates.dtype) if bias is None else np.split(widen(bias)[d], 2)
        step = cell(d, widen(r)[d].T, late)
        now = tuple(_initial(state, x, d, h) for state in states)
        for t in layer.steps(d, x.shape[0]):
            new = step(gates[t] + own, *now)
            now = new if live is None else tuple(np.where(live[t], n, o) for n, o in zip(new, now, strict=True))
            out[t, d] = now[0] if live is None else np.where(live[t], now[0], 0)
        lasts[d] = now[-1] if live is None else np.where(live.any(0), now[-1], 0)  # zero for a sequence without steps
    return convert(out, of(x.dtype)), convert(lasts, of(x.dtype))


@op("")
class _Plain(Recurrent):
    """Base of layers with only a hidden state."""

    __slots__ = ()

    def compute(
        self,
        x: Array,
        w: Array,
        r: Array,
        bias: Array | None = None,
        sequence_lens: Array | None = None,
        initial_h: Array | None = None,
    ) -> Array:
        return _over_time(self, (x, w, r, bias, sequence_lens), [initial_h], self.cell)[0]

    def cell(self, d: int, weights: Array, late: Array) -> Cell:
        """Returns the step function for `_over_time`."""
        raise NotImplementedError


@op("rnn")
class Rnn(_Plain):
    """Simple recurrent layer: h_t = f(x_t w^T + h_(t-1) r^T + bias).

    Operands and result as of `Recurrent`, one gate.
    Errors: ShapeError for operands that do not fit.  Source: ONNX RNN-22.
    """

    gates = 1
    functions = ("tanh",)

    def cell(self, d: int, weights: Array, late: Array) -> Cell:
        (f,) = self.activations(d)
        return lambda gates, state: (f(self.clipped(gates + late + state @ weights)),)

    def decompose(self, b: Builder, *operands: Any) -> Operand | None:
        return rnn_parts(self, b, *operands)


@op("gru")
class Gru(_Plain):
    """Gated recurrent unit: gates update, reset, hidden (z, r, h).

    z = f(x w_z^T + h r_z^T + bias), r = f(...), n = g(x w_h^T + (r h) r_h^T + bias), h' = (1 - z) n + z h; with
    linear_before_reset the reset multiplies (h r_h^T + bias of r) instead.  Operands and result as of `Recurrent`,
    three gates.
    Errors: ShapeError for operands that do not fit.  Source: ONNX GRU-22.
    """

    gates = 3
    functions = ("sigmoid", "tanh")

    linear_before_reset: bool = False

    def cell(self, d: int, weights: Array, late: Array) -> Cell:
        f, g = self.activations(d)
        h = self.hidden_size

        def step(gates: Array, state: Array) -> tuple[Array, ...]:
            both = f(self.clipped(gates[:, : 2 * h] + state @ weights[:, : 2 * h] + late[: 2 * h]))
            update, reset = both[:, :h], both[:, h:]
            if self.linear_before_reset:
                inner = reset * (state @ weights[:, 2 * h :] + late[2 * h :])
            else:
                inner = (reset * state) @ weights[:, 2 * h :] + late[2 * h :]
            return ((1 - update) * g(self.clipped(gates[:, 2 * h :] + inner)) + update * state,)

        return step

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

        def cell(d: int, weights: Array, late: Array) -> Cell:
            f, g, last = self.activations(d)
            p = np.zeros(3 * h, late.dtype) if peephole is None else widen(peephole)[d]

            def step(gates: Array, state: Array, memory: Array) -> tuple[Array, ...]:
                now = gates + late + state @ weights
                i = f(self.clipped(now[:, :h] + p[:h] * memory))
                keep = 1 - i if self.input_forget else f(self.clipped(now[:, 2 * h : 3 * h] + p[2 * h :] * memory))
                new = keep * memory + i * g(self.clipped(now[:, 3 * h :]))
                o = f(self.clipped(now[:, h : 2 * h] + p[h : 2 * h] * new))
                return o * last(new), new

            return step

        return _over_time(self, (x, w, r, bias, sequence_lens), [initial_h, initial_c], cell)

    def decompose(self, b: Builder, *operands: Any) -> tuple[Operand, Operand] | None:
        return lstm_parts(self, self.input_forget, b, *operands)
