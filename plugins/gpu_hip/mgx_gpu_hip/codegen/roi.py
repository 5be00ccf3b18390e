"""RoI align: each thread computes one cell of a few adjacent channels."""

from __future__ import annotations

import math
from typing import Any

from .elements import offset_of
from .geometry import Reader, aligned, decompose, distance, index_type, memory_order, nest, offset_code, store_code
from .indexing import position
from .movement import inner_axis
from .pointwise import each_item
from .primitives import constant
from .source import NAME, DeviceTraits, KernelSource, Tensor, compute_type, finish, storage_type, to_compute, to_storage

__all__ = ["roialign"]

MAX_UNROLLED = 4  # sampling points along one axis of a cell

# Coordinates are float64, as in the definition, since the number of points and whether they are inside are discontinuous.
# If the number of points is open, only those inside the image are enumerated, since a region may be vast.
_POINTS = f"""// the points of one cell along an axis
struct {NAME}_axis {{
  double start, at, cell, count, first;  // of the region; the cell; its length; its points; the first of them in use
  i32 used, size;
}};
struct {NAME}_point {{
  i32 low, high;
  double right;  // part of the way from low to high
  bool inside;
}};
DEV {NAME}_axis {NAME}_cell(double start, double length, u32 at, i32 cells, i32 size, i32 count) {{
  {NAME}_axis a = {{start, (double)at, length / cells, (double)count, 0.0, count, size}};
  if (count) return a;
  a.count = a.cell > 1.0 ? m::ceil(a.cell) : 1.0;
  if (!(length > 0.0 && length < 1e300)) return a;
  const double step = a.cell / a.count, base = start + a.at * a.cell;
  const double last = m::min(a.count, m::ceil((size - base) / step) + 2.0);
  a.first = m::max(0.0, m::floor((-1.0 - base) / step) - 2.0);
  a.used = last > a.first ? (i32)m::min(last - a.first, 2.0 * size + 16.0) : 0;
  return a;
}}
DEV {NAME}_point {NAME}_place(const {NAME}_axis& a, i32 number) {{
  const double at = a.start + (a.at + (a.first + number + 0.5) / a.count) * a.cell;
  {NAME}_point p = {{0, 0, 0.0, at >= -1.0 && at <= (double)a.size}};
  if (!p.inside) return p;
  const double held = m::min(m::max(at, 0.0), a.size - 1.0);
  p.low = (i32)held, p.high = p.low + 1 < a.size ? p.low + 1 : p.low, p.right = held - p.low;
  return p;
}}
"""


def roialign(op: Any, x: Tensor, rois: Tensor, images: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    """Generates a kernel for mean or max; image indices are clamped, regions that are not finite give NaN."""
    if not y.elements:
        return finish("roialign", "", [], [x, rois, images], [y])
    width = _width(x, y, traits)
    order = memory_order(y.strides, y.lens)
    dims = [y.lens[a] // width if a == 1 else y.lens[a] for a in order]
    setup, names = decompose("i", dims, "c")
    at = {a: names[n] for n, a in enumerate(order)}
    index, kind = index_type(x, y), compute_type(x.dtype)
    base = offset_code(["image", at[1]], x.strides[:2], 0, index, width)
    lines = [
        *setup,
        *_region(op, x, rois, [at[a] for a in range(4)]),
        f"const u32 image = (u32)wrapped({position(images, [at[0]], 'p2')}, {x.lens[0]});",
        f"const {storage_type(x.dtype)}* const x0 = p0 + ({base});",
        f"{kind} acc[{width}];",
        f"UNROLL for (int k = 0; k < {width}; ++k) acc[k] = {f'Max::id<{kind}>()' if op.mode == 'max' else '0'};",
        *_points(op, x, index, width),
        *_stored(op, y, [at[a] for a in range(4)], index, width),
    ]
    flops = 8 * y.elements * max(op.sampling_ratio, 1) ** 2
    return each_item("roialign", lines, [x, rois, images], [y], math.prod(dims), traits, before=_POINTS, flops=flops)


def _width(x: Tensor, y: Tensor, traits: DeviceTraits) -> int:
    """Returns channels per thread: vectors if channels are innermost; all of them share the coordinates."""
    width = max(1, 16 // x.dtype.size) if inner_axis(y) == 1 and x.strides[1] == 1 else 4
    while width > 1 and (y.lens[1] % width or y.elements < width * traits.sm_count * 256):
        width //= 2
    return width


def _region(op: Any, x: Tensor, rois: Tensor, at: list[str]) -> list[str]:
    """Returns statements that locate the thread's cell along both axes, `down` and `across`."""
    half = op.coordinate_transformation_mode == "half_pixel"
    scale = constant(op.spatial_scale, "double")
    corners = [to_compute(f"p1[{offset_of(rois, [at[0], str(k)])}]", rois.dtype) for k in range(4)]
    lines = [
        f"const double {name} = (double){code} * {scale}{' - 0.5' if half else ''};"
        for name, code in zip(("left", "top", "right", "bottom"), corners, strict=True)
    ]
    high, wide = (
        ("bottom - top", "right - left") if half else ("m::max(bottom - top, 1.0)", "m::max(right - left, 1.0)")
    )
    ratio = op.sampling_ratio
    lines += [
        "const double odd = (left - left) + (top - top) + (right - right) + (bottom - bottom);  // NaN or 0",
        f"const double high = {high}, wide = {wide};",
        f"const {NAME}_axis down = {NAME}_cell(top, high, {at[2]}, {op.output_height}, {x.lens[2]}, {ratio});",
        f"const {NAME}_axis across = {NAME}_cell(left, wide, {at[3]}, {op.output_width}, {x.lens[3]}, {ratio});",
    ]
    if op.mode == "max":  # points outside are 0
        lines.append("bool beyond = down.used < down.count || across.used < across.count;")
    return lines


def _points(op: Any, x: Tensor, index: str, width: int) -> list[str]:
    """Returns loops over the points inside that accumulate their neighbors in `acc`."""
    kind, ratio, largest = compute_type(x.dtype), op.sampling_ratio, op.mode == "max"
    unroll = "UNROLL " if 0 < ratio <= MAX_UNROLLED else ""
    outside = "{ beyond = true; continue; }" if largest else "continue;"
    heads = [
        [
            f"{unroll}for (i32 {n} = 0; {n} < {ratio or f'{axis}.used'}; ++{n}) {{",
            f"const {NAME}_point {name} = {NAME}_place({axis}, {n});",
            f"if (!{name}.inside) {outside}",
            f"const {kind} {name}1 = ({kind}){name}.right, {name}0 = ({kind})(1.0 - {name}.right);",
        ]
        for axis, name, n in (("down", "row", "i0"), ("across", "column", "i1"))
    ]
    reader = Reader(x, (x.strides[0], x.strides[2], x.strides[3], x.strides[1]), 0, width)
    body: list[str] = []
    terms = []
    for n, (row, column) in enumerate((r, c) for r in ("low", "high") for c in ("low", "high")):
        place = offset_code([f"({index})row.{row}", f"({index})column.{column}", "0"], [*x.strides[2:], 0], 0, index)
        body += reader.lines(f"v{n}", "x0", place)
        terms.append(f"{to_compute(reader.element(f'v{n}'), x.dtype)} * (row{n // 2} * column{n % 2})")
    if largest:
        update = f"m::max(acc[k], m::max(m::max({terms[0]}, {terms[1]}), m::max({terms[2]}, {terms[3]})))"
    else:
        update = f"acc[k] + ({' + '.join(terms)})"
    body.append(f"UNROLL for (int k = 0; k < {width}; ++k) acc[k] = {update};")
    return nest(heads, body)


def _stored(op: Any, y: Tensor, at: list[str], index: str, width: int) -> list[str]:
    """Returns statements that finish the cell's channels and store them, as a vector if contiguous."""
    kind = compute_type(y.dtype)
    if op.mode == "max":
        value = f"(beyond ? m::max(acc[k], ({kind})0) : acc[k]) + ({kind})odd"
        lines = []
    else:
        value = f"acc[k] * part + ({kind})odd"
        lines = [f"const {kind} part = ({kind})(1.0 / (down.count * across.count));"]
    value = to_storage(value, y.dtype)
    strides = [y.strides[0], y.strides[2], y.strides[3], y.strides[1]]
    target = offset_code([at[0], at[2], at[3], at[1]], strides, 0, index, width)
    if width > 1 and aligned(y, strides, 0, width):
        return [
            *lines,
            f"vec<{storage_type(y.dtype)}, {width}> b;",
            f"UNROLL for (int k = 0; k < {width}; ++k) b.v[k] = {value};",
            f"{store_code(y, width)}(q0 + ({target}), b);",
        ]
    step = f" + k * {distance(y.strides[1], width)}" if width > 1 else ""
    return [*lines, f"UNROLL for (int k = 0; k < {width}; ++k) q0[{target}{step}] = {value};"]
