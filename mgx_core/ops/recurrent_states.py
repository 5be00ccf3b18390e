"""Ops on the results of recurrent layers: last states, and shifts for sequences of different lengths."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array, Value
from ..types.dim import bounds, may_equal
from ..types.shape import AnyShape, Shape, TupleShape
from .builder import Builder, Operand
from .concat import Concat
from .control import GetTupleElem
from .declaration import op
from .operation import Operation
from .reshape import Squeeze
from .slice import FAR, Slice

__all__ = ["RnnLastCellOutput", "RnnLastHsOutput", "RnnVarSlLastOutput", "RnnVarSlShiftOutput", "RnnVarSlShiftSequence"]


def _check(states: Shape, lens: Shape | None, batch_axis: int, rank: int) -> None:
    if states.rank != rank:
        raise ShapeError(f"a tensor of rank {rank} is required, got {states}")
    if lens is None:
        return
    if not lens.dtype.is_integer or lens.rank != 1 or not may_equal(lens.dims[0], states.dims[batch_axis]):
        raise ShapeError(f"sequence_lens must be an integer vector of {states.dims[batch_axis]}, got {lens}")


def _bounded(lens: Array, steps: int) -> Array:
    if lens.size and (lens.min() < 0 or lens.max() > steps):
        raise ShapeError(f"sequence_lens must lie in 0..{steps}, got {lens.tolist()}")
    return lens.astype(np.int64)


def _last(states: Array, lens: Array | None, direction: str) -> Array:
    steps, directions, batch, hidden = states.shape
    out = np.zeros((directions, batch, hidden), states.dtype)
    if not steps:
        return out
    for d in range(directions):
        if direction == "reverse" or d == 1:
            out[d] = states[0, d]
        elif lens is None:
            out[d] = states[-1, d]
        else:
            last = _bounded(lens, steps) - 1
            taken = states[np.maximum(last, 0), d, np.arange(batch)]
            out[d] = np.where((last >= 0)[:, None], taken, np.zeros((), states.dtype))
    return out


@op("rnn_last_hs_output", exact=True)
class RnnLastHsOutput(Operation):
    """The hidden state after the last step of each sequence.

    states [s, d, b, h]; sequence_lens [b] (all s if absent) -> [d, b, h].  A reverse direction ends at step 0.
    Errors: ShapeError for other ranks or lengths.
    """

    direction: Literal["forward", "reverse", "bidirectional"] = "forward"

    def infer(self, states: Shape, sequence_lens: Shape | None = None) -> Shape:
        _check(states, sequence_lens, 2, 4)
        return states.with_dims(states.dims[1:])

    def compute(self, states: Array, sequence_lens: Array | None = None) -> Array:
        return _last(states, sequence_lens, self.direction)

    def decompose(self, b: Builder, states: Operand, sequence_lens: Operand | None = None) -> Operand | None:
        if sequence_lens is not None or bounds(states.shape.dims[0])[0] < 1:
            return None
        ends = []
        for d in range(2 if self.direction == "bidirectional" else 1):
            first = self.direction == "reverse" or d == 1
            step = (0, 1) if first else (-1, FAR)
            ends.append(b.add(Slice(axes=(0, 1), starts=(step[0], d), ends=(step[1], d + 1)), states))
        joined = ends[0] if len(ends) == 1 else b.add(Concat(axis=1), *ends)
        return b.add(Squeeze(axes=(0,)), joined)


@op("rnn_var_sl_last_output", exact=True)
class RnnVarSlLastOutput(Operation):
    """The state after the last step of each sequence, given their lengths.

    states [s, d, b, h]; sequence_lens [b] -> [d, b, h].  Errors: ShapeError for other ranks or lengths.
    """

    direction: Literal["forward", "reverse", "bidirectional"] = "forward"

    def infer(self, states: Shape, sequence_lens: Shape) -> Shape:
        _check(states, sequence_lens, 2, 4)
        return states.with_dims(states.dims[1:])

    def compute(self, states: Array, sequence_lens: Array) -> Array:
        return _last(states, sequence_lens, self.direction)


@op("rnn_last_cell_output", exact=True)
class RnnLastCellOutput(Operation):
    """The last cell states of an lstm.

    layer: the result of `lstm` (hidden states, last cells) -> [d, b, h].  Errors: ShapeError for anything else.
    """

    def infer(self, layer: TupleShape) -> Shape:
        if not isinstance(layer, TupleShape) or len(layer.items) != 2 or not isinstance(layer.items[1], Shape):
            raise ShapeError(f"the result of an lstm is required, got {layer}")
        return layer.items[1]

    def compute(self, layer: Value) -> Value:
        return layer[1]

    def normal(self, layer: AnyShape) -> GetTupleElem:
        """Returns the op that takes an item."""
        return GetTupleElem(index=1)  # a tuple that another op reads has no memory


@op("rnn_var_sl_shift_sequence", exact=True)
class RnnVarSlShiftSequence(Operation):
    """Moves sequences to the end of the time axis, after zeros, so that a reverse pass starts at their ends.

    x [s, b, i]; sequence_lens [b] -> [s, b, i].  Errors: ShapeError for other ranks or lengths.
    """

    def infer(self, x: Shape, sequence_lens: Shape) -> Shape:
        _check(x, sequence_lens, 1, 3)
        return x.as_standard()

    def compute(self, x: Array, sequence_lens: Array) -> Array:
        steps, batch, _ = x.shape
        shift = steps - _bounded(sequence_lens, steps)
        at = np.arange(steps)[:, None] - shift[None, :]
        taken = x[np.maximum(at, 0), np.arange(batch)[None, :]]
        return np.where((at >= 0)[..., None], taken, np.zeros((), x.dtype))


@op("rnn_var_sl_shift_output", exact=True)
class RnnVarSlShiftOutput(Operation):
    """Moves the states of shifted sequences back, with zeros after each sequence's end.

    states [s, d, b, h]; sequence_lens [b] -> [s, d, b, h].  A reverse direction read its sequences shifted to the end.
    Errors: ShapeError for other ranks or lengths.
    """

    direction: Literal["forward", "reverse", "bidirectional"] = "forward"

    def infer(self, states: Shape, sequence_lens: Shape) -> Shape:
        _check(states, sequence_lens, 2, 4)
        return states.as_standard()

    def compute(self, states: Array, sequence_lens: Array) -> Array:
        steps, directions, batch, _ = states.shape
        lens = _bounded(sequence_lens, steps)
        times = np.arange(steps)[:, None]
        inside = (times < lens[None, :])[..., None]
        out = np.zeros_like(states)
        for d in range(directions):
            backward = self.direction == "reverse" or d == 1
            at = np.minimum(times + (steps - lens)[None, :], max(steps - 1, 0)) if backward else times
            taken = states[at, d, np.arange(batch)[None, :]]
            out[:, d] = np.where(inside, taken, np.zeros((), states.dtype))
        return out
