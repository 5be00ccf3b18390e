"""Parts shared by the attention operators of com.microsoft: caches of keys and values, masks, biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple
from mgx_core.types.dim import Dim, compare, may_equal

from ..node import Node
from .attention import length_of

__all__ = ["Cache", "added", "attend", "check_bias", "finite", "grown", "input_bias", "mask_extent", "padding_bias"]

ORT_MASK = -10000.0


class Cache(NamedTuple):
    """Keys and values of all tokens so far [b, g, t, d], and the queries' positions."""

    key: Instruction
    value: Instruction
    offset: Dim = 0
    lengths: Instruction | None = None  # [b], if not all t are in use
    offsets: Instruction | None = None  # [b], if the offset is known only at run time


def counted(n: Node, d: Dim) -> Instruction:
    """Returns arange(d) as int64."""
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
    """Appends new keys and values [b, g, s, d] to the past ones; with a past length, writes them into full-size buffers."""
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
    total = n.add("add", before, length_of(n, key))
    last = n.broadcast_to(n.add("sub", total, n.literal([1], dt.int64)), (batch,))
    keys = n.add("concat_past_present", key, last, past_key)
    values = n.add("concat_past_present", value, last, past_value)
    return Cache(keys, values, 0, n.broadcast_to(total, (batch,)), n.broadcast_to(before, (batch,)))


def padding_bias(
    n: Node, mask: Instruction | None, batch: Dim, length: Dim, total: Dim, past: Dim, dtype: dt.DType
) -> Instruction | None:
    """Returns a mask in any of ORT's forms as an additive bias: 0, or `mask_filter_value` for masked keys."""
    closed = n.attr("mask_filter_value", ORT_MASK)  # read even without a mask: optimizers write it in any case
    if mask is None:
        return None
    if mask.shape.dtype not in (dt.int32, dt.int64, dt.bool_):
        n.fail(f"the mask must contain integers, got {mask.shape}")
    dims = mask.shape.dims
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
            n.unsupported("masks of 3 * batch + 2 values (cumulated lengths) are not supported")
        else:
            return n.fail(f"a mask of rank 1 must have {batch} or {batch * 2} values, got {many}")
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
    """Returns the sum of the biases that are not None."""
    out: Instruction | None = None
    for bias in biases:
        if bias is not None:
            out = bias if out is None else n.pointwise("add", out, bias)
    return out


def check_bias(n: Node, bias: Instruction | None, batch: Dim, heads: Dim, length: Dim, total: Dim) -> None:
    """Errors: ParseError unless an attention bias is [b or 1, h or 1, s, t]."""
    if bias is None:
        return
    dims = bias.shape.dims
    repeated = dims[:2] if len(dims) == 4 else ()
    wanted = [1 if d == 1 else w for d, w in zip(repeated, (batch, heads), strict=False)]
    if len(dims) != 4 or not all(map(may_equal, dims, (*wanted, length, total))):
        n.fail(f"attention_bias must be [{batch} or 1, {heads} or 1, {length}, {total}], got {list(dims)}")


def attend(
    n: Node, q: Instruction, cache: Cache, bias: Instruction | None, stage: str = "output", **attributes: Any
) -> Instruction:
    """Returns the attention op on queries [b, h, s, d] and a cache."""
    operands = (q, cache.key, cache.value, bias, cache.lengths, cache.offsets)
    scale = n.attr("scale", 0.0) or None
    return n.add("attention", *operands, scale=scale, offset=cache.offset, result_of=stage, **attributes)


def finite(n: Node, scores: Instruction) -> Instruction:
    """Returns scores with the lowest finite value for masked keys, as ORT returns them."""
    return n.pointwise("max", scores, n.literal(scores.shape.dtype.lowest, scores.shape.dtype))


def mask_extent(mask: Instruction | None, cache: Cache) -> Dim:
    """Returns the number of keys that a mask over a shared buffer covers."""
    extent: Dim = cache.key.shape.dims[2]
    if mask is not None and mask.shape.rank in (2, 3):
        extent = mask.shape.dims[-1]
    return extent


def input_bias(n: Node, bias: Instruction | None, widths: tuple[Dim, Dim, Dim]) -> Sequence[Instruction | None]:
    """Returns the parts of an input bias for queries, keys and values."""
    if bias is None:
        return [None, None, None]
    if bias.shape.rank != 1 or not may_equal(bias.shape.dims[0], widths[0] + widths[1] + widths[2]):
        n.fail(f"bias must be a vector of {widths[0] + widths[1] + widths[2]}, got {bias.shape}")
    starts = (0, widths[0], widths[0] + widths[1], widths[0] + widths[1] + widths[2])
    return [n.slice(bias, [0], [starts[i]], [starts[i + 1]]) for i in range(3)]
