"""Resampling: neighbors and weights along each axis are computed here and embedded as tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import No
from mgx_core.ops.resize import Axis, interpolation_type

from .elements import Coordinates, ElementSource, as_unsigned, each_element, each_move, offset_of
from .geometry import nest
from .movement import inner_axis, straight
from .primitives import constant
from .source import NAME, DeviceTraits, KernelSource, Tensor, compute_type, storage_type, to_compute, to_storage

__all__ = ["resize"]

MAX_TAPS = 16  # neighbors along one axis


def _table(kind: str, name: str, numbers: Any) -> str:
    cells = ", ".join(
        str(int(v)) if kind == "i32" else constant(float(v), kind) for v in np.asarray(numbers).reshape(-1)
    )
    return f"static __device__ const {kind} {NAME}_{name}[] = {{{cells}}};\n"


def resize(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    axes = op.resized(len(x.lens))
    dims = [x.lens[a] for a in axes]
    targets = [y.lens[a] for a in axes]
    if op.scales:
        factors = list(op.scales)
    elif op.keep_aspect_ratio_policy == "stretch":
        factors = [t / d if d else 1.0 for t, d in zip(targets, dims, strict=True)]
    else:
        factors = [op.aspect(dims, [int(s) for s in op.sizes])] * len(dims)
    box = [*op.roi] or [0.0] * len(axes) + [1.0] * len(axes)
    cropped = op.coordinate_transformation_mode == "tf_crop_and_resize"
    nearest = op.mode == "nearest"
    kind = compute_type(x.dtype if nearest or x.dtype.is_float else interpolation_type(x.dtype))
    before, taps, outside = "", {}, {}
    for k, axis in enumerate(axes):
        plan = Axis(dims[k], targets[k], factors[k], box[k], box[k + len(axes)])
        whole = not cropped or (plan.start, plan.end) == (0, 1)
        if plan.out == 0 or (plan.size == plan.out and plan.scale == 1.0 and whole):
            continue
        at = op.source(plan)
        if nearest:
            before += _table("i32", f"at{axis}", np.clip(op.nearest(at, plan.scale), 0, plan.size - 1))
            taps[axis] = 1
        else:
            index, weight = op.weights(at, plan.scale)
            beyond = (index < 0) | (index >= plan.size)
            if op.exclude_outside:
                weight = np.where(beyond, 0, weight)
                weight = weight / weight.sum(-1, keepdims=True)
            if index.shape[1] > MAX_TAPS:
                return No(f"at most {MAX_TAPS} neighbors along an axis are supported, got {index.shape[1]}")
            before += _table("i32", f"at{axis}", np.clip(index, 0, plan.size - 1))
            before += _table(kind, f"by{axis}", weight)
            taps[axis] = index.shape[1]
        if cropped:
            outside[axis] = True
            before += _table("i32", f"out{axis}", (at < 0) | (at > plan.size - 1))
    if nearest and not cropped:
        cx, cy = as_unsigned(x), as_unsigned(y)

        def found(at: Coordinates) -> ElementSource:
            place = [f"(u32){NAME}_at{a}[{c}]" if a in taps else c for a, c in enumerate(at)]
            return ElementSource([], f"p0 + ({offset_of(cx, place)})")

        inner = inner_axis(cy)
        width = straight(cx, inner) if inner >= 0 and inner not in taps else 1
        return each_move("resize", [cx], cy, traits, found, width, before)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        heads = [[f"UNROLL for (int t{a} = 0; t{a} < {count}; ++t{a}) {{"] for a, count in taps.items()]
        place = [f"(u32){NAME}_at{a}[{at[a]} * {taps[a]} + t{a}]" if a in taps else at[a] for a in range(len(at))]
        value = f"({kind}){to_compute(f'p0[{offset_of(x, place)}]', x.dtype)}"
        weights = "" if nearest else "".join(f" * {NAME}_by{a}[{at[a]} * {count} + t{a}]" for a, count in taps.items())
        lines = [f"{kind} acc = 0;", *nest(heads, [f"acc += {value}{weights};"])]
        if outside:
            test = " || ".join(f"{NAME}_out{a}[{at[a]}]" for a in outside)
            lines.append(f"if ({test}) acc = {constant(op.extrapolation_value, kind)};")
        result = "acc" if y.dtype.kind == "f" else f"convert<{storage_type(y.dtype)}>(acc)"
        return lines, [to_storage(result, y.dtype)]

    flops = y.elements * int(np.prod([*taps.values(), 2]))
    return each_element("resize", [x], [y], traits, element, before=before, unroll=4, flops=flops)
