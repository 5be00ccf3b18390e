"""Transposed convolutions as convolutions: one channel for each place between the steps of the stride."""

from __future__ import annotations

from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.convolution import ConvolutionBackwards
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.rules.transposed_convolutions import convolved

__all__ = ["TRANSPOSED"]

TRANSPOSED: Final = Rules("transposed-convolutions")


@TRANSPOSED.on(ConvolutionBackwards)
def convolution_for_each_place(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution_backwards(x, w) of stride s -> convolution(x, w') with s times the channels, moved to their places."""
    return convolved(i, b, zeros=False)


@TRANSPOSED.on(ConvolutionBackwards, changes=ROUNDING)
def convolution_with_filled_windows(i: Instruction, b: Builder) -> Instruction | No | None:
    """The same where zeros fill up windows, which make NaN of infinities that the result would not depend on."""
    return convolved(i, b, zeros=True)
