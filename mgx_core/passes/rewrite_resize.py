"""Resizing as repetition: for targets to which a broadcast is nothing."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..dim import Dim
from ..ir.instruction import Instruction
from ..kernel import No
from ..ops.broadcast import Multibroadcast
from ..ops.reshape import Reshape
from ..ops.resize import Resize
from ..rewrite import Builder, Rules

__all__ = ["RESIZES"]

RESIZES: Final = Rules("rewrite-resize")


@RESIZES.on(Resize)
def drop_resize_to_same(i: Instruction, b: Builder) -> Instruction | No | None:
    """nearest resize to the extents that x has -> x."""
    op: Resize = i.op  # type: ignore[assignment]
    same = i.inputs[0].result == i.result and not i.shape.dynamic() and len(i.inputs) == 1
    return i.inputs[0] if same and op.mode == "nearest" and _factors(i) is not None else None


@RESIZES.on(Resize)
def repetition_from_resize(i: Instruction, b: Builder) -> Instruction | No | None:
    """nearest resize by whole factors -> reshape(multibroadcast(reshape(x)))."""
    op: Resize = i.op  # type: ignore[assignment]
    if op.mode != "nearest" or len(i.inputs) > 1:
        return None
    if i.shape.dynamic():
        return No("the extents are not known before running")
    factors = _factors(i)
    if factors is None or all(f == 1 for f in factors):
        return No("not every new element repeats the old one under it by a whole factor")
    dims = i.inputs[0].shape.dims
    inner: list[Dim] = []
    wide: list[Dim] = []
    for d, f in zip(dims, factors, strict=True):
        inner += [d] if f == 1 else [d, 1]
        wide += [d] if f == 1 else [d, f]
    spread = b.add(Multibroadcast(out_lens=tuple(wide)), b.add(Reshape(dims=tuple(inner)), i.inputs[0]))
    return b.add(Reshape(dims=i.shape.dims), spread)


def _factors(i: Instruction) -> list[int] | None:
    """How often each position of each axis is repeated, asked of the op itself on a line of positions."""
    op: Resize = i.op  # type: ignore[assignment]
    before, after = i.inputs[0].shape.lens(), i.shape.lens()
    if 0 in before or any(m % n for n, m in zip(before, after, strict=True)):
        return None
    factors = [m // n for n, m in zip(before, after, strict=True)]
    for axis, (n, f) in enumerate(zip(before, factors, strict=True)):
        line = np.arange(n, dtype=np.float32).reshape([-1 if a == axis else 1 for a in range(len(before))])
        others = [n if a == axis else 1 for a in range(len(before))]
        wanted = tuple(n * f if a == axis else 1 for a in range(len(before)))
        alone = _alone(op, axis, len(before), n * f)
        if line.shape != tuple(others) or alone is None:
            return None
        made = np.asarray(alone.compute(line))
        if made.shape != wanted or not np.array_equal(made.reshape(-1), np.repeat(np.arange(n), f)):
            return None
    return factors


def _alone(op: Resize, axis: int, rank: int, size: int) -> Resize | None:
    """The same resize of one axis only."""
    axes = op.resized(rank)
    if axis not in axes:
        return Resize(sizes=(size,), axes=(axis,), mode="nearest")
    if op.roi or op.keep_aspect_ratio_policy != "stretch":
        return None
    at = axes.index(axis)
    given = {"scales": (op.scales[at],)} if op.scales else {"sizes": (op.sizes[at],)}
    changed: Resize = op.replace(**{"scales": (), "sizes": (), **given, "axes": (axis,)})  # type: ignore[assignment]
    return changed
