"""Attention operators of com.microsoft, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(29)
MS = {"domain": "com.microsoft"}
B, S, I, N, H, T = 2, 5, 12, 3, 16, 7
HIDDEN = N * H


def rand(*dims: int) -> Any:
    return RNG.normal(size=dims).astype(np.float32)


def i32(value: Any) -> Any:
    return np.array(value, np.int32)


def bits(*dims: int) -> Any:
    return RNG.integers(0, 2, dims).astype(np.int32)


MASKS = {
    "none": None,
    "ends": i32([3, 5]),
    "ends_starts": i32([3, 5, 1, 2]),
    "keys": bits(B, S),
    "pairs": bits(B, S, S),
}


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_masks(agree: Any, mask: str, unidirectional: int) -> None:
    operands = rand(B, S, I), rand(I, 3 * HIDDEN), rand(3 * HIDDEN), MASKS[mask]
    agree("Attention", *operands, num_heads=N, unidirectional=unidirectional, atol=2e-3, **MS)


def test_attention_attributes(agree: Any) -> None:
    agree(
        "Attention",
        rand(B, S, I),
        rand(I, 4 * HIDDEN),
        rand(4 * HIDDEN),
        num_heads=N,
        qkv_hidden_sizes=[HIDDEN, HIDDEN, 2 * HIDDEN],
        scale=0.3,
        **MS,
    )
    agree(
        "Attention",
        rand(B, S, I),
        rand(I, 3 * HIDDEN),
        rand(3 * HIDDEN),
        bits(B, S),
        num_heads=N,
        mask_filter_value=-2.0,
        **MS,
    )
    agree(
        "Attention",
        rand(B, S, I),
        rand(I, 3 * HIDDEN),
        rand(3 * HIDDEN),
        None,
        None,
        rand(1, N, S, S),
        num_heads=N,
        **MS,
    )
    agree(
        "Attention",
        rand(B, S, I),
        rand(I, 3 * HIDDEN),
        rand(3 * HIDDEN),
        bits(B, S + 4),
        rand(2, B, N, 4, H),
        num_heads=N,
        outputs=2,
        atol=2e-3,
        **MS,
    )


@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_the_value_of_masked_scores_without_a_mask(op: str, agree: Any, caplog: Any) -> None:
    """Optimizers write the attribute in any case; it is no unknown one."""
    operands = (
        [rand(B, S, HIDDEN)] * 3
        if op == "MultiHeadAttention"
        else [rand(B, S, I), rand(I, 3 * HIDDEN), rand(3 * HIDDEN)]
    )
    agree(op, *operands, num_heads=N, mask_filter_value=-10000.0, atol=2e-3, **MS)
    assert not caplog.records


def test_quantized_attention(agree: Any) -> None:
    x, w = (RNG.integers(0, 256, d).astype(np.uint8) for d in ((B, S, I), (I, 3 * HIDDEN)))
    scales = np.array(0.02, np.float32), np.array(0.03, np.float32)
    points = np.array(120, np.uint8), np.array(130, np.uint8)
    agree("QAttention", x, w, rand(3 * HIDDEN), *scales, i32([3, 5]), *points, num_heads=N, fixed=(1,), **MS)


@pytest.mark.parametrize("mask", [None, i32([3, 7]), bits(B, T), bits(B, S, T)])
def test_multi_head_attention_masks(agree: Any, mask: Any) -> None:
    operands = rand(B, S, HIDDEN), rand(B, T, HIDDEN), rand(B, T, 2 * HIDDEN), rand(4 * HIDDEN), mask, rand(1, N, S, T)
    agree("MultiHeadAttention", *operands, num_heads=N, atol=5e-3, **MS)


def test_multi_head_attention_layouts(agree: Any, run: Any) -> None:
    q, k, v = rand(B, S, HIDDEN), rand(B, T, HIDDEN), rand(B, T, HIDDEN)
    (wanted,) = agree("MultiHeadAttention", q, k, v, num_heads=N, **MS)
    four = [x.reshape(B, T, N, H).transpose(0, 2, 1, 3).copy() for x in (k, v)]
    np.testing.assert_allclose(agree("MultiHeadAttention", q, *four, num_heads=N, **MS)[0], wanted, atol=1e-6)
    pair = np.stack([x.reshape(B, T, N, H) for x in (k, v)], 3)
    np.testing.assert_allclose(run("MultiHeadAttention", q, pair, num_heads=N, **MS)[0], wanted, atol=1e-6)
    same = rand(B, S, HIDDEN)
    three = np.stack([same.reshape(B, S, N, H)] * 3, 3)
    (alone,) = agree("MultiHeadAttention", same, same, same, num_heads=N, **MS)
    np.testing.assert_allclose(run("MultiHeadAttention", three, num_heads=N, **MS)[0], alone, atol=1e-6)


def test_multi_head_attention_with_past(agree: Any, run: Any) -> None:
    new = [rand(B, S, HIDDEN) for _ in range(3)]
    past = rand(B, N, 4, H), rand(B, N, 4, H)
    agree(
        "MultiHeadAttention", *new, rand(3 * HIDDEN), None, None, *past, num_heads=N, outputs=3, unidirectional=1, **MS
    )
    *_, scores = run("MultiHeadAttention", *new, None, i32([3, 5]), num_heads=N, outputs=4, **MS)
    q, k = (x.reshape(B, S, N, H).transpose(0, 2, 1, 3) for x in new[:2])
    raw = q @ k.swapaxes(-1, -2) / np.sqrt(H)
    raw[0, :, :, 3:] -= 10000
    np.testing.assert_allclose(scores, raw, rtol=1e-4, atol=1e-5)


def test_decoder_masked_multi_head_attention(agree: Any) -> None:
    new = [rand(B, 1, HIDDEN) for _ in range(3)]
    buffers = rand(B, N, 9, H), rand(B, N, 9, H)
    agree(
        "DecoderMaskedMultiHeadAttention",
        *new,
        None,
        None,
        *buffers,
        i32([4]),
        num_heads=N,
        past_present_share_buffer=1,
        outputs=3,
        **MS,
    )
    agree("DecoderMaskedMultiHeadAttention", new[0], rand(B, N, T, H), rand(B, N, T, H), num_heads=N, **MS)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(agree: Any, interleaved: int) -> None:
    for x in (rand(B, S, HIDDEN), rand(B, N, S, H)):
        agree("RotaryEmbedding", x, np.array([2]), rand(20, H // 2), rand(20, H // 2), interleaved=interleaved, **MS)
        positions = RNG.integers(0, 20, (B, S))
        agree("RotaryEmbedding", x, positions, rand(20, H // 2), rand(20, H // 2), interleaved=interleaved, **MS)
    agree(
        "RotaryEmbedding",
        rand(B, S, HIDDEN),
        np.array([0]),
        rand(20, 2),
        rand(20, 2),
        num_heads=N,
        rotary_embedding_dim=4,
        **MS,
    )


@pytest.mark.parametrize(
    "extra",
    [{}, {"local_window_size": 3}, {"softcap": 0.5}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}],
)
def test_group_query_attention(agree: Any, run: Any, extra: Any) -> None:
    caches = [rand(30, H // 2), rand(30, H // 2)] if extra.get("do_rotary") else []
    heads = {"num_heads": N, "kv_num_heads": 1, **MS, **extra}
    new = rand(B, S, HIDDEN), rand(B, S, H), rand(B, S, H)
    lengths = i32([S - 1, S - 1]), i32([S])
    (separate, *_) = agree("GroupQueryAttention", *new, None, None, *lengths, *caches, outputs=3, **heads)
    packed = np.concatenate(new, 2)
    (together, *_) = agree("GroupQueryAttention", packed, None, None, None, None, *lengths, *caches, outputs=3, **heads)
    np.testing.assert_allclose(separate, together, atol=1e-6)
    step = rand(B, 1, HIDDEN), rand(B, 1, H), rand(B, 1, H), rand(B, 1, 8, H), rand(B, 1, 8, H)
    agree("GroupQueryAttention", *step, i32([8, 8]), i32([9]), *caches, outputs=3, **heads)
    ragged = run("GroupQueryAttention", *step, i32([8, 5]), i32([9]), *caches, outputs=3, **heads)[0]
    for b, last in enumerate((8, 5)):
        alone = [x[b : b + 1, ..., :last, :] if i > 2 else x[b : b + 1] for i, x in enumerate(step)]
        (wanted, *_) = agree("GroupQueryAttention", *alone, i32([last]), i32([last + 1]), *caches, outputs=3, **heads)
        np.testing.assert_allclose(ragged[b : b + 1], wanted, rtol=1e-4, atol=1e-5)
    more = rand(1, S, HIDDEN), rand(1, S, H), rand(1, S, H), rand(1, 1, 6, H), rand(1, 1, 6, H)
    agree("GroupQueryAttention", *more, i32([S + 5]), i32([S + 6]), *caches, outputs=3, **heads)


def test_group_query_attention_inputs(agree: Any, caplog: pytest.LogCaptureFixture) -> None:
    heads = {"num_heads": N, "kv_num_heads": 1, **MS}
    new = rand(B, S, HIDDEN), rand(B, S, H), rand(B, S, H), None, None, i32([S - 1, S - 1]), i32([S])
    agree("GroupQueryAttention", *new, outputs=3, smooth_softmax=1, **heads)
    unused = {"rotary_interleaved": 0, "smooth_softmax": 0}  # without do_rotary, and beside a sink
    agree("GroupQueryAttention", *new, None, None, None, None, rand(N), outputs=3, **unused, **heads)
    assert not caplog.messages
    agree("GroupQueryAttention", *new, None, None, None, rand(B, 1, S, S), outputs=3, **heads)
    positions = RNG.integers(0, 20, (B, S))
    agree("GroupQueryAttention", *new, rand(30, H // 2), rand(30, H // 2), positions, outputs=3, do_rotary=1, **heads)
    for stage in (1, 2):
        agree("GroupQueryAttention", *new, outputs=4, qk_output=stage, **heads)


def test_norms_of_queries_and_keys_with_their_own_epsilon(run: Any, caplog: Any) -> None:
    q, k, v, qw, kw = rand(B, S, HIDDEN), rand(B, S, H), rand(B, S, H), rand(H), rand(H)
    heads = {"num_heads": N, "kv_num_heads": 1, **MS}
    given = v, None, None, i32([S - 1, S - 1]), i32([S]), *[None] * 7
    kinds = {"k_quant_type": "NONE", "v_quant_type": "NONE", "kv_cache_bit_width": 8}
    epsilons = {"qk_norm_epsilon": 0.3, "k_norm_epsilon": 2.0}
    found = run("GroupQueryAttention", q, k, *given, qw, kw, outputs=3, **epsilons, **kinds, **heads)

    def normalized(x: Any, weight: Any, epsilon: float) -> Any:
        parts = x.reshape(B, S, -1, H)
        return (
            (parts / np.sqrt((parts**2).mean(-1, keepdims=True) + epsilon) * weight).reshape(x.shape).astype(np.float32)
        )

    wanted = run("GroupQueryAttention", normalized(q, qw, 0.3), normalized(k, kw, 2.0), *given[:5], outputs=3, **heads)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert not caplog.records
    with pytest.raises(MgxError, match="key and value caches quantized to 4 bits"):
        run(
            "GroupQueryAttention", q, k, *given[:5], outputs=3, v_quant_type="PER_TENSOR", kv_cache_bit_width=4, **heads
        )


def test_packed_sequences(run: Any) -> None:
    lengths = [2, 4]
    x, w, bias = rand(6, I), rand(I, 3 * HIDDEN), rand(3 * HIDDEN)
    offsets, ends = i32([[0, 1, 4, 5], [6, 7, 2, 3]]), i32([0, 2, 6])
    (found,) = run("PackedAttention", x, w, bias, offsets, ends, num_heads=N, **MS)
    start = 0
    for length in lengths:
        alone = x[None, start : start + length]
        (wanted,) = run("Attention", alone, w, bias, num_heads=N, **MS)
        np.testing.assert_allclose(found[start : start + length], wanted[0], rtol=1e-4, atol=1e-5)
        start += length
    projected = x @ w + bias
    parts = np.split(projected, 3, 1)
    (again,) = run("PackedMultiHeadAttention", *parts, None, offsets, ends, num_heads=N, **MS)
    np.testing.assert_allclose(again, found, rtol=1e-4, atol=1e-4)


def test_errors_of_invalid_input(run: Any) -> None:
    q = rand(B, S, HIDDEN)
    with pytest.raises(MgxError, match="a key is required"):
        run("MultiHeadAttention", q, num_heads=N, **MS)
    with pytest.raises(MgxError, match="a mask of rank 1"):
        run("MultiHeadAttention", q, q, q, None, i32([1] * 9), num_heads=N, **MS)
    with pytest.raises(MgxError, match="attention_bias must be"):
        run("MultiHeadAttention", q, q, q, None, None, rand(1, N, S, S + 1), num_heads=N, **MS)
    with pytest.raises(MgxError, match="must be three multiples of 3"):
        run("Attention", rand(B, S, I), rand(I, 4 * HIDDEN), num_heads=N, **MS)


def test_padding_removed_and_restored(run: Any) -> None:
    """As bert's optimizer packs it: places of tokens come first in token_offset, those of padding after them."""
    x, counts = rand(3, 4, 6), i32([2, 4, 1])
    packed, offset, ends, longest = run("RemovePadding", x, counts, outputs=4, **MS)
    np.testing.assert_array_equal(packed, np.concatenate([x[0, :2], x[1], x[2, :1]]))
    np.testing.assert_array_equal(offset, [[0, 1, 4, 5], [6, 7, 8, 2], [3, 9, 10, 11]])
    assert offset.dtype == np.int32
    assert (ends.tolist(), longest.tolist()) == ([0, 2, 6, 7], [4])
    (restored,) = run("RestorePadding", packed, offset, **MS)
    wanted = np.where(np.arange(4)[None, :, None] < counts[:, None, None], x, 0)
    np.testing.assert_array_equal(restored, wanted)
    with pytest.raises(MgxError, match=r"input must be \[b, s, h\]"):
        run("RemovePadding", x[0], counts, outputs=4, **MS)
