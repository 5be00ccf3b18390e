"""Long short-term memories unrolled into matrix products and pointwise ops, where their results are read."""

from __future__ import annotations

from ..ir.instruction import Instruction
from ..kernel import No
from ..ops.control import GetTupleElem
from ..ops.recurrent import Lstm
from ..ops.recurrent_parts import MOST_STEPS, lstm_parts
from ..ops.recurrent_states import RnnLastCellOutput
from ..rewrite import Builder, Rules

__all__ = ["rewrite_rnn"]

rewrite_rnn = Rules("rewrite-rnn")


@rewrite_rnn.on(GetTupleElem, RnnLastCellOutput)
def unroll_lstm(i: Instruction, b: Builder) -> Instruction | No | None:
    """an item of lstm(x, ..) -> the same from one step after the other."""
    layer = i.inputs[0]
    if not isinstance(layer.op, Lstm):
        return None
    made = lstm_parts(layer.op, b, *(None if x.is_absent else x for x in layer.inputs))  # type: ignore[arg-type]
    if made is None:
        return No(f"the lstm has open extents or more than {MOST_STEPS} steps")
    return made[i.op.index if isinstance(i.op, GetTupleElem) else 1]  # type: ignore[attr-defined,unused-ignore]
