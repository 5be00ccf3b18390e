"""Rewrites recurrent layers with sequence lengths as layers over full sequences with masked ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mgx_core import Instruction, No, TupleShape
from mgx_core import dtype as dt
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.movement import ReverseSequence
from mgx_core.ops.pointwise import Sub
from mgx_core.ops.reshape import Reshape
from mgx_core.ops.slice import Slice
from mgx_core.rules.engine import Builder, Rules

if TYPE_CHECKING:
    from mgx_core.ops.recurrent import Lstm

__all__ = ["SEQUENCE_LENGTHS"]

SEQUENCE_LENGTHS: Final = Rules("sequence-lengths")
LENGTHS: Final = 4  # the operand of a layer
CLOSED: Final = 1e4  # pre-activation that saturates a gate


@SEQUENCE_LENGTHS.on(
    GetTupleElem,
    "mgx_core.ops.recurrent_states:RnnLastCellOutput",
    "mgx_core.ops.recurrent:Gru",
    "mgx_core.ops.recurrent:Rnn",
)
def whole_sequences(i: Instruction, b: Builder) -> Instruction | No | None:
    """A layer with lengths -> one layer without lengths per direction; the backward one reverses the steps before each end.

    If the last cell states are used, an additional input marks the end of a sequence: it opens the gate that keeps the
    state and closes the input gate.
    """
    layer = i.inputs[0] if len(i.inputs) == 1 else i
    op, operands = layer.op, layer.inputs
    if len(operands) <= LENGTHS or operands[LENGTHS].is_absent:
        return None
    from mgx_core.ops.recurrent import Gru, Lstm, Rnn  # most models have no such layers
    from mgx_core.ops.recurrent_states import RnnLastCellOutput

    if not isinstance(op, (Lstm, Gru, Rnn)):
        return None
    if i.shape.dtype is not dt.float32:
        return No(f"only float32 layers are supported, got {i.shape.dtype}")
    cells = isinstance(op, Lstm) and _reads_cells(i)
    if cells and any(not _reads_cells(u) for u in layer.users):
        return No("the hidden states must be rewritten first, so that both use equal layers")
    frozen = False
    if isinstance(op, Lstm):
        frozen = any(_reads_cells(u) for u in layer.users)
        if frozen and (why := _cannot_freeze(op, operands)) is not None:
            return why
    made = [_direction(b, op, operands, direction, frozen) for direction in range(op.directions)]
    parts = (
        [b.add(RnnLastCellOutput(), one) for one in made]
        if cells
        else [_hidden(b, op, operands, *w) for w in enumerate(made)]
    )
    return parts[0] if len(parts) == 1 else b.add(Concat(axis=0 if cells else 1), *parts)


def _reads_cells(user: Instruction) -> bool:
    return not isinstance(user.op, GetTupleElem) or user.op.index > 0


def _cannot_freeze(op: Lstm, operands: Any) -> No | None:
    """Returns why a layer's cells cannot be frozen by an input."""
    if any(not isinstance(n, int) for n in operands[0].shape.dims):
        return No("the extents are symbolic")
    usual = all(name == "sigmoid" for direction in range(op.directions) for name, *_ in op.functions_of(direction)[:1])
    if op.clip or op.input_forget or not usual or any(not v.is_absent for v in operands[LENGTHS + 2 :]):
        return No("one input cannot saturate the gates, or there is an initial state")
    return None


def _is_backward(op: Any, direction: int) -> bool:
    return bool(op.direction == "reverse" or direction == 1)


def _direction(b: Builder, op: Any, operands: Any, direction: int, frozen: bool) -> Instruction:
    """Returns the forward layer of one direction, without lengths."""
    x, w, *rest = operands
    lengths = operands[LENGTHS]
    own = [None if v is lengths or v.is_absent else _part(b, op, v, direction) for v in rest]
    while own and own[-1] is None:
        own.pop()  # instructions without absent operands can be merged
    count = len(op.functions)
    names = ("actv_func", "actv_alpha", "actv_beta")
    numbers = {name: getattr(op, name)[direction * count : (direction + 1) * count] for name in names}
    if _is_backward(op, direction):
        x = b.add(ReverseSequence(time_axis=0, batch_axis=1), x, lengths)
    weights = _part(b, op, w, direction)
    if frozen:
        x, weights = _frozen(b, op, x, weights, lengths)
    one = op.replace(direction="forward", **numbers)
    return b.add(one, x, weights, *(b.absent() if v is None else v for v in own))


def _frozen(
    b: Builder, op: Lstm, x: Instruction, w: Instruction, lengths: Instruction
) -> tuple[Instruction, Instruction]:
    """Returns inputs that are zero after the ends, and weights, with one more input that is 1 after the ends."""
    from mgx_core.ops.recurrent_states import RnnVarSlShiftOutput

    steps, batch, width = x.shape.lens()
    before_end = RnnVarSlShiftOutput(direction="forward")
    kept = b.add(before_end, b.add(Reshape(dims=(steps, 1, batch, width)), x), lengths)
    ones = b.literal(np.ones((steps, 1, batch, 1), np.float32))
    ended = b.add(Sub(), ones, b.add(before_end, ones, lengths))
    known = b.add(Reshape(dims=(steps, batch, width + 1)), b.add(Concat(axis=3), kept, ended))
    gates = np.zeros((1, op.gates, op.hidden_size, 1), np.float32)  # input, output, forget, cell
    gates[:, 0], gates[:, 2] = -CLOSED, CLOSED
    return known, b.add(Concat(axis=2), w, b.literal(gates.reshape(1, -1, 1)))


def _hidden(b: Builder, op: Any, operands: Any, direction: int, made: Instruction) -> Instruction:
    """Returns the hidden states of one direction, zero after the ends."""
    from mgx_core.ops.recurrent_states import RnnVarSlShiftOutput

    lengths = operands[LENGTHS]
    if isinstance(made.result, TupleShape):  # an lstm's, with the cells
        made = b.add(GetTupleElem(index=0), made)
    made = b.add(RnnVarSlShiftOutput(direction="forward"), made, lengths)
    return b.add(ReverseSequence(time_axis=0, batch_axis=2), made, lengths) if _is_backward(op, direction) else made


def _part(b: Builder, op: Any, value: Instruction, direction: int) -> Instruction:
    """Returns one direction's slice of weights or states."""
    return value if op.directions == 1 else b.add(Slice(axes=(0,), starts=(direction,), ends=(direction + 1,)), value)
