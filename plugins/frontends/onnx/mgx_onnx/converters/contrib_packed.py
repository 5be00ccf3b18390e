"""Attention operators of com.microsoft on sequences that are packed without padding."""

from __future__ import annotations

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node
from .attention import merged_heads, split_heads
from .contrib_cache import Cache, attend, input_bias
from .contrib_quant import MS


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
        return n.fail("key and value are required unless query is packed [tokens, h, 3, d]")
    else:
        parts = [query, key, value]
    more = input_bias(n, bias, (parts[0].shape.dims[1], parts[1].shape.dims[1], parts[2].shape.dims[1]))
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
    """Attention on packed sequences [tokens, hidden]: unpacked to [b, s, hidden], attended and repacked."""
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
