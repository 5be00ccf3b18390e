"""im2col and col2im: windows of an image as rows of a matrix, so that a convolution is a product, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mgx_core import No
from mgx_core.ops.window import per_axis, sides

from .elements import Coordinates, as_unsigned, each_element, offset_of
from .geometry import ceil_div, nest
from .pointwise import one_launch
from .source import DeviceTraits, KernelSource, Tensor, compute_type, storage_type, to_compute, to_storage

__all__ = ["Windows", "fold", "unfold"]

THREADS = 256


@dataclass(frozen=True)
class Windows:
    """Windows of `kernel` over an image with two axes.

    image: extents of the output's axes; before: padding before each axis; channels_inside: True if a row runs over
    [kh, kw, c] instead of [c, kh, kw]; width: elements of a row, zero-padded.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    image: tuple[int, int]
    channels_inside: bool
    width: int


def unfold(x: Tensor, y: Tensor, w: Windows) -> KernelSource:
    """x [n, c, h, w] of any strides to y [n * image, width], row-major."""
    x, y = as_unsigned(x), as_unsigned(y)
    n, c, high, wide = x.lens
    kh, kw = w.kernel
    size = 16 // x.dtype.size
    step = math.gcd(size, c) if w.channels_inside and x.strides[1] == 1 else 1
    while step > 1 and (_misaligned(x, step) or w.width % step or y.align % (step * y.dtype.size)):
        step //= 2
    t = storage_type(x.dtype)
    groups = w.width // step
    total = n * w.image[0] * w.image[1] * groups
    if w.channels_inside:
        split = [f"const u32 c = k % {c}u, t = k / {c}u, j1 = t % {kw}u, j0 = t / {kw}u;"]
    else:
        split = [f"const u32 j1 = k % {kw}u, t = k / {kw}u, j0 = t % {kh}u, c = t / {kh}u;"]
    s = x.strides
    lines = [
        "const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (at >= {total}ull) return;",
        f"const u32 k = (u32)(at % {groups}u) * {step}u, row = (u32)(at / {groups}u);",
        f"const u32 i1 = row % {w.image[1]}u, r = row / {w.image[1]}u, i0 = r % {w.image[0]}u, n = r / {w.image[0]}u;",
        *split,
        *(f"const i32 s{a} = (i32)(i{a} * {w.stride[a]}u + j{a} * {w.dilation[a]}u) - {w.before[a]};" for a in (0, 1)),
        f"const bool in = k < {kh * kw * c}u && (u32)s0 < {high}u && (u32)s1 < {wide}u;",
        f"vec<{t}, {step}> v;",
        f"if (in) v = ldv<{t}, {step}>(p0 + (u64)n * {s[0]}u + (u64)c * {s[1]}u + (u64)s0 * {s[2]}u + (u64)s1 * {s[3]}u);",
        f"else UNROLL for (int i = 0; i < {step}; ++i) v.v[i] = 0;",
        f"stv<{t}, {step}>(q0 + (u64)row * {w.width}u + k, v);",
    ]
    return one_launch("unfold", lines, [x], [y], ceil_div(total, THREADS), THREADS)


def _misaligned(x: Tensor, step: int) -> bool:
    others: Sequence[int] = (x.strides[0], x.strides[2], x.strides[3])
    return x.align % (step * x.dtype.size) != 0 or any(v % step for v in others)


def fold(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """col2im: each element of the image y [n, c, *image] sums the columns x [n, c * block, windows] that cover it."""
    rank = len(y.lens) - 2
    block = per_axis(op.block_shape, rank, "block_shape")
    stride, dilation = per_axis(op.stride, rank, "stride"), per_axis(op.dilation, rank, "dilation")
    before, _ = sides(op.padding, rank)
    counts = op.counts(y.lens[2:], block)
    kind, size = compute_type(x.dtype), math.prod(block)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        heads = []
        for a in range(rank):
            last, step, apart = f"(i32){at[2 + a]} + {before[a]}", stride[a], dilation[a]
            # without dilation, the places of an element in the windows that cover it are a stride apart
            first, more = (f"({last}) % {step}", step) if apart == 1 else ("0", 1)
            misses = f"t{a} < 0 || t{a} / {step} >= {counts[a]}" + (f" || t{a} % {step}" if apart != 1 else "")
            heads.append(
                [
                    f"for (i32 j{a} = {first}; j{a} < {block[a]}; j{a} += {more}) {{",
                    f"const i32 t{a} = {last} - j{a} * {apart};",
                    f"if ({misses}) continue;",
                ]
            )
        inside, window = "0", "0"
        for a in range(rank):
            inside = f"({inside} * {block[a]} + j{a})"
            window = f"({window} * {counts[a]} + t{a} / {stride[a]})"
        place = offset_of(x, [at[0], f"({at[1]} * {size}u + (u32){inside})", f"(u32){window}"])
        loops = nest(heads, [f"sum += {to_compute(f'p0[{place}]', x.dtype)};"])
        return [f"{kind} sum = 0;", *loops], [to_storage(f"({compute_type(y.dtype)})sum", y.dtype)]

    return each_element("col2im", [x], [y], traits, element, unroll=1)
