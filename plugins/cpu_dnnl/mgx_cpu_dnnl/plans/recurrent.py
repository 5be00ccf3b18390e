"""LSTM, GRU and simple recurrent layers: native loops for small batches and for what oneDNN does not support, else oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.targets.emitted import Emit
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.dim import compare
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import TracedInt

from ..emitter import CpuEmitter
from .offer import offer
from .recurrent_loop import emit_gru_loop, emit_lstm_loop, emit_rnn_loop, most_sequences
from .recurrent_operands import Operands
from .recurrent_primitive import RNN_ACTIVATIONS, emit_gru_primitive, emit_lstm_primitive

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
DEFAULT_ACTIVATIONS: Final[dict[type, tuple[str, ...]]] = {Lstm: ("sigmoid", "tanh", "tanh"), Gru: ("sigmoid", "tanh")}


def in_loop(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    """Refuses layers that the native loops do not support."""
    x = inputs[0]
    if not isinstance(x, Shape) or x.dtype is not dt.float32:
        return No(f"a float32 input is required, got {x}")
    return No("an extent is 0") if 0 in x.dims else None


def in_primitive(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    """Refuses layers that oneDNN does not support."""
    if (why := in_loop(op, inputs, modules)) is not None:
        return why
    if len(inputs) > 4 and inputs[4] is not None:
        return No("sequence_lens is not supported")
    if len(inputs) > 7 and inputs[7] is not None:
        return No("peepholes are not supported")
    functions = op.actv_func
    if isinstance(op, Rnn):
        known = len(set(functions)) <= 1 and all(f in RNN_ACTIVATIONS for f in functions)
    else:
        known = all(f == usual for f, usual in zip(functions, DEFAULT_ACTIVATIONS[type(op)] * 2, strict=False))
    if not known:
        return No(f"activations {', '.join(functions)} are not supported")
    if op.clip or (isinstance(op, Lstm) and op.input_forget):
        return No("clip and input_forget are not supported")
    return None


def small_batch(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    """Refuses what the native loops do not support, and batches for which oneDNN is faster."""
    why = in_loop(op, inputs, modules)
    if why is None and isinstance(inputs[0], Shape):
        if inputs[0].ranked and type(inputs[0].dims[1]) is TracedInt:
            return None  # oneDNN compiles layers for fixed batches
        most = most_sequences(op)
        if not inputs[0].ranked or not compare(inputs[0].dims[1], "<=", most):
            return No(f"the batch may exceed {most} sequences")
    return why


def operands(e: CpuEmitter, args: Sequence[Value | None]) -> Operands:
    """Returns the operands of a layer."""
    given: list[Value | None] = [*args, *[None] * (8 - len(args))]
    x, w, r, bias, *rest = given
    assert x is not None and w is not None and r is not None
    lengths, state, cell, peepholes = [None if v is None else e.row_major(v) for v in rest]
    return Operands(e.row_major(x), w, r, bias, lengths, state, cell, peepholes)


def _on_operands(emit: Callable[[CpuEmitter, Any, Operands], Results]) -> Emit:
    return lambda e, op, modules, args: emit(e, op, operands(e, args))


for layer, loop, primitive in (
    (Lstm, emit_lstm_loop, emit_lstm_primitive),
    (Gru, emit_gru_loop, emit_gru_primitive),
    (Rnn, emit_rnn_loop, emit_gru_primitive),
):
    offer(PLANS, layer, when=small_batch, name="loop")(_on_operands(loop))
    offer(PLANS, layer, when=in_primitive, name="onednn")(_on_operands(primitive))
    offer(PLANS, layer, when=in_loop, name="loop of any batch")(_on_operands(loop))
