"""Attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import DType, Instruction
from mgx_core.types.dim import Dim

from ..converter import converts
from ..element_types import dtype_of
from ..node import Node

__all__ = ["masked_products"]


def attended(
    n: Node, q: Instruction, k: Instruction, v: Instruction, mask: Instruction | None, causal: bool, scale: float | None
) -> Instruction:
    """Returns attention over any number of broadcast batch axes.

    The op has one batch and one head axis, and broadcasts the heads of k and v itself.
    """
    rank = max(x.shape.rank for x in (q, k, v))
    front = common(q, k, v)
    if mask is not None:
        mask = over_keys(n, mask, k)
        mask = n.convert(mask, q.shape.dtype) if mask.shape.dtype.is_float else mask
    if rank == 4:
        heads = (
            front[1] if k.shape.rank < 4 or v.shape.rank < 4 or k.shape.dims[1] != v.shape.dims[1] else k.shape.dims[1]
        )
        q = spread(n, q, front if q.shape.rank < 4 or q.shape.dims[1] == 1 else (front[0], q.shape.dims[1]))
        k, v = (spread(n, x, (front[0], heads)) for x in (k, v))
        if mask is not None and mask.shape.rank < 4:
            mask = n.unsqueeze(mask, range(4 - mask.shape.rank))
        return n.add("attention", q, k, v, mask, causal=causal, scale=scale)
    q = spread(n, q, front)
    count = n.size(q, range(rank - 2))

    def folded(x: Instruction) -> Instruction:
        x = spread(n, x, front)
        return n.reshape(x, (1, count, *x.shape.dims[-2:]))

    if mask is not None:
        if mask.shape.rank <= 2:
            mask = n.unsqueeze(mask, range(4 - mask.shape.rank))
        else:
            mask = folded(n.broadcast_to(mask, [*front, *mask.shape.dims[-2:]]))
    out = n.add("attention", folded(q), folded(k), folded(v), mask, causal=causal, scale=scale)
    return n.reshape(out, (*front, *out.shape.dims[-2:]))


def common(*operands: Instruction) -> tuple[Dim, ...]:
    """Returns the operands' broadcast batch axes."""
    rank = max(x.shape.rank for x in operands)
    dims = [(*[1] * (rank - x.shape.rank), *x.shape.dims[:-2]) for x in operands]
    return tuple(next((d for d in each if d != 1), 1) for each in zip(*dims, strict=True))


def spread(n: Node, x: Instruction, front: Sequence[Dim]) -> Instruction:
    """Returns an operand broadcast to batch axes."""
    wanted = (*front, *x.shape.dims[-2:])
    return x if tuple(x.shape.dims) == wanted else n.broadcast_to(x, wanted)


def over_keys(n: Node, mask: Instruction, k: Instruction) -> Instruction:
    """Returns a mask broadcast over the keys, since the op does not broadcast a single column."""
    keys = k.shape.dims[-2]
    return n.broadcast_to(mask, [*mask.shape.dims[:-1], keys]) if mask.shape.dims[-1] == 1 and keys != 1 else mask


def masked_products(
    n: Node,
    q: Instruction,
    k: Instruction,
    v: Instruction,
    mask: Instruction | None,
    causal: bool,
    scale: float | None,
    wide: DType,
) -> Instruction:
    """Returns the scaled products of queries and keys with the mask applied, computed in a wide type."""
    q, k, v = (n.convert(x, wide) for x in (q, k, v))
    mask = None if mask is None else over_keys(n, mask, k)
    mask = n.convert(mask, wide) if mask is not None and mask.shape.dtype.is_float else mask
    return n.add("attention", q, k, v, mask, causal=causal, scale=scale, result_of="masked")


@converts("scaled_dot_product_attention")
def scaled_dot_product_attention(
    n: Node,
    q: Instruction,
    k: Instruction,
    v: Instruction,
    attn_mask: Instruction | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Instruction:
    if dropout_p > 0:
        n.unsupported("attention with dropout draws from torch's generator")
    return attended(n, q, k, v, attn_mask, is_causal, scale)


@converts("_scaled_dot_product_flash_attention_for_cpu")
def flash_for_cpu(
    n: Node,
    q: Instruction,
    k: Instruction,
    v: Instruction,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Instruction | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p > 0:
        n.unsupported("attention with dropout draws from torch's generator")
    if not n.output_used(1):
        return attended(n, q, k, v, attn_mask, is_causal, scale), None
    wide = dtype_of(n.result(1).dtype)  # float32 for narrower types
    logits = masked_products(n, q, k, v, attn_mask, is_causal, scale, wide)
    top = n.reduce("reduce_max", logits, [3], True)
    # of rows that are all masked, from whose minus infinity gradients would be NaN
    top = n.add("where", n.add("isinf", top), n.full_like(top, 0), top)
    powers = n.add("exp", n.pointwise("sub", logits, top))
    sums = n.reduce("reduce_sum", powers, [3], True)
    none = n.add("equal", sums, n.full_like(sums, 0))
    sums = n.add("where", none, n.full_like(sums, 1), sums)
    if q.shape.dtype is wide:  # products of queries and keys are computed once
        out = n.pointwise("div", products_by_heads(n, powers, v), sums)
    else:
        out = attended(n, q, k, v, attn_mask, is_causal, scale)
    return out, n.squeeze(n.add("add", n.add("log", sums), top), [3])


def products_by_heads(n: Node, shares: Instruction, v: Instruction) -> Instruction:
    """Returns the sums of values [b, h / r, t, d] by shares [b, h, s, t], whose heads share those of v in groups of r."""
    dims, heads = shares.shape.dims, v.shape.dims[1]
    if heads == dims[1]:
        return n.add("dot", shares, v)
    shared = n.static(dims[1], "the number of heads") // n.static(heads, "the number of heads of keys")
    rows = n.reshape(shares, (dims[0], heads, dims[2] * shared, dims[3]))
    return n.reshape(n.add("dot", rows, v), (*dims[:3], v.shape.dims[3]))
