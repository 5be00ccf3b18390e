"""Convolutions without a library (except depthwise ones): one thread per output."""

from __future__ import annotations

import math
from typing import Any

from mgx_core import No

from .depthwise import depthwise
from .elements import Coordinates, each_element, offset_of
from .geometry import nest
from .source import DeviceTraits, KernelSource, Tensor, compute_type, to_compute, to_storage

__all__ = ["backwards", "convolution"]


def _summed(x: Tensor, w: Tensor, at: str, by: str, inner: int) -> list[str]:
    """Returns a loop that adds the products of a group's channels, at given offsets of image and weights."""
    product = f"{to_compute(f'p0[{at}]', x.dtype)} * {to_compute(f'p1[{by}]', w.dtype)}"
    return [f"for (u32 c = 0; c < {inner}u; ++c)", f"  acc += {product};"]


def convolution(op: Any, x: Tensor, w: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    rank = len(x.lens) - 2
    stride, dilation, begins, _ = op.sliding(x.lens[2:], w.lens[2:])
    inner, outer = w.lens[1], w.lens[0] // op.group
    flops = 2 * y.elements * math.prod(w.lens[1:])
    starts = [(s, d, b) for s, d, b in zip(stride, dilation, begins, strict=True)]
    found = depthwise(op, x, w, y, traits)
    if isinstance(found, KernelSource):
        return found
    kind = compute_type(x.dtype)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        lines = [f"{kind} acc = 0;", f"const u32 group = {at[1]} / {outer}u;"]
        lines += [f"const i32 b{i} = (i32){at[2 + i]} * {s} - {b};" for i, (s, _, b) in enumerate(starts)]
        heads = [
            [
                f"for (i32 j{i} = 0; j{i} < {w.lens[2 + i]}; ++j{i}) {{",
                f"const i32 s{i} = b{i} + j{i} * {d};",
                f"if ((u32)s{i} >= {x.lens[2 + i]}u) continue;",
            ]
            for i, (_, d, _) in enumerate(starts)
        ]
        xs = offset_of(x, [at[0], f"(group * {inner}u + c)", *(f"(u32)s{i}" for i in range(rank))])
        ws = offset_of(w, [at[1], "c", *(f"(u32)j{i}" for i in range(rank))])
        return [*lines, *nest(heads, _summed(x, w, xs, ws, inner))], [
            to_storage(f"({compute_type(y.dtype)})acc", y.dtype)
        ]

    return each_element("convolution", [x, w], [y], traits, element, unroll=1, flops=flops)


def backwards(op: Any, x: Tensor, w: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Generates a transposed convolution: each output gathers the inputs whose windows cover it."""
    rank = len(x.lens) - 2
    stride, dilation, begins, _, _ = op.plan(rank, w.lens[2:])
    inner, outer = x.lens[1] // op.group, w.lens[1]
    kind = compute_type(x.dtype)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        lines = [f"{kind} acc = 0;", f"const u32 group = {at[1]} / {outer}u, own = {at[1]} % {outer}u;"]
        heads = [
            [
                f"for (i32 j{i} = 0; j{i} < {w.lens[2 + i]}; ++j{i}) {{",
                f"const i32 t{i} = (i32){at[2 + i]} + {begins[i]} - j{i} * {dilation[i]};",
                f"if (t{i} < 0 || t{i} % {stride[i]} || t{i} / {stride[i]} >= {x.lens[2 + i]}) continue;",
                f"const u32 s{i} = (u32)t{i} / {stride[i]}u;",
            ]
            for i in range(rank)
        ]
        xs = offset_of(x, [at[0], f"(group * {inner}u + c)", *(f"s{i}" for i in range(rank))])
        ws = offset_of(w, [f"(group * {inner}u + c)", "own", *(f"(u32)j{i}" for i in range(rank))])
        return [*lines, *nest(heads, _summed(x, w, xs, ws, inner))], [
            to_storage(f"({compute_type(y.dtype)})acc", y.dtype)
        ]

    flops = 2 * x.elements * math.prod(w.lens[1:])
    return each_element("convolution_backwards", [x, w], [y], traits, element, unroll=1, flops=flops)
