"""Ops that pick and place elements as kernels: pad and resize."""

from __future__ import annotations

import numpy as np

from mgx_core.errors import No
from mgx_core.ops.pad import Pad
from mgx_core.ops.resize import Axis as ResizeAxis
from mgx_core.ops.resize import Resize
from mgx_core.ops.scalar import convert
from mgx_core.types.shape import Shape

from .engine import Engine
from .kernel import JitKernel
from .taps import compile_taps
from .taps_plan import Taps

__all__ = ["compile_pad", "compile_resize"]


def compile_pad(op: Pad, x: Shape, out: Shape, engine: Engine) -> JitKernel | No:
    """Borders of fixed widths (`op.pads`) in every mode; widths below 0 crop."""
    rank = x.rank
    if len(op.pads) != 2 * rank:
        return No("pads that are known at run time only")
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


def compile_resize(op: Resize, x: Shape, out: Shape, engine: Engine) -> JitKernel | No:
    """Resampling with the factors or sizes of the op itself."""
    if op.coordinate_transformation_mode == "tf_crop_and_resize":
        return No("crop and resize")
    lens, wanted = x.lens(), out.lens()
    axes = op.resized(x.rank)
    factors = list(op.scales)
    if not factors:
        if op.keep_aspect_ratio_policy == "stretch":
            factors = [wanted[a] / lens[a] if lens[a] else 1.0 for a in axes]
        else:
            factors = [op.aspect([lens[a] for a in axes], [int(s) for s in op.sizes])] * len(axes)
    taps = {}
    for axis, factor in zip(axes, factors, strict=True):
        plan = ResizeAxis(lens[axis], wanted[axis], factor, 0.0, 1.0)
        if plan.size == plan.out and factor == 1.0:
            continue
        if plan.size == 0 or plan.size * plan.out > 1 << 22:
            return No(f"an axis from {plan.size} to {plan.out} elements")
        at = op.source(plan)
        if op.mode == "nearest":
            index = np.clip(op.nearest(at, factor), 0, plan.size - 1)
            taps[axis] = Taps([[int(i)] for i in index])
        else:
            matrix = op.along(np.eye(plan.size), 0, at, plan)
            rows = [np.flatnonzero(row) for row in matrix]
            taps[axis] = Taps(
                [[int(i) for i in row] for row in rows],
                [[float(v) for v in matrix[r, row]] for r, row in enumerate(rows)],
            )
    if op.mode != "nearest" and not x.dtype.is_float:
        return No(f"{op.mode} resampling of {x.dtype}")
    return compile_taps(x, out, taps, "copy" if op.mode == "nearest" else "sum", engine, f"resize {op.mode}")
