"""Recurrent layers, compared with a step-by-step evaluation; final states and the unrolled form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops.activation_table import ACTIVATIONS, activation
from mgx_core.ops.recurrent import Gru, Lstm, Rnn
from mgx_core.ops.recurrent_states import (
    RnnLastHsOutput,
    RnnVarSlLastOutput,
    RnnVarSlShiftOutput,
    RnnVarSlShiftSequence,
)
from mgx_core.rules.engine import Builder
from mgx_core.types.argument import shape_of
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(3)
S, B, I, H = 4, 3, 5, 2
LENS = np.array([4, 1, 3], np.int32)


def rand(*dims: int) -> Any:
    return (RNG.normal(size=dims) * 0.7).astype(np.float32)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def by_hand(
    kind: str, x: Any, w: Any, r: Any, bias: Any, length: int, backward: bool, p: Any = None, linear: bool = False
) -> Any:
    """Returns the hidden states of one sequence [s, i] in one direction, and the last cell state."""
    h, c = np.zeros(H), np.zeros(H)
    wb, rb = np.split(bias.astype(float), 2)
    out = np.zeros((len(x), H))
    for t in reversed(range(length)) if backward else range(length):
        gates, states = w.astype(float) @ x[t] + wb, r.astype(float) @ h + rb
        if kind == "rnn":
            h = np.tanh(gates + states)
        elif kind == "gru":
            z, q = sigmoid(gates[:H] + states[:H]), sigmoid(gates[H : 2 * H] + states[H : 2 * H])
            inner = q * states[2 * H :] if linear else r[2 * H :].astype(float) @ (q * h) + rb[2 * H :]
            h = (1 - z) * np.tanh(gates[2 * H :] + inner) + z * h
        else:
            i, o, f, g = np.split(gates + states, 4)
            pi, po, pf = np.split(p.astype(float), 3)
            c, before = sigmoid(f + pf * c) * c + sigmoid(i + pi * c) * np.tanh(g), c
            assert before.shape == c.shape
            h = sigmoid(o + po * c) * np.tanh(c)
        out[t] = h
    return out, c


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lens", [None, LENS])
@pytest.mark.parametrize("kind", ["rnn", "gru", "gru_linear", "lstm"])
def test_layers(kind: str, lens: Any, direction: Any) -> None:
    cls, gates = {"rnn": (Rnn, 1), "gru": (Gru, 3), "gru_linear": (Gru, 3), "lstm": (Lstm, 4)}[kind]
    d = 2 if direction == "bidirectional" else 1
    x, w, r, bias = rand(S, B, I), rand(d, gates * H, I), rand(d, gates * H, H), rand(d, 2 * gates * H)
    p = rand(d, 3 * H)
    linear = kind == "gru_linear"
    op = cls(hidden_size=H, direction=direction, **({"linear_before_reset": True} if linear else {}))
    operands = [x, w, r, bias, lens, *([None, None, p] if kind == "lstm" else [])]
    shape = op.result([None if v is None else shape_of(v) for v in operands])
    out = op.evaluate(operands)
    hidden, cells = out if kind == "lstm" else (out, None)
    assert hidden.shape == (shape.items[0] if kind == "lstm" else shape).dims == (S, d, B, H)
    for k in range(d):
        for b in range(B):
            length = S if lens is None else int(lens[b])
            backward = direction == "reverse" or k == 1
            states, cell = by_hand(kind.split("_", 1)[0], x[:, b], w[k], r[k], bias[k], length, backward, p[k], linear)
            np.testing.assert_allclose(hidden[:, k, b], states, atol=1e-5)
            if cells is not None:
                np.testing.assert_allclose(cells[k, b], cell, atol=1e-5)
    last = RnnLastHsOutput(direction=direction).evaluate([hidden, lens])
    for b in range(B):
        length = S if lens is None else int(lens[b])
        ends = {"forward": [length - 1], "reverse": [0], "bidirectional": [length - 1, 0]}[direction]
        np.testing.assert_array_equal(last[:, b], np.stack([hidden[t, k, b] for k, t in enumerate(ends)]))


def test_clip_bounds_what_activations_see() -> None:
    x, w, r = np.full((1, 1, 1), 100, np.float32), np.ones((1, 1, 1), np.float32), np.zeros((1, 1, 1), np.float32)
    op = Rnn(hidden_size=1, clip=0.5, actv_func=("relu",))
    assert op.evaluate([x, w, r]).tolist() == [[[[0.5]]]]


def test_activations_with_parameters() -> None:
    x = np.array([-2, -0.5, 0.5, 2], np.float32)
    assert activation("leaky_relu", 0.5)(x).tolist() == [-1, -0.25, 0.5, 2]
    assert activation("thresholded_relu", 1.0)(x).tolist() == [0, 0, 0, 2]
    assert activation("affine", 2.0, 1.0)(x).tolist() == [-3, 0, 2, 5]
    assert activation("hard_sigmoid", 0.5, 0.5)(x).tolist() == [0, 0.25, 0.75, 1]
    np.testing.assert_allclose(activation("softplus")(x), np.log1p(np.exp(x)), rtol=1e-6)
    np.testing.assert_allclose(
        activation("elu", 2.0)(x), [2 * (np.exp(-2) - 1), 2 * (np.exp(-0.5) - 1), 0.5, 2], rtol=1e-6
    )
    with pytest.raises(ParameterError, match="no activation function is called 'swish'"):
        activation("swish")


def decomposed(op: Any, operands: list[Any]) -> tuple[Any, ...]:
    module = Module()
    inputs = [
        module.add_absent() if x is None else module.add_parameter(f"p{i}", shape_of(x)) for i, x in enumerate(operands)
    ]
    whole = module.add(op, *inputs)
    parts = op.decompose(Builder(module, whole), *(None if i.is_absent else i for i in inputs))
    module.add_return([whole, *(parts if isinstance(parts, tuple) else (parts,))])
    return tuple(Interpreter().run(module, [x for x in operands if x is not None]))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_unrolled_layers(name: str) -> None:
    for cls, gates, functions in ((Rnn, 1, 1), (Gru, 3, 2)):
        op = cls(hidden_size=H, direction="bidirectional", clip=0.8, actv_func=(name,) * (2 * functions))
        operands = [
            rand(S, B, I),
            rand(2, gates * H, I),
            rand(2, gates * H, H),
            rand(2, 2 * gates * H),
            LENS,
            rand(2, B, H),
        ]
        one, other = decomposed(op, operands)
        np.testing.assert_allclose(other, one, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("more", [{}, {"clip": 0.8}, {"input_forget": True}], ids=str)
@pytest.mark.parametrize("whole", [False, True])
def test_unrolled_memories(name: str, more: Any, whole: bool) -> None:
    op = Lstm(hidden_size=H, direction="bidirectional", actv_func=("sigmoid", "tanh", name) * 2, **more)
    operands = [rand(S, B, I), rand(2, 4 * H, I), rand(2, 4 * H, H)]
    if whole:
        lens = np.array([4, 0, 3], np.int32)
        operands += [rand(2, 8 * H), lens, rand(2, B, H), rand(2, B, H), rand(2, 3 * H)]
    found = decomposed(op, operands)
    for one, other in zip(found[0], found[1:], strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5)


def test_sequences_of_different_lengths_shift_and_return() -> None:
    x = np.arange(S * B, dtype=np.float32).reshape(S, B, 1)
    shifted = RnnVarSlShiftSequence().evaluate([x, LENS])
    assert shifted[:, 1, 0].tolist() == [0, 0, 0, 1]
    assert shifted[:, 2, 0].tolist() == [0, 2, 5, 8]
    states = shifted.reshape(S, 1, B, 1)
    back = RnnVarSlShiftOutput(direction="reverse").evaluate([states, LENS])
    assert back[:, 0, 2, 0].tolist() == [2, 5, 8, 0]
    forward = RnnVarSlShiftOutput().evaluate([x.reshape(S, 1, B, 1), LENS])
    assert forward[:, 0, 1, 0].tolist() == [1, 0, 0, 0]
    assert RnnVarSlLastOutput().evaluate([x.reshape(S, 1, B, 1), LENS]).reshape(-1).tolist() == [9, 1, 8]
    with pytest.raises(ShapeError, match=r"must lie in 0\.\.4"):
        RnnVarSlShiftSequence().evaluate([x, np.array([5, 1, 1])])


def test_operands_that_do_not_fit() -> None:
    def f(*dims: int) -> Shape:
        return Shape(dt.float32, dims)

    with pytest.raises(ShapeError, match=r"w must have dims \[1, 8, 5\]"):
        Lstm(hidden_size=H).result([f(S, B, I), f(1, 6, I), f(1, 8, H)])
    with pytest.raises(ShapeError, match="sequence_lens must be int32"):
        Rnn(hidden_size=H).result([f(S, B, I), f(1, H, I), f(1, H, H), None, f(B)])
    with pytest.raises(ParameterError, match="actv_func needs 2 names"):
        Gru(hidden_size=H, actv_func=("tanh",))
