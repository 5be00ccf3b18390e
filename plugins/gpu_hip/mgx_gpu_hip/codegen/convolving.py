"""Convolutions without a library: depthwise in vectors of channels, any other one output a thread."""

from __future__ import annotations

import math
from typing import Any

from mgx_core import No
from mgx_core.ops.window import explicit_padding, per_axis

from .elements import Coordinates, each_element, offset_of, pointers
from .geometry import Reader, ceil_div, decompose, index_type, memory_order, offset_code, store_code
from .moving import inner_axis, straight
from .pointwise import kernel, threads_of
from .source import (
    NAME,
    DeviceTraits,
    KernelLaunch,
    KernelSource,
    Number,
    Tensor,
    computed,
    finish,
    read,
    stored,
    written,
)

__all__ = ["backwards", "convolution"]


def convolution(op: Any, x: Tensor, w: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    rank = len(x.lens) - 2
    stride, dilation = per_axis(op.stride, rank, "stride"), per_axis(op.dilation, rank, "dilation")
    begins, _ = explicit_padding(x.lens[2:], w.lens[2:], stride, dilation, op.padding, op.padding_mode)
    inner, outer = w.lens[1], w.lens[0] // op.group
    flops = 2 * y.elements * math.prod(w.lens[1:])
    starts = [(s, d, b) for s, d, b in zip(stride, dilation, begins, strict=True)]
    inner_is_channel = inner_axis(y) == 1
    if inner == 1 and outer == 1 and inner_is_channel and y.elements:
        width = straight(x, 1)
        while width > 1 and (y.lens[1] % width or width > straight(y, 1)):
            width //= 2
        while width > 2 and y.elements < width * traits.sm_count * 256:
            width //= 2
        if width > 1:
            return _depthwise(x, w, y, traits, width, starts, flops)
    kind = computed(x.dtype)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        lines = [f"{kind} acc = 0;", f"const u32 group = {at[1]} / {outer}u;"]
        lines += [f"const i32 b{i} = (i32){at[2 + i]} * {s} - {b};" for i, (s, _, b) in enumerate(starts)]
        for i, (_, d, _) in enumerate(starts):
            lines.append("  " * i + f"for (i32 j{i} = 0; j{i} < {w.lens[2 + i]}; ++j{i}) {{")
            lines.append("  " * (i + 1) + f"const i32 s{i} = b{i} + j{i} * {d};")
            lines.append("  " * (i + 1) + f"if ((u32)s{i} >= {x.lens[2 + i]}u) continue;")
        xs = offset_of(x, [at[0], f"(group * {inner}u + c)", *(f"(u32)s{i}" for i in range(rank))])
        ws = offset_of(w, [at[1], "c", *(f"(u32)j{i}" for i in range(rank))])
        lines.append("  " * rank + f"for (u32 c = 0; c < {inner}u; ++c)")
        lines.append("  " * (rank + 1) + f"acc += {read(f'p0[{xs}]', x.dtype)} * {read(f'p1[{ws}]', w.dtype)};")
        lines += ["  " * i + "}" for i in reversed(range(rank))]
        return lines, [written(f"({computed(y.dtype)})acc", y.dtype)]

    return each_element("convolution", [x, w], [y], traits, element, unroll=1, flops=flops)


def _depthwise(
    x: Tensor, w: Tensor, y: Tensor, traits: DeviceTraits, width: int, starts: list[tuple[int, int, int]], flops: int
) -> KernelSource:
    """Channels-last, one kernel a channel; weights are read in vectors where they are channels-last too."""
    rank = len(starts)
    kind = computed(x.dtype)
    order = [a for a in memory_order(y.strides, y.lens) if a != 1]
    dims = [*(y.lens[a] for a in order), y.lens[1] // width]
    setup, names = decompose("i", dims, "c")
    at = {a: names[n] for n, a in enumerate(order)} | {1: names[-1]}
    index = index_type(x, y)
    base = offset_code([at[0], at[1]], [x.strides[0], x.strides[1]], 0, index, width)
    weights = Reader(w, [*w.strides[2:], w.strides[0]], 0, width)
    lines = [
        f"const u32 i = blockIdx.x * blockDim.x + threadIdx.x;  // {width} channels each",
        "if (i >= n) return;",
        *setup,
        *(f"const i32 b{i} = (i32){at[2 + i]} * {s} - {b};" for i, (s, _, b) in enumerate(starts)),
        f"const {stored(x.dtype)}* const x0 = p0 + ({base});",
        f"{kind} acc[{width}];",
        f"UNROLL for (int k = 0; k < {width}; ++k) acc[k] = 0;",
    ]
    for i, (_, d, _) in enumerate(starts):
        lines.append("  " * i + f"UNROLL for (i32 j{i} = 0; j{i} < {w.lens[2 + i]}; ++j{i}) {{")
        lines.append("  " * (i + 1) + f"const i32 s{i} = b{i} + j{i} * {d};")
        lines.append("  " * (i + 1) + f"if ((u32)s{i} >= {x.lens[2 + i]}u) continue;")
    place = offset_code([f"({index})s{i}" for i in range(rank)], x.strides[2:], 0, index)
    wplace = offset_code(
        [*(f"(u32)j{i}" for i in range(rank)), names[-1]], [*w.strides[2:], w.strides[0]], 0, "u32", width
    )
    pad = "  " * rank
    inner = Reader(x, [*x.strides[:1], *x.strides[2:], 1], 0, width).lines("a", "x0", place)
    inner += weights.lines("f", "p1", wplace)
    inner.append(
        f"UNROLL for (int k = 0; k < {width}; ++k) acc[k] += {read('a.v[k]', x.dtype)} * {read(weights.element('f'), w.dtype)};"
    )
    lines += [pad + line for line in inner]
    lines += ["  " * i + "}" for i in reversed(range(rank))]
    target = offset_code([*(at[a] for a in order), names[-1]], [*(y.strides[a] for a in order), 1], 0, index, width)
    lines += [
        f"vec<{stored(y.dtype)}, {width}> out;",
        f"UNROLL for (int k = 0; k < {width}; ++k) out.v[k] = {written('acc[k]', y.dtype)};",
        f"{store_code(y, width)}(q0 + ({target}), out);",
    ]
    parameters, buffers = pointers([x, w], [y])
    count = math.prod(dims)
    threads = threads_of(count, traits)
    text = kernel(NAME, [*parameters, "u32 n"], lines, threads)
    launch = KernelLaunch(NAME, (ceil_div(count, threads), 1, 1), (threads, 1, 1), (*buffers, Number("u32", count)))
    return finish("convolution_depthwise", text, [launch], [x, w], [y], flops=flops)


def backwards(op: Any, x: Tensor, w: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Transposed convolution: each output looks for the inputs whose kernels reach it."""
    rank = len(x.lens) - 2
    stride, dilation, begins, _, _ = op.plan(rank, w.lens[2:])
    inner, outer = x.lens[1] // op.group, w.lens[1]
    kind = computed(x.dtype)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        lines = [f"{kind} acc = 0;", f"const u32 group = {at[1]} / {outer}u, own = {at[1]} % {outer}u;"]
        for i in range(rank):
            lines += [
                "  " * i + f"for (i32 j{i} = 0; j{i} < {w.lens[2 + i]}; ++j{i}) {{",
                "  " * (i + 1) + f"const i32 t{i} = (i32){at[2 + i]} + {begins[i]} - j{i} * {dilation[i]};",
                "  " * (i + 1)
                + f"if (t{i} < 0 || t{i} % {stride[i]} || t{i} / {stride[i]} >= {x.lens[2 + i]}) continue;",
                "  " * (i + 1) + f"const u32 s{i} = (u32)t{i} / {stride[i]}u;",
            ]
        xs = offset_of(x, [at[0], f"(group * {inner}u + c)", *(f"s{i}" for i in range(rank))])
        ws = offset_of(w, [f"(group * {inner}u + c)", "own", *(f"(u32)j{i}" for i in range(rank))])
        lines.append("  " * rank + f"for (u32 c = 0; c < {inner}u; ++c)")
        lines.append("  " * (rank + 1) + f"acc += {read(f'p0[{xs}]', x.dtype)} * {read(f'p1[{ws}]', w.dtype)};")
        lines += ["  " * i + "}" for i in reversed(range(rank))]
        return lines, [written(f"({computed(y.dtype)})acc", y.dtype)]

    flops = 2 * x.elements * math.prod(w.lens[1:])
    return each_element("convolution_backwards", [x, w], [y], traits, element, unroll=1, flops=flops)
