"""Recurrent layers through oneDNN."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from mgx_core import DeviceError, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array

from ..emitter import CpuEmitter
from ..layout import descriptor
from ..native_library import native
from .recurrent_operands import Operands

__all__ = ["RNN_ACTIVATIONS", "emit_gru_primitive", "emit_lstm_primitive"]

ORDER: Final = [0, 2, 3, 1]  # of LSTM gates: i, o, f, c in ONNX; i, f, c, o in oneDNN
RNN_ACTIVATIONS: Final = {"tanh": "tanh", "relu": "relu", "sigmoid": "logistic"}  # ONNX name -> oneDNN name


class _Layer:
    """Emits a layer as one oneDNN primitive: `make` creates it, `emit` packs weights and adds the step."""

    def __init__(self, e: CpuEmitter, op: Any, given: Operands, order: list[int], biases: Array) -> None:
        """Reorders the weights by gate and allocates the result; biases: [1, d, biases per unit, h] in oneDNN's order.

        Errors: Refused unless the weights are constant.
        """
        self.e, self.op, self.given = e, op, given
        self.steps, self.batch, self.inside = given.x.lens
        self.directions, self.hidden = given.directions, op.hidden_size
        self.weights = [
            _by_gate(_constant(e, v), self.directions, op.gates, self.hidden, order) for v in (given.w, given.r)
        ]
        self.bias = e.literal(np.ascontiguousarray(biases))
        self.out = e.allocate(dt.float32, [self.steps, self.batch, self.directions * self.hidden])

    def states(self) -> Value:
        return self.e.allocate(dt.float32, [1, self.directions, self.batch, self.hidden])

    def zeros(self) -> Value:
        return self.e.literal(np.zeros((1, self.directions, self.batch, self.hidden), np.float32))

    def make(self, kind: Any, **more: Any) -> Any:
        """Creates a primitive that chooses its weights' layout; more: optional operands and attributes.  Errors: Refused."""
        _native = native()
        weights = [_native.MemoryDesc(list(w.shape), "f32", "any") for w in self.weights]
        mds = {k: descriptor(v) if isinstance(v, Value) else v for k, v in more.items() if v is not None}
        try:
            return kind(
                descriptor(self.given.x),
                *weights,
                descriptor(self.out),
                bias=descriptor(self.bias),
                direction=self.op.direction,
                **mds,
            )
        except (UnsupportedError, DeviceError) as error:
            raise Refused(f"oneDNN: {error}") from None

    def emit(self, made: Any, read: dict[int, Value | None], written: dict[int, Value]) -> Value:
        """Emits the step; returns states [t, d, b, h].

        read, written: optional operands and results by argument index.
        """
        _native = native()
        arguments = (_native.ARG_WEIGHTS_LAYER, _native.ARG_WEIGHTS_ITER)
        packed = {n: _pack(self.e, w, made.md(n)) for n, w in zip(arguments, self.weights, strict=True)}
        written = written | {_native.ARG_DST_LAYER: self.out}
        bound = {_native.ARG_SRC_LAYER: self.given.x, **packed, _native.ARG_BIAS: self.bias, **written}
        bound |= {n: v for n, v in read.items() if v is not None}
        flops = (
            2 * self.steps * self.batch * self.directions * self.op.gates * self.hidden * (self.inside + self.hidden)
        )
        self.e.primitive(f"{self.op.name} {made.impl}", made, bound, flops, set(written))
        width = self.directions * self.hidden
        strides = [self.batch * width, self.hidden, width, 1]
        return self.out.view_at(0, Shape(dt.float32, [self.steps, self.directions, self.batch, self.hidden], strides))


def emit_lstm_primitive(e: CpuEmitter, op: Lstm, given: Operands) -> Results:
    """Returns states [t, d, b, h] and last cells [d, b, h]."""
    own, other = _biases(e, op, given)
    layer = _Layer(e, op, given, ORDER, (own + other)[:, :, ORDER])
    _native = native()
    first, cell = _with_layer_axis(given.state), _with_layer_axis(given.cell)
    if (first is None) != (cell is None):
        first, cell = first or layer.zeros(), cell or layer.zeros()
    state, last = layer.states(), layer.states()
    made = layer.make(_native.lstm, src_iter=first, src_iter_c=cell, dst_iter=state, dst_iter_c=last)
    if made.is_reference:
        raise Refused("oneDNN has only a reference implementation of this LSTM")
    read = {_native.ARG_SRC_ITER: first, _native.ARG_SRC_ITER_C: cell}
    out = layer.emit(made, read, {_native.ARG_DST_ITER: state, _native.ARG_DST_ITER_C: last})
    return out, last.view_at(0, Shape(dt.float32, [layer.directions, layer.batch, layer.hidden]))


def emit_gru_primitive(e: CpuEmitter, op: Gru | Rnn, given: Operands) -> Results:
    """Returns states [t, d, b, h].

    Primitives that oneDNN reports as reference are accepted here: they are composed of its matrix products.
    Errors: Refused for relu without fast_math.
    """
    own, other = _biases(e, op, given)
    biases: Array = own + other
    _native = native()
    more = {}
    if isinstance(op, Rnn):
        activation = RNN_ACTIVATIONS[(op.actv_func or op.functions)[0]]
        if activation == "relu" and not e.fast_math:
            raise Refused("oneDNN's relu does not preserve NaN, which requires fast_math")
        kind, more = _native.vanilla_rnn, {"activation": activation}
    elif op.linear_before_reset:  # gate n has a separate recurrent bias
        kind = _native.lbr_gru
        biases = np.concatenate([biases[:, :, :2], own[:, :, 2:], other[:, :, 2:]], axis=2)
    else:
        kind = _native.gru
    layer = _Layer(e, op, given, list(range(op.gates)), biases)
    first, state = _with_layer_axis(given.state), layer.states()
    made = layer.make(kind, src_iter=first, dst_iter=state, **more)
    return layer.emit(made, {_native.ARG_SRC_ITER: first}, {_native.ARG_DST_ITER: state})


def _with_layer_axis(value: Value | None) -> Value | None:
    """Returns states with oneDNN's leading layer axis."""
    return None if value is None else value.view_at(0, Shape(value.shape.dtype, [1, *value.lens]))


def _constant(e: CpuEmitter, value: Value) -> Array:
    """Returns the elements of a constant.  Errors: Refused for other operands."""
    found = e.constant(value)
    if found is None:
        raise Refused("the weights are not constant")
    return found


def _biases(e: CpuEmitter, op: Any, given: Operands) -> Array:
    """Returns the biases of inputs and of states, each [1, d, g, h].  Errors: Refused unless they are constant."""
    if given.bias is None:
        return np.zeros((2, 1, given.directions, op.gates, op.hidden_size), np.float32)
    halves = _constant(e, given.bias).reshape(given.directions, 2, op.gates, op.hidden_size)
    return halves.swapaxes(0, 1)[:, None]


def _by_gate(weights: Array, directions: int, gates: int, hidden: int, order: list[int]) -> Array:
    """Returns weights [d, g h, i] as oneDNN's [1, d, i, g, h], gates in `order`."""
    return np.ascontiguousarray(weights.reshape(directions, gates, hidden, -1)[:, order].transpose(0, 3, 1, 2))[None]


def _pack(e: CpuEmitter, array: Array, wanted: Any) -> Value:
    """Returns a constant in the layout that a primitive chose (`wanted`)."""
    value = e.literal(array)
    return e.packed(value, descriptor(value), wanted)
