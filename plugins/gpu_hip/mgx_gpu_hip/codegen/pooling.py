"""Pooling: vectors of channels if channels last, otherwise one thread per output; whole images as reductions."""

from __future__ import annotations

import math
from typing import Any, Final

from mgx_core import dtype as dt
from mgx_core.ops.reduce import ReduceMax, ReduceMean
from mgx_core.types.traced_int import usual

from .bodies import single
from .elements import Coordinates, each_element, offset_of
from .geometry import ceil_div, decompose, index_type, load_code, memory_order, nest, offset_code, store_code
from .movement import inner_axis, straight
from .pointwise import one_launch, threads_of
from .primitives import constant
from .reduce import fused_reduce
from .source import DeviceTraits, KernelSource, Tensor, compute_type, storage_type, to_compute, to_storage

__all__ = ["max_pool_indices", "pooling"]

PACKED: Final = (dt.int8, dt.uint8, dt.float8_e4m3fn)  # types of which maxima are compared two at a time


class _Windows:
    """The windows of a pooling op on given extents."""

    def __init__(self, op: Any, x: Tensor, y: Tensor) -> None:
        self.rank = len(x.lens) - 2
        dims = x.lens[2:]
        if getattr(op, "dyn_global", False):
            self.lengths, self.stride, self.dilation = dims, (1,) * self.rank, (1,) * self.rank
            self.begins, self.ends, over = (0,) * self.rank, (0,) * self.rank, [0] * self.rank
        else:
            self.lengths, self.stride, self.dilation = op.numbers(self.rank)
            self.begins, self.ends, over = op.around(dims, y.lens[2:])
        self.dims = dims
        self.inside = not any((*self.begins, *self.ends, *over))
        self.over = any(over)

    def starts(self, coordinates: Coordinates) -> list[str]:
        return [
            f"const i32 b{i} = (i32){coordinates[2 + i]} * {s} - {b};"
            for i, (s, b) in enumerate(zip(self.stride, self.begins, strict=True))
        ]

    def loops(self, inner: list[str]) -> list[str]:
        """Returns loops around `inner` over each position s0, s1.. of a window inside the image."""
        unroll = "UNROLL " if math.prod(self.lengths) <= 16 else ""
        heads = [
            [
                f"{unroll}for (i32 j{i} = 0; j{i} < {k}; ++j{i}) {{",
                f"const i32 s{i} = b{i} + j{i}{f' * {d}' if d != 1 else ''};",
                *([] if self.inside else [f"if ((u32)s{i} >= {n}u) continue;"]),
            ]
            for i, (k, d, n) in enumerate(zip(self.lengths, self.dilation, self.dims, strict=True))
        ]
        return nest(heads, inner)

    def counts(self, padding: bool) -> tuple[list[str], str]:
        """Returns statements that count the window positions in the average, and the expression of the count."""
        if self.inside or (padding and not self.over):
            return [], constant(math.prod(self.lengths), "float")
        lines = []
        for i, (k, d, n, b, e) in enumerate(
            zip(self.lengths, self.dilation, self.dims, self.begins, self.ends, strict=True)
        ):
            low, high = (-b, n + e) if padding else (0, n)
            lines.append(f"i32 n{i} = 0;")
            lines.append(f"for (i32 j = 0; j < {k}; ++j) n{i} += b{i} + j * {d} >= {low} && b{i} + j * {d} < {high};")
        return lines, "(float)(" + " * ".join(f"m::max(n{i}, 1)" for i in range(self.rank)) + ")"


def _parts(op: Any, x: Tensor, windows: _Windows) -> tuple[str, str, list[str], str]:
    """Returns the initial accumulator, its update with `v`, statements after the loops, and the result."""
    kind = compute_type(x.dtype)
    if op.mode == "max":
        return f"Max::id<{kind}>()", "acc = Max::f(acc, v);", [], "acc"
    if op.mode == "average":
        lines, count = windows.counts(op.count_include_pad)
        return f"({kind})0", "acc = acc + v;", lines, f"acc / ({kind}){count}"
    power = {1: "m::abs(v)", 2: "v * v"}.get(op.lp_order, f"m::pow(m::abs(v), ({kind}){op.lp_order}.0)")
    root = {1: "acc", 2: "m::sqrt(acc)"}.get(op.lp_order, f"m::pow(acc, {constant(1 / op.lp_order, kind)})")
    return f"({kind})0", f"acc = acc + {power};", [], root


def pooling(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    windows = _Windows(op, x, y)
    whole = windows.inside and windows.lengths == windows.dims and math.prod(y.lens[2:]) == 1
    if whole and op.mode in ("average", "max") and y.elements:
        axes = tuple(range(2, len(x.lens)))
        module = single(ReduceMean(axes=axes) if op.mode == "average" else ReduceMax(axes=axes), [x])
        return fused_reduce(module, [x], [y], traits, f"pool_{op.mode}")
    inner = inner_axis(y)
    width = straight(x, 1) if inner == 1 else 1
    while width > 1 and (y.lens[1] % width or width > straight(y, 1)):
        width //= 2
    while width > 2 and usual(y.elements) < width * traits.sm_count * 256:
        width //= 2
    if width > 1 and y.elements:
        return _channels(op, windows, x, y, traits, width)

    kind = compute_type(x.dtype)
    start, update, after, result = _parts(op, x, windows)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        place = offset_of(x, [at[0], at[1], *(f"(u32)s{i}" for i in range(windows.rank))])
        body = [f"const {kind} v = {to_compute(f'p0[{place}]', x.dtype)};", update]
        return [*windows.starts(at), f"{kind} acc = {start};", *windows.loops(body), *after], [
            to_storage(result, y.dtype)
        ]

    flops = y.elements * math.prod(windows.lengths)
    return each_element(f"pool_{op.mode}", [x], [y], traits, element, unroll=4, flops=flops)


def _channels(op: Any, windows: _Windows, x: Tensor, y: Tensor, traits: DeviceTraits, width: int) -> KernelSource:
    start, update, after, result = _parts(op, x, windows)
    kind = compute_type(x.dtype)
    order = [a for a in memory_order(y.strides, y.lens) if a != 1]
    dims = [*(y.lens[a] for a in order), y.lens[1] // width]
    setup, names = decompose("i", dims, "c")
    at = {a: names[n] for n, a in enumerate(order)} | {1: names[-1]}
    index = index_type(x, y)
    base = offset_code([at[0], at[1]], [x.strides[0], x.strides[1]], 0, index, width)
    place = offset_code([f"({index})s{i}" for i in range(windows.rank)] + ["0"], [*x.strides[2:], 0], 0, index)
    packed = op.mode == "max" and x.dtype in PACKED and width % 4 == 0
    if packed:
        first, body, last = _packed_bytes(x, width // 4, place)
    else:
        first = [f"{kind} acc[{width}];", f"UNROLL for (int k = 0; k < {width}; ++k) acc[k] = {start};"]
        body = [
            f"const vec<{storage_type(x.dtype)}, {width}> a = {load_code(x, width)}(x0 + ({place}));",
            f"UNROLL for (int k = 0; k < {width}; ++k) {{",
            f"  const {kind} v = {to_compute('a.v[k]', x.dtype)};",
            f"  {update.replace('acc', 'acc[k]')}",
            "}",
        ]
        last = [
            *after,
            f"vec<{storage_type(y.dtype)}, {width}> b;",
            f"UNROLL for (int k = 0; k < {width}; ++k) b.v[k] = {to_storage(result.replace('acc', 'acc[k]'), y.dtype)};",
        ]
    target = offset_code([*(at[a] for a in order), names[-1]], [*(y.strides[a] for a in order), 1], 0, index, width)
    lines = [
        f"const u32 i = blockIdx.x * blockDim.x + threadIdx.x;  // {width} channels each",
        "if (i >= n) return;",
        *setup,
        *windows.starts([at[a] for a in range(len(y.lens))]),
        f"const {storage_type(x.dtype)}* const x0 = p0 + ({base});",
        *first,
        *windows.loops(body),
        *last,
        f"stv<u32, {width // 4}>((u32*)(q0 + ({target})), b);"
        if packed
        else f"{store_code(y, width)}(q0 + ({target}), b);",
    ]
    count = math.prod(dims)
    threads = threads_of(count, traits)
    flops = y.elements * math.prod(windows.lengths)
    return one_launch(f"pool_{op.mode}", lines, [x], [y], ceil_div(count, threads), threads, items=count, flops=flops)


def _packed_bytes(x: Tensor, words: int, place: str) -> tuple[list[str], list[str], list[str]]:
    """Returns statements that start, update and finish maxima of bytes, two at a time as 16-bit numbers.

    A pair is compared by its upper bytes; the lower ones, which are other channels, only decide ties.  8-bit floats are ordered
    as integers (see `float8_order`), above which NaN is, whatever its sign.
    """
    kind = "u16" if x.dtype is dt.uint8 else "i16"
    each = f"UNROLL for (int k = 0; k < {words}; ++k)"
    least = "0u" if x.dtype is dt.uint8 else "0x80008000u"
    ordered = x.dtype.is_float
    first = [f"u32 odd[{words}], even[{words}];", f"{each} odd[k] = even[k] = {least};"]
    body = [
        f"{'' if ordered else 'const '}vec<u32, {words}> a = ldv<u32, {words}>((const u32*)(x0 + ({place})));",
        *([f"{each} a.v[k] = float8_order(positive_nan(a.v[k]));"] if ordered else []),
        f"{each} odd[k] = max_pairs<{kind}>(odd[k], a.v[k]);",
        f"{each} even[k] = max_pairs<{kind}>(even[k], a.v[k] << 8);",
    ]
    last = [f"vec<u32, {words}> b;", f"{each} b.v[k] = (odd[k] & 0xff00ff00u) | (even[k] >> 8 & 0x00ff00ffu);"]
    return first, body, [*last, f"{each} b.v[k] = float8_order(b.v[k]);"] if ordered else last


def max_pool_indices(op: Any, x: Tensor, y: Tensor, where: Tensor, traits: DeviceTraits) -> KernelSource:
    """Generates max pooling with the index of the first maximum."""
    windows = _Windows(op, x, y)
    kind = compute_type(x.dtype)
    steps = [
        math.prod(windows.dims[i + 1 :]) if op.storage_order == 0 else math.prod(windows.dims[:i])
        for i in range(windows.rank)
    ]

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        place = offset_of(x, [at[0], at[1], *(f"(u32)s{i}" for i in range(windows.rank))])
        flat = " + ".join(f"s{i} * {s}" for i, s in enumerate(steps))
        body = [
            f"const {kind} v = {to_compute(f'p0[{place}]', x.dtype)};",
            f"if (best < 0 || v > top || (v != v && top == top)) {{ top = v; best = {flat}; }}",
        ]
        image = f"((i64){at[0]} * {x.lens[1]} + {at[1]}) * {math.prod(windows.dims)}"
        lines = [*windows.starts(at), f"{kind} top = Max::id<{kind}>();", "i64 best = -1;", *windows.loops(body)]
        return lines, [to_storage("top", y.dtype), f"{image} + best"]

    return each_element("max_pool_indices", [x], [y, where], traits, element, unroll=1)
