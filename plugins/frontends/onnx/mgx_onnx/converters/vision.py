"""Sampling and regions: GridSample, AffineGrid, RoiAlign, MaxRoiPool, CropAndResize, ImageScaler."""

from __future__ import annotations

from mgx_core import Instruction
from mgx_core import dim as dims_
from mgx_core import dtype as dt
from mgx_core.converting.crops import crops

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


@converts("CropAndResize", domain="com.microsoft")
def crop_and_resize(
    n: Node, x: Instruction, rois: Instruction, batch_indices: Instruction, crop_size: Instruction
) -> Instruction:
    counts, mode = n.whole(crop_size, "crop_size"), n.attr("mode", "bilinear")
    if (x.shape.rank, rois.shape.rank, batch_indices.shape.rank) != (4, 2, 1) or len(counts) != 2 or min(counts) < 1:
        n.fail(
            f"X must be [n, c, h, w], rois [r, 4], batch_indices [r] and crop_size two positive numbers, got {x.shape}, "
            f"{rois.shape}, {batch_indices.shape} and {counts}"
        )
    if mode not in ("bilinear", "nearest"):
        n.fail(f"mode must be bilinear or nearest, got {mode!r}")
    images, boxes = n.transpose(n.convert(x, dt.float32), [0, 2, 3, 1]), n.convert(rois, dt.float32)
    entries, outside = n.convert(batch_indices, dt.int64), n.attr("extrapolation_value", 0.0)
    y = n.transpose(crops(n, images, boxes, entries, counts, mode == "nearest", outside), [0, 3, 1, 2])
    return n.convert(y, x.shape.dtype)


@converts("ImageScaler")
def image_scaler(n: Node, x: Instruction) -> Instruction:
    bias = n.attr("bias", None) or [0.0]
    if x.shape.rank < 2 or not (len(bias) == 1 or dims_.may_equal(len(bias), x.shape.dims[1])):
        n.fail(f"bias must have one number for each channel of {x.shape}, got {len(bias)}")
    column = n.unsqueeze(n.literal(bias, x.shape.dtype), range(1, x.shape.rank - 1))
    y = n.add("mul", x, n.full_like(x, n.attr("scale", 1.0)))
    return n.add("add", y, n.broadcast_to(column, x.shape.dims))
