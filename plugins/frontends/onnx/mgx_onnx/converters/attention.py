"""Attention, flexible and linear attention, rotary embeddings, causal convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Shape
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim, may_equal

from ..converter import converts
from ..node import Node
from ..tensors import dtype_of

__all__ = ["causal_convolution", "length_of", "merged_heads", "recurrence", "split_heads"]


def split_heads(n: Node, x: Instruction, heads: int) -> Instruction:
    """Reshapes [b, s, heads * d] to [b, heads, s, d]."""
    if heads < 1:
        n.fail(f"the number of heads must be positive, got {heads}")
    b, s, hidden = x.shape.dims
    if isinstance(hidden, int) and hidden % heads:
        n.fail(f"the hidden size {hidden} is not a multiple of the {heads} heads")
    return n.transpose(n.reshape(x, (b, s, heads, hidden // heads)), [0, 2, 1, 3])


def merged_heads(n: Node, x: Instruction) -> Instruction:
    """Reshapes [b, h, s, d] to [b, s, h * d]."""
    b, h, s, d = x.shape.dims
    return n.reshape(n.transpose(x, [0, 2, 1, 3]), (b, s, h * d))


def length_of(n: Node, x: Instruction) -> Instruction:
    """Returns the length s of [b, h, s, d] as int64 [1], constant if known."""
    d: Dim = x.shape.dims[2]
    return n.literal([d], dt.int64) if isinstance(d, int) else n.add("dimensions_of", x, start=2, end=3)


STAGES = {0: "scores", 1: "capped", 2: "masked", 3: "probabilities"}


@converts("Attention", since=23)
def attention(
    n: Node,
    q: Instruction,
    k: Instruction,
    v: Instruction,
    mask: Instruction | None = None,
    past_key: Instruction | None = None,
    past_value: Instruction | None = None,
    nonpad_kv_seqlen: Instruction | None = None,
) -> tuple[Instruction | None, ...]:
    rank = q.shape.rank
    if not rank == k.shape.rank == v.shape.rank or rank not in (3, 4):
        n.fail(f"Q, K and V must all have 3 or all 4 axes, got {q.shape}, {k.shape} and {v.shape}")
    if (past_key is None) != (past_value is None):
        n.fail("past_key and past_value must be given together")
    if past_key is not None and nonpad_kv_seqlen is not None:
        n.fail("nonpad_kv_seqlen cannot be given together with past_key and past_value")
    if rank == 3:
        heads, kv_heads = n.attr("q_num_heads"), n.attr("kv_num_heads")
        q = split_heads(n, q, heads)
        k, v = split_heads(n, k, kv_heads), split_heads(n, v, kv_heads)
    offset: Dim = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape.dims[2]
        k, v = n.add("concat", past_key, k, axis=2), n.add("concat", past_value, v, axis=2)
    offsets = None
    if nonpad_kv_seqlen is not None:
        nonpad_kv_seqlen = n.convert(nonpad_kv_seqlen, dt.int64)
        offsets = n.pointwise("sub", nonpad_kv_seqlen, length_of(n, q))
    if mask is not None and mask.shape.dtype.is_integer:
        mask = n.convert(mask, q.shape.dtype)
    precision = n.attr("softmax_precision", 0)
    head_size = q.shape.dims[3]
    scale = n.attr("scale", None)
    if scale is None and isinstance(head_size, int):
        scale = 1 / math.sqrt(max(head_size, 1))
    attributes: dict[str, Any] = {
        "scale": scale,
        "causal": bool(n.attr("is_causal", 0)),
        "softcap": n.attr("softcap", 0.0),
        "left_window_size": n.attr("left_window_size", -1),
        "right_window_size": n.attr("right_window_size", -1),
        "offset": offset,
        "precision": dtype_of(precision) if precision else None,
    }
    operands = (q, k, v, mask, nonpad_kv_seqlen, offsets)
    y = n.add("attention", *operands, **attributes)
    stage = None
    if n.output_used(3):
        mode = n.attr("qk_matmul_output_mode", 0)
        if mode not in STAGES:
            n.fail(f"qk_matmul_output_mode must be 0 to 3, got {mode}")
        stage = n.add("attention", *operands, **attributes, result_of=STAGES[mode])
    return merged_heads(n, y) if rank == 3 else y, k, v, stage


@converts("FlexAttention", domain="ai.onnx.preview")
def flex_attention(n: Node, q: Instruction, k: Instruction, v: Instruction) -> Instruction:
    stated = n.attr("softmax_precision", 0)
    precision = dtype_of(stated) if stated else dt.float64 if q.shape.dtype is dt.float64 else dt.float32
    b, h, s, _ = q.shape.dims
    scores = Shape.of(precision, (b, h, s, k.shape.dims[2]))
    graphs = {name: n.attr(name, None) for name in ("score_mod", "prob_mod")}
    modules = [n.parse_subgraph(g, name, [scores]) for name, g in graphs.items() if g is not None]
    return n.add(
        "flex_attention",
        q,
        k,
        v,
        modules=modules,
        scale=n.attr("scale", None),
        score_mod=graphs["score_mod"] is not None,
        prob_mod=graphs["prob_mod"] is not None,
        precision=precision,
    )


@converts("LinearAttention", since=27)
def linear_attention(
    n: Node,
    query: Instruction,
    key: Instruction,
    value: Instruction,
    past_state: Instruction | None = None,
    decay: Instruction | None = None,
    beta: Instruction | None = None,
) -> tuple[Instruction, ...]:
    return recurrence(n, (query, key, value, past_state, decay, beta), n.attr("q_num_heads"))


def recurrence(n: Node, operands: Sequence[Instruction | None], heads: int) -> tuple[Instruction, ...]:
    """Returns result and state of linear attention; operands: query, key, value, past state, decay, beta; heads: of the query."""
    made = n.add(
        "linear_attention",
        *operands,
        q_num_heads=heads,
        kv_num_heads=n.attr("kv_num_heads"),
        update_rule=n.attr("update_rule", "gated_delta"),
        scale=n.attr("scale", 0.0),
        chunk_size=n.attr("chunk_size", 64),
    )
    return n.items(made)


@converts("CausalConvWithState")
def causal_conv_with_state(
    n: Node,
    x: Instruction,
    weight: Instruction,
    bias: Instruction | None = None,
    past_state: Instruction | None = None,
) -> tuple[Instruction, ...]:
    if x.shape.rank != 3 or weight.shape.rank != 3 or weight.shape.dims[1] != 1:
        n.fail(f"input must be [b, c, l] and weight [c, 1, k], got {x.shape} and {weight.shape}")
    return causal_convolution(n, x, weight, bias, past_state)


def causal_convolution(
    n: Node, x: Instruction, weight: Instruction, bias: Instruction | None, past: Instruction | None, dilation: int = 1
) -> tuple[Instruction, Instruction]:
    """Returns the causal convolution of each channel, computed in float32, and the last positions, which the next one continues.

    x: [b, c, l]; weight: [c, 1, k]; bias: [c]; past: the positions before x, [b, c, (k - 1) * dilation], 0 if absent.
    """
    activation = n.attr("activation", "none")
    if activation not in ("none", "silu", "swish"):
        n.fail(f"activation must be none, silu or swish, got {activation!r}")
    b, channels, length = x.shape.dims
    group, state = weight.shape.dims[0], (weight.shape.dims[2] - 1) * dilation
    if not isinstance(group, int):
        n.unsupported("a weight with a symbolic number of channels")
    if past is None:
        past = n.broadcast_to(n.literal(0.0, x.shape.dtype), (b, channels, state))
    elif past.shape.rank != 3 or not all(map(may_equal, past.shape.dims, (b, channels, state))):
        n.fail(f"past_state must hold {state} positions of {channels} channels, got {past.shape}")
    whole = n.add("concat", past, x, axis=2)
    y = n.add(
        "convolution", n.convert(whole, dt.float32), n.convert(weight, dt.float32), group=group, dilation=(dilation,)
    )
    if bias is not None:
        y = n.pointwise("add", y, n.unsqueeze(n.convert(bias, dt.float32), [1]))
    if activation != "none":
        y = n.add("swish", y)
    return n.convert(y, x.shape.dtype), n.slice(whole, [2], [length], [length + state])


@converts("RotaryEmbedding", since=23)
def rotary_embedding(
    n: Node, x: Instruction, cos: Instruction, sin: Instruction, positions: Instruction | None = None
) -> Instruction:
    packed = x.shape.rank == 3
    whole = split_heads(n, x, n.attr("num_heads")) if packed else x
    turned = n.attr("rotary_embedding_dim", 0)
    if turned and cos.shape.dims[-1] != turned // 2:
        n.fail(f"rotary_embedding_dim {turned} requires caches of {turned // 2} columns, got {cos.shape}")
    y = n.add("rotary_embedding", whole, cos, sin, positions, interleaved=bool(n.attr("interleaved", 0)))
    return merged_heads(n, y) if packed else y
