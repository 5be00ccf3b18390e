"""Grid sampling: images interpolated at coordinates given by an operand; a thread computes some channels of one point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mgx_core import No

from .elements import offset_of
from .extents import plain, varies
from .geometry import ceil_div, decompose, index_type, load_code, memory_order, nest, store_code
from .movement import inner_axis, straight
from .pointwise import each_item
from .primitives import FLOATS
from .source import DeviceTraits, KernelSource, Tensor, compute_type, finish, storage_type, to_compute, to_storage

__all__ = ["grid_sample"]

TAPS: Final = {"nearest": 1, "linear": 2, "cubic": 4}  # neighbors along an axis
MAX_AXES: Final = 3
MAX_CHANNELS: Final = 8  # per thread
MAX_READS: Final = 64  # per thread, in flight together
MAX_EXTENT: Final = 1 << 30  # keeps indices and their reflections below 2^31


class _Channels(NamedTuple):
    """The channels of a thread; vector: they are contiguous in both images; ragged: the last thread may have fewer."""

    width: int
    vector: bool
    ragged: bool

    @property
    def head(self) -> str:
        """Returns the head of the loop over them."""
        test = f"UNROLL for (int k = 0; k < {self.width}; ++k)"
        return f"{test} if (first + k < channels)" if self.ragged else test


def _channels(x: Tensor, y: Tensor, taps: int, traits: DeviceTraits) -> _Channels:
    """Returns as many channels per thread as keep the device full."""
    channels = y.lens[1]
    places = y.elements // channels
    width = min(straight(x, 1), straight(y, 1)) if inner_axis(y) == 1 else 1
    while width > 1 and (channels % width or (width > 2 and y.elements < width * traits.sm_count * 256)):
        width //= 2
    if width > 1:
        return _Channels(width, True, False)
    most = max(1, min(MAX_CHANNELS, MAX_READS // taps))
    while most > 1 and places * ceil_div(channels, most) < traits.sm_count * 1024:
        most //= 2
    if varies(channels):
        return _Channels(most, False, most > 1)
    count = ceil_div(channels, ceil_div(channels, most))
    return _Channels(count, False, channels % count != 0)


def _source(op: Any, a: int, size: int, kind: str) -> list[str]:
    """Returns statements that convert the coordinate g to the position s{a} on an axis of `size` elements."""
    corners = "true" if op.align_corners else "false"
    lines = [f"{kind} s{a} = sampled_place(g{a}, {size}, {corners});"]
    if op.mode == "nearest":
        lines.append(f"s{a} = m::round(s{a});")
    if op.padding_mode == "zeros" or op.mode == "cubic":
        return lines
    low, span = (f"({kind})0", size - 1) if op.align_corners else (f"({kind})-0.5", size)
    within = f"m::min(m::max(s{a}, ({kind})0), ({kind})({size - 1}))"
    if op.padding_mode == "reflection":
        within = f"reflected_place(s{a}, {low}, ({kind})({span}))"
    return [*lines, f"if (s{a} < {low} || s{a} > {low} + ({kind})({span})) s{a} = {within};"]


def _weights(mode: str, a: int, kind: str, wide: str) -> list[str]:
    """Returns statements that compute the index i{a} of the first neighbor of position s{a}, and the weights w{a} of all.

    kind: the type of positions; wide: the type of weights.  The cubic kernel (a = -0.75) is evaluated as products, which are
    exact enough near its zeros.
    """
    if mode == "nearest":
        return [f"const i32 i{a} = (i32)m::round(s{a});", f"const {wide} w{a}[1] = {{1}};"]
    lines = [f"const {kind} l{a} = m::floor(s{a});", f"const {wide} t{a} = ({wide})(s{a} - l{a}), r{a} = 1 - t{a};"]
    if mode == "linear":
        return [*lines, f"const i32 i{a} = (i32)l{a};", f"const {wide} w{a}[2] = {{r{a}, t{a}}};"]
    t, r, outer, inner = f"t{a}", f"r{a}", f"({wide})-0.75", f"({wide})1.25"
    near = [f"{p} * (1 + {q} - {inner} * {q} * {q})" for p, q in ((r, t), (t, r))]
    cells = ", ".join([f"{outer} * {t} * {r} * {r}", *near, f"{outer} * {r} * {t} * {t}"])
    return [*lines, f"const i32 i{a} = (i32)l{a} - 1;", f"const {wide} w{a}[4] = {{{cells}}};"]


def _neighbors(op: Any, a: int, size: int, step: int, index: str) -> list[str]:
    """Returns statements that compute the offsets o{a} of all neighbors, and b{a}: the neighbors inside the image."""
    taps = TAPS[op.mode]
    on = op.padding_mode == "zeros"
    lines = [f"{index} o{a}[{taps}];", *([f"bool b{a}[{taps}];"] if on else [])]
    lines.append(f"UNROLL for (int j = 0; j < {taps}; ++j) {{")
    if on:
        lines += [f"  b{a}[j] = (u32)(i{a} + j) < {size}u;", f"  const i32 at = b{a}[j] ? i{a} + j : 0;"]
    elif op.padding_mode == "border":
        lines.append(f"  const i32 at = m::min<i32>(m::max<i32>(i{a} + j, 0), {size - 1});")
    else:
        lines.append(f"  const i32 at = mirrored_index(i{a} + j, {size}, {int(op.align_corners)});")
    scale = f"{step}u" if index == "u32" else f"{step}ull"
    return [*lines, f"  o{a}[j] = ({index})at * {scale};", "}"]


def _sum(op: Any, x: Tensor, rank: int, kind: str, index: str, channels: _Channels) -> list[str]:
    """Returns loops that add all weighted neighbors to the channels' sums."""
    taps = TAPS[op.mode]
    heads = []
    for a in range(rank):
        unrolled = taps ** (rank - a) * channels.width <= 2 * MAX_READS
        heads.append([f"{'UNROLL ' if unrolled else ''}for (int j{a} = 0; j{a} < {taps}; ++j{a}) {{"])
    every = range(rank)
    place = " + ".join(f"o{a}[j{a}]" for a in every)
    inner = [f"const {kind} w = ({kind})({' * '.join(f'w{a}[j{a}]' for a in every)});"]
    if channels.vector:
        inner.append(
            f"const vec<{storage_type(x.dtype)}, {channels.width}> v = {load_code(x, channels.width)}(x0 + ({place}));"
        )
        value = "v.v[k]"
    else:
        step = f"{x.strides[1]}u" if index == "u32" else f"{x.strides[1]}ull"
        inner.append(f"const {storage_type(x.dtype)}* const v = x0 + ({place});")
        value = f"v[({index})k * {step}]"
    term = f"({kind}){to_compute(value, x.dtype)} * w"
    if op.padding_mode == "zeros":  # the element read instead of one outside may be infinite
        inner.append(f"const bool on = {' && '.join(f'b{a}[j{a}]' for a in every)};")
        term = f"on ? {term} : ({kind})0"
    inner.append(f"{channels.head} acc[k] += {term};")
    return nest(heads, inner)


def grid_sample(op: Any, x: Tensor, grid: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Narrow floats are computed in float32, integers in float64; coordinates in the grid's type."""
    rank = len(x.lens) - 2
    if rank > MAX_AXES:
        return No(f"{rank} spatial axes are not supported")
    if any(n >= MAX_EXTENT for n in x.lens[2:]):
        return No(f"an image axis of {max(x.lens[2:])} elements is too long")
    if not y.elements:
        return finish("grid_sample", "", [], [x, grid], [y])
    taps = TAPS[op.mode] ** rank
    channels = _channels(x, y, taps, traits)
    order = [a for a in memory_order(y.strides, y.lens) if a == 1 or y.lens[a] != 1]
    dims = [ceil_div(y.lens[1], channels.width) if a == 1 else y.lens[a] for a in order]
    lines, names = decompose("i", dims, "c")
    where = {a: names[n] for n, a in enumerate(order)}
    at = ["first" if a == 1 else where.get(a, "0u") for a in range(rank + 2)]
    lines.append(
        f"const u32 first = {where[1]} * {channels.width}u{f', channels = {y.lens[1]}u' if channels.ragged else ''};"
    )
    lines += _places(op, x, grid, at)
    index = index_type(x)
    kind = _summed(x)
    base = offset_of(x, [at[0], at[1], *("0u" for _ in range(rank))])
    lines += [
        f"const {storage_type(x.dtype)}* const x0 = p0 + ({base});",
        f"{kind} acc[{channels.width}];",
        f"UNROLL for (int k = 0; k < {channels.width}; ++k) acc[k] = 0;",
        *_sum(op, x, rank, kind, index, channels),
        *_stored(y, at, channels),
    ]
    count = math.prod(dims)
    return each_item("grid_sample", lines, [x, grid], [y], count, traits, flops=2 * taps * plain(y.elements))


def _summed(x: Tensor) -> str:
    """Returns the C type of the sums."""
    kind = compute_type(x.dtype)
    return kind if kind in FLOATS else "double"


def _places(op: Any, x: Tensor, grid: Tensor, at: Sequence[str]) -> list[str]:
    """Returns statements that compute offsets and weights of the neighbors along each axis."""
    rank = len(x.lens) - 2
    kind = compute_type(grid.dtype)
    wide = "double" if op.mode == "cubic" and _summed(x) == "double" else kind
    lines = []
    for a in range(rank):
        place = offset_of(grid, [at[0], *at[2:], f"{rank - 1 - a}u"])
        lines.append(f"const {kind} g{a} = {to_compute(f'p1[{place}]', grid.dtype)};")
        lines += _source(op, a, x.lens[2 + a], kind)
        lines += _weights(op.mode, a, kind, wide)
        lines += _neighbors(op, a, x.lens[2 + a], x.strides[2 + a], index_type(x))
    return lines


def _stored(y: Tensor, at: Sequence[str], channels: _Channels) -> list[str]:
    """Returns statements that store the sums."""
    value = "acc[k]"
    if y.dtype.kind != "f":
        value = f"convert<{storage_type(y.dtype)}>({value})"
    value, place = to_storage(value, y.dtype), offset_of(y, at)
    if channels.vector:
        return [
            f"vec<{storage_type(y.dtype)}, {channels.width}> out;",
            f"{channels.head} out.v[k] = {value};",
            f"{store_code(y, channels.width)}(q0 + ({place}), out);",
        ]
    index = index_type(y)
    step = f"{y.strides[1]}u" if index == "u32" else f"{y.strides[1]}ull"
    return [
        f"{storage_type(y.dtype)}* const out = q0 + ({place});",
        f"{channels.head} out[({index})k * {step}] = {value};",
    ]
