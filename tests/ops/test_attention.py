"""All forms of attention, compared with a loop over queries; rotary embeddings and caches."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import No, ParameterError, ShapeError
from mgx_core.ir.interpreter import Interpreter, evaluate_module
from mgx_core.ir.module import Module
from mgx_core.ops.attention import Attention
from mgx_core.ops.flex_attention import FlexAttention
from mgx_core.ops.kv_cache import ConcatPastPresent
from mgx_core.ops.linear_attention import LinearAttention
from mgx_core.ops.pointwise import Add, Mul
from mgx_core.ops.rotary import GqaRotaryEmbedding, RotaryEmbedding
from mgx_core.rules.decomposition import decomposed
from mgx_core.rules.engine import Builder
from mgx_core.types.argument import shape_of
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(11)
B, N, G, S, T, D, E = 2, 4, 2, 3, 5, 6, 7


def rand(*dims: int) -> Any:
    return RNG.normal(size=dims).astype(np.float32)


Q, K, V = rand(B, N, S, D), rand(B, G, T, D), rand(B, G, T, E)


def by_hand(op: Attention, mask: Any = None, lengths: Any = None, offsets: Any = None, sink: Any = None) -> Any:
    out = np.zeros((B, N, S, E))
    full = None if mask is None else np.broadcast_to(mask, (B, N, S, mask.shape[-1]))
    for b, h, i in itertools.product(range(B), range(N), range(S)):
        position = i + (int(op.offset) if offsets is None else int(offsets[b]))
        logits, values = [], []
        for j in range(T):
            closed = (op.causal and j > position) or (lengths is not None and j >= lengths[b])
            closed |= op.left_window_size >= 0 and j < position - op.left_window_size
            closed |= op.right_window_size >= 0 and j > position + op.right_window_size
            score = float(Q[b, h, i] @ K[b, h * G // N, j]) * (D**-0.5 if op.scale is None else op.scale)
            score = op.softcap * np.tanh(score / op.softcap) if op.softcap else score
            if full is not None:
                if j >= full.shape[-1]:
                    closed = True
                elif full.dtype == bool:
                    closed |= not full[b, h, i, j]
                else:
                    score += full[b, h, i, j]
            if not closed:
                logits.append(score)
                values.append(V[b, h * G // N, j])
        if logits:
            weights = np.exp(logits)
            weights /= weights.sum() + (0 if sink is None else np.exp(sink[h]))
            out[b, h, i] = weights @ np.array(values)
    return out


CASES = [
    (Attention(), {}),
    (Attention(causal=True, offset=1), {}),
    (Attention(scale=0.2, softcap=0.7), {"mask": rand(S, T)}),
    (Attention(left_window_size=1, right_window_size=1), {"mask": RNG.random((B, 1, S, T)) > 0.5}),
    (Attention(), {"mask": rand(N, S, T - 2)}),
    (Attention(causal=True), {"lengths": np.array([2, 5]), "offsets": np.array([-1, 2])}),
    (Attention(), {"lengths": np.array([0, 4]), "mask": RNG.random((T,)) > 0.3}),
]


@pytest.mark.parametrize(("op", "extra"), CASES)
def test_attention(op: Attention, extra: Any) -> None:
    operands = [Q, K, V, extra.get("mask"), extra.get("lengths"), extra.get("offsets")]
    shape = op.result([None if x is None else shape_of(x) for x in operands])
    out = op.evaluate(operands)
    assert out.shape == shape.dims == (B, N, S, E)
    np.testing.assert_allclose(out, by_hand(op, **extra), atol=1e-5)


@pytest.mark.parametrize(("op", "extra"), CASES)
@pytest.mark.parametrize("stage", ["output", "scores", "capped", "masked", "probabilities"])
def test_parts_mean_the_same(op: Attention, extra: Any, stage: str) -> None:
    op = op.replace(result_of=stage)  # type: ignore[assignment]
    operands = [Q, K, V, extra.get("mask"), extra.get("lengths"), extra.get("offsets")]
    module = Module()
    inputs = [
        module.add_absent() if x is None else module.add_parameter(f"p{i}", shape_of(x)) for i, x in enumerate(operands)
    ]
    whole = module.add(op, *inputs)
    parts = op.decompose(Builder(module, whole), *(None if i.is_absent else i for i in inputs))
    module.add_return([whole, parts])
    one, other = Interpreter().run(module, [x for x in operands if x is not None])
    np.testing.assert_allclose(other, one, atol=1e-5)


@pytest.mark.parametrize(("of", "values"), [("float16", "float32"), ("float32", "float16"), ("float16", "bfloat16")])
@pytest.mark.parametrize("op", [Attention(), FlexAttention()])
def test_parts_of_values_of_another_type_have_the_type_of_the_queries(op: Any, of: str, values: str) -> None:
    arrays = [Q.astype(dt.of(of).numpy), K.astype(dt.of(of).numpy), V.astype(dt.of(values).numpy)]
    made = decomposed(op, [shape_of(x) for x in arrays])
    assert not isinstance(made, No)
    (out,) = (np.asarray(x) for x in evaluate_module(made, arrays))
    assert out.dtype == dt.of(of).numpy
    np.testing.assert_allclose(out, op.evaluate(arrays), atol=2e-6 if of == "float32" else 2e-3)


def test_sink_takes_its_share() -> None:
    sink = np.array([0, 1, -1, 2], np.float32)
    out = Attention().evaluate([Q, K, V, None, None, None, sink])
    np.testing.assert_allclose(out, by_hand(Attention(), sink=sink), atol=1e-5)


def test_closed_rows_are_zero_and_infinite_values_do_not_leak() -> None:
    v = V.copy()
    v[:, :, -1] = np.inf
    mask = np.zeros((S, T), np.float32)
    mask[:, -1] = -np.inf
    mask[0] = -np.inf
    out = Attention().evaluate([Q, K, v, mask])
    assert np.isfinite(out).all()
    assert not out[:, :, 0].any()
    weights = Attention(result_of="probabilities").evaluate([Q, K, v, mask])
    np.testing.assert_allclose(weights.sum(-1), np.broadcast_to([0, 1, 1], (B, N, S)), atol=1e-6)


def test_a_row_of_nan_scores_does_not_open_closed_keys_for_others() -> None:
    q, k, v = rand(1, 2, 3, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4)
    lengths = np.asarray([4])
    finite = Attention().compute(q, k, v, None, lengths)
    k[:, :, 4], v[:, :, 4] = np.nan, np.inf  # after the length
    q[0, 1, 2, 0] = np.nan
    with np.errstate(invalid="ignore"):
        got = Attention().compute(q, k, v, None, lengths)
    finite[0, 1, 2] = np.nan
    np.testing.assert_allclose(got, finite, rtol=1e-6)


def test_narrow_floats_keep_their_type() -> None:
    half = [x.astype(np.float16) for x in (Q, K, V)]
    out = Attention(causal=True).evaluate(half)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out.astype(np.float32), by_hand(Attention(causal=True)), atol=5e-3)


def test_operands_that_do_not_fit() -> None:
    def f(*dims: Any) -> Shape:
        return Shape.of(dt.float32, dims)

    with pytest.raises(ShapeError, match="must be a multiple of the 3 heads"):
        Attention().result([f(1, 4, 3, 2), f(1, 3, 3, 2), f(1, 3, 3, 2)])
    with pytest.raises(ShapeError, match="head size of q and k"):
        Attention().result([f(1, 4, 3, 2), f(1, 4, 3, 3), f(1, 4, 3, 2)])
    with pytest.raises(ShapeError, match="does not broadcast"):
        Attention().result([f(1, 4, 3, 2), f(1, 4, 3, 2), f(1, 4, 3, 2), f(2, 3)])
    with pytest.raises(ParameterError, match="at least -1"):
        Attention(left_window_size=-2)
    t = symbol("t", 1, 64)
    out = Attention().result([f(1, 4, t, 8), f(1, 2, t, 8), f(1, 2, t, 8)])
    assert out.dims == (1, 4, t, 8)


def test_flex_attention_runs_its_modules() -> None:
    scores = Shape(dt.float32, [B, N, S, T])
    shift, double = Module("shift"), Module("double")
    x = shift.add_parameter("x", scores)
    bias = rand(B, N, S, T)
    shift.add_return([shift.add(Add(), x, shift.add_literal(bias))])
    y = double.add_parameter("y", scores)
    double.add_return([double.add(Mul(), y, double.add_literal(np.full((B, N, S, T), 2, np.float32)))])
    op = FlexAttention(score_mod=True, prob_mod=True)
    module = Module()
    inputs = [module.add_parameter(f"p{i}", shape_of(v)) for i, v in enumerate((Q, K, V))]
    whole = module.add(op, *inputs, modules=[shift, double])
    parts = op.decompose(Builder(module, whole), *inputs)
    module.add_return([whole, parts])
    one, other = Interpreter().run(module, [Q, K, V])
    np.testing.assert_allclose(one, 2 * by_hand(Attention(), mask=bias), atol=1e-5)
    np.testing.assert_allclose(other, one, atol=1e-5)
    with pytest.raises(ShapeError, match="2 modules are required"):
        op.result([shape_of(v) for v in (Q, K, V)])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding_turns_pairs(interleaved: bool) -> None:
    angles = RNG.uniform(0, 6, (9, 2)).astype(np.float32)
    x, positions = rand(1, 1, 3, 6), np.array([[4, 0, 7]])
    op = RotaryEmbedding(interleaved=interleaved)
    out = op.evaluate([x, np.cos(angles), np.sin(angles), positions])
    pairs = [(0, 1), (2, 3)] if interleaved else [(0, 2), (1, 3)]
    for i, p in enumerate(positions[0]):
        for k, (a, b) in enumerate(pairs):
            turned = (x[0, 0, i, a] + 1j * x[0, 0, i, b]) * np.exp(1j * angles[p, k])
            np.testing.assert_allclose(out[0, 0, i, [a, b]], [turned.real, turned.imag], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(out[..., 4:], x[..., 4:])
    with pytest.raises(ShapeError, match=r"positions must lie in 0\.\.8"):
        op.evaluate([x, np.cos(angles), np.sin(angles), np.array([[0, 1, 9]])])
    run = op.evaluate([x, np.cos(angles), np.sin(angles), np.array([2])])
    np.testing.assert_array_equal(run, op.evaluate([x, np.cos(angles), np.sin(angles), np.array([[2, 3, 4]])]))


def test_gqa_rotary_embedding_knows_its_positions() -> None:
    angles = RNG.uniform(0, 6, (9, 3)).astype(np.float32)
    caches = [np.cos(angles), np.sin(angles)]
    x = rand(2, 2, 2, 6)
    out = GqaRotaryEmbedding().evaluate([x, np.array([6, 1], np.int32), *caches])
    wanted = RotaryEmbedding().evaluate([x, *caches, np.array([[5, 6], [0, 1]])])
    np.testing.assert_array_equal(out, wanted)


def test_caches_grow_in_place() -> None:
    past = np.zeros((2, 1, 4, 1), np.float32)
    past[:, :, :2] = 5
    new = np.array([[[[1], [2]]], [[[3], [4]]]], np.float32)
    out = ConcatPastPresent().evaluate([new, np.array([3, 1]), past])
    assert out[:, 0, :, 0].tolist() == [[5, 5, 1, 2], [3, 4, 0, 0]]
    grown = ConcatPastPresent(length=6).evaluate([new, np.array([5, 3]), past])
    assert grown.shape == (2, 1, 6, 1)
    with pytest.raises(ShapeError, match="the cache holds 4"):
        ConcatPastPresent().evaluate([new, np.array([4, 1]), past])
    with pytest.raises(ShapeError, match="a sample has 100 tokens, the cache holds 6"):
        ConcatPastPresent(length=6).evaluate([new, np.array([99, 1]), past])


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: Any) -> None:
    b, t, h, g, k, v = 2, 4, 4, 2, 3, 5
    q, key, value = rand(b, t, h * k), rand(b, t, g * k), rand(b, t, g * v)
    decay = rand(b, t, g * k) if "gated" in rule else None
    beta = np.abs(rand(b, t, g)) if "delta" in rule else None
    past = rand(b, g, k, v)
    op = LinearAttention(q_num_heads=h, kv_num_heads=g, update_rule=rule)
    operands = [q, key, value, past, decay, beta]
    shapes = op.result([None if x is None else shape_of(x) for x in operands])
    out, state = op.evaluate(operands)
    assert (out.shape, state.shape) == tuple(s.dims for s in shapes.items)  # type: ignore[union-attr]
    for n, j in itertools.product(range(b), range(g)):
        now = past[n, j].astype(float)
        for i in range(t):
            kt, vt = key[n, i].reshape(g, k)[j], value[n, i].reshape(g, v)[j]
            if decay is not None:
                now = np.exp(decay[n, i].reshape(g, k)[j])[:, None] * now
            now = now + np.outer(kt, vt if beta is None else beta[n, i, j] * (vt - now.T @ kt))
            for group in range(h // g):
                head = j * (h // g) + group
                wanted = now.T @ q[n, i].reshape(h, k)[head] / np.sqrt(k)
                np.testing.assert_allclose(out[n, i].reshape(h, v)[head], wanted, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(state[n, j], now, rtol=1e-3, atol=1e-4)
    with pytest.raises(ShapeError, match="decay"):
        op.result([*map(shape_of, (q, key, value)), None, shape_of(rand(b, t, g)) if decay is None else None, None])


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize(("steps", "past"), [(1, True), (3, True), (2, False)])
def test_decomposition_of_linear_attention(rule: Any, per_key: bool, steps: int, past: bool) -> None:
    b, h, g, k, v = 2, 4, 2, 3, 5
    operands = [
        rand(b, steps, h * k),
        rand(b, steps, g * k),
        rand(b, steps, g * v),
        rand(b, g, k, v) if past else None,
        rand(b, steps, g * k if per_key else g) if "gated" in rule else None,
        np.abs(rand(b, steps, 1 if per_key else g)) if "delta" in rule else None,
    ]
    op = LinearAttention(q_num_heads=h, kv_num_heads=g, update_rule=rule)
    made = decomposed(op, [None if x is None else shape_of(x) for x in operands])
    assert isinstance(made, Module)
    found = evaluate_module(made, [x for x in operands if x is not None])
    for one, other in zip(found, op.evaluate(operands), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-4, atol=1e-5)


def test_many_steps_of_linear_attention_are_not_unrolled() -> None:
    op = LinearAttention(q_num_heads=1, kv_num_heads=1, update_rule="linear")
    x = shape_of(rand(1, 5, 4))
    assert isinstance(decomposed(op, [x, x, x]), No)
