"""Sampling and regions: GridSample, AffineGrid, RoiAlign, MaxRoiPool, ImageScaler."""

from __future__ import annotations

from mgx_core import Instruction
from mgx_core import dim as dims_

from ..converter import converts
from ..node import Node

__all__: list[str] = []


@converts("GridSample")
@converts("GridSample", domain="com.microsoft")
def grid_sample(n: Node, x: Instruction, grid: Instruction) -> Instruction:
    mode = n.attr("mode", "linear")
    return n.add(
        "grid_sample",
        x,
        grid,
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding_mode=n.attr("padding_mode", "zeros"),
        align_corners=bool(n.attr("align_corners", 0)),
    )


@converts("AffineGrid")
def affine_grid(n: Node, theta: Instruction, size: Instruction) -> Instruction:
    dims = n.dims(size)
    corners = bool(n.attr("align_corners", 0))
    return n.add("affine_grid", theta, None if dims else size, size=dims or (), align_corners=corners)


@converts("RoiAlign")
def roi_align(n: Node, x: Instruction, rois: Instruction, batch_indices: Instruction) -> Instruction:
    default = "half_pixel" if n.version >= 16 else "output_half_pixel"
    return n.add(
        "roialign",
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode=n.attr("coordinate_transformation_mode", default),
        mode=n.attr("mode", "avg"),
        output_height=n.attr("output_height", 1),
        output_width=n.attr("output_width", 1),
        sampling_ratio=n.attr("sampling_ratio", 0),
        spatial_scale=n.attr("spatial_scale", 1.0),
    )


@converts("MaxRoiPool")
def max_roi_pool(n: Node, x: Instruction, rois: Instruction) -> Instruction:
    return n.add(
        "max_roi_pool", x, rois, pooled_shape=tuple(n.attr("pooled_shape")), spatial_scale=n.attr("spatial_scale", 1.0)
    )


@converts("ImageScaler")
def image_scaler(n: Node, x: Instruction) -> Instruction:
    bias = n.attr("bias", None) or [0.0]
    if x.shape.rank < 2 or not (len(bias) == 1 or dims_.may_equal(len(bias), x.shape.dims[1])):
        n.fail(f"bias must have one number for each channel of {x.shape}, got {len(bias)}")
    column = n.unsqueeze(n.literal(bias, x.shape.dtype), range(1, x.shape.rank - 1))
    y = n.add("mul", x, n.full_like(x, n.attr("scale", 1.0)))
    return n.add("add", y, n.broadcast_to(column, x.shape.dims))
