"""Depthwise convolutions, channels last: vectors of channels, strips of adjacent outputs, fused epilogue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mgx_core import Module, No
from mgx_core.errors import UnsupportedError
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.rules.constants import scalar_of
from mgx_core.types.traced_int import TracedInt, divides, usual

from .bodies import flat
from .geometry import Reader, ceil_div, decompose, index_type, load_code, offset_code
from .movement import inner_axis, straight
from .pointwise import one_launch, threads_of
from .product_epilogue import FusedEpilogue, product_epilogue, store_vectors
from .source import DeviceTraits, KernelSource, Tensor, compute_type, storage_type, to_compute

__all__ = ["MOST_COLUMNS", "depthwise", "depthwise_group"]

# columns of a filter: a thread holds a row of its weights in registers, and the source has a term for each
MOST_COLUMNS: Final = 64
PAIR, BYTES = 2, 4  # channels of a thread: 4 bytes of float16, or of bytes


def depthwise_group(module: Module, inputs: Sequence[Tensor], y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Generates a kernel for a group whose anchor is a depthwise convolution, without a zero point of the weights."""
    body = flat(module)
    anchor = next((i for i in body if isinstance(i.op, (Convolution, QuantConvolution))), None)
    places = {p: n for n, p in enumerate(body.parameters.values())}
    if anchor is None or any(i not in places for i in anchor.inputs[:2]):
        return No("the group is not a convolution of its inputs")
    point = next((i for i in anchor.inputs[2:3] if not i.is_absent), None)
    number = None if point is None else scalar_of(point)
    if point is not None and number is None and point not in places:
        return No("the zero point of the image is computed inside the group")
    if len(body.outputs) != 1:
        return No("the group has several results")
    x, w = at = tuple(places[i] for i in anchor.inputs[:2])
    zero = "" if point is None else f"p{places[point]}[0]" if number is None else str(int(number))
    try:
        after = product_epilogue(body, [anchor], inputs, anchor.shape.lens())
        return depthwise(anchor.op, inputs[x], inputs[w], y, traits, inputs, at, after, zero)
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
    zero: str = "",
) -> KernelSource | No:
    """Generates a kernel for filters of one channel each over one or two axes, x and y channels last.

    Weights are read as vectors if contiguous.  A thread computes vectors of channels, or single ones where their count is odd
    or the image is not aligned for vectors.
    With several filters per channel, a vector of results reads fewer channels.
    inputs: of the kernel, by default image and weights; at: indices of these two; after: epilogue; zero: expression of the
    image's zero point, which pads it, if it has one.
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
    if inner_axis(y) != 1 or x.strides[1] != 1 or y.strides[1] != 1 or y.elements == 0:
        return No("the images are not channels last")
    filters = w.lens[0] // op.group
    most = BYTES if x.dtype.size == 1 else PAIR
    tile = tile_of(_vector_width(x, y, filters), y, strides[1], traits, most)
    if dilations[0] > 1:
        tile = tile._replace(tall=1)
    job = _Depthwise(x, w, y, at, filters, strides, dilations, begins, tile, zero)
    lines = [*job.head(), *job.sums(), *_results(y, job.names, tile, after)]
    items = math.prod(job.dims)
    threads = threads_of(items, traits)
    flops = 2 * y.elements * math.prod(w.lens[2:])
    return one_launch("convolution_depthwise", lines, given, [y], ceil_div(items, threads), threads, flops=flops)


def _vector_width(x: Tensor, y: Tensor, filters: int) -> int:
    """Returns the most results that a thread stores as one vector."""
    width = min(straight(y, 1), 16 // max(x.dtype.size, 2))
    while width > straight(x, 1) * filters:
        width //= 2
    while y.lens[1] % width or max(width, filters) % min(width, filters):
        width //= 2  # to one for odd channel counts: adjacent threads still read adjacent channels
    return width


@dataclass(frozen=True)
class _Depthwise:
    """A depthwise convolution of x [n, c, h, w] with w [c * filters, 1, kh, kw] to y, and a thread's tile of the results.

    at: indices of x and w among the kernel's operands; strides, dilations, begins: along rows and columns of the image; zero:
    expression of the zero point of x, if it has one.
    """

    x: Tensor
    w: Tensor
    y: Tensor
    at: tuple[int, ...]
    filters: int
    strides: Sequence[int]
    dilations: Sequence[int]
    begins: Sequence[int]
    tile: Tile
    zero: str

    @cached_property
    def dims(self) -> list[int]:
        """Returns the number of tiles along images, rows, columns and channels."""
        n, c, high, wide = self.y.lens
        return [n, ceil_div(high, self.tile.tall), ceil_div(wide, self.tile.strip), c // self.tile.width]

    @cached_property
    def names(self) -> list[str]:
        """Returns the thread's place along each of these."""
        return decompose("i", self.dims, "c")[1]

    @cached_property
    def offsets(self) -> str:
        return index_type(self.x, self.y)

    @property
    def channels(self) -> int:
        """Returns how many channels of x a vector of results is computed from."""
        return max(1, self.tile.width // self.filters)

    def head(self) -> list[str]:
        """Returns statements that locate the thread's tile and declare its sums."""
        (width, strip, tall), names, x = self.tile, self.names, self.x
        channel = names[3] if self.filters <= width else f"({names[3]} / {self.filters // width}u)"
        base = offset_code([names[0], channel], [x.strides[0], x.strides[1]], 0, self.offsets, self.channels)
        row, column = self.strides[0] * tall, self.strides[1] * strip
        kind = "i32" if x.dtype.is_integer and x.dtype.bits == 8 else compute_type(x.dtype)
        return [
            f"const u32 i = blockIdx.x * blockDim.x + threadIdx.x;  // {width} channels of {tall} x {strip} neighbors",
            f"if (i >= {math.prod(self.dims)}u) return;",
            *decompose("i", self.dims, "c")[0],
            f"const {storage_type(x.dtype)}* const x0 = p{self.at[0]} + ({base});",
            f"const i32 row0 = (i32){names[1]} * {row} - {self.begins[0]}, "
            f"col0 = (i32){names[2]} * {column} - {self.begins[1]};",
            f"{kind} acc[{tall}][{strip}][{width}] = {{}};",
            *([f"const i32 zero = {self.zero};"] if self.zero else []),
        ]

    def sums(self) -> list[str]:
        """Returns statements that sum the products of all image rows.

        If vertically adjacent outputs share rows, the first and last of these contribute to some of the outputs only.
        """
        step, rows, tall = self.strides[0], self.w.lens[2], self.tile.tall
        edges = sorted({o * step for o in range(tall)} | {o * step + rows for o in range(tall)})
        lines: list[str] = []
        for first, end in pairwise(edges):
            lines += self._rows(first, end, [o for o in range(tall) if o * step <= first < o * step + rows])
        return lines

    def _rows(self, first: int, end: int, outputs: Sequence[int]) -> list[str]:
        """Returns statements that add the products of image rows [first, end) to some of the thread's output rows."""
        x, step, gap, top = self.x, self.strides[0], self.dilations[0], self.begins[0]
        kh, kw = self.w.lens[2:]
        inside = (
            top == 0
            and type(x.lens[2]) is not TracedInt
            and (self.dims[1] * self.tile.tall - 1) * step + (kh - 1) * gap < x.lens[2]
        )
        lines = [
            f"{'UNROLL' if kh * kw <= 64 else 'ROLLED'} for (i32 j = {first}; j < {end}; ++j) {{",
            f"  const i32 row = row0 + j * {gap};",
        ]
        if not inside:
            lines.append(f"  if ((u32)row >= {x.lens[2]}u) continue;")
        lines.append(f"  const {storage_type(x.dtype)}* const x1 = x0 + ({self.offsets})row * {x.strides[2]}u;")
        lines += [f"  {line}" for o in outputs for line in self._weights(o)]
        for column in sorted(
            {r * self.strides[1] + t * self.dilations[1] for r in range(self.tile.strip) for t in range(kw)}
        ):
            lines += self._column(column, outputs)
        return [*lines, "}"]

    @cached_property
    def _reader(self) -> Reader:
        w = self.w
        return Reader(w, [w.strides[2], w.strides[3], w.strides[0]], 0, self.tile.width)

    def _weights(self, output: int) -> list[str]:
        """Returns statements that load the weights of image row `j` for an output row, named f{output}_{column}_."""
        w, place = self.w, ["(u32)j" if output == 0 else f"(u32)(j - {output * self.strides[0]})", self.names[3]]
        lines: list[str] = []
        for t in range(w.lens[3]):
            code = offset_code(place, [w.strides[2], w.strides[0]], t * w.strides[3], "u32", self.tile.width)
            lines += self._reader.lines(f"f{output}_{t}_", f"p{self.at[1]}", code)
        return lines

    def _column(self, column: int, outputs: Sequence[int]) -> list[str]:
        """Returns statements that read pixels of an image column once, and add their products to all results that need them."""
        x, (_, step), (_, gap), (_, left) = self.x, self.strides, self.dilations, self.begins
        (width, strip, _), kw = self.tile, self.w.lens[3]
        conditions = [] if left == 0 else [f"col0 + {column} >= 0"]
        if type(x.lens[3]) is TracedInt or (self.dims[2] * strip - 1) * step + (kw - 1) * gap - left >= x.lens[3]:
            conditions.append(f"col0 + {column} < {x.lens[3]}")
        load = f"{load_code(x, self.channels)}(x1 + ({self.offsets})(col0 + {column}) * {x.strides[3]}u)"
        own = "a.v[k]" if self.filters == 1 else f"a.v[k / {self.filters}]" if self.channels > 1 else "a.v[0]"
        pixel = f"((i32){own} - zero)" if self.zero else to_compute(own, x.dtype)
        lines = [
            f"  if ({' && '.join(conditions)}) {{" if conditions else "  {",
            f"    const vec<{storage_type(x.dtype)}, {self.channels}> a = {load};",
        ]
        for o in outputs:
            for r in range(strip):
                for t in range(kw):
                    if r * step + t * gap == column:
                        weight = to_compute(self._reader.element(f"f{o}_{t}_"), self.w.dtype)
                        product = f"{pixel} * {weight}"
                        lines.append(f"    UNROLL for (int k = 0; k < {width}; ++k) acc[{o}][{r}][k] += {product};")
        return [*lines, "  }"]


def _one_row(x: Tensor) -> Tensor:
    """Returns a tensor with one axis besides channels as an image of one row."""
    (n, c, length), (a, b, s) = x.lens, x.strides
    return x._replace(lens=(n, c, 1, length), strides=(a, b, length * s, s))


class Tile(NamedTuple):
    """The results of one thread: adjacent channels, and adjacent positions along rows and columns of the image."""

    width: int
    strip: int
    tall: int


def tile_of(width: int, y: Tensor, step: int, traits: DeviceTraits, most: int = PAIR) -> Tile:
    """Returns a thread's tile; width, most: bounds of its channels; step: image columns between adjacent outputs.

    Horizontally adjacent outputs share pixels, vertically adjacent ones rows; with two channels, registers suffice for both.
    With few threads, the latency of a thread's loads dominates, so each takes fewer outputs.
    """
    n, channels, high, wide = map(usual, y.lens)
    elements = n * channels * high * wide
    width, strip = min(width, most), min(4, wide)
    enough = channels >= (64 if width > 1 else 32) * width
    if step == 1 and y.dtype.size <= 2 and enough and ceil_div(wide, 8) * 8 <= 1.15 * wide:
        strip = 8
    if high > 1 and elements // (width * strip * 2) >= traits.sm_count * 192:
        return Tile(width, strip, 2)
    strip = min(4, wide)
    while strip > 1 and elements // (width * strip) < traits.sm_count * 512:
        strip //= 2
    return Tile(width, strip, 1)


def _results(y: Tensor, names: Sequence[str], tile: Tile, after: FusedEpilogue | None) -> list[str]:
    """Returns statements that apply the epilogue and store the results."""
    lines: list[str] = []
    for axis, name, place, count in ((2, "line", "o", tile.tall), (3, "col", "r", tile.strip)):
        lines.append(f"UNROLL for (int {place} = 0; {place} < {count}; ++{place}) {{")
        lines.append(f"  const u32 {name} = {names[axis - 1]} * {count}u + {place};")
        if not divides(count, y.lens[axis]):
            lines.append(f"  if ({name} >= {y.lens[axis]}u) break;")
    steps = [y.strides, *(a.strides for a in (after.reads() if after else ()))]
    strides = [[s[0], s[2] if len(s) == 4 else 0, s[-1], s[1]] for s in steps]
    places = [names[0], "line", "col", names[3]]
    stores = store_vectors([y], after, strides, places, tile.width, "acc[o][r][k]")
    return [*lines, *(f"  {line}" for line in stores), "}", "}"]
