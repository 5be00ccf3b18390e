"""Variants of non-maximum suppression."""

from __future__ import annotations

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.converting.boxes import suppressed
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh

__all__: list[str] = []


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
