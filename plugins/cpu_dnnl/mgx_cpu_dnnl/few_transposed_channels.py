"""Transposed convolutions that oneDNN is slow at: few channels of results, of which it computes as many as a vector holds,
elements of windows that lie apart, results whose extent the stride does not divide, and strides of 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.convolution import ConvolutionBackwards
from mgx_core.rules.transposed_convolutions import transposed_convolutions

from .native_library import native

__all__ = ["FEW_TRANSPOSED"]

FEW: Final = 6  # channels of results, of 8 that are computed; twice as many where vectors hold 16


def _has_gaps(op: ConvolutionBackwards, lengths: Sequence[int]) -> bool:
    """Returns whether some steps of the stride meet no element of a window, or elements of it that lie apart."""
    strides, dilations, *_ = op.plan(len(lengths), lengths)
    return any(s > 1 and (d > 1 or s > k) for k, s, d in zip(lengths, strides, dilations, strict=True))


def _has_no_quick_kernel(i: Instruction, lengths: Sequence[int]) -> bool:
    """Returns whether oneDNN has no kernel for all places within the stride at once, or none is needed: all strides are 1."""
    op = i.op
    assert isinstance(op, ConvolutionBackwards)
    strides, *_ = op.plan(len(lengths), lengths)
    if all(s == 1 for s in strides):
        return True
    left = [out - s * n for out, s, n in zip(i.shape.dims[2:], strides, i.inputs[0].shape.dims[2:], strict=True)]
    return any(isinstance(n, int) and n % s for n, s in zip(left, strides, strict=True))


def _filled(i: Instruction) -> No | None:
    op, channels = i.op, i.shape.dims[1]
    assert isinstance(op, ConvolutionBackwards)
    dims = i.inputs[1].shape.dims[2:]
    lengths = [n for n in dims if isinstance(n, int)]
    known = op.group == 1 and len(lengths) == len(dims)
    if known and (_has_gaps(op, lengths) or _has_no_quick_kernel(i, lengths)):
        return None
    few = 2 * FEW if "avx512f" in native().cpu_features() else FEW
    if op.group != 1 or not isinstance(channels, int) or channels > few:
        return No("a vector of channels is filled well enough")
    return None


FEW_TRANSPOSED: Final = transposed_convolutions("few-transposed-channels", _filled)
