"""Image boxes: crop and resize, non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node


@converts("CropAndResize")
def crop_and_resize(
    n: Node, x: Instruction, boxes: Instruction, entries: Instruction, size: Instruction
) -> Instruction:
    height, width = n.whole(size, "the extents of the crops")
    return n.add(
        "tf_crop_and_resize",
        n.convert(x, dt.float32),
        boxes,
        n.convert(entries, dt.int64),
        height=height,
        width=width,
        method=n.string("method", "bilinear"),
        outside=n.float("extrapolation_value", 0.0),
    )


def _one(n: Node, x: Instruction, kind: Any) -> Instruction:
    return n.reshape(n.convert(x, kind), (1,))


@converts("NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3")
def suppression(
    n: Node,
    boxes: Instruction,
    scores: Instruction,
    most: Instruction,
    overlap: Instruction | None = None,
    least: Instruction | None = None,
) -> Instruction:
    if overlap is None:
        overlap = n.literal(np.float32(n.float("iou_threshold", 0.5)))
    made = n.add(
        "nonmaxsuppression",
        n.unsqueeze(n.convert(boxes, dt.float32), [0]),
        n.unsqueeze(n.convert(scores, dt.float32), [0, 1]),
        _one(n, most, dt.int64),
        _one(n, overlap, dt.float32),
        None if least is None else _one(n, least, dt.float32),
    )
    return n.convert(n.squeeze(n.slice(made, [1], [2], [3]), [1]), dt.int32)


@converts("NonMaxSuppressionV4")
def suppression_v4(
    n: Node, boxes: Instruction, scores: Instruction, most: Instruction, overlap: Instruction, least: Instruction
) -> Any:
    found = suppression(n, boxes, scores, most, overlap, least)
    count = n.squeeze(n.convert(n.add("dimensions_of", found), dt.int32), [0])
    if not n.flag("pad_to_max_output_size"):
        return found, count
    return _filled_up(n, found, n.whole(most, "the number of boxes")[0]), count


def _filled_up(n: Node, x: Instruction, most: int) -> Instruction:
    """Returns a vector zero-padded to a length."""
    missing = n.pointwise("sub", n.literal([most], dt.int64), n.convert(n.add("dimensions_of", x), dt.int64))
    made = n.add("pad", x, n.add("concat", n.literal([0], dt.int64), missing, axis=0))
    return n.reshape(made, (most,))


@converts("NonMaxSuppressionV5")
def suppression_v5(
    n: Node,
    boxes: Instruction,
    scores: Instruction,
    most: Instruction,
    overlap: Instruction,
    least: Instruction,
    sigma: Instruction,
) -> Any:
    made = n.add(
        "tf_soft_suppression",
        n.convert(boxes, dt.float32),
        n.convert(scores, dt.float32),
        *(_one(n, v, dt.float32) for v in (most, overlap, least, sigma)),
    )
    indices, kept = n.items(made)
    count = n.squeeze(n.convert(n.add("dimensions_of", indices), dt.int32), [0])
    if n.flag("pad_to_max_output_size"):
        number = n.whole(most, "the number of boxes")[0]
        indices, kept = _filled_up(n, indices, number), _filled_up(n, kept, number)
    return n.convert(indices, dt.int32), n.convert(kept, scores.shape.dtype), count


@converts("NonMaxSuppressionWithOverlaps")
def suppression_with_overlaps(
    n: Node, overlaps: Instruction, scores: Instruction, most: Instruction, overlap: Instruction, least: Instruction
) -> Instruction:
    args = (_one(n, v, dt.float32) for v in (most, overlap, least))
    return n.convert(n.add("tf_overlap_suppression", overlaps, scores, *args), dt.int32)


@converts("CombinedNonMaxSuppression")
def combined_suppression(
    n: Node,
    boxes: Instruction,
    scores: Instruction,
    most: Instruction,
    total: Instruction,
    overlap: Instruction,
    least: Instruction,
) -> Any:
    made = n.add(
        "tf_combined_suppression",
        boxes,
        scores,
        _one(n, overlap, dt.float32),
        _one(n, least, dt.float32),
        per_class=n.whole(most, "the boxes per class")[0],
        total=n.whole(total, "the boxes in all")[0],
        padded_per_class=n.flag("pad_per_class"),
        clipped=n.flag("clip_boxes", True),
    )
    return n.items(made)
