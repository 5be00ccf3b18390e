"""Recurrent layers with states that persist between runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node

GATES = 4  # input, forget, cell, output, in the file's order


def _steps(n: Node, x: Instruction, time_major: bool) -> tuple[Instruction, Any, Any]:
    """Returns x as [time, batch, features], with its numbers of steps and rows."""
    if x.shape.rank == 2:
        x = n.unsqueeze(x, [0 if time_major else 1])
    if not time_major:
        x = n.transpose(x, (1, 0, 2))
    return x, x.shape.dims[0], x.shape.dims[1]


def _state(n: Node, place: int, value: Instruction | None = None) -> Instruction:
    index = n.operator.inputs[place]
    key = n.scope.variable(index)
    if value is not None:
        said = n.scope.tensor(index)
        n.scope.set_state(key, n.quantized(value, said))
        return value
    return n.dequantized(n.scope.raw(index), n.scope.tensor(index))


@converts("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(n: Node, x: Instruction, *weights: Instruction | None) -> Instruction:
    given: dict[int, Instruction | None] = {0: x, **{k + 1: w for k, w in enumerate(weights)}}
    if any(given.get(k) is not None for k in (9, 10, 11)):
        n.unsupported("peephole connections")
    if any(given.get(k) is not None for k in (20, 21, 22, 23)):
        n.unsupported("layer normalization inside an LSTM")
    if given.get(16) is not None:
        n.unsupported("a projection inside an LSTM")
    if given.get(1) is None or given.get(5) is None:
        n.unsupported("coupled input and forget gates")
    time_major = bool(n.option("TimeMajor", False))
    steps, count, _ = _steps(n, x, time_major)
    if not isinstance(count, int):
        n.unsupported("a number of steps that is known only at run time")
    order = (0, 1, 2, 3)  # input, forget, cell, output

    def joined(first: int) -> Instruction:
        parts = [given[first + k] for k in order]
        if any(p is None for p in parts):
            n.fail("weights are required for all four gates")
        return n.add("concat", *parts, axis=0)

    w, r, b = joined(1), joined(5), joined(12)
    units = r.shape.dims[1]
    hidden, cell = _state(n, 18), _state(n, 19)
    clip = float(n.option("CellClip", 0.0))
    activation = {0: None, 1: "relu", 4: "tanh"}.get(n.option("FusedActivationFunction", 4), "tanh")
    outputs = []
    for t in range(count):
        now = n.squeeze(n.slice(steps, [0], [t], [t + 1]), [0])
        total = n.add("dot", now, n.transpose(w, (1, 0)))
        total = n.pointwise("add", total, n.add("dot", hidden, n.transpose(r, (1, 0))))
        total = n.pointwise("add", total, b)
        i, f, g, o = (n.slice(total, [1], [units * k], [units * (k + 1)]) for k in range(GATES))
        i, f, o = (n.pointwise("sigmoid", v) for v in (i, f, o))
        g = n.pointwise(activation, g) if activation else g
        cell = n.pointwise("add", n.pointwise("mul", f, cell), n.pointwise("mul", i, g))
        if clip > 0:
            cell = n.pointwise("clip", cell, n.literal(np.float32(-clip)), n.literal(np.float32(clip)))
        hidden = n.pointwise("mul", o, n.pointwise(activation, cell) if activation else cell)
        outputs.append(hidden)
    _state(n, 18, hidden)
    _state(n, 19, cell)
    axis = 0 if time_major else 1
    return n.concat([n.unsqueeze(h, [axis]) for h in outputs], axis)


@converts("UNIDIRECTIONAL_SEQUENCE_RNN", "RNN")
def rnn(n: Node, x: Instruction, w: Instruction, r: Instruction, b: Instruction, state: Instruction) -> Instruction:
    time_major = n.op_type == "RNN" or bool(n.option("TimeMajor", False))
    steps, count, _ = _steps(n, x, time_major)
    if not isinstance(count, int):
        n.unsupported("a number of steps that is known only at run time")
    hidden, outputs = state, []
    for t in range(count):
        now = n.squeeze(n.slice(steps, [0], [t], [t + 1]), [0])
        total = n.pointwise(
            "add", n.add("dot", now, n.transpose(w, (1, 0))), n.add("dot", hidden, n.transpose(r, (1, 0)))
        )
        hidden = n.activated(n.pointwise("add", total, b))
        outputs.append(hidden)
    _state(n, 4, hidden)
    if n.op_type == "RNN":
        return hidden
    axis = 0 if time_major else 1
    return n.concat([n.unsqueeze(h, [axis]) for h in outputs], axis)


@converts("SVDF")
def svdf(
    n: Node, x: Instruction, features: Instruction, time: Instruction, bias: Instruction | None, state: Instruction
) -> Instruction:
    rank = n.option("Rank", 1)
    filters, memory = time.shape.dims
    if not isinstance(filters, int) or not isinstance(memory, int):
        n.unsupported("filters of unknown extents")
    batch = x.shape.dims[0]
    now = n.add("dot", x, n.transpose(features, (1, 0)))
    held = n.reshape(state, (batch, filters, memory))
    moved = n.concat([n.slice(held, [2], [1], [memory]), n.unsqueeze(now, [2])], 2)
    total = n.squeeze(n.add("reduce_sum", n.pointwise("mul", moved, time), axes=(2,)), [2])
    total = n.reshape(total, (batch, filters // rank, rank))
    total = n.squeeze(n.add("reduce_sum", total, axes=(2,)), [2])
    _state(n, 4, n.reshape(moved, state.shape.dims))
    return n.activated(total if bias is None else n.pointwise("add", total, bias))


@converts("RFFT2D")
def rfft2d(n: Node, x: Instruction, length: Instruction) -> Instruction:
    height, width = n.whole(length, "the length of the transform")
    rank = x.shape.rank
    fits = [(height, rank - 2), (width, rank - 1)]
    for size, axis in fits:
        have = x.shape.dims[axis]
        if not isinstance(have, int):
            n.unsupported("a transform along an axis of unknown extent")
        if have > size:
            x = n.slice(x, [axis], [0], [size])
        elif have < size:
            x = n.padded(x, [(0, size - have if a == axis else 0) for a in range(rank)])
    made = n.add("dft", n.unsqueeze(x, [rank]), axis=rank - 1, onesided=True)
    return n.add("dft", made, axis=rank - 2)


@converts("REAL", "IMAG", "COMPLEX_ABS")
def part(n: Node, x: Instruction) -> Instruction:
    axis = x.shape.rank - 1
    real, imag = (n.squeeze(n.slice(x, [axis], [k], [k + 1]), [axis]) for k in range(2))
    if n.op_type != "COMPLEX_ABS":
        return real if n.op_type == "REAL" else imag
    total = n.pointwise("add", n.pointwise("mul", real, real), n.pointwise("mul", imag, imag))
    return n.convert(n.pointwise("sqrt", total), dt.float32)
