"""Pooling: MaxPool, AveragePool, LpPool, their global forms, MaxUnpool."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction

from ..converter import converts
from ..node import Node
from .convolution import numbers, padding_of

__all__ = ["windows_of"]


def windows_of(n: Node, x: Instruction) -> dict[str, Any]:
    """Returns the window attributes under the names of pooling ops."""
    rank = x.shape.rank - 2
    lengths = tuple(n.attr("kernel_shape"))
    if rank < 1 or len(lengths) != rank:
        n.fail(f"kernel_shape must have {rank} numbers for X {x.shape}, got {list(lengths)}")
    stride, dilation = numbers(n, "strides", rank), numbers(n, "dilations", rank)
    return {
        "lengths": lengths,
        "stride": stride,
        "dilations": dilation,
        "ceil_mode": bool(n.attr("ceil_mode", 0)),
        **padding_of(n, x.shape.dims[2:], lengths, stride, dilation),
    }


@converts("MaxPool")
def max_pool(n: Node, x: Instruction) -> Any:
    windows, order = windows_of(n, x), n.attr("storage_order", 0)
    if not n.output_used(1):
        return n.add("pooling", x, mode="max", **windows)
    both = n.add("max_pool_indices", x, storage_order=order, **windows)
    return n.get(both, 0), n.get(both, 1)


@converts("NhwcMaxPool", domain="com.microsoft")
def nhwc_max_pool(n: Node, x: Instruction) -> Instruction:
    rank = x.shape.rank
    image = n.transpose(x, [0, rank - 1, *range(1, rank - 1)])
    return n.transpose(n.add("pooling", image, mode="max", **windows_of(n, image)), [0, *range(2, rank), 1])


@converts("AveragePool")
def average_pool(n: Node, x: Instruction) -> Instruction:
    return n.add(
        "pooling", x, mode="average", count_include_pad=bool(n.attr("count_include_pad", 0)), **windows_of(n, x)
    )


def order(n: Node) -> int:
    p = n.attr("p", 2)
    if p != int(p):
        n.unsupported(f"the norm of order {p}; only integer orders are supported")
    return int(p)


@converts("LpPool")
def lp_pool(n: Node, x: Instruction) -> Instruction:
    return n.add("pooling", x, mode="lpnorm", lp_order=order(n), **windows_of(n, x))


@converts("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n: Node, x: Instruction) -> Instruction:
    mode = {"GlobalAveragePool": "average", "GlobalMaxPool": "max"}.get(n.op_type, "lpnorm")
    return n.add("pooling", x, mode=mode, dyn_global=True, lp_order=order(n))


@converts("MaxUnpool")
def max_unpool(n: Node, x: Instruction, indices: Instruction, output_shape: Instruction | None = None) -> Instruction:
    rank = x.shape.rank - 2
    dims = n.dims(output_shape)
    return n.add(
        "max_unpool",
        x,
        indices,
        None if dims is not None else output_shape,
        lengths=tuple(n.attr("kernel_shape")),
        padding=tuple(n.attr("pads", None) or ()),
        stride=numbers(n, "strides", rank),
        output_shape=dims or (),
    )
