"""Selects an attention kernel: by warpgroups, by tiles (of FMAs for float32), or split over the keys for few queries."""

from __future__ import annotations

from typing import Final

from mgx_core import No
from mgx_core import dtype as dt

from .attention_decode import can_vectorize, decode_attention
from .attention_fma import fma_attention
from .attention_parts import flops, heads, other_types
from .attention_pattern import Pattern
from .attention_split import ROWS, split_keys, waves_for
from .attention_tiles import tiled_attention
from .attention_warpgroup import fits_warpgroups, warpgroup_attention, warpgroup_microseconds
from .extents import estimated
from .geometry import ceil_div
from .source import DeviceTraits, KernelSource, finish

__all__ = [
    "LARGEST_HEAD",
    "attention_kernel",
    "attention_microseconds",
    "reading_microseconds",
    "separate_microseconds",
]

LARGEST_HEAD: Final = 256  # elements


def attention_microseconds(p: Pattern, traits: DeviceTraits) -> float:
    """Returns estimated microseconds of the generated kernel for 16-bit operands, fitted to measurements on an H200."""
    if waves_for(p, traits) == 1 and fits_warpgroups(p, traits):
        return warpgroup_microseconds(p)
    return 5.5 + estimated(flops(p)) / 9e7


def reading_microseconds(p: Pattern, traits: DeviceTraits) -> float:
    """Returns the same where the waves of a block split its keys: all blocks read all keys and values of their heads."""
    if waves_for(p, traits) < 2:
        return 0.0
    return 5.5 + estimated(ceil_div(p.s, ROWS) * heads(p) * p.t * (p.d + p.e)) * 2 / 2.5e6


def separate_microseconds(p: Pattern) -> float:
    """Returns estimated microseconds of two products of a library and the softmax between them."""
    return 9.0 + estimated(flops(p)) / 3e8 + estimated(heads(p) * p.s * p.t) * 8 / 3e6


def attention_kernel(p: Pattern, traits: DeviceTraits) -> KernelSource | No:
    other = other_types(p)
    if other is not None:
        return other
    if p.out.elements == 0:
        return finish("attention", "", [], p.inputs, [p.out])
    if p.t == 0:
        return No("there are no keys")
    if p.s <= 4 and can_vectorize(p, traits):
        return decode_attention(p, traits)
    if p.d > LARGEST_HEAD or p.e > LARGEST_HEAD:
        return No(f"heads of {p.d} and {p.e} elements are too large")
    if p.dtype is dt.float32:
        return fma_attention(p, traits)
    waves = waves_for(p, traits)
    if waves > 1:
        return split_keys(p, traits, waves)
    return warpgroup_attention(p, traits) if fits_warpgroups(p, traits) else tiled_attention(p, traits)
