"""Operators of com.microsoft for decoders: grouped attention on a cache, and rotary embeddings."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim, maximum, may_equal

from ..converter import converts
from ..node import Node
from .attention import length_of, merged_heads, split_heads
from .contrib_quant import MS


@converts("RotaryEmbedding", domain=MS)
def rotary_embedding(
    n: Node, x: Instruction, positions: Instruction, cos: Instruction, sin: Instruction
) -> Instruction:
    if x.shape.rank not in (3, 4) or cos.shape.rank != 2 or sin.shape.rank != 2:
        n.fail(f"input must have 3 or 4 axes and the caches 2, got {x.shape}, {cos.shape} and {sin.shape}")
    turned, heads = n.attr("rotary_embedding_dim", 0), n.attr("num_heads", 0)
    half = cos.shape.dims[1]
    if not isinstance(half, int):
        n.fail("the caches must have a static number of columns")
    if turned and not heads:
        n.fail("num_heads is required if rotary_embedding_dim is set")
    if turned and turned != 2 * half:
        n.fail(f"rotary_embedding_dim {turned} requires caches of {turned // 2} columns, got {half}")
    whole = x
    if x.shape.rank == 3:
        hidden = x.shape.dims[2]
        if not heads or not turned:
            if isinstance(hidden, int) and hidden % (2 * half):
                n.fail(f"the hidden size {hidden} is not a multiple of the head size {2 * half} of the caches")
            count = hidden // (2 * half)
            if not isinstance(count, int):
                n.fail("the hidden size must be static")
            heads = count
        whole = split_heads(n, x, heads)
    if positions.shape.rank == 1 and not may_equal(positions.shape.dims[0], 1):
        n.fail(f"position_ids must be [1] or [batch, length], got {positions.shape}")
    at = n.convert(positions, dt.int64)  # ORT ignores the attribute `scale`
    y = n.add("rotary_embedding", whole, cos, sin, at, interleaved=bool(n.attr("interleaved", 0)))
    return merged_heads(n, y) if x.shape.rank == 3 else y


@converts("GroupQueryAttention", domain=MS)
def group_query_attention(
    n: Node,
    query: Instruction,
    key: Instruction | None,
    value: Instruction | None,
    past_key: Instruction | None,
    past_value: Instruction | None,
    seqlens_k: Instruction,
    total_length: Instruction,
    cos: Instruction | None = None,
    sin: Instruction | None = None,
    position_ids: Instruction | None = None,
    attention_bias: Instruction | None = None,
    head_sink: Instruction | None = None,
    k_scale: Instruction | None = None,
    v_scale: Instruction | None = None,
    q_norm: Instruction | None = None,
    k_norm: Instruction | None = None,
) -> tuple[Instruction | None, ...]:
    bits, kinds = n.attr("kv_cache_bit_width", 8), (n.attr("k_quant_type", "NONE"), n.attr("v_quant_type", "NONE"))
    if k_scale is not None or v_scale is not None or kinds != ("NONE", "NONE"):
        n.unsupported(f"key and value caches quantized to {bits} bits")
    if n.attr("sliding_window_cache", 0):
        n.unsupported("sliding-window caches (sliding_window_cache)")
    if (past_key is None) != (past_value is None):
        n.fail("past_key and past_value must be given together")
    heads, groups = n.attr("num_heads"), n.attr("kv_num_heads")
    if heads < 1 or groups < 1 or heads % groups:
        n.fail(f"num_heads must be a multiple of kv_num_heads, got {heads} and {groups}")
    if query.shape.rank != 3:
        n.fail(f"query must be [b, s, hidden], got {query.shape}")
    q, k, v = _grouped_heads(n, query, key, value, heads, groups)
    if q_norm is not None and k_norm is not None:
        q, k = _rms(n, q, q_norm, "q"), _rms(n, k, k_norm, "k")
    last = n.convert(n.reshape(seqlens_k, (query.shape.dims[0],)), dt.int64)
    interleaved = bool(n.attr("rotary_interleaved", 0))  # exporters write it without do_rotary, too
    if n.attr("do_rotary", 0):
        if cos is None or sin is None:
            n.fail("do_rotary requires cos_cache and sin_cache")
        at = None if position_ids is None else n.convert(position_ids, dt.int64)
        if at is not None and (past_key is None or past_key.shape.dims[2] == 0):
            # the first position of a prompt applies to all samples
            at = n.reshape(n.slice(at, [0, 1], [0, 0], [1, 1]), (1,))
        q, k = (_turned(n, x, cos, sin, last, at, interleaved) for x in (q, k))
    if past_key is not None and past_value is not None:
        room = _cache_length(n, total_length, past_key)
        k = n.add("concat_past_present", k, last, past_key, kv_num_heads=groups, length=room)
        v = n.add("concat_past_present", v, last, past_value, kv_num_heads=groups, length=room)
    tokens = n.add("add", last, n.full_like(last, 1))
    sink = head_sink
    if n.attr("smooth_softmax", -1) == 1 and sink is None:
        sink = n.literal([0.0] * heads, q.shape.dtype)
    if past_key is None:
        offsets = None
    else:
        offsets = n.pointwise("max", n.pointwise("sub", tokens, length_of(n, q)), n.literal([0], dt.int64))
    y, stage = _attended(n, q, k, v, attention_bias, tokens, offsets, sink)
    return merged_heads(n, y), k, v, stage


def _cache_length(n: Node, total: Instruction, past: Instruction) -> Dim:
    """Returns the length of the caches after this step: the total length, but at least that of the past ones.

    A total length that only a run knows is read once for all layers.
    """
    known, before = n.dims(total), past.shape.dims[2]
    if known is not None:
        return maximum(known[0], before)

    def decide() -> Dim:
        wanted = n.convert(n.reshape(total, (1,)), dt.int64)
        longest = n.pointwise("max", wanted, length_of(n, past))
        return n.add("broadcast_with_dims", n.literal(0, dt.int64), longest).shape.dims[0]

    return n.known.decided((n.module, total, before), decide)


def _attended(n: Node, *operands: Instruction | None) -> tuple[Instruction, Instruction | None]:
    """Returns the attention by the node's attributes, and the requested intermediate result."""
    window = n.attr("local_window_size", -1)
    causal = bool(n.attr("causal", 1))
    attributes: dict[str, Any] = {
        "scale": n.attr("scale", 0.0) or None,
        "causal": causal,
        "softcap": n.attr("softcap", 0.0),
        "left_window_size": window - 1 if window > 0 and causal else -1,
    }
    y = n.add("attention", *operands, **attributes)
    if not n.output_used(3):
        return y, None
    which = {1: "masked", 2: "probabilities"}.get(n.attr("qk_output", 0))
    if which is None:
        n.fail(f"qk_output must be 1 or 2 for output_qk, got {n.attr('qk_output', 0)}")
    stage = n.add("attention", *operands, **attributes, result_of=which)
    if which == "masked":
        stage = n.pointwise("where", n.add("isinf", stage), n.literal(0.0, stage.shape.dtype), stage)
    return y, stage


def _grouped_heads(
    n: Node, query: Instruction, key: Instruction | None, value: Instruction | None, heads: int, groups: int
) -> tuple[Instruction, Instruction, Instruction]:
    """Returns queries, keys and values [b, h, s, d], which may be packed in one input."""
    if key is None or key.shape.rank < 3:
        both = split_heads(n, query, heads + 2 * groups)
        bounds = (0, heads, heads + groups, heads + 2 * groups)
        q, k, v = (n.slice(both, [1], [bounds[i]], [bounds[i + 1]]) for i in range(3))
        return q, k, v
    if value is None:
        n.fail("a value is required if there is a key")
    return split_heads(n, query, heads), split_heads(n, key, groups), split_heads(n, value, groups)


def _turned(
    n: Node,
    x: Instruction,
    cos: Instruction,
    sin: Instruction,
    last: Instruction,
    at: Instruction | None,
    interleaved: bool,
) -> Instruction:
    """Applies rotary embedding to heads, at the given positions or at those up to each sample's last."""
    if at is not None:
        return n.add("rotary_embedding", x, cos, sin, at, interleaved=interleaved)
    return n.add("gqa_rotary_embedding", x, last, cos, sin, interleaved=interleaved)


def _rms(n: Node, x: Instruction, weight: Instruction, name: str) -> Instruction:
    """RMS normalization of queries or keys (`name`: q or k) over the last axis, times a weight."""
    epsilon = n.attr(f"{name}_norm_epsilon", n.attr("qk_norm_epsilon", 1e-6))
    wide = n.convert(x, dt.float32)
    mean = n.add("reduce_mean", n.add("mul", wide, wide), axes=(3,))
    factor = n.add("rsqrt", n.pointwise("add", mean, n.literal(epsilon, dt.float32)))
    return n.convert(n.pointwise("mul", n.pointwise("mul", wide, factor), n.convert(weight, dt.float32)), x.shape.dtype)
