"""Transposed convolutions with few channels of results, of which oneDNN computes as many as a vector holds."""

from __future__ import annotations

from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.convolution import ConvolutionBackwards
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.rules.transposed_convolutions import convolved

__all__ = ["FEW_TRANSPOSED"]

FEW_TRANSPOSED: Final = Rules("few-transposed-channels")
FEW: Final = 6  # channels of results, of 8 that are computed; twice as many where vectors hold 16


@FEW_TRANSPOSED.on(ConvolutionBackwards)
def convolution_of_few_channels(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution_backwards(x, w) of stride s to few channels -> convolution(x, w') to s times as many, moved to their places."""
    return _convolved(i, b, zeros=False)


@FEW_TRANSPOSED.on(ConvolutionBackwards, changes=ROUNDING)
def convolution_of_few_channels_with_filled_windows(i: Instruction, b: Builder) -> Instruction | No | None:
    """The same where zeros fill up windows, which make NaN of infinities that the result would not depend on."""
    return _convolved(i, b, zeros=True)


def _convolved(i: Instruction, b: Builder, zeros: bool) -> Instruction | No | None:
    from .native_library import native

    op, channels = i.op, i.shape.dims[1]
    assert isinstance(op, ConvolutionBackwards)
    few = 2 * FEW if "avx512f" in native().cpu_features() else FEW
    if op.group != 1 or not isinstance(channels, int) or channels > few:
        return No("a vector of channels is filled well enough")
    return convolved(i, b, zeros)
