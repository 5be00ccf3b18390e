"""Non-maximum suppression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import fresh, product
from ..types.shape import AnyShape, Shape
from .declaration import op
from .extents import index_operand, merge, scalar_operand
from .operation import Operation
from .scalar import widen

__all__ = ["Nonmaxsuppression", "overlaps"]


@op("nonmaxsuppression", exact=True)
class Nonmaxsuppression(Operation):
    """Boxes by descending score, without those that overlap a better one of the same batch entry and class.

    boxes: float [b, n, 4] as corners y1 x1 y2 x2 in any order, or with center_point_box as x y width height; scores:
    float [b, c, n]; at most max_output_boxes_per_class (0 if absent) for each b and c, with an intersection over
    union of at most iou_threshold (0) and a score above score_threshold (all) -> int64 [found, 3]: batch entry,
    class, box.  The result has its exact extent regardless of use_dyn_output.
    Errors: ShapeError for unfitting operands or a threshold outside 0..1.  Source: ONNX NonMaxSuppression-11.
    """

    center_point_box: bool = False
    use_dyn_output: bool = False

    def infer(
        self,
        boxes: Shape,
        scores: Shape,
        max_output_boxes_per_class: Shape | None = None,
        iou_threshold: Shape | None = None,
        score_threshold: Shape | None = None,
    ) -> Shape:
        if boxes.rank != 3 or scores.rank != 3 or not (boxes.dtype.is_float and scores.dtype.is_float):
            raise ShapeError(
                f"boxes [b, n, 4] and scores [b, c, n] of float types are required, got {boxes} and {scores}"
            )
        merge(boxes.dims[2], 4, "the last extent of boxes and 4")
        merge(boxes.dims[0], scores.dims[0], "batch extents of boxes and scores")
        merge(boxes.dims[1], scores.dims[2], "numbers of boxes and scores")
        if max_output_boxes_per_class is not None:
            scalar_operand(index_operand(max_output_boxes_per_class, "the count"), "max_output_boxes_per_class")
        for threshold in (iou_threshold, score_threshold):
            if threshold is not None and not scalar_operand(threshold, "a threshold").dtype.is_float:
                raise ShapeError(f"a threshold must be a float, got {threshold}")
        return Shape.of(dt.int64, (fresh("boxes", 0, product(scores.dims)), 3))

    def bounded(self, inputs: Sequence[AnyShape | None], values: Sequence[Array | None]) -> Shape:
        scores = inputs[1]
        assert isinstance(scores, Shape)
        batches, classes, boxes = scores.lens()
        if len(inputs) < 3 or inputs[2] is None:
            boxes = 0
        elif (most := values[2]) is not None:
            boxes = min(boxes, max(int(most.reshape(-1)[0]), 0))
        return Shape.of(dt.int64, (batches * classes * boxes, 3))

    def compute(
        self,
        boxes: Array,
        scores: Array,
        max_output_boxes_per_class: Array | None = None,
        iou_threshold: Array | None = None,
        score_threshold: Array | None = None,
    ) -> Array:
        most, overlap, least = self.limits(max_output_boxes_per_class, iou_threshold, score_threshold)
        found = []
        for b in range(boxes.shape[0] if most > 0 else 0):
            corners = self.corners(widen(boxes[b]))
            for c in range(scores.shape[1]):
                found += [(b, c, box) for box in _best(corners, widen(scores[b, c]), most, overlap, least)]
        return np.array(found, np.int64).reshape(-1, 3)

    def limits(
        self, count: Array | None = None, iou_threshold: Array | None = None, score_threshold: Array | None = None
    ) -> tuple[int, float, float | None]:
        """Returns the limits as numbers: boxes per class, intersection over union, score."""
        most = 0 if count is None else int(count.reshape(-1)[0])
        overlap = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0])
        least = None if score_threshold is None else float(score_threshold.reshape(-1)[0])
        if not 0 <= overlap <= 1:
            raise ShapeError(f"iou_threshold must lie in [0, 1], got {overlap}")
        return most, overlap, least

    def corners(self, boxes: Array) -> Array:
        """Returns the lower, then the upper corner of each box."""
        first, second = boxes[:, :2], boxes[:, 2:]
        if self.center_point_box:
            return np.concatenate([first - second / 2, first + second / 2], 1)
        return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)


def _best(corners: Array, scores: Array, most: int, overlap: float, least: float | None) -> list[int]:
    """Returns boxes kept for one class, best first."""
    candidates = np.argsort(-scores, kind="stable")
    if least is not None:
        candidates = candidates[scores[candidates] > least]
    kept: list[int] = []
    while len(candidates) and len(kept) < most:
        box, candidates = int(candidates[0]), candidates[1:]
        kept.append(box)
        candidates = candidates[~(overlaps(corners, box, candidates) > overlap)]
    return kept


def overlaps(corners: Array, box: int, others: Array) -> Array:
    """Returns the intersection over union of a box with others (by index); 0 for boxes without an area."""
    low = np.maximum(corners[box, :2], corners[others, :2])
    high = np.minimum(corners[box, 2:], corners[others, 2:])
    with np.errstate(all="ignore"):  # boxes may be infinite
        area = np.prod(corners[box, 2:] - corners[box, :2])
        areas = np.prod(corners[others, 2:] - corners[others, :2], axis=1)
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        union = area + areas - shared
        return np.where((area > 0) & (areas > 0) & (union > 0), shared / union, 0)
