"""Attention operators of com.microsoft on dense batches."""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import Instruction
from mgx_core.types.dim import may_equal

from ..converter import converts
from ..node import Node
from .attention import merged_heads, split_heads
from .contrib_cache import added, attend, check_bias, finite, grown, input_bias, mask_extent, padding_bias
from .contrib_quant import MS
from .contrib_quant_products import matmul
from .quantized import integer_product, one_value


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
        n.unsupported("do_rotary without cos_cache and sin_cache")
    heads = n.attr("num_heads")
    batch, length, whole = projected.shape.dims
    sizes = n.attr("qkv_hidden_sizes", None)
    if sizes is None:
        if isinstance(whole, int) and whole % 3:
            n.fail(f"the {whole} columns of the weights are not divisible by three; qkv_hidden_sizes is required")
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
        if past.shape.rank != 5 or not may_equal(past.shape.dims[0], 2):
            n.fail(f"past must be [2, {batch}, {heads}, p, d], got {past.shape}")
        past_key, past_value = (n.squeeze(n.slice(past, [0], [i], [i + 1]), [0]) for i in range(2))
    cache = grown(n, k, v, past_key, past_value, past_length if shared else None)
    total = length + cache.offset if cache.lengths is None else mask_extent(mask, cache)
    check_bias(n, attention_bias, batch, heads, length, total)
    closed = padding_bias(n, mask, batch, length, total, cache.offset, q.shape.dtype)
    causal = bool(n.attr("unidirectional", 0))
    y = attend(n, q, cache, added(n, closed, attention_bias), causal=causal)
    present = None
    if n.output_used(1):
        present = n.add("concat", n.unsqueeze(cache.key, [0]), n.unsqueeze(cache.value, [0]), axis=0)
    return merged_heads(n, y), present


def _heads_of(
    n: Node,
    query: Instruction,
    key: Instruction | None,
    value: Instruction | None,
    bias: Instruction | None,
    heads: int,
) -> tuple[Instruction, Instruction, Instruction]:
    """Returns queries, keys and values [b, h, s, d] from any layout of MultiHeadAttention."""
    if query.shape.rank == 5:
        b, s, h, three, d = query.shape.dims
        if key is not None or value is not None or three != 3 or not may_equal(h, heads):
            n.fail(f"packed query, key and value must be one input [b, s, {heads}, 3, d], got {query.shape}")
        parts = [n.squeeze(n.slice(query, [3], [i], [i + 1]), [3]) for i in range(3)]
        flat = [n.reshape(p, (b, s, h * d)) for p in parts]
        return _biased_heads(n, flat, input_bias(n, bias, (h * d, h * d, h * d)), heads)
    if query.shape.rank != 3:
        n.fail(f"query must have 3 or 5 axes, got {query.shape}")
    b, _, hidden = query.shape.dims
    if key is None:
        n.fail(
            f"a key is required {'if there is a value' if value is not None else 'unless query is packed [b, s, h, 3, d]'}"
        )
    if not may_equal(key.shape.dims[0], b):
        n.fail(f"query and key must have the same batch size, got {query.shape} and {key.shape}")
    if key.shape.rank == 5:
        kb, t, h, two, d = key.shape.dims
        if value is not None or two != 2 or not may_equal(h, heads) or not may_equal(h * d, hidden):
            n.fail(f"packed key and value must be one input [b, t, {heads}, 2, {hidden // heads}], got {key.shape}")
        both = [n.reshape(n.squeeze(n.slice(key, [3], [i], [i + 1]), [3]), (kb, t, hidden)) for i in range(2)]
        return _biased_heads(n, (query, *both), input_bias(n, bias, (hidden, hidden, hidden)), heads)
    if value is None:
        n.fail("a value is required unless key is packed")
    if key.shape.rank != value.shape.rank or not may_equal(key.shape.dims[0], value.shape.dims[0]):
        n.fail(f"key and value must agree in rank and batch, got {key.shape} and {value.shape}")
    if key.shape.rank == 4:
        if not may_equal(key.shape.dims[1], heads) or not may_equal(value.shape.dims[1], heads):
            n.fail(f"key and value of rank 4 must be [b, {heads}, t, d], got {key.shape} and {value.shape}")
        width = value.shape.dims[1] * value.shape.dims[3]
        first = input_bias(n, bias, (hidden, hidden, width))[0]
        q = query if first is None else n.pointwise("add", query, first)
        return split_heads(n, q, heads), key, value
    if key.shape.rank != 3 or not may_equal(key.shape.dims[2], hidden):
        n.fail(f"key must be [b, t, {hidden}], got {key.shape}")
    if not may_equal(key.shape.dims[1], value.shape.dims[1]):
        n.fail(f"key and value must have the same length, got {key.shape} and {value.shape}")
    return _biased_heads(n, (query, key, value), input_bias(n, bias, (hidden, hidden, value.shape.dims[2])), heads)


def _biased_heads(
    n: Node, flat: Sequence[Instruction], biases: Sequence[Instruction | None], heads: int
) -> tuple[Instruction, Instruction, Instruction]:
    """Returns queries, keys and values [b, s, hidden] with their biases as [b, h, s, d]."""
    added = (f if more is None else n.pointwise("add", f, more) for f, more in zip(flat, biases, strict=True))
    q, k, v = (split_heads(n, f, heads) for f in added)
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
        value, bias, key_padding_mask = None, value, bias  # some exporters omit the value input if it is packed
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
    scores = finite(n, attend(n, q, cache, mask, "masked", causal=causal)) if n.output_used(3) else None
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
    outputs: tuple[Instruction | None, ...] = multi_head_attention(n, query, key, value, *operands)
    return outputs
