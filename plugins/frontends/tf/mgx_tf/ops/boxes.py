"""Crop-and-resize, and variants of non-maximum suppression."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.converting.boxes import suppressed
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.memory_limit import require_memory

__all__: list[str] = []


@op("tf_crop_and_resize")
class CropAndResize(Operation):
    """Crops of images, resampled to one size.

    x: float32 [b, h, w, c]; boxes: float32 [n, 4] as y1 x1 y2 x2, normalized to extent - 1; entries: int64 [n], the image of each
    box -> float32 [n, height, width, c]; samples outside an image have the value `outside`.
    Errors: ShapeError for other ranks or an image index out of range.  Source: TensorFlow CropAndResize.
    """

    height: int
    width: int
    method: Literal["bilinear", "nearest"] = "bilinear"
    outside: float = 0.0

    def infer(self, x: Shape, boxes: Shape, entries: Shape) -> Shape:
        if x.rank != 4 or boxes.rank != 2 or entries.rank != 1:
            raise ShapeError(f"images, boxes [n, 4] and entries [n] are required, got {x}, {boxes} and {entries}")
        if self.height < 1 or self.width < 1:
            raise ShapeError(f"crop extents must be at least 1, got {self.height} and {self.width}")
        return Shape.of(dt.float32, (boxes.dims[0], self.height, self.width, x.dims[3]))

    def compute(self, x: Array, boxes: Array, entries: Array) -> Array:
        require_memory((len(boxes), self.height, self.width, x.shape[3]), 4)
        out = np.full((len(boxes), self.height, self.width, x.shape[3]), self.outside, np.float32)
        for k, (y1, x1, y2, x2) in enumerate(boxes.astype(np.float32)):
            entry = int(entries[k])
            if not 0 <= entry < len(x):
                raise ShapeError(f"box {k} refers to image {entry}, there are {len(x)}")
            rows = _places(y1, y2, self.height, x.shape[1])
            columns = _places(x1, x2, self.width, x.shape[2])
            inside = np.ix_(_within(rows, x.shape[1]), _within(columns, x.shape[2]))
            rows, columns = rows[inside[0][:, 0]], columns[inside[1][0]]
            if not rows.size or not columns.size:
                continue
            image = x[entry].astype(np.float32)
            if self.method == "nearest":
                near = (np.floor(v + np.float32(0.5)).astype(int) for v in (rows, columns))
                out[k][inside] = image[np.ix_(*near)]
                continue
            top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
            bottom, right = np.ceil(rows).astype(int), np.ceil(columns).astype(int)
            down, along = (rows - top)[:, None, None], (columns - left)[None, :, None]
            upper = image[np.ix_(top, left)] * (1 - along) + image[np.ix_(top, right)] * along
            lower = image[np.ix_(bottom, left)] * (1 - along) + image[np.ix_(bottom, right)] * along
            out[k][inside] = upper + (lower - upper) * down
        return out


def _places(first: Any, last: Any, count: int, size: int) -> Array:
    """Returns the `count` sampling positions of a crop along one axis."""
    if count > 1:
        step = (last - first) * np.float32(size - 1) / np.float32(count - 1)
        return np.asarray(first * np.float32(size - 1) + np.arange(count, dtype=np.float32) * step)
    return np.asarray([np.float32(0.5) * (first + last) * np.float32(size - 1)], np.float32)


def _within(places: Array, size: int) -> Array:
    return np.flatnonzero((places >= 0) & (places <= size - 1))


@op("tf_soft_suppression")
class SoftSuppression(Operation):
    """Soft non-maximum suppression: boxes in order of descending score, where overlap with selected boxes lowers scores.

    boxes: float32 [n, 4], scores: float32 [n]; most, limit (intersection over union), least score, sigma: one float32 each;
    sigma 0 suppresses boxes that overlap by more than `limit` -> int32 [found], float32 [found].
    Errors: ShapeError for other ranks.  Source: TensorFlow NonMaxSuppressionV5.
    """

    def infer(self, boxes: Shape, scores: Shape, most: Shape, limit: Shape, least: Shape, sigma: Shape) -> TupleShape:
        if boxes.rank != 2 or scores.rank != 1:
            raise ShapeError(f"boxes [n, 4] and scores [n] are required, got {boxes} and {scores}")
        found = fresh("boxes", 0, scores.dims[0])
        return TupleShape([Shape.of(dt.int32, (found,)), Shape.of(dt.float32, (found,))])

    def compute(
        self, boxes: Array, scores: Array, most: Array, limit: Array, least: Array, sigma: Array
    ) -> tuple[Array, ...]:
        count, edge, floor, spread = (
            float(v.reshape(())) if v.ndim == 0 else float(v[0]) for v in (most, limit, least, sigma)
        )
        taken, kept = suppressed(boxes, scores, count, edge, floor, spread)
        return np.array(taken, np.int32), np.array(kept, np.float32)


@op("tf_overlap_suppression", exact=True)
class OverlapSuppression(Operation):
    """Non-maximum suppression with precomputed overlaps.

    overlaps: float32 [n, n], scores: float32 [n], most, limit, least score: one float32 each -> int32 [found].
    Errors: ShapeError for other ranks.  Source: TensorFlow NonMaxSuppressionWithOverlaps.
    """

    def infer(self, overlaps: Shape, scores: Shape, most: Shape, limit: Shape, least: Shape) -> Shape:
        if overlaps.rank != 2 or scores.rank != 1:
            raise ShapeError(f"overlaps [n, n] and scores [n] are required, got {overlaps} and {scores}")
        return Shape.of(dt.int32, (fresh("boxes", 0, scores.dims[0]),))

    def compute(self, overlaps: Array, scores: Array, most: Array, limit: Array, least: Array) -> Array:
        taken: list[int] = []
        for k in np.argsort(-scores, kind="stable"):
            if len(taken) >= float(most.reshape(-1)[0]) or scores[k] <= float(least.reshape(-1)[0]):
                break
            if all(overlaps[k, t] <= float(limit.reshape(-1)[0]) for t in taken):
                taken.append(int(k))
        return np.array(taken, np.int32)
