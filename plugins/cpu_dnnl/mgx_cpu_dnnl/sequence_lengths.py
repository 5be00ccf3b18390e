"""Recurrent layers over sequences of different lengths, as layers over whole ones: what comes after an end becomes zeros."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import Instruction, No
from mgx_core import dtype as dt
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.movement import ReverseSequence
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.ops.recurrent_states import RnnVarSlShiftOutput
from mgx_core.ops.slice import Slice
from mgx_core.rules.engine import Builder, Rules

__all__ = ["SEQUENCE_LENGTHS"]

SEQUENCE_LENGTHS: Final = Rules("sequence-lengths")
LENGTHS: Final = 4  # the operand of a layer


@SEQUENCE_LENGTHS.on(GetTupleElem, Gru, Rnn)
def whole_sequences(i: Instruction, b: Builder) -> Instruction | No | None:
    """A layer with lengths -> layers without, of one direction each; backwards the steps before an end are turned around."""
    layer = i.inputs[0] if isinstance(i.op, GetTupleElem) else i
    op, operands = layer.op, layer.inputs
    if not isinstance(op, (Lstm, Gru, Rnn)) or len(operands) <= LENGTHS or operands[LENGTHS].is_absent:
        return None
    if isinstance(op, Lstm) and any(not isinstance(u.op, GetTupleElem) or u.op.index for u in layer.users):
        return No("last states of cells are wanted, which lie at the ends of the sequences")
    if i.shape.dtype is not dt.float32:
        return No(f"a layer of {i.shape.dtype}")
    made = [_way(b, op, operands, way) for way in range(op.directions)]
    return made[0] if len(made) == 1 else b.add(Concat(axis=1), *made)


def _way(b: Builder, op: Any, operands: Any, way: int) -> Instruction:
    """Returns the hidden states of one direction."""
    backward = op.direction == "reverse" or way == 1
    x, *weights = operands
    lengths = operands[LENGTHS]
    own = [None if v is lengths or v.is_absent else _part(b, op, v, way) for v in weights]
    count = len(op.functions)
    numbers = {
        name: getattr(op, name)[way * count : (way + 1) * count] for name in ("actv_func", "actv_alpha", "actv_beta")
    }
    if backward:
        x = b.add(ReverseSequence(time_axis=0, batch_axis=1), x, lengths)
    one = op.replace(direction="forward", **numbers)
    made = b.add(one, x, *(b.absent() if v is None else v for v in own))
    if isinstance(op, Lstm):
        made = b.add(GetTupleElem(index=0), made)
    made = b.add(RnnVarSlShiftOutput(direction="forward"), made, lengths)
    return b.add(ReverseSequence(time_axis=0, batch_axis=2), made, lengths) if backward else made


def _part(b: Builder, op: Any, value: Instruction, way: int) -> Instruction:
    """Returns a direction's part of weights or states."""
    return value if op.directions == 1 else b.add(Slice(axes=(0,), starts=(way,), ends=(way + 1,)), value)
