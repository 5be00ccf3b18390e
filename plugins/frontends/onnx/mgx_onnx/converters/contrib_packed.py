"""Operators of com.microsoft that pack sequences without padding, and attention on packed ones."""

from __future__ import annotations

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.filling import places_along, places_of_true

from ..converter import converts
from ..node import Node
from .attention import merged_heads, split_heads
from .contrib_cache import Cache, attend, input_bias
from .contrib_quant import MS


@converts("RemovePadding", domain=MS)
def remove_padding(
    n: Node, x: Instruction, counts: Instruction
) -> tuple[Instruction, Instruction, Instruction, Instruction]:
    """Returns the tokens of x [b, s, h] as rows, places of tokens and of padding, ends of sequences, the longest length."""
    if x.shape.rank != 3 or counts.shape.rank != 1:
        n.fail(f"input must be [b, s, h] and sequence_token_count [b], got {x.shape} and {counts.shape}")
    batch, length, width = x.shape.dims
    steps = n.unsqueeze(n.convert(places_along(n, x, 1), dt.int32), [0])
    counts = n.convert(counts, dt.int32)
    there = n.reshape(n.pointwise("less", steps, n.unsqueeze(counts, [1])), (batch * length,))
    tokens, gaps = (n.squeeze(places_of_true(n, v), [1]) for v in (there, n.add("not", there)))
    packed = n.add("gather", n.reshape(x, (batch * length, width)), tokens, axis=0)
    offset = n.reshape(n.convert(n.add("concat", tokens, gaps, axis=0), dt.int32), (batch, length))
    ends = n.add("concat", n.literal([0], dt.int32), n.add("prefix_scan_sum", counts, axis=0), axis=0)
    return packed, offset, ends, n.add("reduce_max", counts, axes=(0,))


@converts("RestorePadding", domain=MS)
def restore_padding(n: Node, x: Instruction, token_offset: Instruction) -> Instruction:
    if x.shape.rank != 2 or token_offset.shape.rank != 2:
        n.fail(f"input must be [tokens, h] and token_offset [b, s], got {x.shape} and {token_offset.shape}")
    return _spread(n, x, token_offset)


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


def _places(n: Node, x: Instruction, token_offset: Instruction) -> Instruction:
    """Returns the place of each token of x [tokens, h] among b * s places."""
    batch, length = token_offset.shape.dims
    return n.slice(n.reshape(token_offset, (batch * length,)), [0], [0], [x.shape.dims[0]])


def _spread(n: Node, x: Instruction, token_offset: Instruction) -> Instruction:
    """Returns tokens [tokens, h] at their places in [b, s, h], with zeros elsewhere."""
    (batch, length), width = token_offset.shape.dims, x.shape.dims[1]
    indices = n.unsqueeze(n.convert(_places(n, x, token_offset), dt.int64), [1])
    empty = n.broadcast_to(n.literal(0.0, x.shape.dtype), (batch * length, width))
    return n.reshape(n.add("scatternd_none", empty, indices, x), (batch, length, width))


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
    """Returns attention on packed sequences [tokens, hidden]: unpacked to [b, s, hidden], attended and repacked."""
    batch, length = token_offset.shape.dims
    places = _places(n, q, token_offset)

    def spread(x: Instruction) -> Instruction:
        return split_heads(n, _spread(n, x, token_offset), heads)

    ends = n.convert(lengths, dt.int64)
    counts = n.add("sub", n.slice(ends, [0], [1], [batch + 1]), n.slice(ends, [0], [0], [batch]))
    y = merged_heads(n, attend(n, spread(q), Cache(spread(k), spread(v), 0, counts), attention_bias))
    flat = n.reshape(y, (batch * length, y.shape.dims[2]))
    return n.add("gather", flat, places, axis=0)
