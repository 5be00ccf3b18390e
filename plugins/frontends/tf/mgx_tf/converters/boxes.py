"""Image boxes: crop and resize, non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.boxes import best_scores, selected_scores
from mgx_core.converting.rearranged import gather_in_batches
from mgx_core.types.dim import bounds, may_equal

from ..converter import converts
from ..node import Node


@converts("CropAndResize")
def crop_and_resize(
    n: Node, x: Instruction, boxes: Instruction, entries: Instruction, size: Instruction
) -> Instruction:
    """Returns crops of images, sampled at equal steps; samples outside an image have the value `extrapolation_value`."""
    counts = n.whole(size, "the extents of the crops")
    if min(counts) < 1:
        n.fail(f"crop extents must be at least 1, got {counts}")
    if (x.shape.rank, boxes.shape.rank, entries.shape.rank) != (4, 2, 1):
        n.fail(f"images, boxes [n, 4] and entries [n] are required, got {x.shape}, {boxes.shape} and {entries.shape}")
    x, boxes, entries = n.convert(x, dt.float32), n.convert(boxes, dt.float32), n.convert(entries, dt.int64)
    dims = x.shape.dims
    sizes = [n.add("dimensions_of", x, start=k, end=k + 1) for k in range(3)]
    corners = [n.slice(boxes, [1], [k], [k + 1]) for k in range(4)]
    rows = _sampled(n, corners[0], corners[2], counts[0], sizes[1])
    columns = _sampled(n, corners[1], corners[3], counts[1], sizes[2])
    # an image that does not exist must not be counted from the end
    entries = n.pointwise("where", n.pointwise("less", entries, n.literal(0, dt.int64)), sizes[0], entries)
    first = n.unsqueeze(n.pointwise("mul", entries, sizes[1]), [1])
    pixels = n.reshape(x, (dims[0] * dims[1] * dims[2], dims[3]))

    def at(row: Instruction, column: Instruction) -> Instruction:
        line = n.pointwise("mul", n.pointwise("add", first, row), sizes[2])
        return n.add("gather", pixels, n.pointwise("add", n.unsqueeze(line, [2]), n.unsqueeze(column, [1])), axis=0)

    if n.string("method", "bilinear") == "nearest":
        half = n.literal(0.5, dt.float32)
        near = (n.pointwise("floor", n.pointwise("add", p, half)) for p in (rows, columns))
        found = at(*(_pixel(n, p, s) for p, s in zip(near, sizes[1:], strict=True)))
    else:
        top, left = (n.pointwise("floor", p) for p in (rows, columns))
        down, along = n.unsqueeze(n.add("sub", rows, top), [2, 3]), n.unsqueeze(n.add("sub", columns, left), [1, 3])
        above, below = (_pixel(n, p, sizes[1]) for p in (top, n.pointwise("ceil", rows)))
        before, behind = (_pixel(n, p, sizes[2]) for p in (left, n.pointwise("ceil", columns)))
        upper, lower = (_between(n, at(r, before), at(r, behind), along) for r in (above, below))
        found = _between(n, upper, lower, down)
    inside = n.pointwise(
        "logical_and",
        n.unsqueeze(_within(n, rows, sizes[1]), [2, 3]),
        n.unsqueeze(_within(n, columns, sizes[2]), [1, 3]),
    )
    return n.pointwise("where", inside, found, n.literal(n.float("extrapolation_value", 0.0), dt.float32))


def _sampled(n: Node, low: Instruction, high: Instruction, count: int, size: Instruction) -> Instruction:
    """Returns `count` positions along an axis for each box, from low to high, which are fractions of the last index."""
    edge = _last(n, size)
    if count == 1:
        return n.pointwise("mul", n.pointwise("mul", n.literal(0.5, dt.float32), n.add("add", low, high)), edge)
    span = n.pointwise("mul", n.add("sub", high, low), edge)
    step = n.pointwise("div", span, n.literal(count - 1, dt.float32))
    places = n.pointwise("mul", step, n.literal(np.arange(count), dt.float32))
    return n.pointwise("add", n.pointwise("mul", low, edge), places)


def _last(n: Node, size: Instruction) -> Instruction:
    return n.convert(n.pointwise("sub", size, n.literal(1, dt.int64)), dt.float32)


def _pixel(n: Node, place: Instruction, size: Instruction) -> Instruction:
    """Returns whole positions as indices of pixels; for those outside, whose samples are not used, that of the nearest one."""
    return n.convert(n.pointwise("clip", place, n.literal(0, dt.float32), _last(n, size)), dt.int64)


def _within(n: Node, place: Instruction, size: Instruction) -> Instruction:
    low = n.pointwise("greater_or_equal", place, n.literal(0, dt.float32))
    return n.add("logical_and", low, n.pointwise("less_or_equal", place, _last(n, size)))


def _between(n: Node, x: Instruction, y: Instruction, share: Instruction) -> Instruction:
    return n.pointwise("add", x, n.pointwise("mul", n.add("sub", y, x), share))


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
    if not bounds(length)[0]:  # without boxes, results are read from one of zeros
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
