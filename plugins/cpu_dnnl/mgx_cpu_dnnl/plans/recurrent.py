"""LSTM layers through oneDNN, weights packed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import DeviceError, Kernels, Module, No, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.recurrent import Lstm
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..layout import descriptor
from ..native_library import native
from .offer import offer
from .recurrent_loop import FEW, emit_lstm_loop

__all__ = ["PLANS", "packed_constant"]

PLANS = Kernels("cpu")

GATES = [0, 2, 3, 1]  # ONNX orders the gates i, o, f, c; oneDNN i, f, c, o


def plain_lstm(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x = inputs[0]
    if not isinstance(x, Shape) or x.dtype is not dt.float32:
        return No(f"an lstm of {x}")
    if len(inputs) > 4 and inputs[4] is not None:
        return No("sequences of different lengths")
    if len(inputs) > 7 and inputs[7] is not None:
        return No("peepholes")
    functions = op.actv_func
    if any(f != wanted for f, wanted in zip(functions, ("sigmoid", "tanh", "tanh") * 2, strict=False)):
        return No(f"activations {', '.join(functions)}")
    if op.clip or op.input_forget:
        return No("clip or input_forget")
    return None


@offer(PLANS, Lstm, when=plain_lstm, name="onednn")
def emit_lstm(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    _native = native()
    x, w, r, bias, _, first_h, first_c = [*args, *[None] * (7 - len(args))][:7]
    assert x is not None and w is not None and r is not None
    steps, batch, inside = x.lens
    ways, hidden = w.lens[0], op.hidden_size
    if 0 in x.lens:
        raise Refused("an extent is 0")
    weights = [e.constant(v) for v in (w, r)]
    biases = None if bias is None else e.constant(bias)
    if weights[0] is None or weights[1] is None or (bias is not None and biases is None):
        raise Refused("weights that are not constants")
    if batch <= FEW:
        states_and_cell = [None if v is None else e.row_major(v) for v in (first_h, first_c)]
        return emit_lstm_loop(e, op, e.row_major(x), weights[0], weights[1], biases, *states_and_cell)
    layer, recurrent = (_regated(a, ways, hidden) for a in weights if a is not None)
    summed = np.zeros((ways, 4 * hidden), np.float32)
    if biases is not None:
        summed = biases[:, : 4 * hidden] + biases[:, 4 * hidden :]
    ordered = np.ascontiguousarray(summed.reshape(1, ways, 4, hidden)[:, :, GATES])
    x = e.row_major(x)
    out = e.allocate(dt.float32, [steps, batch, ways * hidden])
    cell = e.allocate(dt.float32, [1, ways, batch, hidden])
    state = e.allocate(dt.float32, [1, ways, batch, hidden])
    states = [None if v is None else _state(e.row_major(v)) for v in (first_h, first_c)]
    if (states[0] is None) != (states[1] is None):
        zero = e.literal(np.zeros((1, ways, batch, hidden), np.float32))
        states = [zero if s is None else s for s in states]
    bias_value = e.literal(ordered)
    mds = {k: None if v is None else descriptor(v) for k, v in {"src_iter": states[0], "src_iter_c": states[1]}.items()}
    try:
        made = _native.lstm(
            descriptor(x),
            _native.MemoryDesc(list(layer.shape), "f32", "any"),
            _native.MemoryDesc(list(recurrent.shape), "f32", "any"),
            descriptor(out),
            bias=descriptor(bias_value),
            dst_iter=descriptor(state),
            dst_iter_c=descriptor(cell),
            direction=op.direction,
            **mds,
        )
    except (UnsupportedError, DeviceError) as error:
        raise Refused(f"oneDNN: {error}") from None
    if made.is_reference:
        raise Refused("oneDNN has only its reference lstm")
    bound = {
        _native.ARG_SRC_LAYER: x,
        _native.ARG_WEIGHTS_LAYER: packed_constant(e, layer, made.md(_native.ARG_WEIGHTS_LAYER)),
        _native.ARG_WEIGHTS_ITER: packed_constant(e, recurrent, made.md(_native.ARG_WEIGHTS_ITER)),
        _native.ARG_BIAS: bias_value,
        _native.ARG_DST_LAYER: out,
        _native.ARG_DST_ITER: state,
        _native.ARG_DST_ITER_C: cell,
    }
    if states[0] is not None and states[1] is not None:
        bound |= {_native.ARG_SRC_ITER: states[0], _native.ARG_SRC_ITER_C: states[1]}
    outputs = {_native.ARG_DST_LAYER, _native.ARG_DST_ITER, _native.ARG_DST_ITER_C}
    flops = 2 * steps * batch * ways * 4 * hidden * (inside + hidden)
    e.primitive(f"lstm {made.impl}", made, bound, flops, outputs)
    width = ways * hidden
    seen = Shape(dt.float32, [steps, ways, batch, hidden], [batch * width, hidden, width, 1])
    return out.seen_as(0, seen), cell.seen_as(0, Shape(dt.float32, [ways, batch, hidden]))


def _state(value: Value) -> Value:
    return value.seen_as(0, Shape(value.shape.dtype, [1, *value.lens]))


def _regated(weights: Array, ways: int, hidden: int) -> Array:
    """[d, 4 h, i] as oneDNN's [1, d, i, 4, h]."""
    gates = weights.reshape(ways, 4, hidden, -1)[:, GATES]
    return np.ascontiguousarray(gates.transpose(0, 3, 1, 2))[None]


def packed_constant(e: CpuEmitter, array: Array, wanted: Any) -> Value:
    """A constant in the layout that a primitive chose."""
    value = e.literal(array)
    return e.packed(value, descriptor(value), wanted)
