"""Images resampled: to other extents, and by projections."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim

from ..converter import converts
from ..node import Node


def _mode(n: Node) -> tuple[bool, bool]:
    return n.flag("align_corners"), n.flag("half_pixel_centers")


def _sizes(n: Node, x: Instruction, size: Instruction) -> tuple[Dim, ...] | None:
    if x.shape.rank != 4:
        n.fail(f"an image [n, h, w, c] is needed, got {x.shape}")
    found = n.dims(size)
    if found is not None and len(found) != 2:
        n.fail(f"two extents are needed, got {list(found)}")
    return found


def resized(n: Node, x: Instruction, size: Instruction, **attributes: Any) -> Instruction:
    """x [n, h, w, c] resampled to the extents that an operand gives."""
    known = _sizes(n, x, size)
    if known is not None:
        return n.resized(x, known, **attributes)
    inner = n.channels_second(x)
    return n.channels_last(n.add("resize", inner, None, n.convert(size, dt.int64), axes=(2, 3), **attributes))


@converts("ResizeBilinear")
def resize_bilinear(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners, half = _mode(n)
    where = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    x = n.convert(x, dt.float32)
    return resized(n, x, size, mode="linear", coordinate_transformation_mode=where)


@converts("ResizeNearestNeighbor")
def resize_nearest(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners, half = _mode(n)
    where = "align_corners" if corners else "tf_half_pixel_for_nn" if half else "asymmetric"
    how = "round_prefer_ceil" if corners else "floor"
    return resized(n, x, size, mode="nearest", coordinate_transformation_mode=where, nearest_mode=how)


@converts("ResizeBicubic")
def resize_bicubic(n: Node, x: Instruction, size: Instruction) -> Instruction:
    corners, half = _mode(n)
    where = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    x = n.convert(x, dt.float32)
    known = _sizes(n, x, size)
    if known is not None and all(isinstance(d, int) for d in (*known, *x.shape.dims[1:3])):
        for axis, out in ((1, known[0]), (2, known[1])):
            x = _weighted(n, x, axis, _cubic_weights(int(x.shape.dims[axis]), int(out), corners, half))
        return x
    return resized(
        n,
        x,
        size,
        mode="cubic",
        coordinate_transformation_mode=where,
        cubic_coeff_a=-0.5 if half else -0.75,
        exclude_outside=half,
    )


def _cubic_weights(size: int, out: int, corners: bool, half: bool) -> np.ndarray:
    """The weights [out, size] of bicubic resampling, with distances rounded to 1/1024 as TensorFlow's table has them."""
    scale = (size - 1) / (out - 1) if corners and out > 1 else size / out
    a = -0.5 if half else -0.75
    weights = np.zeros((out, size))
    for i in range(out):
        at = np.float32((i + 0.5) * scale - 0.5) if half else np.float32(i * scale)
        low = int(np.floor(at))
        near = np.rint((at - low) * 1024) / 1024
        found = [_cubic(a, d) for d in (1 + near, near, 1 - near, 2 - near)]
        places = np.arange(low - 1, low + 3)
        if half:  # what lies outside does not count
            inside = (places >= 0) & (places < size)
            total = float(np.sum(np.where(inside, found, 0)))
            found = [f / total if on and abs(total) > 1e-6 else 0.0 for f, on in zip(found, inside, strict=True)]
        for place, weight in zip(np.clip(places, 0, size - 1), found, strict=True):
            weights[i, place] += weight
    return weights


def _cubic(a: float, x: float) -> float:
    """The kernel of cubic convolution at a distance."""
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


@converts("ResizeArea")
def resize_area(n: Node, x: Instruction, size: Instruction) -> Instruction:
    known = _sizes(n, x, size)
    if known is None or not all(isinstance(d, int) for d in (*known, *x.shape.dims[1:3])):
        n.unsupported("an image or extents that are known only at run time")
    x = n.convert(x, dt.float32)
    for axis, out in ((1, int(known[0])), (2, int(known[1]))):
        x = _weighted(n, x, axis, _area_weights(int(x.shape.dims[axis]), out, n.flag("align_corners")))
    return x


def _area_weights(size: int, out: int, corners: bool) -> np.ndarray:
    scale = (size - 1) / (out - 1) if corners and out > 1 else size / out
    weights = np.zeros((out, size))
    for i in range(out):
        low, high = i * scale, (i + 1) * scale
        for j in range(int(low), int(np.ceil(high))):
            weights[i, min(j, size - 1)] += min(j + 1, high) - max(j, low)
    return weights / scale


def _weighted(n: Node, x: Instruction, axis: int, weights: np.ndarray) -> Instruction:
    """x with an axis replaced by sums of its elements."""
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
    known = _sizes(n, x, size)
    scales, moves = n.require(scale, "the scale"), n.require(translation, "the translation")
    if known is None or not all(isinstance(d, int) for d in (*known, *x.shape.dims[1:3])):
        n.unsupported("an image or extents that are known only at run time")
    kernel, antialias = n.string("kernel_type", "lanczos3"), n.flag("antialias", True)
    x = n.convert(x, dt.float32)
    for k, axis in enumerate((1, 2)):
        length = int(x.shape.dims[axis])
        weights = _span_weights(n, length, int(known[k]), float(scales[k]), float(moves[k]), kernel, antialias)
        x = _weighted(n, x, axis, weights)
    return x


def _kernel(n: Node, name: str) -> tuple[float, Any]:
    """The radius and the function of a resampling kernel."""

    def keys(x: Any) -> Any:
        return np.where(x >= 2, 0, np.where(x >= 1, ((-0.5 * x + 2.5) * x - 4) * x + 2, ((1.5 * x - 2.5) * x) * x + 1))

    def mitchell(x: Any) -> Any:
        outer = (((-7 / 18) * x + 2) * x - 10 / 3) * x + 16 / 9
        return np.where(x >= 2, 0, np.where(x >= 1, outer, ((7 / 6) * x - 2) * x * x + 8 / 9))

    def lanczos(radius: float) -> Any:
        return lambda x: np.where(x > radius, 0, np.sinc(x) * np.sinc(x / radius))

    radius = 1.5
    sigma = radius / 3
    kernels: dict[str, tuple[float, Any]] = {
        "lanczos1": (1, lanczos(1)),
        "lanczos3": (3, lanczos(3)),
        "lanczos5": (5, lanczos(5)),
        "gaussian": (radius, lambda x: np.where(x >= radius, 0, np.exp(-x * x / (2 * sigma * sigma)))),
        "box": (1, lambda x: np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0))),
        "triangle": (1, lambda x: np.maximum(1 - x, 0)),
        "keyscubic": (2, keys),
        "mitchellcubic": (2, mitchell),
    }
    if name not in kernels:
        n.unsupported(f"the resampling kernel {name!r}")
    return kernels[name]


def _span_weights(n: Node, size: int, out: int, scale: float, move: float, kernel: str, antialias: bool) -> np.ndarray:
    radius, function = _kernel(n, kernel)
    inverse = np.float32(1) / np.float32(scale)  # as TensorFlow rounds it: a kernel may end where a pixel lies
    stretch = max(float(inverse), 1.0) if antialias else 1.0
    weights = np.zeros((out, size))
    for i in range(out):
        at = float(np.float32(i + 0.5) * inverse - np.float32(move) * inverse)
        if at < 0 or at > size:
            continue
        low = max(int(np.ceil(at - radius * stretch - 0.5)), 0)
        high = min(int(np.floor(at + radius * stretch - 0.5)), size - 1)
        places = np.arange(low, high + 1)
        found = function(np.abs((places + 0.5 - at) / stretch))
        total = found.sum()
        if abs(total) >= 1000 * np.finfo(np.float32).tiny:
            weights[i, low : high + 1] = found / total
    return weights


@converts("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def projected(
    n: Node, x: Instruction, transforms: Instruction, size: Instruction, filler: Instruction | None = None
) -> Instruction:
    known = _sizes(n, x, size)
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
