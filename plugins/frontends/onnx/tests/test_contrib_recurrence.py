"""Linear attention, causal convolutions and gates of com.microsoft, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(31)
MS = {"domain": "com.microsoft"}
B, T, H, G, K, V = 2, 5, 4, 2, 8, 6


def rand(*dims: int) -> Any:
    return RNG.normal(size=dims).astype(np.float32)


def unit(*dims: int, heads: int) -> Any:
    """Keys of length 1 for each head, which delta rules require."""
    x = rand(*dims).reshape(*dims[:-1], heads, -1)
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).reshape(dims)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(("heads", "groups"), [(H, G), (G, G), (G, H)])
def test_linear_attention(agree: Any, rule: str, heads: int, groups: int) -> None:
    q, k, v = rand(B, T, heads * K), unit(B, T, groups * K, heads=groups), rand(B, T, groups * V)
    decay = -np.abs(rand(B, T, groups)) if "gated" in rule else None
    beta = 1 / (1 + np.exp(-rand(B, T, groups))) if "delta" in rule else None
    heads_of = {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule}
    state = rand(B, groups, K, V)
    agree("LinearAttention", q, k, v, state, decay, beta, outputs=2, atol=1e-5, rtol=1e-4, **heads_of, **MS)


def test_windows_of_states_are_refused(run: Any) -> None:
    q = rand(B, T, G * K)
    with pytest.raises(MgxError, match="state_window = 3 is not supported"):
        run(
            "LinearAttention",
            q,
            q,
            q,
            q_num_heads=G,
            kv_num_heads=G,
            update_rule="linear",
            state_window=3,
            outputs=2,
            **MS,
        )


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("last", [0, 1])
def test_causal_convolution(agree: Any, activation: str, dilation: int, last: int) -> None:
    x, state = rand(B, 6, T), rand(B, 6, 3 * dilation)
    if last:
        x, state = (v.transpose(0, 2, 1).copy() for v in (x, state))
    attributes = {"activation": activation, "dilation": dilation, "channels_last": last}
    agree("CausalConvWithState", x, rand(6, 1, 4), rand(6), state, outputs=2, atol=1e-5, **attributes, **MS)
    agree("CausalConvWithState", x, rand(6, 1, 4), outputs=2, atol=1e-5, **attributes, **MS)


def test_several_channel_axes_of_a_causal_convolution(agree: Any) -> None:
    agree(
        "CausalConvWithState",
        rand(B, T, 2, 3),
        rand(6, 1, 4),
        None,
        rand(B, 3, 2, 3),
        outputs=2,
        channels_last=1,
        atol=1e-5,
        **MS,
    )


def test_gates_of_linear_attention(agree: Any) -> None:
    agree("LinearAttentionGate", rand(B, T, H), rand(H), -np.abs(rand(H)), rand(B, T, H), outputs=2, atol=1e-6, **MS)
    agree("LinearAttentionGate", rand(B, T, H), rand(H), -np.abs(rand(H)), atol=1e-6, **MS)


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_rms_norm(agree: Any, activation: str) -> None:
    agree("GatedRMSNorm", rand(B, T, 3 * K), rand(K), rand(B, T, 3 * K), activation=activation, atol=1e-5, **MS)


def test_branchwise_rms_norm(agree: Any) -> None:
    for scale in (rand(3 * K), rand(3, K), rand(K), None):
        agree("BranchwiseRMSNorm", rand(B, T, 3, K), scale, atol=1e-5, **MS)
        agree("BranchwiseRMSNorm", rand(B, T, 3 * K), scale, num_branches=3, epsilon=1e-3, atol=1e-5, **MS)


def test_gated_add_and_scaled_silu(agree: Any) -> None:
    agree("GatedAdd", rand(B, T, K), rand(B, T, K), rand(B, T, 1), atol=1e-6, **MS)
    agree("ScaledSiLU", rand(B, T, K), alpha=1.5, atol=1e-6, **MS)
    agree("ScaledSiLU", rand(B, T, K), np.float32(0.7), alpha=1.5, atol=1e-6, **MS)
    agree("ScaledSiLU", rand(B, T, K).astype(np.float16), alpha=1.5, atol=2e-3, **MS)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_multimodal_rotary_embedding(agree: Any, layout: int, interleaved: int) -> None:
    cos, sin = rand(20, 8), rand(20, 8)
    positions = RNG.integers(0, 20, (3, B, T))
    sections = {"mrope_section": [4, 2, 2], "mrope_layout": layout, "interleaved": interleaved}
    agree("MRotaryEmbedding", rand(B, T, 3 * 16), positions, cos, sin, num_heads=3, atol=1e-5, **sections, **MS)
    agree("MRotaryEmbedding", rand(B, 3, T, 16), positions, cos, sin, atol=1e-5, **sections, **MS)
    partial = {"rotary_embedding_dim": 16, "num_heads": 2}
    agree("MRotaryEmbedding", rand(B, T, 2 * 24), positions, cos, sin, atol=1e-5, **partial, **sections, **MS)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("rank", [3, 4])
def test_gated_delta_net(agree: Any, rule: str, rank: int) -> None:
    def shaped(x: Any) -> Any:
        return x if rank == 4 else x.reshape(-1, *x.shape[2:])

    q, k, v = (shaped(rand(B, T, h, d)) for h, d in ((G, K), (G, K), (H, V)))
    decay = shaped(-np.abs(rand(B, T, H))) if "gated" in rule else None
    beta = shaped(rand(B, T, H)) if "delta" in rule else None
    state = rand(B, H, V, K)
    attributes = {"update_rule": rule, "qk_l2_norm": 1, "beta_activation": "sigmoid"}
    agree("GatedDeltaNet", q, k, v, None, decay, beta, state, outputs=2, atol=1e-5, rtol=1e-4, **attributes, **MS)


@pytest.mark.parametrize("kind", ["softplus", "sigmoid"])
@pytest.mark.parametrize("per_key", [False, True])
def test_gates_of_gated_delta_net(agree: Any, kind: str, per_key: bool) -> None:
    q, k, v = (rand(B * T, h, d) for h, d in ((G, K), (G, K), (H, V)))
    decay, bias = (rand(B * T, H, K), rand(H, K)) if per_key else (rand(B * T, H), rand(H))
    operands = q, k, v, None, decay, np.abs(rand(B * T, H)), rand(B, H, V, K), rand(H), bias
    agree("GatedDeltaNet", *operands, outputs=2, qk_l2_norm=1, gate_activation=kind, atol=1e-5, rtol=1e-4, **MS)


def test_packed_sequences_of_gated_delta_net_are_refused(run: Any) -> None:
    q = rand(B * T, G, K)
    bounds = np.array([0, 3, B * T], np.int32)
    with pytest.raises(MgxError, match="cu_seqlens"):
        run("GatedDeltaNet", q, q, q, bounds, None, None, rand(B, G, K, K), update_rule="linear", **MS)
