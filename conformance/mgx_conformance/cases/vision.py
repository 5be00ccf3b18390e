"""Cases of ops on images: resampling, regions, boxes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgx_core import dtype
from mgx_core.ops import STANDARD

from .case import FLOATS, LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("vision")
make = STANDARD.make
F = dtype.float32


@family.cases("resize")
def resize(name: str) -> Iterable[Case]:
    places = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    for mode in ("nearest", "linear", "cubic"):
        for n, place in enumerate(places):
            for scale, attributes in (("up", {"scales": (1.0, 1.0, 2.0, 2.0)}), ("down", {"sizes": (1, 2, 3, 4)})):
                op = make(name, mode=mode, coordinate_transformation_mode=place, **attributes)
                label = f"{mode}-{place}-{scale}".replace("_", "-")
                yield Case(op, (data(F, 1, 2, 4, 6),), label, LAYOUTS if n == 0 else LAYOUTS[:1])
        odd = make(name, mode=mode, scales=(1.0, 1.0, 1.5, 0.7))
        yield Case(odd, (data(FLOATS[3], 1, 2, 5, 6),), f"{mode}-odd")
        twice = make(name, mode=mode, scales=(1.0, 1.0, 2.0, 2.0))
        for kind, most in ((FLOATS[1], 1), (dtype.int32, 1 << 30), (dtype.uint8, 255)):  # weights are binary fractions
            yield Case(twice, (data(kind, 1, 2, 4, 6, low=-most, high=most),), f"{mode}-up")
        yield Case(make(name, mode=mode), (data(F, 1, 2, 4, 6), given([1, 1, 1.5, 2], F)), f"{mode}-while-running")
    for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        op = make(name, nearest_mode=nearest, scales=(1.0, 1.0, 0.6, 1.7))
        yield Case(op, (data(F, 1, 1, 5, 5),), f"nearest-{nearest}".replace("_", "-"))
    for mode in ("linear", "cubic"):
        op = make(name, mode=mode, antialias=True, scales=(1.0, 1.0, 0.6, 0.5))
        yield Case(op, (data(F, 1, 1, 8, 8),), f"{mode}-antialias")
    yield Case(
        make(name, mode="cubic", exclude_outside=True, scales=(1.0, 1.0, 0.8, 1.5)),
        (data(F, 1, 1, 4, 4),),
        "cubic-inside",
    )
    crop: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    op = make(name, mode="linear", sizes=(1, 1, 3, 3), roi=(0.0, 0.0, 0.4, 0.6, 1.0, 1.0, 1.2, 1.7), **crop)
    yield Case(op, (data(F, 1, 1, 4, 4),), "crop")
    op = make(name, mode="linear", sizes=(7, 8), axes=(2, 3), keep_aspect_ratio_policy="not_larger")
    yield Case(op, (data(F, 1, 1, 2, 4),), "not-larger")


@family.cases("roialign")
def roialign(name: str) -> Iterable[Case]:
    rois, batch = given([[0.5, 0.7, 4.2, 5.1], [1, 1, 3, 2], [-1, 0, 6, 6]], F), given([0, 1, 0])
    for mode in ("avg", "max"):
        for place in ("half_pixel", "output_half_pixel"):
            op = make(
                name, mode=mode, coordinate_transformation_mode=place, output_height=3, output_width=2, sampling_ratio=2
            )
            yield Case(op, (data(F, 2, 3, 7, 6), rois, batch), f"{mode}-{place}".replace("_", "-"), LAYOUTS[:4])
    op = make(name, output_height=2, output_width=2, spatial_scale=0.5)
    yield Case(op, (data(F, 2, 3, 7, 6), rois, batch), "adaptive")


@family.cases("max_roi_pool")
def max_roi_pool(name: str) -> Iterable[Case]:
    rois = given([[0, 0, 0, 4, 3], [1, 1, 2, 5, 5]], F)
    yield Case(make(name, pooled_shape=(2, 3)), (data(F, 2, 3, 7, 6), rois), "", LAYOUTS[:3])


@family.cases("grid_sample")
def grid_sample(name: str) -> Iterable[Case]:
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (False, True):
                op = make(name, mode=mode, padding_mode=padding, align_corners=corners)
                grid = data(F, 2, 3, 4, 2, low=-1.3, high=1.3)
                label = f"{mode}-{padding}-{'corners' if corners else 'centers'}"
                yield Case(op, (data(F, 2, 3, 5, 6), grid), label, LAYOUTS[:3] if padding == "zeros" else LAYOUTS[:1])
    yield Case(make(name), (data(F, 1, 2, 3, 4, 5), data(F, 1, 2, 3, 4, 3)), "3d")


@family.cases("affine_grid")
def affine_grid(name: str) -> Iterable[Case]:
    for corners in (False, True):
        word = "corners" if corners else "centers"
        yield Case(make(name, size=(2, 3, 4, 5), align_corners=corners), (data(F, 2, 2, 3),), word, LAYOUTS[:3])
    yield Case(make(name), (data(F, 1, 3, 4), given([1, 1, 2, 3, 4])), "3d-while-running")


@family.cases("nonmaxsuppression")
def nms(name: str) -> Iterable[Case]:
    rng = np.random.default_rng(6)
    corners = rng.uniform(0, 8, (2, 12, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + rng.uniform(1, 5, (2, 12, 2)).astype(np.float32)], axis=2)
    scores = rng.permutation(72).reshape(2, 3, 12).astype(np.float32) / 72
    operands = (given(boxes), given(scores), given([5]), given([0.4], F), given([0.2], F))
    yield Case(make(name), operands, "corners")
    yield Case(make(name, center_point_box=True), operands, "centers")
    yield Case(make(name), operands[:3], "defaults")
    yield Case(make(name), (*operands[:2], given([0])), "none")


family.none("needs an image library; the ONNX level decodes images of every format", "image_decoder")
