"""Ops with data-dependent result extents: NonZero, Compress, Unique, NonMaxSuppression."""

from __future__ import annotations

import numpy as np

from mgx_core import Instruction

from ..converter import converts
from ..node import Node


@converts("NonZero", since=9)
def non_zero(n: Node, x: Instruction) -> Instruction:
    known = n.constant(x)
    if known is not None and known.dtype != object:
        return n.literal(np.stack(np.nonzero(np.atleast_1d(known))).astype(np.int64))
    return n.largest(n.add("nonzero", x))


@converts("Compress", since=9)
def compress(n: Node, x: Instruction, condition: Instruction) -> Instruction:
    if condition.shape.rank != 1:  # paddle2onnx writes masks of x's shape, which onnxruntime flattens as well
        condition = n.reshape(condition, (-1,))
    return n.add("compress", x, condition, axis=n.attr("axis", None))


@converts("Unique", since=11)
def unique(n: Node, x: Instruction) -> tuple[Instruction, ...]:
    return n.items(n.add("unique", x, axis=n.attr("axis", None), sorted=bool(n.attr("sorted", 1))))


@converts("NonMaxSuppression", since=10)
def non_max_suppression(
    n: Node,
    boxes: Instruction,
    scores: Instruction,
    most: Instruction | None = None,
    iou_threshold: Instruction | None = None,
    score_threshold: Instruction | None = None,
) -> Instruction:
    center = n.attr("center_point_box", 0)
    if center not in (0, 1):
        n.fail(f"center_point_box must be 0 or 1, got {center}")
    # some exporters write an omitted input as an empty tensor
    rest = [None if i is None or 0 in i.shape.dims else i for i in (most, iou_threshold, score_threshold)]
    return n.largest(n.add("nonmaxsuppression", boxes, scores, *rest, center_point_box=bool(center)))
