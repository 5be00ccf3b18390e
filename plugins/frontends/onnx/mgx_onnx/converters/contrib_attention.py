"""Attention operators of com.microsoft."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.dim import Dim, compare, may_equal

from ..converter import converts
from ..node import Node
from .attention import extent_of, merged_heads, split_heads
from .contrib_quant import MS, matmul
from .quantized import integer_product, one_value

ORT_MASK = -10000.0


class Cache(NamedTuple):
    """Keys and values of all tokens so far [b, g, t, d], and where the queries stand among them."""

    key: Instruction
    value: Instruction
    offset: Dim = 0
    lengths: Instruction | None = None  # [b], where not all t are in use
    offsets: Instruction | None = None  # [b], where the offset is known while running only


def counted(n: Node, d: Dim) -> Instruction:
    """0, 1, 2, .. as int64, `d` of them."""
    if isinstance(d, int):
        return n.literal(np.arange(d), dt.int64)
    ones = n.broadcast_to(n.literal([1], dt.int64), (d,))
    return n.add("prefix_scan_sum", ones, axis=0, exclusive=True)


def grown(
    n: Node,
    key: Instruction,
    value: Instruction,
    past_key: Instruction | None,
    past_value: Instruction | None,
    past_length: Instruction | None = None,
) -> Cache:
    """New keys and values [b, g, s, d] behind the past ones; with a past length, written into buffers of full size."""
    if (past_key is None) != (past_value is None):
        n.fail("past key and past value must be given together")
    if past_key is None or past_value is None:
        return Cache(key, value)
    for new, old in ((key, past_key), (value, past_value)):
        if old.shape.rank != 4 or not all(may_equal(new.shape.dims[i], old.shape.dims[i]) for i in (0, 1, 3)):
            n.fail(f"past {old.shape} does not fit new tokens {new.shape}")
    if past_length is None:
        key, value = n.add("concat", past_key, key, axis=2), n.add("concat", past_value, value, axis=2)
        return Cache(key, value, past_key.shape.dims[2])
    if past_length.shape.dtype not in (dt.int32, dt.int64):
        n.fail(f"past_sequence_length must be an integer, got {past_length.shape}")
    batch = key.shape.dims[0]
    before = n.convert(n.reshape(past_length, (1,)), dt.int64)
    total = n.add("add", before, extent_of(n, key, 2))
    last = n.broadcast_to(n.add("sub", total, n.literal([1], dt.int64)), (batch,))
    keys = n.add("concat_past_present", key, last, past_key)
    values = n.add("concat_past_present", value, last, past_value)
    return Cache(keys, values, 0, n.broadcast_to(total, (batch,)), n.broadcast_to(before, (batch,)))


def padding_bias(
    n: Node, mask: Instruction | None, batch: Dim, length: Dim, total: Dim, past: Dim, dtype: dt.DType
) -> Instruction | None:
    """What a mask of any of ORT's forms adds to the scores: 0, or `mask_filter_value` where it closes a key."""
    if mask is None:
        return None
    if mask.shape.dtype not in (dt.int32, dt.int64, dt.bool_):
        n.fail(f"the mask must hold integers, got {mask.shape}")
    dims = mask.shape.dims
    closed = n.attr("mask_filter_value", ORT_MASK)
    if len(dims) == 1:
        many = dims[0]
        positions = n.unsqueeze(counted(n, total), [0])
        if compare(many, "==", batch) is not False and compare(many, "==", batch * 2) is not True:
            opened = n.pointwise("less", positions, n.unsqueeze(n.convert(mask, dt.int64), [1]))
        elif compare(many, "==", batch * 2) is not False:
            ends, starts = (
                n.unsqueeze(n.convert(n.slice(mask, [0], [i * batch], [(i + 1) * batch]), dt.int64), [1])
                for i in range(2)
            )
            opened = n.pointwise(
                "logical_and",
                n.pointwise("less", positions, ends),
                n.pointwise("greater_or_equal", positions, starts),
            )
        elif compare(many, "==", batch * 3 + 2) is True:
            return n.unsupported("masks of 3 * batch + 2 values (cumulated lengths) are not supported")  # type: ignore[no-any-return]
        else:
            return n.fail(f"a mask of rank 1 must have {batch} or {batch * 2} values, got {many}")  # type: ignore[no-any-return]
        opened = n.unsqueeze(opened, [1, 2])
    else:
        wanted: tuple[Dim, ...] = {2: (batch, total), 3: (batch, length, total)}.get(len(dims), ())
        if len(dims) == 4:
            if not may_equal(dims[0], batch) or dims[1] != 1 or dims[2] != dims[3]:
                n.fail(f"a mask of rank 4 must be [{batch}, 1, m, m], got {list(dims)}")
            mask = n.slice(mask, [2, 3], [past, 0], [past + length, total])
        elif not wanted or not all(map(may_equal, dims, wanted)):
            n.fail(f"the mask must be [{batch}, {total}] or [{batch}, {length}, {total}], got {list(dims)}")
        if mask.shape.dtype is not dt.bool_:
            mask = n.add("greater", mask, n.full_like(mask, 0))
        opened = mask if len(dims) == 4 else n.unsqueeze(mask, [1, 2] if len(dims) == 2 else [1])
    return n.pointwise("where", opened, n.literal(0.0, dtype), n.literal(closed, dtype))


def added(n: Node, *biases: Instruction | None) -> Instruction | None:
    """The sum of the biases that there are."""
    out: Instruction | None = None
    for bias in biases:
        if bias is not None:
            out = bias if out is None else n.pointwise("add", out, bias)
    return out


def check_bias(n: Node, bias: Instruction | None, batch: Dim, heads: Dim, length: Dim, total: Dim) -> None:
    """Errors: ParseError unless an attention bias is [b or 1, h or 1, s, t]."""
    if bias is None:
        return
    wanted = (batch, heads, length, total)
    dims = bias.shape.dims
    fits = len(dims) == 4 and all(may_equal(d, w) or (i < 2 and d == 1) for i, (d, w) in enumerate(zip(dims, wanted)))
    if not fits:
        n.fail(f"attention_bias must be [{batch} or 1, {heads} or 1, {length}, {total}], got {list(dims)}")


def attend(
    n: Node, q: Instruction, cache: Cache, bias: Instruction | None, stage: str = "output", **attributes: Any
) -> Instruction:
    """The attention op on queries [b, h, s, d] and a cache."""
    operands = (q, cache.key, cache.value, bias, cache.lengths, cache.offsets)
    scale = n.attr("scale", 0.0) or None
    return n.add("attention", *operands, scale=scale, offset=cache.offset, result_of=stage, **attributes)


def finite(n: Node, scores: Instruction) -> Instruction:
    """Scores with the lowest finite value where a key is closed, as ORT gives them out."""
    return n.pointwise("max", scores, n.literal(scores.shape.dtype.lowest, scores.shape.dtype))


@converts("Attention", domain=MS)
def attention(
    n: Node,
    x: Instruction,
    weights: Instruction,
    bias: Instruction | None = None,
    mask: Instruction | None = None,
    past: Instruction | None = None,
    attention_bias: Instruction | None = None,
    past_length: Instruction | None = None,
) -> tuple[Instruction | None, ...]:
    if x.shape.rank != 3 or weights.shape.rank != 2:
        n.fail(f"input must be [b, s, i] and weights [i, h], got {x.shape} and {weights.shape}")
    if not may_equal(x.shape.dims[2], weights.shape.dims[0]):
        n.fail(f"weights must have {x.shape.dims[2]} rows, got {weights.shape}")
    projected = matmul(n, x, weights)
    return _projected_attention(n, projected, bias, mask, past, attention_bias, past_length)


@converts("QAttention", domain=MS)
def qattention(
    n: Node,
    x: Instruction,
    weights: Instruction,
    bias: Instruction,
    x_scale: Instruction,
    w_scale: Instruction,
    mask: Instruction | None = None,
    x_zero_point: Instruction | None = None,
    w_zero_point: Instruction | None = None,
    past: Instruction | None = None,
) -> tuple[Instruction | None, ...]:
    sums, _ = integer_product(n, x, weights, x_zero_point, w_zero_point)
    factor = n.pointwise("mul", n.reshape(x_scale, ()), one_value(n, w_scale) or w_scale)
    projected = n.pointwise("mul", n.convert(sums, factor.shape.dtype), factor)
    return _projected_attention(n, projected, bias, mask, past, None, None)


def _projected_attention(
    n: Node,
    projected: Instruction,
    bias: Instruction | None,
    mask: Instruction | None,
    past: Instruction | None,
    attention_bias: Instruction | None,
    past_length: Instruction | None,
) -> tuple[Instruction | None, ...]:
    if n.attr("do_rotary", 0):
        n.unsupported("do_rotary without caches of angles")
    heads = n.attr("num_heads")
    batch, length, whole = projected.shape.dims
    sizes = n.attr("qkv_hidden_sizes", None)
    if sizes is None:
        if isinstance(whole, int) and whole % 3:
            n.fail(f"the {whole} columns of the weights do not divide into three; qkv_hidden_sizes is required")
        sizes = [whole // 3] * 3
    if len(sizes) != 3 or sizes[0] != sizes[1] or any(isinstance(s, int) and s % heads for s in sizes):
        n.fail(f"qkv_hidden_sizes must be three multiples of {heads}, the first two equal, got {sizes}")
    if not may_equal(sum(sizes), whole):
        n.fail(f"the weights must have {sum(sizes)} columns, got {whole}")
    if bias is not None:
        if bias.shape.rank != 1 or not may_equal(bias.shape.dims[0], whole):
            n.fail(f"bias must be a vector of {whole}, got {bias.shape}")
        projected = n.pointwise("add", projected, bias)
    starts = (0, sizes[0], 2 * sizes[0], whole)
    q, k, v = (split_heads(n, n.slice(projected, [2], [starts[i]], [starts[i + 1]]), heads) for i in range(3))
    past_key = past_value = None
    shared = bool(n.attr("past_present_share_buffer", 0))
    if past is not None:
        if past.shape.rank != 5 or past.shape.dims[0] != 2:
            n.fail(f"past must be [2, {batch}, {heads}, p, d], got {past.shape}")
        past_key, past_value = (n.squeeze(n.slice(past, [0], [i], [i + 1]), [0]) for i in range(2))
    cache = grown(n, k, v, past_key, past_value, past_length if shared else None)
    total = length + cache.offset if cache.lengths is None else mask_extent(mask, cache)
    check_bias(n, attention_bias, batch, heads, length, total)
    closed = padding_bias(n, mask, batch, length, total, cache.offset, q.shape.dtype)
    causal = bool(n.attr("unidirectional", 0))
    y = attend(n, q, cache, added(n, closed, attention_bias), causal=causal)
    present = None
    if n.wants(1):
        present = n.add("concat", n.unsqueeze(cache.key, [0]), n.unsqueeze(cache.value, [0]), axis=0)
    return merged_heads(n, y), present


def mask_extent(mask: Instruction | None, cache: Cache) -> Dim:
    """The number of keys that a mask over a shared buffer is about."""
    if mask is not None and mask.shape.rank in (2, 3):
        return mask.shape.dims[-1]
    return cache.key.shape.dims[2]


def _input_bias(n: Node, bias: Instruction | None, widths: tuple[Dim, Dim, Dim]) -> list[Instruction | None]:
    """The parts of an input bias for queries, keys and values."""
    if bias is None:
        return [None, None, None]
    if bias.shape.rank != 1 or not may_equal(bias.shape.dims[0], widths[0] + widths[1] + widths[2]):
        n.fail(f"bias must be a vector of {widths[0] + widths[1] + widths[2]}, got {bias.shape}")
    starts = (0, widths[0], widths[0] + widths[1], widths[0] + widths[1] + widths[2])
    return [n.slice(bias, [0], [starts[i]], [starts[i + 1]]) for i in range(3)]


def _heads_of(
    n: Node,
    query: Instruction,
    key: Instruction | None,
    value: Instruction | None,
    bias: Instruction | None,
    heads: int,
) -> tuple[Instruction, Instruction, Instruction]:
    """Queries, keys and values [b, h, s, d] from any of the layouts of MultiHeadAttention."""
    if query.shape.rank == 5:
        b, s, h, three, d = query.shape.dims
        if key is not None or value is not None or three != 3 or not may_equal(h, heads):
            n.fail(f"packed query, key and value must be one input [b, s, {heads}, 3, d], got {query.shape}")
        parts = [n.squeeze(n.slice(query, [3], [i], [i + 1]), [3]) for i in range(3)]
        added_ = _input_bias(n, bias, (h * d, h * d, h * d))
        flat = [n.reshape(p, (b, s, h * d)) for p in parts]
        flat = [f if more is None else n.pointwise("add", f, more) for f, more in zip(flat, added_, strict=True)]
        q, k, v = (split_heads(n, f, heads) for f in flat)
        return q, k, v
    if query.shape.rank != 3:
        n.fail(f"query must have 3 or 5 axes, got {query.shape}")
    b, _, hidden = query.shape.dims
    if key is None:
        if value is not None:
            n.fail("a key is required where there is a value")
        n.fail("a key is required unless query is packed [b, s, h, 3, d]")
    assert key is not None
    if not may_equal(key.shape.dims[0], b):
        n.fail(f"query and key must have one batch, got {query.shape} and {key.shape}")
    if key.shape.rank == 5:
        kb, t, h, two, d = key.shape.dims
        if value is not None or two != 2 or not may_equal(h, heads) or not may_equal(h * d, hidden):
            n.fail(f"packed key and value must be one input [b, t, {heads}, 2, {hidden // heads}], got {key.shape}")
        parts = _input_bias(n, bias, (hidden, hidden, hidden))
        both = [n.reshape(n.squeeze(n.slice(key, [3], [i], [i + 1]), [3]), (kb, t, hidden)) for i in range(2)]
        flat = [query, *both]
        flat = [f if more is None else n.pointwise("add", f, more) for f, more in zip(flat, parts, strict=True)]
        q, k, v = (split_heads(n, f, heads) for f in flat)
        return q, k, v
    if value is None:
        n.fail("a value is required where key is not packed")
    assert value is not None
    if key.shape.rank != value.shape.rank or not may_equal(key.shape.dims[0], value.shape.dims[0]):
        n.fail(f"key and value must agree in rank and batch, got {key.shape} and {value.shape}")
    if key.shape.rank == 4:
        if not may_equal(key.shape.dims[1], heads) or not may_equal(value.shape.dims[1], heads):
            n.fail(f"key and value of rank 4 must be [b, {heads}, t, d], got {key.shape} and {value.shape}")
        width = value.shape.dims[1] * value.shape.dims[3]
        first = _input_bias(n, bias, (hidden, hidden, width))[0]
        q = query if first is None else n.pointwise("add", query, first)
        return split_heads(n, q, heads), key, value
    if key.shape.rank != 3 or not may_equal(key.shape.dims[2], hidden):
        n.fail(f"key must be [b, t, {hidden}], got {key.shape}")
    if not may_equal(key.shape.dims[1], value.shape.dims[1]):
        n.fail(f"key and value must have one length, got {key.shape} and {value.shape}")
    parts = _input_bias(n, bias, (hidden, hidden, value.shape.dims[2]))
    flat = [query, key, value]
    flat = [f if more is None else n.pointwise("add", f, more) for f, more in zip(flat, parts, strict=True)]
    q, k, v = (split_heads(n, f, heads) for f in flat)
    return q, k, v


@converts("MultiHeadAttention", domain=MS)
def multi_head_attention(
    n: Node,
    query: Instruction,
    key: Instruction | None = None,
    value: Instruction | None = None,
    bias: Instruction | None = None,
    key_padding_mask: Instruction | None = None,
    attention_bias: Instruction | None = None,
    past_key: Instruction | None = None,
    past_value: Instruction | None = None,
    past_length: Instruction | None = None,
    cache_indirection: Instruction | None = None,
) -> tuple[Instruction | None, ...]:
    if cache_indirection is not None:
        n.unsupported("beams that share a cache (cache_indirection)")
    heads = n.attr("num_heads")
    if key is not None and value is not None and key.shape.rank == 5 and value.shape.rank == 1:
        value, bias, key_padding_mask = None, value, bias  # some exporters leave the place of a packed value out
    if key_padding_mask is not None and key_padding_mask.shape.rank > 3:
        n.fail(f"key_padding_mask must have 1 to 3 axes, got {key_padding_mask.shape}")
    q, k, v = _heads_of(n, query, key, value, bias, heads)
    batch, _, length, _ = q.shape.dims
    cache = grown(n, k, v, past_key, past_value, past_length)
    total = cache.key.shape.dims[2] if cache.lengths is None else mask_extent(key_padding_mask, cache)
    covered = total if cache.lengths is None or attention_bias is None else attention_bias.shape.dims[-1]
    check_bias(n, attention_bias, batch, heads, length, covered)
    closed = padding_bias(n, key_padding_mask, batch, length, total, cache.offset, q.shape.dtype)
    mask = added(n, closed, attention_bias)
    causal = bool(n.attr("unidirectional", 0))
    y = attend(n, q, cache, mask, causal=causal)
    scores = finite(n, attend(n, q, cache, mask, "masked", causal=causal)) if n.wants(3) else None
    return merged_heads(n, y), cache.key, cache.value, scores


@converts("DecoderMaskedMultiHeadAttention", domain=MS)
def decoder_masked_multi_head_attention(
    n: Node,
    query: Instruction,
    key: Instruction | None = None,
    value: Instruction | None = None,
    mask: Instruction | None = None,
    attention_bias: Instruction | None = None,
    past_key: Instruction | None = None,
    past_value: Instruction | None = None,
    past_length: Instruction | None = None,
    beam_width: Instruction | None = None,
    cache_indirection: Instruction | None = None,
    bias: Instruction | None = None,
) -> tuple[Instruction | None, ...]:
    if key is None:
        b, s, whole = query.shape.dims
        heads = n.attr("num_heads")
        query = n.transpose(n.reshape(query, (b, s, 3, heads, whole // 3 // heads)), [0, 1, 3, 2, 4])
    shared = past_length if n.attr("past_present_share_buffer", 0) else None
    operands = (bias, mask, attention_bias, past_key, past_value, shared, cache_indirection)
    return multi_head_attention(n, query, key, value, *operands)


@converts("RotaryEmbedding", domain=MS)
def rotary_embedding(
    n: Node, x: Instruction, positions: Instruction, cos: Instruction, sin: Instruction
) -> Instruction:
    if x.shape.rank not in (3, 4) or cos.shape.rank != 2 or sin.shape.rank != 2:
        n.fail(f"input must have 3 or 4 axes and the caches 2, got {x.shape}, {cos.shape} and {sin.shape}")
    turned, heads = n.attr("rotary_embedding_dim", 0), n.attr("num_heads", 0)
    half = cos.shape.dims[1]
    if not isinstance(half, int):
        n.fail("the caches need a fixed number of columns")
    if turned and not heads:
        n.fail("num_heads is required where rotary_embedding_dim is given")
    if turned and turned != 2 * half:
        n.fail(f"rotary_embedding_dim {turned} needs caches of {turned // 2} columns, got {half}")
    whole = x
    if x.shape.rank == 3:
        hidden = x.shape.dims[2]
        if not heads or not turned:
            if isinstance(hidden, int) and hidden % (2 * half):
                n.fail(f"the hidden size {hidden} is no multiple of the head size {2 * half} of the caches")
            count = hidden // (2 * half)
            if not isinstance(count, int):
                n.fail("the hidden size must be fixed")
            heads = count
        whole = split_heads(n, x, heads)
    if positions.shape.rank == 1 and not may_equal(positions.shape.dims[0], 1):
        n.fail(f"position_ids must be [1] or [batch, length], got {positions.shape}")
    at = n.convert(positions, dt.int64)  # the attribute `scale` has no effect in ORT
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
    if k_scale is not None or v_scale is not None or n.attr("k_quant_type", "NONE") != "NONE":
        n.unsupported("quantised caches of keys and values")
    if n.attr("sliding_window_cache", 0):
        n.unsupported("caches that hold a window only (sliding_window_cache)")
    if (past_key is None) != (past_value is None):
        n.fail("past_key and past_value must be given together")
    heads, groups = n.attr("num_heads"), n.attr("kv_num_heads")
    if heads < 1 or groups < 1 or heads % groups:
        n.fail(f"num_heads must be a multiple of kv_num_heads, got {heads} and {groups}")
    if query.shape.rank != 3:
        n.fail(f"query must be [b, s, hidden], got {query.shape}")
    batch, length, whole = query.shape.dims
    if key is None or key.shape.rank < 3:
        both = split_heads(n, query, heads + 2 * groups)
        bounds = (0, heads, heads + groups, heads + 2 * groups)
        q, k, v = (n.slice(both, [1], [bounds[i]], [bounds[i + 1]]) for i in range(3))
    else:
        if value is None:
            n.fail("a value is required where there is a key")
        q, k, v = split_heads(n, query, heads), split_heads(n, key, groups), split_heads(n, value, groups)  # type: ignore[arg-type]
    if q_norm is not None and k_norm is not None:
        q, k = _rms(n, q, q_norm), _rms(n, k, k_norm)
    last = n.convert(n.reshape(seqlens_k, (batch,)), dt.int64)
    if n.attr("do_rotary", 0):
        if cos is None or sin is None:
            n.fail("do_rotary needs cos_cache and sin_cache")
        turned = bool(n.attr("rotary_interleaved", 0))
        if position_ids is not None:
            at = n.convert(position_ids, dt.int64)
            if past_key is None or past_key.shape.dims[2] == 0:  # a prompt: its first position counts, for all samples
                at = n.reshape(n.slice(at, [0, 1], [0, 0], [1, 1]), (1,))
            q, k = (n.add("rotary_embedding", x, cos, sin, at, interleaved=turned) for x in (q, k))
        else:
            q, k = (n.add("gqa_rotary_embedding", x, last, cos, sin, interleaved=turned) for x in (q, k))
    if past_key is not None and past_value is not None:
        known = n.dims(total_length)
        room: Dim = -1
        if known is not None and isinstance(known[0], int) and isinstance(past_key.shape.dims[2], int):
            room = max(known[0], past_key.shape.dims[2])
        k = n.add("concat_past_present", k, last, past_key, kv_num_heads=groups, length=room)
        v = n.add("concat_past_present", v, last, past_value, kv_num_heads=groups, length=room)
    tokens = n.add("add", last, n.full_like(last, 1))
    sink = head_sink
    if sink is None and n.attr("smooth_softmax", -1) == 1:
        sink = n.literal([0.0] * heads, q.shape.dtype)
    window = n.attr("local_window_size", -1)
    causal = bool(n.attr("causal", 1))
    attributes: dict[str, Any] = {
        "scale": n.attr("scale", 0.0) or None,
        "causal": causal,
        "softcap": n.attr("softcap", 0.0),
        "left_window_size": window - 1 if window > 0 and causal else -1,
    }
    if past_key is None:
        offsets = None
    else:
        offsets = n.pointwise("max", n.pointwise("sub", tokens, extent_of(n, q, 2)), n.literal([0], dt.int64))
    operands = (q, k, v, attention_bias, tokens, offsets, sink)
    y = n.add("attention", *operands, **attributes)
    stage = None
    if n.wants(3):
        which = {1: "masked", 2: "probabilities"}.get(n.attr("qk_output", 0))
        if which is None:
            n.fail(f"qk_output must be 1 or 2 where output_qk is asked for, got {n.attr('qk_output', 0)}")
        stage = n.add("attention", *operands, **attributes, result_of=which)
        if which == "masked":
            stage = n.pointwise("where", n.add("isinf", stage), n.literal(0.0, stage.shape.dtype), stage)
    return merged_heads(n, y), k, v, stage


def _rms(n: Node, x: Instruction, weight: Instruction) -> Instruction:
    """x divided by the root of its mean square over the last axis, times a weight."""
    wide = n.convert(x, dt.float32)
    mean = n.add("reduce_mean", n.add("mul", wide, wide), axes=(3,))
    factor = n.add("rsqrt", n.pointwise("add", mean, n.literal(n.attr("qk_norm_epsilon", 1e-6), dt.float32)))
    return n.convert(n.pointwise("mul", n.pointwise("mul", wide, factor), n.convert(weight, dt.float32)), x.shape.dtype)


@converts("PackedAttention", domain=MS)
def packed_attention(
    n: Node,
    x: Instruction,
    weights: Instruction,
    bias: Instruction,
    token_offset: Instruction,
    lengths: Instruction,
    attention_bias: Instruction | None = None,
) -> Instruction:
    heads = n.attr("num_heads")
    projected = n.pointwise("add", n.add("dot", x, weights), bias)
    whole = projected.shape.dims[1]
    sizes = n.attr("qkv_hidden_sizes", None) or [whole // 3] * 3
    starts = (0, sizes[0], sizes[0] + sizes[1], whole)
    q, k, v = (n.slice(projected, [1], [starts[i]], [starts[i + 1]]) for i in range(3))
    return _packed(n, q, k, v, token_offset, lengths, attention_bias, heads)


@converts("PackedMultiHeadAttention", domain=MS)
def packed_multi_head_attention(
    n: Node,
    query: Instruction,
    key: Instruction | None,
    value: Instruction | None,
    bias: Instruction | None,
    token_offset: Instruction,
    lengths: Instruction,
    attention_bias: Instruction | None = None,
) -> Instruction:
    heads = n.attr("num_heads")
    if query.shape.rank == 4:
        tokens, h, _, d = query.shape.dims
        parts = [n.reshape(n.slice(query, [2], [i], [i + 1]), (tokens, h * d)) for i in range(3)]
    elif key is None or value is None:
        return n.fail("key and value are required unless query is packed [tokens, h, 3, d]")  # type: ignore[no-any-return]
    else:
        parts = [query, key, value]
    more = _input_bias(n, bias, (parts[0].shape.dims[1], parts[1].shape.dims[1], parts[2].shape.dims[1]))
    q, k, v = (p if m is None else n.pointwise("add", p, m) for p, m in zip(parts, more, strict=True))
    return _packed(n, q, k, v, token_offset, lengths, attention_bias, heads)


def _packed(
    n: Node,
    q: Instruction,
    k: Instruction,
    v: Instruction,
    token_offset: Instruction,
    lengths: Instruction,
    attention_bias: Instruction | None,
    heads: int,
) -> Instruction:
    """Attention of sequences without padding [tokens, hidden]: spread over [b, s, hidden], attended, gathered again."""
    batch, length = token_offset.shape.dims
    tokens = q.shape.dims[0]
    places = n.slice(n.reshape(token_offset, (batch * length,)), [0], [0], [tokens])
    indices = n.unsqueeze(n.convert(places, dt.int64), [1])

    def spread(x: Instruction) -> Instruction:
        width = x.shape.dims[1]
        empty = n.broadcast_to(n.literal(0.0, x.shape.dtype), (batch * length, width))
        return split_heads(n, n.reshape(n.add("scatternd_none", empty, indices, x), (batch, length, width)), heads)

    ends = n.convert(lengths, dt.int64)
    counts = n.add("sub", n.slice(ends, [0], [1], [batch + 1]), n.slice(ends, [0], [0], [batch]))
    y = merged_heads(n, attend(n, spread(q), Cache(spread(k), spread(v), 0, counts), attention_bias))
    flat = n.reshape(y, (batch * length, y.shape.dims[2]))
    return n.add("gather", flat, places, axis=0)
