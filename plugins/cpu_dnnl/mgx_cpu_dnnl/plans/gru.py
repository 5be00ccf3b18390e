"""GRU and simple recurrent layers: few sequences by loops of our own, others through oneDNN, weights packed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mgx_core import DeviceError, Kernels, Module, No, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.recurrent import Gru, Rnn
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..layout import descriptor
from ..native_library import native
from .offer import offer
from .recurrent import packed_constant
from .recurrent_loop import FEW, emit_gru_loop, emit_rnn_loop

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
ACTIVATIONS: Final = {"tanh": "tanh", "relu": "relu", "sigmoid": "logistic"}  # of simple layers


def plain(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x = inputs[0]
    if not isinstance(x, Shape) or x.dtype is not dt.float32:
        return No(f"a recurrent layer of {x}")
    if 0 in x.dims:
        return No("an extent is 0")
    if len(inputs) > 4 and inputs[4] is not None:
        return No("sequences of different lengths")
    functions = op.actv_func
    if isinstance(op, Gru) and any(f != w for f, w in zip(functions, ("sigmoid", "tanh") * 2, strict=False)):
        return No(f"activations {', '.join(functions)}")
    if isinstance(op, Rnn) and (len(set(functions)) > 1 or any(f not in ACTIVATIONS for f in functions)):
        return No(f"activations {', '.join(functions)}")
    return No("clip") if op.clip else None


@offer(PLANS, Gru, Rnn, when=plain, name="onednn")
def emit_recurrent(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """x [t, b, i], w [d, g h, i], r [d, g h, h], bias [d, 2 g h], first states [d, b, h] -> states [t, d, b, h]."""
    x, w, r, bias, _, first = [*args, *[None] * (6 - len(args))][:6]
    assert x is not None and w is not None and r is not None
    weights = [e.constant(v) for v in (w, r)]
    biases = None if bias is None else e.constant(bias)
    if weights[0] is None or weights[1] is None or (bias is not None and biases is None):
        raise Refused("weights that are not constants")
    x = e.row_major(x)
    if x.lens[1] <= FEW:
        given = weights[0], weights[1], biases, None if first is None else e.row_major(first)
        return emit_gru_loop(e, op, x, *given) if isinstance(op, Gru) else emit_rnn_loop(e, op, x, *given)
    (steps, batch, inside), ways, hidden = x.lens, w.lens[0], op.hidden_size
    layer, recurrent = (_by_gate(a, ways, op.gates, hidden) for a in weights if a is not None)
    summed = e.literal(_biases(op, biases, ways, hidden))
    out = e.allocate(dt.float32, [steps, batch, ways * hidden])
    state = None
    if first is not None:
        first = e.row_major(first)
        state = first.seen_as(0, Shape(dt.float32, [1, *first.lens]))
    last = e.allocate(dt.float32, [1, ways, batch, hidden])
    made = _primitive(op, x, layer, recurrent, summed, out, state, last)
    _native = native()
    bound = {
        _native.ARG_SRC_LAYER: x,
        _native.ARG_WEIGHTS_LAYER: packed_constant(e, layer, made.md(_native.ARG_WEIGHTS_LAYER)),
        _native.ARG_WEIGHTS_ITER: packed_constant(e, recurrent, made.md(_native.ARG_WEIGHTS_ITER)),
        _native.ARG_BIAS: summed,
        _native.ARG_DST_LAYER: out,
        _native.ARG_DST_ITER: last,
    }
    if state is not None:
        bound[_native.ARG_SRC_ITER] = state
    flops = 2 * steps * batch * ways * op.gates * hidden * (inside + hidden)
    e.primitive(f"{op.name} {made.impl}", made, bound, flops, {_native.ARG_DST_LAYER, _native.ARG_DST_ITER})
    width = ways * hidden
    return out.seen_as(0, Shape(dt.float32, [steps, ways, batch, hidden], [batch * width, hidden, width, 1]))


def _primitive(
    op: Any, x: Value, layer: Array, recurrent: Array, bias: Value, out: Value, state: Value | None, last: Value
) -> Any:
    _native = native()
    functions = [ACTIVATIONS[f] for f in op.actv_func[:1]] if isinstance(op, Rnn) else []
    kind = "vanilla_rnn" if isinstance(op, Rnn) else "lbr_gru" if op.linear_before_reset else "gru"
    try:
        return getattr(
            _native, kind
        )(  # that oneDNN calls it a reference means that it is put together from its products
            descriptor(x),
            _native.MemoryDesc(list(layer.shape), "f32", "any"),
            _native.MemoryDesc(list(recurrent.shape), "f32", "any"),
            descriptor(out),
            bias=descriptor(bias),
            src_iter=None if state is None else descriptor(state),
            dst_iter=descriptor(last),
            direction=op.direction,
            **({"activation": functions[0]} if functions else {}),
        )
    except (UnsupportedError, DeviceError) as error:
        raise Refused(f"oneDNN: {error}") from None


def _by_gate(weights: Array, ways: int, gates: int, hidden: int) -> Array:
    """[d, g h, i] as oneDNN's [1, d, i, g, h]; the gates stand in the same order."""
    return np.ascontiguousarray(weights.reshape(ways, gates, hidden, -1).transpose(0, 3, 1, 2))[None]


def _biases(op: Any, bias: Array | None, ways: int, hidden: int) -> Array:
    """[1, d, g, h]; a reset that multiplies the finished product needs that product's own bias besides."""
    apart = isinstance(op, Gru) and op.linear_before_reset
    if bias is None:
        return np.zeros((1, ways, op.gates + apart, hidden), np.float32)
    own, other = np.split(bias.reshape(ways, 2 * op.gates, hidden), 2, axis=1)
    if not apart:
        return np.ascontiguousarray((own + other)[None])
    return np.concatenate([(own + other)[:, :2], own[:, 2:], other[:, 2:]], axis=1)[None]
