"""Operators of com.microsoft for decoders with linear attention or state spaces: recurrences, causal convolutions and gates."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim, may_equal

from ..converter import converts
from ..node import Node
from .attention import causal_convolution, merged_heads, recurrence, split_heads
from .contrib_quant import MS
from .norm import rsqrt

__all__: list[str] = []


def _default(n: Node, *settings: tuple[str, Any]) -> None:
    """Errors: UnsupportedError for an attribute that is not at its default."""
    for name, plain in settings:
        if n.attr(name, plain) != plain:
            n.unsupported(f"{name} = {n.attr(name)} is not supported; only the default, {plain}, is")


def _repeated(n: Node, x: Instruction, heads: int, times: int) -> Instruction:
    """Repeats each head of [b, t, heads * d] `times` times."""
    b, t, hidden = x.shape.dims
    size: Dim = hidden // heads
    each = n.broadcast_to(n.reshape(x, (b, t, heads, 1, size)), (b, t, heads, times, size))
    return n.reshape(each, (b, t, heads * times * size))


@converts("LinearAttention", domain=MS)
def linear_attention(
    n: Node,
    query: Instruction,
    key: Instruction,
    value: Instruction,
    past_state: Instruction | None = None,
    decay: Instruction | None = None,
    beta: Instruction | None = None,
) -> tuple[Instruction, ...]:
    _default(n, ("state_window", 0))
    heads, groups, rule = n.attr("q_num_heads"), n.attr("kv_num_heads"), n.attr("update_rule", "gated_delta")
    if groups > heads > 0 and groups % heads == 0:  # one output for each head of the values
        query = _repeated(n, query, heads, groups // heads)
        heads = groups
    decay = decay if "gated" in rule else None
    beta = beta if "delta" in rule else None
    return recurrence(n, (query, key, value, past_state, decay, beta), heads)


@converts("GatedDeltaNet", domain=MS)
def gated_delta_net(
    n: Node,
    query: Instruction,
    key: Instruction | None = None,
    value: Instruction | None = None,
    bounds: Instruction | None = None,
    decay: Instruction | None = None,
    beta: Instruction | None = None,
    initial_state: Instruction | None = None,
    a_log: Instruction | None = None,
    dt_bias: Instruction | None = None,
    capture_count: Instruction | None = None,
    capture_active: Instruction | None = None,
) -> tuple[Instruction, ...]:
    """LinearAttention on tokens [b s, h, d] or [b, s, h, d], with gates and normalization fused into it.

    Sequences of unequal length (cu_seqlens), packed QKV and the capture of single updates are not supported.
    """
    _default(n, ("state_update_capacity", 0))
    if bounds is not None or capture_count is not None or capture_active is not None:
        n.unsupported("cu_seqlens, capture_count and state_update_active")
    if key is None or value is None or initial_state is None:
        n.unsupported("packed QKV, or no initial_state")
    rule, rank = n.attr("update_rule", "gated_delta"), query.shape.rank
    b, groups = initial_state.shape.dims[:2]
    heads = query.shape.dims[-2]
    if not isinstance(groups, int) or not isinstance(heads, int):
        n.unsupported("a symbolic number of heads")
    steps: Dim = query.shape.dims[1] if rank == 4 else query.shape.dims[0] // b

    def flat(x: Instruction, count: int = 1) -> Instruction:
        """Returns [b, s, ..] with the heads in the last axis, each `count` times, in float32."""
        x = n.convert(x, dt.float32)
        lead = 2 if rank == 4 else 1
        width: Dim = 1
        for d in x.shape.dims[lead:]:
            width = width * d
        x = n.reshape(x, (b, steps, width))
        return x if count == 1 else _repeated(n, x, heads, count)

    def normed(x: Instruction) -> Instruction:
        if not n.attr("qk_l2_norm", 0):
            return x
        wide = n.convert(x, dt.float32)
        power = n.add("reduce_sum", n.add("mul", wide, wide), axes=(wide.shape.rank - 1,))
        return n.pointwise("mul", wide, rsqrt(n, power, 1e-6))

    each = groups // heads
    gate = None
    if "gated" in rule:
        if decay is None:
            n.fail(f"update_rule {rule!r} requires decay")
        gate = flat(_decay(n, decay, a_log, dt_bias, decay.shape.rank == rank))
    rate = None
    if "delta" in rule:
        if beta is None:
            n.fail(f"update_rule {rule!r} requires beta")
        rate = flat(beta)
        if n.attr("beta_activation", "none") == "sigmoid":
            rate = n.add("sigmoid", rate)
    past = n.transpose(n.convert(initial_state, dt.float32), [0, 1, 3, 2])
    made = n.add(
        "linear_attention",
        flat(normed(query), each),
        flat(normed(key), each),
        flat(value),
        past,
        gate,
        rate,
        q_num_heads=groups,
        kv_num_heads=groups,
        update_rule=rule,
        scale=n.attr("scale", 0.0),
    )
    y, state = n.items(made)
    lead = query.shape.dims[:-2]
    out = n.convert(n.reshape(y, (*lead, groups, value.shape.dims[-1])), query.shape.dtype)
    return out, n.convert(n.transpose(state, [0, 1, 3, 2]), initial_state.shape.dtype)


def _decay(
    n: Node, decay: Instruction, a_log: Instruction | None, dt_bias: Instruction | None, per_key: bool
) -> Instruction:
    """Returns the logarithm of the decay in float32: as given, or computed from a projection by `gate_activation`.

    per_key: decay is [.., h, k], not [.., h].
    """
    wide, kind = n.convert(decay, dt.float32), n.attr("gate_activation", "none")
    if kind == "none":
        return wide
    if kind not in ("softplus", "qwen", "sigmoid", "kda") or a_log is None or dt_bias is None:
        n.fail(f"gate_activation must be none, or softplus or sigmoid with a_log and dt_bias, got {kind!r}")
    heads = a_log.shape.dims[0]
    factor = n.add("exp", n.reshape(a_log, (heads, 1) if per_key else (heads,)))
    bias = n.reshape(
        dt_bias, (heads, wide.shape.dims[-1]) if per_key and dt_bias.shape.dims[0] != heads else dt_bias.shape.dims
    )
    if per_key and bias.shape.rank == 1:
        bias = n.unsqueeze(bias, [1])
    raised = n.pointwise("add", wide, bias)
    if kind in ("softplus", "qwen"):
        return n.add("neg", n.pointwise("mul", n.add("softplus", raised), factor))
    opened = n.add("sigmoid", n.pointwise("mul", raised, factor))
    return n.pointwise("mul", opened, n.literal(n.attr("gate_lower_bound", -5.0), dt.float32))


@converts("CausalConvWithState", domain=MS)
def causal_conv_with_state(
    n: Node,
    x: Instruction,
    weight: Instruction,
    bias: Instruction | None = None,
    past_state: Instruction | None = None,
) -> tuple[Instruction, Instruction]:
    _default(n, ("state_window", 0), ("state_update_capacity", 0), ("state_length", 0), ("state_channels_last", -1))
    _default(n, ("ndim", 1), ("input_channels", 0), ("input_channel_offset", 0))
    last = bool(n.attr("channels_last", 0))
    if x.shape.rank < 3 or (x.shape.rank > 3 and not last) or weight.shape.rank != 3 or weight.shape.dims[1] != 1:
        n.fail(
            f"input must be [b, c, l] (or [b, l, ..] if channels_last) and weight [c, 1, k], got {x.shape} and {weight.shape}"
        )
    group = weight.shape.dims[0]

    def first(v: Instruction) -> Instruction:
        """Returns [b, c, l]."""
        return n.transpose(n.reshape(v, (*v.shape.dims[:2], group)), [0, 2, 1]) if last else v

    def back(v: Instruction) -> Instruction:
        length = v.shape.dims[2]
        return n.reshape(n.transpose(v, [0, 2, 1]), (x.shape.dims[0], length, *x.shape.dims[2:])) if last else v

    past = None if past_state is None else first(past_state)
    y, state = causal_convolution(n, first(x), weight, bias, past, n.attr("dilation", 1))
    return back(y), back(state)


@converts("LinearAttentionGate", domain=MS)
def linear_attention_gate(
    n: Node, a: Instruction, bias: Instruction, scale: Instruction, b: Instruction | None = None
) -> tuple[Instruction | None, ...]:
    raised = n.add("softplus", n.pointwise("add", n.convert(a, dt.float32), n.convert(bias, dt.float32)))
    decay = n.convert(n.pointwise("mul", n.convert(scale, dt.float32), raised), a.shape.dtype)
    beta = None if b is None else n.convert(n.add("sigmoid", n.convert(b, dt.float32)), b.shape.dtype)
    return decay, beta


def _rms_of_groups(n: Node, x: Instruction, size: Dim) -> Instruction:
    """Returns float32 [.., h, size], each vector divided by the root of the mean of its squares."""
    wide = n.convert(x, dt.float32)
    groups: Dim = x.shape.dims[-1] // size
    wide = n.reshape(wide, (*x.shape.dims[:-1], groups, size))
    mean = n.add("reduce_mean", n.add("mul", wide, wide), axes=(wide.shape.rank - 1,))
    return n.pointwise("mul", wide, rsqrt(n, mean, n.attr("epsilon", 1e-5)))


@converts("GatedRMSNorm", domain=MS)
def gated_rms_norm(n: Node, x: Instruction, scale: Instruction, gate: Instruction) -> Instruction:
    activation = n.attr("activation", "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        n.fail(f"activation must be silu, swish or sigmoid, got {activation!r}")
    size, hidden = scale.shape.dims[0], x.shape.dims[-1]
    if scale.shape.rank != 1 or (isinstance(size, int) and isinstance(hidden, int) and hidden % size):
        n.fail(f"scale must be a vector whose length divides the last extent of {x.shape}, got {scale.shape}")
    normed = n.pointwise("mul", _rms_of_groups(n, x, size), n.convert(scale, dt.float32))
    opened = n.add("sigmoid" if activation == "sigmoid" else "swish", n.convert(gate, dt.float32))
    return n.convert(n.add("mul", n.reshape(normed, x.shape.dims), opened), x.shape.dtype)


@converts("BranchwiseRMSNorm", domain=MS)
def branchwise_rms_norm(n: Node, x: Instruction, scale: Instruction | None = None) -> Instruction:
    """X [.., c, h], or [.., c * h] with num_branches; scale [c * h], [c, h] or [h]."""
    branches = n.attr("num_branches", 0)
    count = branches or x.shape.dims[-2]
    hidden = x.shape.dims[-1]
    if branches and isinstance(hidden, int) and hidden % branches:
        n.fail(f"num_branches {branches} must divide the last extent of {x.shape}")
    size: Dim = hidden // branches if branches else hidden
    y = _rms_of_groups(n, x, size)
    if scale is not None:
        factor = n.convert(scale, dt.float32)
        if factor.shape.rank == 1 and not may_equal(factor.shape.dims[0], size):
            factor = n.reshape(factor, (count, size))
        if not branches and factor.shape.rank == 2:
            factor = n.reshape(factor, (count, 1, size))
        y = n.pointwise("mul", y, factor)
    return n.convert(n.reshape(y, x.shape.dims), x.shape.dtype)


@converts("GatedAdd", domain=MS)
def gated_add(
    n: Node, x: Instruction, y: Instruction, gate: Instruction, weight: Instruction | None = None
) -> Instruction:
    if weight is not None:
        n.unsupported("gate_weight")
    return n.pointwise("add", x, n.pointwise("mul", y, gate))


@converts("ScaledSiLU", domain=MS)
def scaled_silu(n: Node, x: Instruction, scale: Instruction | None = None) -> Instruction:
    """Rounds to the type of X after each of its three steps, as the operator is defined."""
    wide = n.convert(x, dt.float32)
    factor = (
        n.literal(n.attr("alpha", 1.0), dt.float32) if scale is None else n.reshape(n.convert(scale, dt.float32), ())
    )
    scaled = n.convert(n.pointwise("mul", wide, factor), x.shape.dtype)
    return n.add("mul", scaled, n.convert(n.add("sigmoid", n.convert(scaled, dt.float32)), x.shape.dtype))


@converts("MRotaryEmbedding", domain=MS)
def multimodal_rotary_embedding(
    n: Node, x: Instruction, positions: Instruction, cos: Instruction, sin: Instruction
) -> Instruction:
    """Rotates each pair of elements by an angle of the temporal, vertical or horizontal position."""
    _default(n, ("is_packed_batching", 0), ("scale", 1.0))
    sections, layout = n.attr("mrope_section"), n.attr("mrope_layout", 0)
    half, turned, heads = cos.shape.dims[1], n.attr("rotary_embedding_dim", 0), n.attr("num_heads", 0)
    if x.shape.rank not in (3, 4) or positions.shape.rank != 3:
        n.fail(f"input must have 3 or 4 axes and position_ids be [3, b, s], got {x.shape} and {positions.shape}")
    if layout not in (0, 1) or len(sections) != 3 or min(sections) < 0 or sum(sections) != half:
        n.fail(
            f"mrope_layout must be 0 or 1 and mrope_section have 3 numbers of sum {half}, got {layout} and {sections}"
        )
    if turned and turned != 2 * sum(sections):
        n.fail(f"rotary_embedding_dim {turned} requires caches of {turned // 2} columns, got {half}")
    whole = x
    if x.shape.rank == 3:
        if not heads:
            n.fail("num_heads is required for an input of 3 axes")
        whole = split_heads(n, x, heads)
    stream = [axis for axis, width in enumerate(sections) for _ in range(width)]
    if layout == 1:
        stream = [0] * sum(sections)
        for axis in (1, 2):
            for column in range(axis, min(3 * sections[axis], sum(sections)), 3):
                stream[column] = axis
    _, b, s = positions.shape.dims

    def angles(cache: Instruction) -> Instruction:
        """Returns [b, s, n / 2]: each column from the row of its stream's position."""
        rows = n.add("gather", cache, n.convert(positions, dt.int64), axis=0)
        out: Instruction | None = None
        for axis in range(3):
            part = n.squeeze(n.slice(rows, [0], [axis], [axis + 1]), [0])
            chosen = n.literal([k == axis for k in stream], dt.bool_)
            out = part if out is None else n.pointwise("where", chosen, part, out)
        assert out is not None
        return n.reshape(out, (b, s, half))

    y = n.add("rotary_embedding", whole, angles(cos), angles(sin), interleaved=bool(n.attr("interleaved", 0)))
    return merged_heads(n, y) if x.shape.rank == 3 else y
