"""Non-maximum suppression of boxes, shared by several formats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.instruction import Instruction
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import Dim
from .builder import InstructionBuilder

__all__ = ["best_scores", "selected_scores", "suppressed"]


def selected_scores(
    n: InstructionBuilder, boxes: Instruction, scores: Instruction, most: int, overlap: Instruction, least: Instruction
) -> Instruction:
    """Returns the scores [b, classes, n] of boxes selected by non-maximum suppression within each class; -inf for the others.

    boxes: [b, n, 4]; most: for each class; overlap, least: float32 [1], as of the operation.
    """
    count = n.literal([most], dt.int64)
    found = n.add("nonmaxsuppression", boxes, scores, count, overlap, least)
    none = n.broadcast_to(n.literal(-np.inf, dt.float32), scores.shape.dims)
    return n.add("scatternd_none", none, found, n.add("gathernd", scores, found))


def best_scores(
    n: InstructionBuilder, scores: Instruction, dims: Sequence[Dim], count: int
) -> tuple[Instruction, Instruction, Instruction]:
    """Returns the best `count` selected scores of each row of extents `dims`, their places, and which exist.

    There may be fewer than `count`; the place of one that does not exist is 0.
    """
    none = n.literal(-np.inf, dt.float32)
    wide = n.add("concat", n.reshape(scores, dims), n.broadcast_to(none, (dims[0], count)), axis=1)
    best, at = n.items(n.add("topk", wide, k=count, axis=1))
    valid = n.pointwise("greater", best, none)
    return best, n.pointwise("where", valid, at, n.literal(0, dt.int64)), valid


def overlap(box: Array, others: Array) -> Array:
    """Returns the intersection over union of a box [4] with others [n, 4] as float32 [n]; corners may be in any order."""
    low, high = np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
    lows, highs = np.minimum(others[:, :2], others[:, 2:]), np.maximum(others[:, :2], others[:, 2:])
    sides = np.maximum(np.minimum(high, highs) - np.maximum(low, lows), 0)
    both = sides[:, 0] * sides[:, 1]
    area, areas = np.prod(high - low), np.prod(highs - lows, axis=1)
    total = area + areas - both
    return np.asarray(np.where((area <= 0) | (areas <= 0), 0, both / np.where(total > 0, total, 1)), np.float32)


def suppressed(
    boxes: Array, scores: Array, most: float, limit: float, least: float, sigma: float
) -> tuple[list[int], list[float]]:
    """Returns the indices and scores of at most `most` boxes, by descending score (greedy NMS, or soft-NMS).

    Boxes whose IoU with a selected box exceeds `limit`, and scores not above `least`, are dropped. sigma > 0 decays the scores of
    overlapping boxes (Bodla et al., Soft-NMS, 2017).
    """
    scale = np.float32(-0.5 / sigma) if sigma > 0 else np.float32(0)
    left = scores.astype(np.float32).copy()
    waiting = left > least
    taken: list[int] = []
    kept: list[float] = []
    while len(taken) < most and waiting.any():
        best = int(np.argmax(np.where(waiting, left, -np.inf)))
        taken.append(best)
        kept.append(float(left[best]))
        waiting[best] = False
        rest = np.flatnonzero(waiting)
        near = overlap(boxes[best], boxes[rest])
        if sigma > 0:
            left[rest] *= np.exp(scale * near * near)
            waiting[rest] = left[rest] > least
        waiting[rest[near > limit]] = False
    return taken, kept
