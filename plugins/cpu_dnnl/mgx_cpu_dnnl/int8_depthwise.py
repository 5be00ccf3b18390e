"""Selects depthwise int8 convolutions for a native loop that supports any zero points."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import Shape

from .native_library import native

__all__ = ["MIN_CHANNELS", "has_avx512_vnni", "is_depthwise"]

MIN_CHANNELS: Final = 16  # channels per vector


def is_depthwise(op: Any, w: Shape) -> bool:
    """Returns True for a depthwise convolution with enough channels to fill a vector; w: its weights."""
    kernels, channels = w.dims[:2]
    return channels == 1 and op.group == kernels and isinstance(kernels, int) and kernels >= MIN_CHANNELS


def has_avx512_vnni() -> bool:
    """Returns True on processors with 4-way byte dot products in 512-bit vectors (AVX-512 VNNI)."""
    return "avx512_vnni" in native().cpu_features()
