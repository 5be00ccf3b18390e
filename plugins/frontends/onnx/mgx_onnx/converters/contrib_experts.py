"""Mixtures of experts of com.microsoft, with plain and quantized weights."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim, may_equal, product

from ..converter import converts
from ..node import Node
from .contrib_quant import MS
from .contrib_weights import unpacked


def mixing(n: Node, router: Instruction, weights: Instruction | None) -> Instruction:
    """Returns the routing weights [t, e] of tokens and experts: zero except for the top k."""
    if n.attr("use_sparse_mixer", 0):
        n.unsupported("sparse mixers")
    k: int = n.attr("k", 1)
    logits = n.convert(router, dt.float32)
    normalized = bool(n.attr("normalize_routing_weights", 0))
    if n.op_type == "QMoE" and weights is None:
        normalized = True  # ORT ignores the attribute
    if weights is not None:
        best, places = n.items(n.add("topk", logits, k=k, axis=1))
        best = n.add("gather_elements", n.convert(weights, dt.float32), places, axis=1)
        if normalized:
            best = n.pointwise("div", best, n.add("reduce_sum", best, axes=(1,)))
    elif normalized:
        best, places = n.items(n.add("topk", logits, k=k, axis=1))
        best = n.add("softmax", best, axis=1)
    else:
        best, places = n.items(n.add("topk", n.add("softmax", logits, axis=1), k=k, axis=1))
    return n.add("scatter_none", n.full_like(logits, 0.0), places, best, axis=1)


def activated(n: Node, x: Instruction, gate: Instruction | None) -> Instruction:
    """Returns the hidden layer's activation; gate: the gated unit's second half, if it has separate weights."""
    kind = n.attr("activation_type", "relu")
    if kind == "swiglu":
        fusion = n.attr("swiglu_fusion", 0)
        if fusion:
            e, t, width = x.shape.dims
            if fusion == 1:
                pairs = n.reshape(x, (e, t, width // 2, 2))
                x, gate = (n.squeeze(n.slice(pairs, [3], [i], [i + 1]), [3]) for i in range(2))
            else:
                x, gate = (n.slice(x, [2], [width // 2 * i], [width // 2 * (i + 1)]) for i in range(2))
        if gate is None:
            n.fail("swiglu requires the gate's weights: fc3, or swiglu_fusion 1 or 2")
        limit, later = n.attr("swiglu_limit", None), n.attr("swiglu_limit_after_activation", 0)
        if limit is not None:
            bounds = n.literal(-limit, x.shape.dtype), n.literal(limit, x.shape.dtype)
            gate = n.pointwise("clip", gate, *bounds)
            x = x if later else n.pointwise("min", x, bounds[1])
        shifted = n.pointwise("add", gate, n.literal(n.attr("activation_beta", 0.0), x.shape.dtype))
        y = n.add("swish", x, alpha=n.attr("activation_alpha", 1.0))
        if limit is not None and later:
            y = n.pointwise("min", y, n.literal(limit, y.shape.dtype))
        return n.add("mul", y, shifted)
    names = {"relu": "relu", "gelu": "gelu_tanh", "silu": "swish", "identity": "identity"}
    if kind not in names:
        n.fail(f"activation_type must be one of swiglu, {', '.join(names)}, got {kind!r}")
    y = n.add(names[kind], x)
    return y if gate is None else n.add("mul", y, gate)


def layer(n: Node, x: Instruction, weights: Instruction, bias: Instruction | None) -> Instruction:
    """Returns x [e, t, i] multiplied by each expert's weights [e, o, i], plus its bias [e, o]."""
    y = n.add("dot", x, n.transpose(weights, [0, 2, 1]))
    return y if bias is None else n.pointwise("add", y, n.unsqueeze(bias, [1]))


def experts(
    n: Node,
    x: Instruction,
    mixed: Instruction,
    first: tuple[Instruction, Instruction | None],
    second: tuple[Instruction, Instruction | None],
    third: tuple[Instruction, Instruction | None] | None,
) -> Instruction:
    """Applies every expert to every token and returns the weighted sum."""
    dims = x.shape.dims
    tokens: Dim = product(dims[:-1])
    count = first[0].shape.dims[0]
    if not may_equal(mixed.shape.dims[1], count):
        n.fail(f"router_probs must have {count} columns, got {mixed.shape}")
    wide = n.broadcast_to(n.unsqueeze(n.reshape(x, (tokens, dims[-1])), [0]), (count, tokens, dims[-1]))
    gate = None if third is None else layer(n, wide, *third)
    y = layer(n, activated(n, layer(n, wide, *first), gate), *second)
    share = n.unsqueeze(n.transpose(n.convert(mixed, y.shape.dtype), [1, 0]), [2])
    summed = n.squeeze(n.add("reduce_sum", n.pointwise("mul", y, share), axes=(0,)), [0])
    return n.reshape(summed, dims)


@converts("MoE", domain=MS)
def moe(
    n: Node,
    x: Instruction,
    router: Instruction,
    w1: Instruction,
    b1: Instruction | None,
    w2: Instruction,
    b2: Instruction | None = None,
    w3: Instruction | None = None,
    b3: Instruction | None = None,
) -> Instruction:
    third = None if w3 is None else (w3, b3)
    return experts(n, x, mixing(n, router, None), (w1, b1), (w2, b2), third)


def whole_weights(
    n: Node, name: str, w: Instruction, scales: Instruction | None, points: Instruction | None, dtype: Any
) -> Instruction:
    """Returns packed weights [e, o, i * bits / 8] dequantized to [e, o, i]."""
    if scales is None:
        n.fail(f"{name}_scales are required")
    bits = n.attr(f"{name}_expert_weight_bits", 0) or n.attr("expert_weight_bits", 4)
    if bits not in (2, 4, 8) or w.shape.dtype is not dt.uint8:
        n.unsupported(f"{name} weights of {bits} bits in {w.shape.dtype}")
    codes = unpacked(n, w, bits)
    size = n.attr("block_size", 0)
    if scales.shape.rank == 2:
        scales = n.unsqueeze(scales, [2])
        size = 0
    if points is None:
        points = n.broadcast_to(n.literal(1 << (bits - 1), dt.uint8), scales.shape.dims)
    elif points.shape.rank == 2:
        points = n.unsqueeze(n.slice(unpacked(n, points, bits), [1], [0], [scales.shape.dims[1]]), [2])
    else:
        points = n.slice(unpacked(n, points, bits), [2], [0], [scales.shape.dims[2]])
    return n.convert(n.add("dequantizelinear", codes, scales, points, axis=2, block_size=size), dtype)


@converts("QMoE", domain=MS)
def qmoe(n: Node, x: Instruction, router: Instruction, *rest: Instruction | None) -> Instruction:
    if n.attr("quant_type", "int") != "int":
        n.unsupported(f"quant_type {n.attr('quant_type')!r}")
    if n.attr("weights_prepacked", -1) == 1:
        n.unsupported("weights in a layout of one device (weights_prepacked)")
    given = [*rest, *[None] * (19 - len(rest))]
    if any(v is not None for v in given[13:]):
        n.unsupported("activation scales and per-expert scales")
    to = x.shape.dtype
    sides = []
    for i, name in enumerate(("fc1", "fc2", "fc3")):
        w, scales, bias = given[3 * i : 3 * i + 3]
        sides.append(None if w is None else (whole_weights(n, name, w, scales, given[9 + i], to), bias))
    if sides[0] is None or sides[1] is None:
        return n.fail("fc1 and fc2 weights are required")
    return experts(n, x, mixing(n, router, given[12]), sides[0], sides[1], sides[2])
