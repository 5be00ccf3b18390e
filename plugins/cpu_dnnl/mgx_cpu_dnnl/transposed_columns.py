"""Selects transposed convolutions that run as products with all weights, whose columns are then summed in an image (col2im).

oneDNN is slow for dilated windows, most of all with strides in groups, and computes whole vectors of output channels.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

from mgx_core import No, Shape
from mgx_core import dtype as dt

__all__ = ["summed_columns"]

MAX_OUTPUTS: Final = 6  # output channels of images; for more, oneDNN is faster
MAX_PHASES: Final = 16  # the same of volumes, times places within the strides: the channels of a convolution instead
MAX_BYTES: Final = 1 << 20  # of the columns: the product writes them, and the sums read them again
# the same of dilated windows in groups; with strides oneDNN takes several times as long, and only memory sets a limit
MAX_GROUPED_BYTES: Final = 1 << 24
MAX_STRIDED_BYTES: Final = 1 << 28


def summed_columns(op: Any, x: Shape, w: Shape) -> No | None:
    """Returns why a transposed convolution should not run in this way, or None."""
    if not isinstance(x, Shape) or not isinstance(w, Shape) or x.dtype is not dt.float32 or w.dtype is not dt.float32:
        return No("only float32 is supported")
    if x.dynamic() or w.dynamic():
        return No("the extents are known only at run time")
    (batch, channels, *image), (_, outputs, *window) = x.lens(), w.lens()
    strides, dilations, *_ = op.plan(len(image), window)
    dilated = any(d > 1 and k > 1 for d, k in zip(dilations, window, strict=True))
    few = outputs <= MAX_OUTPUTS if len(image) == 2 else len(image) == 3 and outputs * prod(strides) <= MAX_PHASES
    if not dilated and (op.group > 1 or not few):
        return No("oneDNN has a fast kernel for windows without gaps and many channels")
    most = MAX_BYTES
    if op.group > 1:
        most = MAX_GROUPED_BYTES if prod(strides) == 1 else MAX_STRIDED_BYTES
        if prod(strides) == 1 and (channels > op.group or outputs > 1):
            return No("oneDNN has a fast kernel for groups of several channels and stride 1")
    size = 4 * prod((batch, *image, op.group * outputs, *window))
    if size > most:
        return No(f"the columns take {size} bytes, more than {most}")
    return None
