"""Projective transforms of images."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mgx_core import Shape
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim
from mgx_core.types.memory_limit import require_memory

__all__: list[str] = []


@op("tf_project")
class Project(Operation):
    """Images resampled by a projective transform of the result's coordinates.

    x: number [n, h, w, c], transforms: float32 [n, 8] or [1, 8], filler: one element -> [n, height, width, c].
    (x, y) is mapped to ((a x + b y + c) / k, (d x + e y + f) / k) with k = g x + h y + 1 and a transform a .. h.
    blended: bilinear, else nearest neighbor; mode: padding outside the image, by the filler or an extension of the image.
    Errors: ShapeError for other extents.  Source: TensorFlow ImageProjectiveTransformV3.
    """

    height: Dim
    width: Dim
    blended: bool = False
    mode: Literal["constant", "reflect", "wrap", "nearest"] = "constant"

    def infer(self, x: Shape, transforms: Shape, filler: Shape) -> Shape:
        if x.rank != 4 or transforms.rank != 2 or transforms.dims[1] != 8:
            raise ShapeError(f"images [n, h, w, c] and transforms [n, 8] are required, got {x} and {transforms}")
        return x.with_dims((x.dims[0], self.height, self.width, x.dims[3]))

    def compute(self, x: Array, transforms: Array, filler: Array) -> Array:
        count, rows, columns = x.shape[0], int(self.height), int(self.width)
        if len(transforms) not in (1, count):
            raise ShapeError(f"one transform or {count} are required, got {len(transforms)}")
        require_memory((count, rows, columns, x.shape[3]), x.itemsize)
        out = np.empty((count, rows, columns, x.shape[3]), x.dtype)
        ys, xs = np.meshgrid(np.arange(rows, dtype=np.float32), np.arange(columns, dtype=np.float32), indexing="ij")
        for k in range(count):
            t = transforms[k if len(transforms) > 1 else 0].astype(np.float32)
            with np.errstate(all="ignore"):
                scale = t[6] * xs + t[7] * ys + np.float32(1)
                at_x = self._continued((t[0] * xs + t[1] * ys + t[2]) / scale, x.shape[2])
                at_y = self._continued((t[3] * xs + t[4] * ys + t[5]) / scale, x.shape[1])
            lost = (scale == 0) | ~np.isfinite(at_x) | ~np.isfinite(at_y)
            at_x, at_y = np.where(lost, -9, at_x), np.where(lost, -9, at_y)
            found = _between(x[k], at_y, at_x, filler) if self.blended else _nearest(x[k], at_y, at_x, filler)
            out[k] = np.where(lost[..., None], filler, found)
        return out

    def _continued(self, at: Array, size: int) -> Array:
        """Maps coordinates outside 0..size - 1 into the image according to the mode."""
        if self.mode == "constant" or size < 1:
            return at
        if self.mode == "nearest" or size == 1:
            return np.clip(at, 0, size - 1)
        if self.mode == "reflect":
            turn = 2 * size
            low = np.where(at < turn, turn * np.trunc(-at / turn) + at, at)
            low = np.where(low < -size, low + turn, -low - 1)
            high = at - turn * np.trunc(at / turn)
            high = np.where(high >= size, turn - high - 1, high)
        else:
            turn = size - 1
            low = at + size * (np.trunc(-at / turn) + 1)
            high = at - size * np.trunc(at / turn)
        return np.clip(np.where(at < 0, low, np.where(at > size - 1, high, at)), 0, size - 1)


def _nearest(image: Array, at_y: Array, at_x: Array, filler: Array) -> Array:
    def half_away(v: Array) -> Array:
        return np.sign(v) * np.floor(np.abs(v) + 0.5)

    return _read(image, half_away(at_y), half_away(at_x), filler)


def _between(image: Array, at_y: Array, at_x: Array, filler: Array) -> Array:
    top, left = np.floor(at_y), np.floor(at_x)
    bottom, right = top + 1, left + 1
    ends = []
    for row in (top, bottom):
        first, second = (_read(image, row, column, filler) for column in (left, right))
        ends.append((right - at_x)[..., None] * first + (at_x - left)[..., None] * second)
    found = (bottom - at_y)[..., None] * ends[0] + (at_y - top)[..., None] * ends[1]
    made: Array = found.astype(image.dtype)
    return made


def _read(image: Array, rows: Array, columns: Array, filler: Array) -> Array:
    """Gathers elements of an image; the filler outside."""
    inside = (rows >= 0) & (rows < image.shape[0]) & (columns >= 0) & (columns < image.shape[1])
    if not image.size:
        return np.broadcast_to(filler.astype(image.dtype), (*rows.shape, image.shape[2]))
    found = image[np.where(inside, rows, 0).astype(np.int64), np.where(inside, columns, 0).astype(np.int64)]
    return np.where(inside[..., None], found, filler)
