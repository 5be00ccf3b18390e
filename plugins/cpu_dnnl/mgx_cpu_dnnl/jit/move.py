"""Kernels for pad and resize."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Final

import numpy as np

from mgx_core.errors import No
from mgx_core.ops.pad import Pad
from mgx_core.ops.resize import MOST_SUMMED, Resize
from mgx_core.ops.resize import Axis as ResizeAxis
from mgx_core.ops.scalar import convert
from mgx_core.types.argument import Array
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import dim_of, usual

from .engine import Engine
from .kernel import JitKernel
from .taps import compile_taps
from .taps_plan import Taps

__all__ = ["compile_pad", "resize_passes", "resize_taps"]

MAX_ORDERED: Final = 3  # maximum axes whose orders are compared
LANES: Final = 16
ROW_COST: Final = 6  # overhead of a tap per row, in vector instructions
GATHER_COST: Final = 6  # cost of a gather, in vector instructions
MAX_EXTENT: Final = 1 << 17  # maximum extent of a resized axis, since each element adds arguments to the loop


def compile_pad(op: Pad, x: Shape, out: Shape, engine: Engine) -> JitKernel | No:
    """Returns a pad of fixed widths (`op.pads`) in any mode as a kernel, or `No`; negative widths crop."""
    rank = x.rank
    if len(op.pads) != 2 * rank:
        return No("the pads are an operand, not an attribute")
    taps = {}
    for axis, n in enumerate(x.lens()):
        begin, end = int(op.pads[axis]), int(op.pads[axis + rank])
        if not begin and not end:
            continue
        if op.mode == "constant":
            rows = [[i - begin] if 0 <= i - begin < n else [] for i in range(n + begin + end)]
        else:
            along = Pad(pads=(begin, end), mode=op.mode).compute(np.arange(n))
            rows = [[int(i)] for i in along]
        taps[axis] = Taps(rows)
    value = convert(np.asarray(op.value), x.dtype)
    return compile_taps(x, out, taps, "copy", engine, "pad", value)


def resize_taps(op: Resize, x: Shape, out: Shape, fast: bool = False) -> dict[int, Taps] | No:
    """Returns the taps of each resampled axis, for factors or sizes that are attributes of the op.

    fast: drops taps of weight 0, so that infinities and NaN in such elements do not propagate.
    """
    if op.coordinate_transformation_mode == "tf_crop_and_resize":
        return No("tf_crop_and_resize is not supported")
    lens, wanted = x.lens(), out.lens()
    axes = op.resized(x.rank)
    factors = list(op.scales)
    if not factors:
        if op.keep_aspect_ratio_policy == "stretch":
            factors = [wanted[a] / lens[a] if dim_of(wanted[a]) != dim_of(lens[a]) and lens[a] else 1.0 for a in axes]
        else:
            factors = [op.aspect([lens[a] for a in axes], [int(s) for s in op.sizes])] * len(axes)
    taps: dict[int, Taps] = {}
    for axis, factor in zip(axes, factors, strict=True):
        plan = ResizeAxis(lens[axis], wanted[axis], factor, 0.0, 1.0)
        if plan.size == plan.out and factor == 1.0:
            continue
        if plan.size == 0 or plan.out > MAX_EXTENT:
            return No(f"resizing an axis from {plan.size} to {plan.out} elements is not supported")
        at = op.source(plan)
        if op.mode == "nearest":
            index = np.clip(op.nearest(at, factor), 0, plan.size - 1)
            taps[axis] = Taps([[int(i)] for i in index])
        else:
            taps[axis] = _weighted_taps(*op.taps(at, plan), fast)
    if op.mode != "nearest" and not x.dtype.is_float:
        return No(f"{op.mode} resampling of {x.dtype} is not supported")
    return taps


def resize_passes(taps: Mapping[int, Taps], x: Shape, out: Sequence[int]) -> list[list[int]]:
    """Returns the axes of each pass, in order: all axes at once, or one after the other if that takes fewer operations.

    out: the final extents.  Passes keep the memory order of x's axes.  Without an axis to resample, one pass copies x.
    """
    axes = list(taps)
    if not axes:
        return [[]]
    splits = [[[a] for a in order] for order in permutations(axes)] if 1 < len(axes) <= MAX_ORDERED else []
    return min([[axes], *splits], key=lambda passes: _cost(passes, taps, x, out))


def _cost(passes: Sequence[Sequence[int]], taps: Mapping[int, Taps], x: Shape, out: Sequence[int]) -> float:
    """Returns a rough cost of the passes, in vector instructions."""
    lens, steps = [usual(n) for n in x.lens()], [usual(s) for s in x.strides()]
    memory = sorted((a for a in range(len(lens)) if lens[a] != 1 or a in taps), key=lambda a: -steps[a])
    cost = 0.0
    for axes in passes:
        lens = [usual(out[a]) if a in axes else n for a, n in enumerate(lens)]
        gathers = memory[-1] in axes
        last = max(i for i, a in enumerate(memory) if a in axes)
        inner = lens[memory[-1]] if gathers else math.prod(lens[a] for a in memory[last + 1 :])
        looks = math.prod(lens) / max(inner, 1) * math.prod(max(map(len, taps[a].indices), default=0) for a in axes)
        cost += looks * (ROW_COST + -(-inner // LANES) * (GATHER_COST if gathers else 1))
    return cost


def _weighted_taps(index: Array, weight: Array, fast: bool) -> Taps:
    """Returns the elements [out, taps] and their weights; `fast` drops weights of 0.

    Elements beyond the border are clamped to it; their positive and their negative weights are added separately.
    """
    whole = not fast and index.shape[1] <= MOST_SUMMED
    rows = []
    for found, weights in zip(index.tolist(), weight.tolist(), strict=True):
        row: dict[tuple[int, int], float] = {}
        for i, w in zip(found, weights, strict=True):
            if w or whole:
                key = i, (w > 0) - (w < 0)
                row[key] = row.get(key, 0.0) + w
        rows.append(row)
    return Taps([[i for i, _ in row] for row in rows], [list(row.values()) for row in rows])
