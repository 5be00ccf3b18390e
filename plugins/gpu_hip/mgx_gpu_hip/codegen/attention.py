"""Selects an attention kernel: tiles on matrix units, tiles of FMAs for float32, or a split over keys for few queries."""

from __future__ import annotations

from mgx_core import No
from mgx_core import dtype as dt

from .attention_decode import can_vectorize, decode_attention
from .attention_fma import fma_attention
from .attention_pattern import Pattern
from .attention_split import split_keys, waves_for
from .attention_tiles import tiled_attention
from .source import DeviceTraits, KernelSource, finish

__all__ = ["attention_kernel"]


def attention_kernel(p: Pattern, traits: DeviceTraits) -> KernelSource | No:
    types = {p.tensor(a).dtype for a in (p.q, p.k, p.v)} | ({p.out.dtype} if p.after is None else set())
    if len(types) != 1 or not types <= {dt.float16, dt.bfloat16, dt.float32}:
        return No(f"no attention kernel for {', '.join(sorted(map(str, types)))}")
    if p.out.elements == 0:
        return finish("attention", "", [], p.inputs, [p.out])
    if p.t == 0:
        return No("there are no keys")
    if p.s <= 4 and can_vectorize(p, traits):
        return decode_attention(p, traits)
    if p.d > 256 or p.e > 256:
        return No(f"heads of {p.d} and {p.e} elements are too large")
    if types == {dt.float32}:
        return fma_attention(p, traits)
    waves = waves_for(p, traits)
    return split_keys(p, traits, waves) if waves > 1 else tiled_attention(p, traits)
