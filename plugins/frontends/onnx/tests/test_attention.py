"""The ONNX operators Attention and RotaryEmbedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(23)
B, N, G, S, T, D = 2, 4, 2, 3, 5, 8


def rand(*dims: int) -> Any:
    return RNG.normal(size=dims).astype(np.float32)


def test_attention_forms(agree: Any) -> None:
    q, k, v = rand(B, N, S, D), rand(B, G, T, D), rand(B, G, T, D)
    agree("Attention", q, k, v, opset=23)
    agree("Attention", q, k, v, rand(S, T), opset=23, softcap=0.8, scale=0.3)
    agree("Attention", q, k, v, RNG.random((B, 1, S, T)) > 0.3, opset=23)
    flat = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(B, x.shape[2], -1) for x in (q, k, v)]
    agree("Attention", *flat, opset=23, q_num_heads=N, kv_num_heads=G, is_causal=0)


def test_past_and_present(agree: Any) -> None:
    q, k, v = rand(B, N, S, D), rand(B, G, S, D), rand(B, G, S, D)
    past = rand(B, G, 2, D), rand(B, G, 2, D)
    out = agree("Attention", q, k, v, rand(S, S + 2), *past, opset=23, outputs=3)
    np.testing.assert_array_equal(out[1], np.concatenate((past[0], k), 2))


def test_stages_of_the_scores(run: Any) -> None:
    q, k, v = rand(1, 1, S, D), rand(1, 1, T, D), rand(1, 1, T, D)
    mask = np.where(np.arange(T) < 4, 0, -np.inf).astype(np.float32)
    raw = q @ k.swapaxes(-1, -2) / np.sqrt(D)
    capped = 0.5 * np.tanh(raw / 0.5)
    weights = np.exp(capped + mask) / np.exp(capped + mask).sum(-1, keepdims=True)
    for mode, wanted in enumerate((raw, capped, capped + mask, weights)):
        *_, found = run("Attention", q, k, v, mask[None], opset=23, outputs=4, softcap=0.5, qk_matmul_output_mode=mode)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_padded_caches_and_windows(run: Any) -> None:
    q, k, v = rand(B, 1, S, D), rand(B, 1, T, D), rand(B, 1, T, D)
    lengths = np.array([3, 5])
    (y,) = run("Attention", q, k, v, None, None, None, lengths, opset=25, is_causal=1, left_window_size=1)
    for b in range(B):
        for i in range(S):
            p = int(lengths[b]) - S + i
            keys = slice(max(p - 1, 0), p + 1)
            weights = np.exp(q[b, 0, i] @ k[b, 0, keys].T / np.sqrt(D))
            np.testing.assert_allclose(y[b, 0, i], weights / weights.sum() @ v[b, 0, keys], rtol=1e-4, atol=1e-5)


def test_errors_of_invalid_input(run: Any) -> None:
    q, k = rand(B, S, D), rand(B, T, D)
    with pytest.raises(MgxError, match="'q_num_heads' is required"):
        run("Attention", q, k, k, opset=23)
    with pytest.raises(MgxError, match="not a multiple of the 3 heads"):
        run("Attention", q, k, k, opset=23, q_num_heads=3, kv_num_heads=3)
    four = rand(B, N, S, D)
    with pytest.raises(MgxError, match="given together"):
        run("Attention", four, four, four, None, four, opset=23)


def test_rotary_embedding(agree: Any) -> None:
    positions = RNG.integers(0, 9, (B, S))
    for interleaved in (0, 1):
        agree("RotaryEmbedding", rand(B, N, S, D), rand(9, 4), rand(9, 4), positions, opset=23, interleaved=interleaved)
        agree("RotaryEmbedding", rand(B, S, N * D), rand(B, S, 4), rand(B, S, 4), opset=23, num_heads=N)
        agree("RotaryEmbedding", rand(B, N, S, D), rand(9, 2), rand(9, 2), positions, opset=23, rotary_embedding_dim=4)


def test_causal_conv_with_state(run: Any) -> None:
    x, w, bias, past = rand(B, 3, 6), rand(3, 1, 4), rand(3), rand(B, 3, 3)
    y, state = run("CausalConvWithState", x, w, bias, past, opset=27, outputs=2, activation="silu")
    whole = np.concatenate((past, x), 2)
    plain = sum(whole[:, :, j : j + 6] * w[:, 0, j, None] for j in range(4)) + bias[:, None]
    np.testing.assert_allclose(y, plain / (1 + np.exp(-plain)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(state, whole[:, :, -3:])
