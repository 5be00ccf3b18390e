"""Color space conversions and color adjustments."""

from __future__ import annotations

from mgx_core import Instruction

from ..converter import converts
from ..node import Node


@converts("RGBToHSV")
def rgb_to_hsv(n: Node, x: Instruction) -> Instruction:
    dtype, axis = x.shape.dtype, x.shape.rank - 1
    r, g, b = (n.slice(x, [axis], [k], [k + 1]) for k in range(3))
    top = n.pointwise("max", r, n.pointwise("max", g, b))
    span = n.pointwise("sub", top, n.pointwise("min", r, n.pointwise("min", g, b)))
    zero, one = n.literal(0, dtype), n.literal(1, dtype)
    no_top, no_span = n.pointwise("equal", top, zero), n.pointwise("equal", span, zero)
    saturation = n.pointwise("where", no_top, zero, n.pointwise("div", span, n.pointwise("where", no_top, one, top)))
    share = n.pointwise("div", n.literal(1 / 6, dtype), n.pointwise("where", no_span, one, span))

    def turned(p: Instruction, q: Instruction, start: float) -> Instruction:
        return n.pointwise("add", n.pointwise("mul", share, n.pointwise("sub", p, q)), n.literal(start, dtype))

    by_red, by_green, by_blue = turned(g, b, 0), turned(b, r, 2 / 6), turned(r, g, 4 / 6)
    rest = n.pointwise("where", n.pointwise("equal", g, top), by_green, by_blue)
    hue = n.pointwise("where", n.pointwise("equal", r, top), by_red, rest)
    hue = n.pointwise("where", no_span, zero, hue)
    hue = n.pointwise("where", n.pointwise("less", hue, zero), n.pointwise("add", hue, one), hue)
    return n.concat([hue, saturation, top], axis)


@converts("HSVToRGB")
def hsv_to_rgb(n: Node, x: Instruction) -> Instruction:
    dtype, axis = x.shape.dtype, x.shape.rank - 1
    h, s, v = (n.slice(x, [axis], [k], [k + 1]) for k in range(3))
    six = n.pointwise("mul", h, n.literal(6, dtype))
    one, two, zero = (n.literal(k, dtype) for k in (1, 2, 0))
    parts = []
    for place, sign in ((3, 1), (2, -1), (4, -1)):
        apart = n.pointwise("abs", n.pointwise("sub", six, n.literal(place, dtype)))
        raw = n.pointwise("sub", apart, one) if sign > 0 else n.pointwise("sub", two, apart)
        parts.append(n.pointwise("clip", raw, zero, one))
    rgb = n.concat(parts, axis)
    inner = n.pointwise("add", n.pointwise("sub", one, s), n.pointwise("mul", s, rgb))
    return n.pointwise("mul", inner, v)


@converts("AdjustContrastv2")
def adjust_contrast(n: Node, x: Instruction, factor: Instruction) -> Instruction:
    rank = x.shape.rank
    mean = n.add("reduce_mean", x, axes=(rank - 3, rank - 2))
    scaled = n.pointwise("mul", n.pointwise("sub", x, mean), n.convert(factor, x.shape.dtype))
    return n.pointwise("add", scaled, mean)


@converts("AdjustSaturation", "AdjustHue")
def adjust_hsv(n: Node, x: Instruction, by: Instruction) -> Instruction:
    hsv = rgb_to_hsv(n, x)
    axis = x.shape.rank - 1
    h, s, v = (n.slice(hsv, [axis], [k], [k + 1]) for k in range(3))
    by = n.convert(by, x.shape.dtype)
    one = n.literal(1, x.shape.dtype)
    if n.op_type == "AdjustHue":
        h = n.pointwise("mod", n.pointwise("add", h, by), one)
    else:
        s = n.pointwise("clip", n.pointwise("mul", s, by), n.literal(0, x.shape.dtype), one)
    return hsv_to_rgb(n, n.concat([h, s, v], axis))
