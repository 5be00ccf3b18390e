"""Image boxes: crop and resize, non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.boxes import best_scores, selected_scores
from mgx_core.converting.crops import crops
from mgx_core.converting.rearranged import gather_in_batches
from mgx_core.types.dim import bounds, may_equal

from ..converter import converts
from ..node import Node


@converts("CropAndResize")
def crop_and_resize(
    n: Node, x: Instruction, boxes: Instruction, entries: Instruction, size: Instruction
) -> Instruction:
    counts = n.whole(size, "the extents of the crops")
    if min(counts) < 1:
        n.fail(f"crop extents must be at least 1, got {counts}")
    if (x.shape.rank, boxes.shape.rank, entries.shape.rank) != (4, 2, 1):
        n.fail(f"images, boxes [n, 4] and entries [n] are required, got {x.shape}, {boxes.shape} and {entries.shape}")
    x, boxes, entries = n.convert(x, dt.float32), n.convert(boxes, dt.float32), n.convert(entries, dt.int64)
    nearest = n.string("method", "bilinear") == "nearest"
    return crops(n, x, boxes, entries, counts, nearest, n.float("extrapolation_value", 0.0))


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
    if boxes.shape.rank != 4 or scores.shape.rank != 3:
        n.fail(f"boxes [b, n, q, 4] and scores [b, n, classes] are required, got {boxes.shape} and {scores.shape}")
    if not isinstance(boxes.shape.dims[2], int):
        n.unsupported("boxes that may or may not differ by class: their third extent must be known")
    classes, count = scores.shape.dims[2], n.whole(total, "the boxes in all")[0]
    per_class = n.whole(most, "the boxes per class")[0]
    if not may_equal(boxes.shape.dims[2], 1) and not may_equal(boxes.shape.dims[2], classes):
        n.fail(f"boxes of one or of all {classes} classes are required, got {boxes.shape}")
    own = boxes.shape.dims[2] != 1  # each class has its own boxes, which are suppressed like those of another image
    batch, length = scores.shape.dims[:2]
    places, values = n.transpose(boxes, (0, 2, 1, 3)), n.transpose(scores, (0, 2, 1))
    images, kinds = (batch * classes, 1) if own else (batch, classes)
    values = n.reshape(values, (images, kinds, length))
    limits = (_one(n, v, dt.float32) for v in (overlap, least))
    kept = selected_scores(n, n.reshape(places, (images, length, 4)), values, per_class, *limits)
    if n.flag("pad_per_class") and isinstance(classes, int):
        count = min(count, per_class * classes)
    best, at, valid = best_scores(n, kept, (batch, classes * length), count)
    size, corners = n.add("dimensions_of", boxes, start=1, end=2), n.reshape(places, (batch, -1, 4))
    if bounds(length)[0] < 1:  # without boxes, results are read from one of zeros
        size = n.pointwise("max", size, n.literal(1, dt.int64))
        corners = n.concat([corners, n.broadcast_to(n.literal(0, corners.shape.dtype), (batch, 1, 4))], 1)
    kind, box = n.pointwise("div", at, size), n.pointwise("fmod", at, size)
    chosen = gather_in_batches(n, corners, at if own else box, 1, 1)
    if n.flag("clip_boxes", True):
        chosen = n.pointwise("clip", chosen, n.literal(0.0), n.literal(1.0))
    zero = n.literal(0, dt.float32)
    chosen = n.pointwise("where", n.unsqueeze(valid, [2]), chosen, zero)
    scored, named = (n.pointwise("where", valid, v, zero) for v in (best, n.convert(kind, dt.float32)))
    number = n.squeeze(n.add("reduce_sum", n.convert(valid, dt.int32), axes=[1]), [1])
    return chosen, scored, named, number
