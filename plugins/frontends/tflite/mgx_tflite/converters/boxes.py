"""Non-maximum suppression, and the postprocessing of detectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.boxes import best_scores, selected_scores

from ..converter import converts
from ..flexbuffer import read_map
from ..node import Node


@converts("NON_MAX_SUPPRESSION_V4")
def suppression_v4(
    n: Node, boxes: Instruction, scores: Instruction, most: Instruction, overlap: Instruction, least: Instruction
) -> Any:
    zero = n.literal(np.zeros(1, np.float32))
    made = n.items(
        n.add("tflite_suppression", boxes, scores, *(_one(n, v) for v in (overlap, least)), zero, most=_most(n, most))
    )
    return made[0], made[2]


@converts("NON_MAX_SUPPRESSION_V5")
def suppression_v5(
    n: Node,
    boxes: Instruction,
    scores: Instruction,
    most: Instruction,
    overlap: Instruction,
    least: Instruction,
    sigma: Instruction,
) -> Any:
    args = [_one(n, v) for v in (overlap, least, sigma)]
    return n.items(n.add("tflite_suppression", boxes, scores, *args, most=_most(n, most)))


def _one(n: Node, x: Instruction) -> Instruction:
    return n.reshape(n.convert(x, dt.float32), (1,))


def _most(n: Node, x: Instruction) -> int:
    return n.whole(x, "the number of boxes")[0]


@converts("CUSTOM:TFLite_Detection_PostProcess")
def detection(n: Node, boxes: Instruction, scores: Instruction, anchors: Instruction) -> Any:
    """Decodes boxes relative to anchors, and returns the best ones after suppression: boxes, classes, scores and their number.

    With `use_regular_nms` boxes are suppressed within each class, otherwise over the best class of each box.
    """
    given = read_map(n.operator.custom)
    xs = []
    for place, x in enumerate((boxes, scores, anchors)):
        said = n.input(place)
        assert said is not None
        xs.append(n.dequantized(x, said))
    boxes, scores, anchors = xs
    classes, most = int(given.get("num_classes", 1)), int(given.get("max_detections", 10))
    if (boxes.shape.rank, scores.shape.rank, anchors.shape.rank) != (3, 3, 2) or classes < 1:
        n.fail(
            f"boxes [1, n, 4], scores [1, n, c], anchors [n, 4] are required, got {boxes.shape}, {scores.shape}, {anchors.shape}"
        )
    count, columns = scores.shape.dims[1:]
    corners = _corners(n, boxes, anchors, [float(given.get(f"{w}_scale", 1.0)) for w in "yxhw"])
    scores = n.transpose(n.slice(scores, [2], [columns - classes], [columns]), (0, 2, 1))
    overlap = n.literal([given.get("nms_iou_threshold", 0.5)], dt.float32)
    # scores that equal the threshold are kept here, but not by the operation
    least = n.literal(np.nextafter(np.full(1, given.get("nms_score_threshold", 0.0), np.float32), np.float32(-np.inf)))
    each = max(int(given.get("max_classes_per_detection", 1)), 1)
    size = most * each
    if given.get("use_regular_nms", False):
        kept = selected_scores(n, corners, scores, int(given.get("detections_per_class", 100)), overlap, least)
        best, at, valid = best_scores(n, kept, (1, classes * count), most)
        length = n.add("dimensions_of", scores, start=2, end=3)
        kinds, places = n.pointwise("div", at, length), n.pointwise("fmod", at, length)
    else:
        kept = selected_scores(n, corners, n.add("reduce_max", scores, axes=(1,)), most, overlap, least)
        _, at, valid = best_scores(n, kept, (1, count), most)
        taken = min(each, classes)
        rows = n.transpose(n.add("gather", scores, n.reshape(at, (most,)), axis=2), (0, 2, 1))
        best, kinds = (n.reshape(v, (1, most * taken)) for v in n.items(n.add("topk", rows, k=taken, axis=2)))
        valid, places = (_repeated(n, v, most, taken) for v in (valid, at))
    chosen = n.add("gather", corners, n.reshape(places, (places.shape.dims[1],)), axis=1)
    zero = n.literal(0, dt.float32)
    found = (
        n.pointwise("where", n.unsqueeze(valid, [2]), chosen, zero),
        n.pointwise("where", valid, n.convert(kinds, dt.float32), zero),
        n.pointwise("where", valid, best, zero),
    )
    number = n.add("reduce_sum", n.convert(valid, dt.float32), axes=(1,))
    return *(_extended(n, x, size) for x in found), n.reshape(number, (1,))


def _corners(n: Node, boxes: Instruction, anchors: Instruction, scales: list[float]) -> Instruction:
    """Returns boxes [1, n, 4] as y1 x1 y2 x2, for centers and logarithmic extents y x h w relative to anchors [n, 4]."""
    y, x, h, w = (
        n.pointwise("div", n.slice(boxes, [2], [k], [k + 1]), n.literal(s, dt.float32)) for k, s in enumerate(scales)
    )
    anchor_y, anchor_x, height, width = (n.unsqueeze(n.slice(anchors, [1], [k], [k + 1]), [0]) for k in range(4))
    centers = [n.add("add", n.add("mul", v, s), a) for v, s, a in ((y, height, anchor_y), (x, width, anchor_x))]
    half = n.literal(0.5, dt.float32)
    reaches = [n.add("mul", n.pointwise("mul", half, n.add("exp", v)), s) for v, s in ((h, height), (w, width))]
    ends = [n.add(op, c, r) for op in ("sub", "add") for c, r in zip(centers, reaches, strict=True)]
    return n.add("concat", *ends, axis=2)


def _repeated(n: Node, x: Instruction, rows: int, count: int) -> Instruction:
    """Returns each element of [1, rows] `count` times in succession."""
    return n.reshape(n.broadcast_to(n.unsqueeze(x, [2]), (1, rows, count)), (1, rows * count))


def _extended(n: Node, x: Instruction, size: int) -> Instruction:
    """Returns a tensor with zeros after its second axis, up to an extent."""
    missing = [x.shape.dims[0], size - x.shape.dims[1], *x.shape.dims[2:]]
    if not missing[1]:
        return x
    return n.add("concat", x, n.broadcast_to(n.literal(0, dt.float32), missing), axis=1)
