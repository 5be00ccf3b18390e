"""Verifies results that are indices (top-k, argmax, NMS) by the reference values that they select.

If two scores differ by less than the rounding error of a narrow type, a target may order them differently, and later results
cannot be compared elementwise. The target's choice is then checked against the reference's operands within the tolerance, and the
reference continues with that choice, so that later results are comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter
from ..ops.axes import normalize
from ..ops.nms import Nonmaxsuppression, overlaps
from ..ops.operation import Operation
from ..ops.reduce import Argmax, Argmin
from ..ops.scalar import widen
from ..ops.topk import Topk
from .accuracy import Difference, Tolerance, compare

__all__ = ["Following", "chooses"]


def chooses(ins: Instruction) -> bool:
    """Returns True for an instruction whose result is verified by the values it selects."""
    return type(ins.op) in JUDGES


class Following(Interpreter):
    """The reference interpreter with a target's choices; `wrong` lists those outside the tolerance.

    chosen: the target's values of instructions that choose.
    """

    def __init__(self, chosen: Mapping[Instruction, Any], tolerance: Tolerance) -> None:
        super().__init__()
        self.chosen = chosen
        self.tolerance = tolerance
        self.wrong: list[Difference] = []

    def step(self, ins: Instruction, values: dict[Instruction, Any], known: dict[str, int]) -> Any:
        own = super().step(ins, values, known)
        if ins not in self.chosen:
            return own
        args = [None if i.is_absent else values[i] for i in ins.inputs]
        why, value = JUDGES[type(ins.op)](ins.op, args, own, self.chosen[ins], self.tolerance)
        if why:
            self.wrong.append(Difference(repr(ins), why))
            return own
        return value


Judge = Callable[[Any, Sequence[Any], Any, Any, Tolerance], tuple[str, Any]]


def _topk(op: Topk, args: Sequence[Any], own: Any, got: Any, tolerance: Tolerance) -> tuple[str, Any]:
    """Returns an error ("" if the elements are distinct and as large as the reference's), and the choice to continue with."""
    x, indices = args[0], got[1]
    axis = normalize(op.axis, x.ndim)
    if indices.shape != own[1].shape:
        return f"indices of extents {list(own[1].shape)} required, got {list(indices.shape)}", own
    if indices.size and not 0 <= indices.min() <= indices.max() < x.shape[axis]:
        return f"indices below {x.shape[axis]} required, got {indices.min()} to {indices.max()}", own
    line = np.sort(indices, axis=axis)
    if (np.diff(line, axis=axis) == 0).any():
        return "an element is chosen twice", own
    found, wanted = np.take_along_axis(x, indices, axis), own[0]
    if op.sorted:
        why = compare("", found, wanted, tolerance).why
    else:
        why = compare("", np.sort(widen(found), axis=axis), np.sort(widen(wanted), axis=axis), tolerance).why
    return (f"other elements are chosen: {why}" if why else ""), (found, indices)


def _position(op: Argmax | Argmin, args: Sequence[Any], own: Any, got: Any, tolerance: Tolerance) -> tuple[str, Any]:
    """Returns an error ("" if the element is as large, or small, as the reference's), and the choice to continue with."""
    x = args[0]
    axis = normalize(op.axis, x.ndim)
    if got.shape != own.shape:
        return f"indices of extents {list(own.shape)} required, got {list(got.shape)}", own
    if got.size and not 0 <= got.min() <= got.max() < x.shape[axis]:
        return f"indices below {x.shape[axis]} required, got {got.min()} to {got.max()}", own
    why = compare("", np.take_along_axis(x, got, axis), np.take_along_axis(x, own, axis), tolerance).why
    return (f"another element is chosen: {why}" if why else ""), got


def _boxes(op: Nonmaxsuppression, args: Sequence[Any], own: Any, got: Any, tolerance: Tolerance) -> tuple[str, Any]:
    """Returns an error ("" if the boxes are a valid suppression by descending score), and the choice to continue with."""
    boxes, scores = args[0], widen(args[1])
    if got.ndim != 2 or got.shape[1] != 3:
        return f"rows of three numbers required, got extents {list(got.shape)}", own
    if (got < 0).any() or (got >= [scores.shape[0], scores.shape[1], scores.shape[2]]).any():
        return "a row names a box that is not there", own
    groups = [tuple(row) for row in got[:, :2].tolist()]
    if groups != sorted(groups):
        return "rows are not in order of batch entry and class", own
    most, overlap, least = op.limits(*args[2:])
    if most <= 0 and len(got):
        return f"no boxes required, got {len(got)}", own
    for b in range(scores.shape[0] if most > 0 else 0):
        corners = op.corners(widen(boxes[b]))
        for c in range(scores.shape[1]):
            kept = got[(got[:, 0] == b) & (got[:, 1] == c), 2]
            why = _class_of_boxes(corners, scores[b, c], kept, most, overlap, least, tolerance)
            if why:
                return f"batch entry {b}, class {c}: {why}", own
    return "", got


def _class_of_boxes(
    corners: Any, scores: Any, kept: Any, most: int, overlap: float, least: float | None, tolerance: Tolerance
) -> str:
    if len(kept) > most or len(set(kept.tolist())) != len(kept):
        return f"at most {most} boxes required, each once, got {len(kept)}"
    slack = tolerance.atol + tolerance.rtol * np.abs(scores)
    near = tolerance.atol + tolerance.rtol  # of an intersection over union
    best = scores[kept]
    if len(kept) > 1 and (best[:-1] + slack[kept[:-1]] < best[1:]).any():
        return "boxes are not in order of falling score"
    if least is not None and (best + slack[kept] < least).any():
        return f"a score above {least:g} required, got {best.min():g}"
    shared = [overlaps(corners, int(box), kept) for box in kept]
    if any(np.delete(row, n).max(initial=0) > overlap + near for n, row in enumerate(shared)):
        return f"two boxes overlap by more than {overlap:g}"
    last = best.min(initial=np.inf) if len(kept) == most else np.inf
    for box in np.setdiff1d(np.arange(len(scores)), kept):
        if (least is not None and not scores[box] > least + slack[box]) or scores[box] <= last + slack[box] < np.inf:
            continue
        better = best >= scores[box] - slack[box]
        if not (overlaps(corners, int(box), kept)[better] > overlap - near).any():
            return f"box {box} with score {scores[box]:g} is left out, and overlaps none that is as good"
    return ""


JUDGES: Final[dict[type[Operation], Judge]] = {
    Topk: _topk,
    Argmax: _position,
    Argmin: _position,
    Nonmaxsuppression: _boxes,
}
