"""Image resizing, grid sampling, and torchvision's region ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.ops.resize import Axis, Resize

from ..converter import Converter, converts
from ..node import Node

__all__: list[str] = []


def resampled(n: Node, x: Instruction, scales: Sequence[float | None] | None, **how: Any) -> Instruction:
    """Returns x resized to torch's extents with torch's scale factors."""
    rank = x.shape.rank
    axes = tuple(range(2, rank))
    wanted = n.result_dims()[2:]
    factors = [float(f) for f in scales or () if f is not None]
    if how.get("coordinate_transformation_mode") == "align_corners" or len(factors) != len(axes):
        return n.add("resize", x, sizes=wanted, axes=axes, **how)
    if all(isinstance(d, int) and d * f == w for d, f, w in zip(x.shape.dims[2:], factors, wanted, strict=True)):
        return n.add("resize", x, sizes=wanted, axes=axes, **how)
    return n.add("resize", x, scales=tuple(factors), sizes=wanted, axes=axes, **how)


def nearest(exact: bool) -> Converter:
    how: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel" if exact else "asymmetric",
        "nearest_mode": "round_prefer_ceil" if exact else "floor",
    }

    def convert(n: Node, x: Instruction, size: Any, *scales: Any) -> Instruction:
        wanted, axes = n.result_dims()[2:], tuple(range(2, x.shape.rank))
        given = _scales(scales) or [None] * len(axes)
        doubles = not exact and _doubles(n)
        factors: list[float | None] = []
        plain = True  # the op's default factors (ratios of extents) suffice
        for old, new, factor in zip(x.shape.dims[2:], wanted, given, strict=True):
            if not isinstance(old, int) or not isinstance(new, int):
                factors.append(None if factor is None else _factor(1 / float(factor)))
                plain = plain and factor is None
            elif 0 in (old, new) or (doubles and new in (old, 2 * old)):
                factors.append(new / old if old and new else 1.0)
            else:
                step = float(np.float32(old) / np.float32(new)) if factor is None else 1 / float(factor)
                same = _picks(how, old, new, step)
                factors.append(new / old if same else _factor(step))
                plain = plain and same
        known = tuple(f for f in factors if f is not None)
        if plain or len(known) < len(factors):
            return n.add("resize", x, sizes=wanted, axes=axes, **how)
        return n.add("resize", x, scales=known, sizes=wanted, axes=axes, **how)

    return convert


def _factor(step: float) -> float:
    """Returns the factor with which the op selects the same nearest elements as torch, which multiplies by a float32 step.

    The op divides in float64 and rounds down. Products that torch's float32 rounds up to an integer (up to half an ulp below it)
    must not end below it, so the factor is lowered slightly; other products are at least four times that margin away.
    """
    exact = float(np.float32(step))
    return 1 / exact if np.frexp(exact)[0] == 0.5 else (1 - 2.0**-50) / exact


def _picks(how: dict[str, Any], old: int, new: int, step: float) -> bool:
    """Returns True if the op selects the same elements as torch without an explicit factor."""
    op = Resize(sizes=(new,), **how)
    plain, torchs = (Axis(old, new, factor, 0, 1) for factor in (new / old, _factor(step)))
    own, wanted = (np.clip(op.nearest(op.source(axis), axis.scale), 0, old - 1) for axis in (plain, torchs))
    return bool(np.array_equal(own, wanted))


def _doubles(n: Node) -> bool:
    """Returns True if torch ignores the factor when the new extent equals the old one or twice it.

    One of torch's two CPU kernels does: the one for channels-last and small images.
    """
    x, sizes = n.given(0), n.result().shape[2:]
    if x.device.type != "cpu" or not all(isinstance(s, int) for s in sizes):
        return False
    if len(sizes) == 2 and sum(sizes) <= 128:
        return True
    layout = {2: torch.channels_last, 3: torch.channels_last_3d}.get(len(sizes))
    known = all(isinstance(s, int) for s in x.shape)
    return layout is not None and known and x.shape[1] > 3 and x.is_contiguous(memory_format=layout)


def _scales(given: Sequence[Any]) -> Sequence[float | None] | None:
    """Returns the scale factors of a `.vec` overload (a list) or of a plain one (a number per axis)."""
    if len(given) == 1 and (given[0] is None or isinstance(given[0], (list, tuple))):
        found: Sequence[float | None] | None = given[0]
        return found
    return given


def smooth(mode: str, antialias: bool = False) -> Converter:
    def convert(n: Node, x: Instruction, size: Any, align_corners: bool, *scales: Any) -> Instruction:
        where = "align_corners" if align_corners else "half_pixel"
        how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
        if mode == "cubic":
            how["cubic_coeff_a"] = -0.5 if antialias else -0.75
        if antialias:
            how |= {"antialias": True, "exclude_outside": True}
        if antialias and align_corners:  # used by torch only for the factor
            how["coordinate_transformation_mode"] = "half_pixel"
            sizes = zip(x.shape.dims[2:], n.result_dims()[2:], strict=True)
            pairs = [
                [n.static(d, "an extent of an antialiased resize with align_corners") for d in pair] for pair in sizes
            ]
            if any(min(pair) < 2 for pair in pairs):
                n.unsupported("an antialiased resize with align_corners to an axis of one element")
            scales = tuple((new - 1) / (old - 1) for old, new in pairs)
        if x.shape.dtype.is_integer:
            return n.convert(
                n.add("nearbyint", resampled(n, n.convert(x, dt.float32), _scales(scales), **how)), x.shape.dtype
            )
        return resampled(n, x, _scales(scales), **how)

    return convert


for _rank in (1, 2, 3):
    converts(f"upsample_nearest{_rank}d")(nearest(False))
    converts(f"_upsample_nearest_exact{_rank}d")(nearest(True))
converts("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")(smooth("linear"))
converts("upsample_bicubic2d")(smooth("cubic"))
converts("_upsample_bilinear2d_aa")(smooth("linear", True))
converts("_upsample_bicubic2d_aa")(smooth("cubic", True))


@converts("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    n: Node, x: Instruction, grid: Instruction, mode: int, padding: int, align_corners: bool
) -> Instruction:
    return n.add(
        "grid_sample",
        x,
        grid,
        mode=("linear", "nearest", "cubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding],
        align_corners=align_corners,
    )


@converts("affine_grid_generator")
def affine_grid(n: Node, theta: Instruction, size: Any, align_corners: bool) -> Instruction:
    return n.add("affine_grid", theta, size=tuple(size), align_corners=align_corners)


@converts("nms", domain="torchvision")
def nms(n: Node, boxes: Instruction, scores: Instruction, threshold: float) -> Instruction:
    """Converts nms; boxes are x1, y1, x2, y2, and the op accepts either order of axes."""
    kind = dt.float32 if boxes.shape.dtype.bits < 32 else boxes.shape.dtype
    count = n.graph.scalar(n, boxes.shape.dims[0])
    found = n.add(
        "nonmaxsuppression",
        n.unsqueeze(n.convert(boxes, kind), [0]),
        n.unsqueeze(n.convert(scores, kind), [0, 1]),
        count,
        n.literal(threshold, dt.float32),
    )
    return n.squeeze(n.slice(found, [1], [2], [3]), [1])


@converts("roi_align", domain="torchvision")
def roi_align(
    n: Node, x: Instruction, rois: Instruction, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Instruction:
    batch = n.convert(n.squeeze(n.slice(rois, [1], [0], [1]), [1]), dt.int64)
    boxes = n.convert(n.slice(rois, [1], [1], [5]), x.shape.dtype)
    return n.add(
        "roialign",
        x,
        boxes,
        batch,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        output_height=height,
        output_width=width,
        sampling_ratio=max(int(ratio), 0),
        spatial_scale=float(scale),
    )


@converts("deform_conv2d", domain="torchvision")
def deform_conv2d(
    n: Node,
    x: Instruction,
    w: Instruction,
    offset: Instruction,
    mask: Instruction,
    bias: Instruction,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Instruction:
    given: dict[str, Any] = {"padding": (ph, pw, ph, pw), "stride": (sh, sw), "dilation": (dh, dw)}
    more = mask if use_mask else None
    return n.add("deform_conv", x, w, offset, bias, more, group=groups, offset_group=offset_groups, **given)


@converts("histc")
def histc(n: Node, x: Instruction, bins: int = 100, low: float = 0, high: float = 0) -> Instruction:
    flat = n.convert(n.reshape(x, (n.size(x, range(x.shape.rank)), 1)), dt.float32)
    first, last = n.full_like(flat, low), n.full_like(flat, high)
    if low == high:  # the range is that of the data, widened by one if all data are equal
        first, last = (n.reduce(f"reduce_{kind}", flat, [0], True) for kind in ("min", "max"))
        apart = n.convert(n.add("equal", first, last), dt.float32)
        first, last = n.broadcast(n.add("sub", first, apart), n.add("add", last, apart), flat)[:2]
    share = n.add("div", n.add("sub", flat, first), n.add("sub", last, first))
    place = n.add("floor", n.add("mul", share, n.full_like(flat, bins)))
    place = n.add("where", n.add("equal", flat, last), n.full_like(flat, bins - 1), place)
    hit = n.pointwise("equal", place, n.literal(np.arange(bins, dtype=np.float32)[None, :]))
    return n.convert(n.reduce("reduce_sum", n.convert(hit, dt.float32), [0], False), n.dtype)
