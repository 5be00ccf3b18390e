"""Operators on images with blocked channels (com.microsoft.nchwc), which onnxruntime writes when it saves an optimized model.

They differ from the standard's only in memory: channels come in blocks of 8 or 16, padded with zeros.  Images are converted
to plain ones with padded channels, filters are put back in order; later passes choose layouts for the target.
"""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction

from ..channel_blocks import BLOCKED
from ..converter import converts
from ..node import Node
from .activation_names import activate
from .convolution import convolution
from .pooling import average_pool, global_pool, max_pool

__all__: list[str] = []


def channels_of(n: Node, x: Instruction) -> int:
    """Returns the number of channels of an image [n, c, ..], which must be known."""
    channels = x.shape.dims[1]
    if not isinstance(channels, int):
        n.fail(f"the number of channels must be known, got {x.shape}")
    return channels


def plain_filter(n: Node, w: Instruction) -> Instruction:
    """Returns a blocked filter as [o, i, ..].

    Its memory is [o/b, i/b, .., b of i, b of o], or [o/b, i, .., b of o] if each group has fewer than b input channels.
    """
    block = n.parser.channel_block
    outputs, inputs, *spatial = w.shape.dims
    if not all(isinstance(d, int) for d in w.shape.dims) or outputs % block:
        n.fail(f"W must have static dims, the first a multiple of {block} (option channel_block), got {w.shape}")
    rank = len(spatial)
    places = range(2, rank + 2)
    if inputs % block:
        split = n.reshape(w, (outputs // block, inputs, *spatial, block))
        return n.reshape(n.transpose(split, (0, rank + 2, 1, *places)), w.shape.dims)
    split = n.reshape(w, (outputs // block, inputs // block, *spatial, block, block))
    return n.reshape(n.transpose(split, (0, rank + 3, 1, rank + 2, *places)), w.shape.dims)


@converts("Conv", domain=BLOCKED)
def blocked_conv(
    n: Node, x: Instruction, w: Instruction, bias: Instruction | None = None, total: Instruction | None = None
) -> Instruction:
    y = convolution(n, x, plain_filter(n, w), bias)
    if total is not None:
        y = n.add("add", y, total)
    return activate(n, y, n.attr("activation", ""), n.attr("activation_params", None) or ())


@converts("MaxPool", domain=BLOCKED)
def blocked_max_pool(n: Node, x: Instruction) -> Any:
    return max_pool(n, x)


@converts("AveragePool", domain=BLOCKED)
def blocked_average_pool(n: Node, x: Instruction) -> Instruction:
    return average_pool(n, x)


@converts("GlobalAveragePool", "GlobalMaxPool", domain=BLOCKED)
def blocked_global_pool(n: Node, x: Instruction) -> Instruction:
    return global_pool(n, x)


@converts("Upsample", domain=BLOCKED)
def blocked_upsample(n: Node, x: Instruction) -> Instruction:
    mode = n.attr("mode", "nearest")
    return n.add(
        "resize",
        x,
        scales=tuple(map(float, n.attr("scales"))),
        mode=mode,
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric"
        if mode == "nearest"
        else n.attr("coordinate_transformation_mode", "half_pixel"),
    )


@converts("ReorderInput", domain=BLOCKED)
def reorder_input(n: Node, x: Instruction) -> Instruction:
    rank = x.shape.rank
    if n.attr("channels_last", 0):
        x = n.transpose(x, (0, rank - 1, *range(1, rank - 1)))
    short = -channels_of(n, x) % n.parser.channel_block
    return n.add("pad", x, pads=(*(0,) * (rank + 1), short, *(0,) * (rank - 2))) if short else x


@converts("ReorderOutput", domain=BLOCKED)
def reorder_output(n: Node, x: Instruction) -> Instruction:
    rank, channels = x.shape.rank, n.attr("channels")
    if not 0 < channels <= channels_of(n, x):
        n.fail(f"channels must be in 1..{x.shape.dims[1]}, the channels of X {x.shape}, got {channels}")
    y = n.slice(x, [1], [0], [channels])
    return n.transpose(y, (0, *range(2, rank), 1)) if n.attr("channels_last", 0) else y
