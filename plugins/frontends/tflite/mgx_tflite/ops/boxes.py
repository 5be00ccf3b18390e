"""Non-maximum suppression with a fixed number of results."""

from __future__ import annotations

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.converting.boxes import suppressed
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
