"""Image resizing and projective transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim

from ..converter import converts
from ..node import Node
from ..ops.resampling import KERNELS, area_weights, cubic_weights, kernel_weights


def _mode(n: Node) -> tuple[bool, bool]:
    return n.flag("align_corners"), n.flag("half_pixel_centers")


@converts("ResizeBilinear")
def resize_bilinear(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners, half = _mode(n)
    where = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    x = n.convert(x, dt.float32)
    return n.resized_to(x, size, mode="linear", coordinate_transformation_mode=where)


@converts("ResizeNearestNeighbor")
def resize_nearest(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners, half = _mode(n)
    where = "align_corners" if corners else "tf_half_pixel_for_nn" if half else "asymmetric"
    how = "round_prefer_ceil" if corners else "floor"
    return n.resized_to(x, size, mode="nearest", coordinate_transformation_mode=where, nearest_mode=how)


def _known(x: Instruction, dims: tuple[Dim, ...] | None) -> tuple[int, int] | None:
    """Returns the result's extents if they and those of x are static."""
    if dims is None or not all(isinstance(d, int) for d in (*dims, *x.shape.dims[1:3])):
        return None
    return int(dims[0]), int(dims[1])


def _resample(
    n: Node, x: Instruction, size: Instruction, weights: Callable[[int, int, int], np.ndarray], **attributes: Any
) -> Instruction:
    """Resamples rows and columns with matrices weights(length, result's length, 0 or 1), or at run time with `attributes`."""
    dims = n.image_size(x, size)
    x, known = n.convert(x, dt.float32), _known(x, dims)
    if known is None:
        return n.add("tf_resample", x, n.convert(size, dt.int64), lens=dims or (), **attributes)
    for k, out in enumerate(known):
        x = _weigh_axis(n, x, k + 1, weights(int(x.shape.dims[k + 1]), out, k))
    return x


@converts("ResizeBicubic")
def resize_bicubic(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners, half = _mode(n)
    return _resample(
        n, x, size, lambda d, out, _: cubic_weights(d, out, corners, half), method="cubic", corners=corners, half=half
    )


@converts("ResizeArea")
def resize_area(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners = n.flag("align_corners")
    return _resample(n, x, size, lambda d, out, _: area_weights(d, out, corners), method="area", corners=corners)


def _weigh_axis(n: Node, x: Instruction, axis: int, weights: np.ndarray) -> Instruction:
    """Returns the product of one axis of x with a weight matrix."""
    rank = x.shape.rank
    order = [a for a in range(rank) if a != axis] + [axis]
    turned = n.transpose(x, order)
    w = n.literal(weights.T.astype(np.float32))
    wide = n.broadcast_to(w, (*turned.shape.dims[:-2], *w.shape.dims))
    made = n.add("dot", turned, wide)
    back = [0] * rank
    for place, a in enumerate(order):
        back[a] = place
    return n.transpose(made, back)


@converts("ScaleAndTranslate")
def scale_and_translate(
    n: Node, x: Instruction, size: Instruction, scale: Instruction, translation: Instruction
) -> Instruction:
    kernel, antialias = n.string("kernel_type", "lanczos3"), n.flag("antialias", True)
    if kernel not in KERNELS:
        n.unsupported(f"the resampling kernel {kernel!r}")
    dims = n.image_size(x, size)
    scales, moves = n.constant(scale), n.constant(translation)
    if scales is None or moves is None or _known(x, dims) is None:
        whole = n.convert(size, dt.int64)
        x = n.convert(x, dt.float32)
        return n.add("tf_resample", x, whole, scale, translation, method=kernel, antialias=antialias, lens=dims or ())
    return _resample(
        n,
        x,
        size,
        lambda d, out, k: kernel_weights(d, out, float(scales[k]), float(moves[k]), kernel, antialias),
        method=kernel,
    )


@converts("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def projected(
    n: Node, x: Instruction, transforms: Instruction, size: Instruction, filler: Instruction | None = None
) -> Instruction:
    known = n.image_size(x, size)
    if known is None:
        n.unsupported("extents of the result that are known only at run time")
    return n.add(
        "tf_project",
        x,
        transforms,
        n.literal(0, x.shape.dtype) if filler is None else n.convert(filler, x.shape.dtype),
        height=known[0],
        width=known[1],
        blended=n.string("interpolation") == "BILINEAR",
        mode=n.string("fill_mode", "CONSTANT").lower(),
    )
