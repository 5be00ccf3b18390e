"""Gradients of elementwise functions, for graphs that contain their own backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core.ops.reduce import ReduceSum
from mgx_core.types.dim import Dim

from ..converter import converts
from ..node import Node

__all__: list[str] = []


@converts("TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "InvGrad", "ReciprocalGrad")
def of_result(n: Node, y: Instruction, dy: Instruction) -> Instruction:
    """Returns the gradient of a function whose derivative is computed from its result y."""
    one = n.literal(1, y.shape.dtype)
    match n.op_type:
        case "TanhGrad":
            slope = n.pointwise("sub", one, n.pointwise("mul", y, y))
        case "SigmoidGrad":
            slope = n.pointwise("mul", y, n.pointwise("sub", one, y))
        case "SqrtGrad":
            slope = n.pointwise("div", n.literal(0.5, y.shape.dtype), y)
        case "RsqrtGrad":
            cube = n.pointwise("mul", n.pointwise("mul", y, y), y)
            slope = n.pointwise("mul", n.literal(-0.5, y.shape.dtype), cube)
        case _:
            slope = n.pointwise("neg", n.pointwise("mul", y, y))
    return n.pointwise("mul", dy, slope)


@converts("ReluGrad", "Relu6Grad", "LeakyReluGrad", "SoftplusGrad", "SoftsignGrad")
def of_operand(n: Node, dy: Instruction, x: Instruction) -> Instruction:
    """Returns the gradient of a function whose derivative is computed from its operand x."""
    zero, one = n.literal(0, x.shape.dtype), n.literal(1, x.shape.dtype)
    above = n.pointwise("greater", x, zero)
    match n.op_type:
        case "ReluGrad":
            return n.pointwise("where", above, dy, zero)
        case "Relu6Grad":
            inside = n.pointwise("logical_and", above, n.pointwise("less", x, n.literal(6, x.shape.dtype)))
            return n.pointwise("where", inside, dy, zero)
        case "LeakyReluGrad":
            alpha = n.literal(n.float("alpha", 0.2), x.shape.dtype)
            return n.pointwise("where", above, dy, n.pointwise("mul", dy, alpha))
        case "SoftplusGrad":
            return n.pointwise("mul", dy, n.pointwise("sigmoid", x))
    span = n.pointwise("add", one, n.pointwise("abs", x))
    return n.pointwise("div", dy, n.pointwise("mul", span, span))


@converts("EluGrad", "SeluGrad")
def of_exponential(n: Node, dy: Instruction, y: Instruction) -> Instruction:
    """Returns the gradient of ELU or SELU, computed from its result y."""
    scale, alpha = (1.0, 1.0) if n.op_type == "EluGrad" else (1.0507009873554805, 1.7580993408473768)
    below = n.pointwise("less", y, n.literal(0, y.shape.dtype))
    curved = n.pointwise("add", y, n.literal(alpha, y.shape.dtype))
    return n.pointwise("mul", dy, n.pointwise("where", below, curved, n.literal(scale, y.shape.dtype)))


@converts("BiasAddGrad")
def of_bias(n: Node, dy: Instruction) -> Instruction:
    channels = 1 if n.string("data_format", "NHWC").startswith("NC") else dy.shape.rank - 1
    others = [a for a in range(dy.shape.rank) if a != channels]
    return n.reshape(n.along_axes(ReduceSum, dy, others), (dy.shape.dims[channels],))


@converts("BroadcastGradientArgs")
def of_broadcast(n: Node, a: Instruction, b: Instruction) -> Any:
    """Returns the axes over which the gradients of two broadcast operands are reduced."""
    found = [n.dims(v) for v in (a, b)]
    if found[0] is None or found[1] is None:
        n.unsupported("extents that are known only at run time")
    rank = max(len(found[0]), len(found[1]))
    wide: list[Sequence[Dim]] = [(1,) * (rank - len(dims or ())) + (dims or ()) for dims in found]
    kind = a.shape.dtype
    own = ([k for k in range(rank) if p[k] == 1 and q[k] != 1] for p, q in (wide, wide[::-1]))
    return tuple(n.literal(np.array(axes, np.int64), kind) for axes in own)
