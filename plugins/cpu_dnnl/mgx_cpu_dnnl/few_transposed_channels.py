"""Transposed convolutions with few channels of results, of which oneDNN computes as many as a vector holds."""

from __future__ import annotations

from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.convolution import ConvolutionBackwards
from mgx_core.rules.transposed_convolutions import transposed_convolutions

from .native_library import native

__all__ = ["FEW_TRANSPOSED"]

FEW: Final = 6  # channels of results, of 8 that are computed; twice as many where vectors hold 16


def _filled(i: Instruction) -> No | None:
    op, channels = i.op, i.shape.dims[1]
    assert isinstance(op, ConvolutionBackwards)
    few = 2 * FEW if "avx512f" in native().cpu_features() else FEW
    if op.group != 1 or not isinstance(channels, int) or channels > few:
        return No("a vector of channels is filled well enough")
    return None


FEW_TRANSPOSED: Final = transposed_convolutions("few-transposed-channels", _filled)
