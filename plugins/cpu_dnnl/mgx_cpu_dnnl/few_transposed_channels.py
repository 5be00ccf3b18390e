"""Selects transposed convolutions for which oneDNN is slow.

These have few output channels (oneDNN computes a full vector of them), dilated windows with gaps, stride 1, or one spatial axis:
for long signals (vocoders), oneDNN generates up to 20 MB of code in up to half a second, which does not run faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.convolution import ConvolutionBackwards
from mgx_core.rules.transposed_convolutions import transposed_convolutions

from .native_library import native
from .plans.folding import summed_columns

__all__ = ["FEW_TRANSPOSED"]

MAX_CHANNELS: Final = 6  # output channels out of 8 computed; twice as many with 16-lane vectors


def _has_gaps(op: ConvolutionBackwards, lengths: Sequence[int]) -> bool:
    """Returns True if some phases of the stride read no window element, or non-adjacent ones."""
    strides, dilations, *_ = op.plan(len(lengths), lengths)
    return any(s > 1 and (d > 1 or s > k) for k, s, d in zip(lengths, strides, dilations, strict=True))


def _along_a_line(op: ConvolutionBackwards, lengths: Sequence[int]) -> bool:
    """Returns True for one spatial axis, unless filling up windows costs more than a third of the multiplications."""
    if len(lengths) != 1:
        return False
    (length,), ((stride, *_), *_) = lengths, op.plan(1, lengths)
    return 3 * -(-length // stride) * stride <= 4 * length


def _slow(i: Instruction) -> No | None:
    op, channels = i.op, i.shape.dims[1]
    assert isinstance(op, ConvolutionBackwards)
    x, w = (o.shape for o in i.inputs)
    if summed_columns(op, x, w) is None:
        return No("a product and sums of its columns are faster")
    dims = w.dims[2:]
    lengths = [n for n in dims if isinstance(n, int)]
    if op.group == 1 and len(lengths) == len(dims):
        strides, *_ = op.plan(len(lengths), lengths)
        if all(s == 1 for s in strides) or _has_gaps(op, lengths) or _along_a_line(op, lengths):
            return None
    few = 2 * MAX_CHANNELS if "avx512f" in native().cpu_features() else MAX_CHANNELS
    if op.group != 1 or not isinstance(channels, int) or channels > few:
        return No("the channels fill vectors well enough")
    return None


FEW_TRANSPOSED: Final = transposed_convolutions("few-transposed-channels", _slow)
