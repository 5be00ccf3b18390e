"""Pseudo-random tensors: a hash of the seed and the element's index."""

from __future__ import annotations

from typing import Any

from mgx_core import No
from mgx_core.ops.random import RandomNormal

from .elements import Coordinates, each_element
from .primitives import constant
from .source import DeviceTraits, KernelSource, Tensor, storage_type, to_storage

__all__ = ["random"]

_HASH = """DEV u64 @NAME@_mix(u64 x) {  // SplitMix64's finaliser
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
DEV double @NAME@_unit(u64 x) { return (double)(x >> 11) * 1.1102230246251565e-16; }
"""


def random(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """random_uniform and random_normal; the distribution, but not the values, match the reference."""
    seed, y = xs[0], ys[0]
    assert seed is not None
    if y.dtype.kind not in "iuf":
        return No(f"random numbers of type {y.dtype} are not supported")
    bits = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[seed.dtype.size]

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        number = "0ull"
        for c, n in zip(at, y.lens, strict=True):
            number = f"({number} * {n} + {c})"
        lines = [f"const u64 x = @NAME@_mix(@NAME@_mix((u64)p0[0]) ^ {number});"]
        if isinstance(op, RandomNormal):
            lines += [
                "const double r = m::sqrt(-2.0 * m::log(1.0 - @NAME@_unit(x)));",
                "const double v = r * m::cos(6.283185307179586 * @NAME@_unit(@NAME@_mix(x)));",
            ]
        elif y.dtype.is_integer:
            span = int(y.dtype.highest)
            lines.append(f"const u64 v = {'x' if span == (1 << 64) - 1 else f'x % {span + 1}ull'};")
        else:
            unit = y.dtype.epsilon
            lines.append(
                f"const double v = m::floor(@NAME@_unit(x) / {constant(unit, 'double')}) * {constant(unit, 'double')};"
            )
        value = (
            f"({storage_type(y.dtype)})v"
            if y.dtype.is_integer or y.dtype.bits >= 32
            else to_storage("(float)v", y.dtype)
        )
        return lines, [value]

    inputs: list[Tensor | None] = [seed._replace(dtype=_unsigned(bits)), None]
    return each_element(op.name, inputs, [y], traits, element, before=_HASH, unroll=1)


def _unsigned(bits: str) -> Any:
    from mgx_core import dtype as dt

    return {"u8": dt.uint8, "u16": dt.uint16, "u32": dt.uint32, "u64": dt.uint64}[bits]
