"""Non-maximum suppression and TFLite's detection postprocessing."""

from __future__ import annotations

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.converting.boxes import overlap, suppressed
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array

__all__: list[str] = []


@op("tflite_suppression")
class Suppression(Operation):
    """Selects boxes by descending score with (soft) non-maximum suppression; padded to `most`.

    boxes: float32 [n, 4], scores: float32 [n]; limit (intersection over union), least score, sigma: one float32 each; sigma 0
    suppresses boxes that overlap by more than the limit -> int32 [most], float32 [most], int32 [] number of valid boxes.
    Errors: ShapeError for other ranks.  Source: TFLite NON_MAX_SUPPRESSION_V5.
    """

    most: int

    def infer(self, boxes: Shape, scores: Shape, limit: Shape, least: Shape, sigma: Shape) -> TupleShape:
        if boxes.rank != 2 or scores.rank != 1 or self.most < 0:
            raise ShapeError(f"boxes [n, 4] and scores [n] are required, got {boxes} and {scores}")
        return TupleShape(
            [Shape.of(dt.int32, (self.most,)), Shape.of(dt.float32, (self.most,)), Shape.of(dt.int32, ())]
        )

    def compute(self, boxes: Array, scores: Array, limit: Array, least: Array, sigma: Array) -> tuple[Array, ...]:
        edge, floor, spread = (float(v[0]) for v in (limit, least, sigma))
        taken, scored = suppressed(boxes, scores, self.most, edge, floor, spread)
        indices, kept = np.zeros(self.most, np.int32), np.zeros(self.most, np.float32)
        indices[: len(taken)], kept[: len(taken)] = taken, scored
        return indices, kept, np.array(len(taken), np.int32)


@op("tflite_detection")
class Detection(Operation):
    """Decodes boxes from anchors and selects the best after suppression.

    boxes: float32 [1, n, 4] as y x h w relative to anchors, scores: float32 [1, n, classes or one more], anchors: float32 [n, 4]
    as y x h w -> boxes [1, k, 4], classes [1, k], scores [1, k], number [1], all float32, k = most * classes_per_detection.
    regular: suppression within each class; otherwise over the best class of each box.
    Errors: ShapeError for other ranks.  Source: TFLite TFLite_Detection_PostProcess.
    """

    most: int
    classes_per_detection: int
    per_class: int
    regular: bool
    least: float
    overlap: float
    classes: int
    scales: tuple[float, ...]

    def infer(self, boxes: Shape, scores: Shape, anchors: Shape) -> TupleShape:
        if boxes.rank != 3 or scores.rank != 3 or anchors.rank != 2 or self.classes < 1:
            raise ShapeError(
                f"boxes [1, n, 4], scores [1, n, c], anchors [n, 4] are required, got {boxes}, {scores}, {anchors}"
            )
        k = self.most * self.classes_per_detection
        each = Shape.of(dt.float32, (1, k))
        return TupleShape([Shape.of(dt.float32, (1, k, 4)), each, each, Shape.of(dt.float32, (1,))])

    def compute(self, boxes: Array, scores: Array, anchors: Array) -> tuple[Array, ...]:
        y, x, h, w = (boxes[0, :, k] / np.float32(s) for k, s in enumerate(self.scales))
        center_y, center_x = y * anchors[:, 2] + anchors[:, 0], x * anchors[:, 3] + anchors[:, 1]
        half_h = np.float32(0.5) * np.exp(h) * anchors[:, 2]
        half_w = np.float32(0.5) * np.exp(w) * anchors[:, 3]
        corners = np.stack([center_y - half_h, center_x - half_w, center_y + half_h, center_x + half_w], 1)
        offset = scores.shape[2] - self.classes
        found = self._by_class(corners, scores[0], offset) if self.regular else self._best(corners, scores[0], offset)
        k = self.most * self.classes_per_detection
        places, kinds, values = np.zeros((1, k, 4)), np.zeros((1, k)), np.zeros((1, k))
        for at, (box, kind, value) in enumerate(found[:k]):
            places[0, at], kinds[0, at], values[0, at] = corners[box], kind, value
        number = np.array([min(len(found), k)], np.float32)
        return places.astype(np.float32), kinds.astype(np.float32), values.astype(np.float32), number

    def _kept(self, corners: Array, scores: Array, most: int) -> list[int]:
        taken: list[int] = []
        for k in np.argsort(-scores, kind="stable"):
            if len(taken) >= most or scores[k] < self.least:
                break
            if not taken or (overlap(corners[k], corners[taken]) <= self.overlap).all():
                taken.append(int(k))
        return taken

    def _best(self, corners: Array, scores: Array, offset: int) -> list[tuple[int, int, float]]:
        own = scores[:, offset:]
        found: list[tuple[int, int, float]] = []
        for box in self._kept(corners, own.max(1), self.most):
            order = np.argsort(-own[box], kind="stable")[: self.classes_per_detection]
            found += [(box, int(c), float(own[box, c])) for c in order]
        return found

    def _by_class(self, corners: Array, scores: Array, offset: int) -> list[tuple[int, int, float]]:
        found: list[tuple[int, int, float]] = []
        for c in range(self.classes):
            own = scores[:, c + offset]
            found += [(box, c, float(own[box])) for box in self._kept(corners, own, self.per_class)]
            found = sorted(found, key=lambda f: -f[2])[: self.most]
        return found
