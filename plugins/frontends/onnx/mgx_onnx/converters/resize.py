"""Resize and Upsample."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction

from ..converter import converts
from ..node import Node

__all__: list[str] = []


def absent(x: Instruction | None) -> bool:
    """Returns True if an optional vector is missing or has no elements."""
    return x is None or (x.shape.ranked and x.shape.rank == 1 and x.shape.dims[0] == 0)


@converts("Upsample", since=1)
def upsample_1(n: Node, x: Instruction) -> Instruction:
    if x.shape.rank != 4:
        n.fail(f"X must be [n, c, h, w], got {x.shape}")
    return simple(n, x, None, (1.0, 1.0, n.attr("height_scale"), n.attr("width_scale")))


@converts("Upsample", since=7)
def upsample_7(n: Node, x: Instruction) -> Instruction:
    return simple(n, x, None, tuple(n.attr("scales")))


@converts("Upsample", since=9)
def upsample_9(
    n: Node, x: Instruction, scales: Instruction | None = None, more: Instruction | None = None
) -> Instruction:
    """Converts Upsample; more: present if exporters wrote Resize's inputs (x, roi, scales)."""
    scales = more if more is not None else scales
    if scales is None and n.has("scales"):
        return simple(n, x, None, tuple(n.attr("scales")))
    if scales is None:
        n.fail("Upsample requires scales")
    return simple(n, x, scales, ())


@converts("Resize", since=10)
def resize_10(n: Node, x: Instruction, scales: Instruction) -> Instruction:
    return simple(n, x, scales, ())


def simple(n: Node, x: Instruction, scales: Instruction | None, fixed: tuple[float, ...]) -> Instruction:
    """Converts the forms before opset 11, which have only a mode and scales."""
    mode = n.attr("mode", "nearest").lower()
    known = n.constant(scales)
    if known is not None:
        fixed, scales = tuple(float(s) for s in known.reshape(-1)), None
    return n.add(
        "resize",
        x,
        scales,
        scales=fixed,
        mode={"bilinear": "linear", "trilinear": "linear"}.get(mode, mode),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="simple",
    )


@converts("Resize", since=11)
def resize_11(
    n: Node,
    x: Instruction,
    roi: Instruction | None = None,
    scales: Instruction | None = None,
    sizes: Instruction | None = None,
) -> Instruction:
    transformation = n.attr("coordinate_transformation_mode", "half_pixel")
    given: dict[str, Any] = {
        "mode": n.attr("mode", "nearest"),
        "nearest_mode": n.attr("nearest_mode", "round_prefer_floor"),
        "coordinate_transformation_mode": transformation,
        "cubic_coeff_a": n.attr("cubic_coeff_a", -0.75),
        "exclude_outside": bool(n.attr("exclude_outside", 0)),
        "extrapolation_value": n.attr("extrapolation_value", 0.0),
        "antialias": bool(n.attr("antialias", 0)),
        "keep_aspect_ratio_policy": n.attr("keep_aspect_ratio_policy", "stretch"),
    }
    axes = n.attr("axes", None)
    if axes:
        given["axes"] = n.axes(axes, x.shape.rank)
    if scales is None and sizes is None and roi is not None and transformation != "tf_crop_and_resize":
        roi, scales = None, roi  # opset 10's inputs: x, scales
    if absent(roi) or transformation != "tf_crop_and_resize":
        roi = None
        if transformation == "tf_crop_and_resize":
            n.fail("tf_crop_and_resize requires roi")
    scales = None if absent(scales) else scales
    sizes = None if absent(sizes) else sizes
    if (scales is None) == (sizes is None):
        n.fail(f"exactly one of scales and sizes must be given, got {'neither' if scales is None else 'both'}")
    factors, extents, box = n.constant(scales), n.dims(sizes), n.constant(roi)
    if factors is not None:
        given["scales"], scales = tuple(float(s) for s in factors.reshape(-1)), None
    if extents is not None:
        given["sizes"], sizes = extents, None
    if box is not None:
        given["roi"], roi = tuple(float(v) for v in box.reshape(-1)), None
    return n.add("resize", x, scales, sizes, roi, **given)
