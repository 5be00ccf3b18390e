"""Depthwise convolutions, channels last: vectors of channels, strips of adjacent outputs, fused epilogue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mgx_core import Module, No
from mgx_core.errors import UnsupportedError
from mgx_core.ops.convolution import Convolution

from .bodies import flat
from .geometry import Reader, ceil_div, decompose, index_type, load_code, offset_code
from .movement import inner_axis, straight
from .pointwise import one_launch, threads_of
from .product_epilogue import FusedEpilogue, product_epilogue, store_vectors
from .source import DeviceTraits, KernelSource, Tensor, compute_type, storage_type, to_compute

__all__ = ["MOST_COLUMNS", "depthwise", "depthwise_group"]

# columns of a filter: a thread holds a row of its weights in registers, and the source has a term for each
MOST_COLUMNS: Final = 64


def depthwise_group(module: Module, inputs: Sequence[Tensor], y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Generates a kernel for a `convolution` group whose anchor is depthwise."""
    body = flat(module)
    anchor = next((i for i in body if isinstance(i.op, Convolution)), None)
    places = {p: n for n, p in enumerate(body.parameters.values())}
    if anchor is None or any(i not in places for i in anchor.inputs):
        return No("the group is not a convolution of its inputs")
    if len(body.outputs) != 1:
        return No("the group has several results")
    x, w = at = tuple(places[i] for i in anchor.inputs)
    try:
        after = product_epilogue(body, [anchor], inputs, anchor.shape.lens())
        return depthwise(anchor.op, inputs[x], inputs[w], y, traits, inputs, at, after)
    except UnsupportedError as error:
        return No(str(error))


def depthwise(
    op: Any,
    x: Tensor,
    w: Tensor,
    y: Tensor,
    traits: DeviceTraits,
    inputs: Sequence[Tensor] | None = None,
    at: tuple[int, ...] = (0, 1),
    after: FusedEpilogue | None = None,
) -> KernelSource | No:
    """Generates a kernel for filters of one channel each over one or two axes, x and y channels last.

    Weights are read as vectors if contiguous.  A thread computes vectors of channels, or single ones where their count is odd
    or the image is not aligned for vectors.
    With several filters per channel, a vector of results reads fewer channels.
    inputs: of the kernel, by default image and weights; at: indices of these two; after: epilogue.
    """
    given = inputs if inputs is not None else [x, w]
    if len(x.lens) not in (3, 4) or op.group != x.lens[1] or w.lens[1] != 1:
        return No("the convolution is not a depthwise convolution with one or two axes")
    if w.lens[-1] > MOST_COLUMNS:
        return No(f"the depthwise kernel supports filters of at most {MOST_COLUMNS} columns, got {w.lens[-1]}")
    strides, dilations, begins, _ = op.sliding(x.lens[2:], w.lens[2:])
    if len(x.lens) == 3:  # as images of one row
        strides, dilations, begins = (1, *strides), (1, *dilations), (0, *begins)
        x, w, y = map(_one_row, (x, w, y))
    filters = w.lens[0] // op.group  # per channel
    if inner_axis(y) != 1 or x.strides[1] != 1 or y.strides[1] != 1 or y.elements == 0:
        return No("the images are not channels last")
    (sh, sw), (dh, dw), (top, left) = strides, dilations, begins
    kh, kw = w.lens[2:]
    n, c, high, wide = y.lens
    width = min(straight(y, 1), 16 // max(x.dtype.size, 2))
    while width > straight(x, 1) * filters:
        width //= 2
    while c % width or max(width, filters) % min(width, filters):
        width //= 2  # to one for odd channel counts: adjacent threads still read adjacent channels
    width, strip, tall = tile_of(width, y, sw, traits)
    tall = tall if dh == 1 else 1
    kind, narrow, channels = compute_type(x.dtype), storage_type(x.dtype), max(1, width // filters)
    strips = ceil_div(wide, strip)
    dims = [n, ceil_div(high, tall), strips, c // width]
    setup, names = decompose("i", dims, "c")
    offsets = index_type(x, y)
    used = sorted({r * sw + j * dw for r in range(strip) for j in range(kw)})
    weights = Reader(w, [w.strides[2], w.strides[3], w.strides[0]], 0, width)
    channel = names[3] if filters <= width else f"({names[3]} / {filters // width}u)"
    base = offset_code([names[0], channel], [x.strides[0], x.strides[1]], 0, offsets, channels)
    left_edge = left == 0
    right_edge = (strips * strip - 1) * sw + (kw - 1) * dw - left < x.lens[3]
    rows_inside = top == 0 and (dims[1] * tall - 1) * sh + (kh - 1) * dh < x.lens[2]
    own = "a.v[k]" if filters == 1 else f"a.v[k / {filters}]" if channels > 1 else "a.v[0]"
    lines = [
        f"const u32 i = blockIdx.x * blockDim.x + threadIdx.x;  // {width} channels of {tall} x {strip} neighbours",
        f"if (i >= {math.prod(dims)}u) return;",
        *setup,
        f"const {narrow}* const x0 = p{at[0]} + ({base});",
        f"const i32 row0 = (i32){names[1]} * {sh * tall} - {top}, col0 = (i32){names[2]} * {strip * sw} - {left};",
        f"{kind} acc[{tall}][{strip}][{width}] = {{}};",
    ]

    def image_rows(first: int, end: int, outputs: Sequence[int]) -> None:
        """Adds the contributions of image rows from `first` on to some of the thread's output rows."""
        unrolled = "UNROLL" if kh * kw <= 64 else "ROLLED"
        lines.append(f"{unrolled} for (i32 j = {first}; j < {end}; ++j) {{")
        lines.append(f"  const i32 row = row0 + j * {dh};")
        if not rows_inside:
            lines.append(f"  if ((u32)row >= {x.lens[2]}u) continue;")
        lines.append(f"  const {narrow}* const x1 = x0 + ({offsets})row * {x.strides[2]}u;")
        for o in outputs:
            for t in range(kw):
                place = ["(u32)j" if o == 0 else f"(u32)(j - {o * sh})", names[3]]
                code = offset_code(place, [w.strides[2], w.strides[0]], t * w.strides[3], "u32", width)
                lines.extend(f"  {line}" for line in weights.lines(f"f{o}_{t}_", f"p{at[1]}", code))
        for s in used:
            inside = [] if left_edge else [f"col0 + {s} >= 0"]
            inside += [] if right_edge else [f"col0 + {s} < {x.lens[3]}"]
            load = f"{load_code(x, channels)}(x1 + ({offsets})(col0 + {s}) * {x.strides[3]}u)"
            lines.append(f"  if ({' && '.join(inside)}) {{" if inside else "  {")
            lines.append(f"    const vec<{narrow}, {channels}> a = {load};")
            for o in outputs:
                for r in range(strip):
                    for t in range(kw):
                        if r * sw + t * dw == s:
                            weight = to_compute(weights.element(f"f{o}_{t}_"), w.dtype)
                            product = f"{to_compute(own, x.dtype)} * {weight}"
                            lines.append(f"    UNROLL for (int k = 0; k < {width}; ++k) acc[{o}][{r}][k] += {product};")
            lines.append("  }")
        lines.append("}")

    # if vertically adjacent outputs share image rows, the first and last of these contribute to some of the outputs only
    edges = sorted({o * sh for o in range(tall)} | {o * sh + kh for o in range(tall)})
    for first, end in pairwise(edges):
        image_rows(first, end, [o for o in range(tall) if o * sh <= first < o * sh + kh])
    lines += _results(y, names, tall, strip, width, after)
    threads = threads_of(math.prod(dims), traits)
    grid, flops = ceil_div(math.prod(dims), threads), 2 * y.elements * kh * kw
    return one_launch("convolution_depthwise", lines, given, [y], grid, threads, flops=flops)


def _one_row(x: Tensor) -> Tensor:
    """Returns a tensor with one axis besides channels as an image of one row."""
    (n, c, length), (a, b, s) = x.lens, x.strides
    return x._replace(lens=(n, c, 1, length), strides=(a, b, length * s, s))


class Tile(NamedTuple):
    """The results of one thread: adjacent channels, and adjacent positions along rows and columns of the image."""

    width: int
    strip: int
    tall: int


def tile_of(width: int, y: Tensor, step: int, traits: DeviceTraits) -> Tile:
    """Returns a thread's tile; width: most channels per thread; step: image columns between adjacent outputs.

    Horizontally adjacent outputs share pixels, vertically adjacent ones rows; with two channels, registers suffice for both.
    With few threads, the latency of a thread's loads dominates, so each takes fewer outputs.
    """
    _, channels, high, wide = y.lens
    width, strip = min(width, 2), min(4, wide)
    enough = channels >= (64 if width > 1 else 32) * width
    if step == 1 and y.dtype.size <= 2 and enough and ceil_div(wide, 8) * 8 <= 1.15 * wide:
        strip = 8
    if high > 1 and y.elements // (width * strip * 2) >= traits.sm_count * 192:
        return Tile(width, strip, 2)
    strip = min(4, wide)
    while strip > 1 and y.elements // (width * strip) < traits.sm_count * 512:
        strip //= 2
    return Tile(width, strip, 1)


def _results(
    y: Tensor, names: Sequence[str], tall: int, strip: int, width: int, after: FusedEpilogue | None
) -> list[str]:
    """Returns statements that apply the epilogue and store the results."""
    lines: list[str] = []
    for axis, name, place, count in ((2, "line", "o", tall), (3, "col", "r", strip)):
        lines.append(f"UNROLL for (int {place} = 0; {place} < {count}; ++{place}) {{")
        lines.append(f"  const u32 {name} = {names[axis - 1]} * {count}u + {place};")
        if y.lens[axis] % count:
            lines.append(f"  if ({name} >= {y.lens[axis]}u) break;")
    steps = [y.strides, *(a.strides for a in (after.reads() if after else ()))]
    strides = [[s[0], s[2] if len(s) == 4 else 0, s[-1], s[1]] for s in steps]
    places = [names[0], "line", "col", names[3]]
    stores = store_vectors([y], after, strides, places, width, "acc[o][r][k]")
    return [*lines, *(f"  {line}" for line in stores), "}", "}"]
