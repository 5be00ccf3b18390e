"""Convolutions of bytes of each channel by itself that a loop of the native module does, whatever their zero points."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import Shape

from .native_library import native

__all__ = ["LEAST", "multiplies_fours", "single_channels"]

LEAST: Final = 16  # channels, which are summed at once


def single_channels(op: Any, w: Shape) -> bool:
    """Returns True for a convolution of as many channels by themselves as are summed at once; w: its weights."""
    kernels, channels = w.dims[:2]
    return channels == 1 and op.group == kernels and isinstance(kernels, int) and kernels >= LEAST


def multiplies_fours() -> bool:
    """Returns True on processors that multiply four bytes of each lane by four others and add the products (AVX-512 VNNI)."""
    return "avx512_vnni" in native().cpu_features()
