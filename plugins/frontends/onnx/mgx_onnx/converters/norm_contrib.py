"""Normalizations of com.microsoft: Skip-, Embed- and QEmbedLayerNormalization, GroupNorm, SkipGroupNorm."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dim as dims_
from mgx_core.types.dtype import int32

from ..converter import converts
from ..node import Node
from .activation_names import activate
from .norm import computed_in, layer_norm, rsqrt
from .quantized import dequantized

__all__: list[str] = []


def joined(n: Node, x: Instruction, skip: Instruction, bias: Instruction | None) -> Instruction:
    """Returns x + skip + bias, in float32 or wider."""
    if x.shape.rank not in (2, 3) or skip.shape.rank not in (2, 3):
        n.fail(f"input and skip must be [b, s, h] or [s, h], got {x.shape} and {skip.shape}")
    for name, v in (("skip", skip), ("bias", bias)):
        if v is not None and v.shape.dtype is not x.shape.dtype:
            n.fail(f"{name} must have the type of the input, {x.shape.dtype}, got {v.shape.dtype}")
    wide = computed_in(x)
    for d, wanted in zip(reversed(skip.shape.dims), reversed(x.shape.dims), strict=False):
        if not dims_.may_equal(d, wanted) and not dims_.may_equal(d, 1):
            n.fail(f"skip {skip.shape} does not fit the input {x.shape}")
    total = n.add("add", n.convert(x, wide), n.broadcast_to(n.convert(skip, wide), x.shape.dims))
    if bias is None:
        return total
    hidden(n, "bias", bias, x)
    return n.add("add", total, n.broadcast_to(n.convert(bias, wide), x.shape.dims))


def hidden(n: Node, name: str, v: Instruction | None, x: Instruction) -> None:
    """Errors: ParseError unless a factor is a vector over the last axis of x."""
    if v is not None and (v.shape.rank != 1 or not dims_.may_equal(v.shape.dims[0], x.shape.dims[-1])):
        n.fail(f"{name} must have dims [{x.shape.dims[-1]}], got {v.shape}")


@converts("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_norm(
    n: Node,
    x: Instruction,
    skip: Instruction,
    gamma: Instruction,
    beta: Instruction | None = None,
    bias: Instruction | None = None,
) -> Any:
    dtype = x.shape.dtype
    hidden(n, "gamma", gamma, x)
    hidden(n, "beta", beta, x)
    total = joined(n, x, skip, bias)
    gamma = n.convert(gamma, total.shape.dtype)
    beta = None if beta is None else n.convert(beta, total.shape.dtype)
    y, *others = layer_norm(n, total, gamma, beta, -1, n.attr("epsilon", 1e-12), n.output_used(1) or n.output_used(2))
    mean, deviation = others or (None, None)
    return n.convert(y, dtype), mean, deviation, n.convert(total, dtype)


@converts("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_simplified_layer_norm(
    n: Node, x: Instruction, skip: Instruction, gamma: Instruction, bias: Instruction | None = None
) -> Any:
    dtype, epsilon = x.shape.dtype, n.attr("epsilon", 1e-12)
    hidden(n, "gamma", gamma, x)
    total = joined(n, x, skip, bias)
    y = n.add("rmsnorm", total, n.convert(gamma, total.shape.dtype), axis=-1, epsilon=epsilon)
    mean = deviation = None
    last = (x.shape.rank - 1,)
    if n.output_used(1):
        mean = n.full_like(n.add("reduce_mean", total, axes=last), 0)
    if n.output_used(2):
        deviation = rsqrt(n, n.add("reduce_mean", n.add("mul", total, total), axes=last), epsilon)
    return n.convert(y, dtype), mean, deviation, n.convert(total, dtype)


@converts("EmbedLayerNormalization", domain="com.microsoft")
def embed_layer_norm(
    n: Node,
    ids: Instruction,
    segments: Instruction | None,
    words: Instruction,
    positions: Instruction,
    segment_table: Instruction | None = None,
    gamma: Instruction | None = None,
    beta: Instruction | None = None,
    mask: Instruction | None = None,
    position_ids: Instruction | None = None,
) -> Any:
    if ids.shape.rank != 2 or gamma is None:
        n.fail(f"EmbedLayerNormalization requires input_ids [b, s] and gamma, got {ids.shape}")
    n.attr("mask_index_type", 0)  # for shape inference
    dtype, wide = words.shape.dtype, computed_in(words)
    batch, length = ids.shape.dims
    total = n.convert(n.add("gather", words, ids, axis=0), wide)
    if position_ids is None:
        places = n.unsqueeze(n.slice(positions, [0], [0], [length]), [0])
    else:
        places = n.add("gather", positions, position_ids, axis=0)
    total = n.add("add", total, n.broadcast_to(n.convert(places, wide), total.shape.dims))
    if segments is not None and segment_table is not None:
        total = n.add("add", total, n.convert(n.add("gather", segment_table, segments, axis=0), wide))
    gamma, beta = (v if v is None else n.convert(v, wide) for v in (gamma, beta))
    (y,) = layer_norm(n, total, gamma, beta, -1, n.attr("epsilon", 1e-12), False)
    if mask is None:
        counts = n.broadcast_to(n.literal(0, int32), (batch,))
    else:
        counts = n.squeeze(n.add("reduce_sum", n.convert(mask, int32), axes=(1,)), [1])
    return n.convert(y, dtype), counts, n.convert(total, dtype)


@converts("QEmbedLayerNormalization", domain="com.microsoft")
def quantized_embed_layer_norm(
    n: Node, ids: Instruction, segments: Instruction | None, *rest: Instruction | None
) -> tuple[Instruction, Instruction]:
    """Converts an embedding with 8-bit tables.

    rest: tables of words, positions and segments, gamma, beta; the mask; five scales; five zero points.
    """
    if len(rest) != 16:
        n.fail(f"18 inputs are required, got {len(rest) + 2}")
    tables = [
        None if x is None or scale is None else dequantized(n, x, scale, point)
        for x, scale, point in zip(rest[:5], rest[6:11], rest[11:], strict=True)
    ]
    words, positions, segment_table, gamma, beta = tables
    if words is None or positions is None:
        n.fail("word_embedding_quant and position_embedding_quant need their scales")
    y, counts, _ = embed_layer_norm(n, ids, segments, words, positions, segment_table, gamma, beta, rest[5])
    return y, counts


def groups_of(n: Node, x: Instruction, gamma: Instruction, beta: Instruction) -> Instruction:
    """Converts GroupNorm by the node's attributes, without changing the layout of x."""
    rank = x.shape.rank
    last = bool(n.attr("channels_last", 1))
    if rank < 3:
        n.fail(f"X must have batch, channel and spatial axes, got {x.shape}")
    image = n.transpose(x, [0, rank - 1, *range(1, rank - 1)]) if last else x
    y = n.add("groupnorm", image, gamma, beta, num_groups=n.attr("groups"), epsilon=n.attr("epsilon", 1e-5))
    if n.attr("activation") not in (0, 1):
        n.fail(f"activation must be 0 or 1 (SiLU), got {n.attr('activation')}")
    y = activate(n, y, "silu" if n.attr("activation") else "")
    return n.transpose(y, [0, *range(2, rank), 1]) if last else y


@converts("GroupNorm", domain="com.microsoft")
def group_norm(n: Node, x: Instruction, gamma: Instruction, beta: Instruction) -> Instruction:
    return groups_of(n, x, gamma, beta)


@converts("SkipGroupNorm", domain="com.microsoft")
def skip_group_norm(
    n: Node, x: Instruction, gamma: Instruction, beta: Instruction, skip: Instruction, bias: Instruction | None = None
) -> tuple[Instruction, Instruction]:
    total = x
    for v in (skip, bias):
        if v is None:
            continue
        if v.shape.rank == 2:
            v = n.unsqueeze(v, range(1, x.shape.rank - 1))
        total = n.add("add", total, n.broadcast_to(v, x.shape.dims))
    return groups_of(n, total, gamma, beta), total
